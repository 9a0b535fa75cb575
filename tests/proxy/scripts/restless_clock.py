"""A wall clock that is set anew each time it is read, by less than mitmproxy's `tcp_timeout`, which it counts too."""

import itertools
import time

_real, _ahead = time.time, itertools.cycle((0.0, 250.0, -250.0, 200.0))
time.time = lambda: _real() + next(_ahead)
