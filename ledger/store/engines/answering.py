"""Database. PostgreSQL connections that give up on a server that does not answer.

The server enforces PostgreSQL's own limits (`statement_timeout`, `lock_timeout`). If a load
balancer or a tunnel goes silent but still acknowledges packets, neither an answer nor an error ever
comes. So the client enforces a limit, too, for each answer of the server.
"""

import time
from collections.abc import Generator
from typing import Any

import psycopg

from ledger.text.figures import seconds_text


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed if an answer takes longer than `answer_seconds_max`."""

    answer_seconds_max: float

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        """Wait for the server, up to the limit."""
        deadline = time.monotonic() + self.answer_seconds_max
        return super().wait(self._bounded(gen, deadline), *arguments, **options)

    def _bounded(self, gen: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
        # The generator waits until the socket is ready; it receives 0 if an interval passed first.
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"the server did not answer within {seconds_text(self.answer_seconds_max)}"
                    )
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
