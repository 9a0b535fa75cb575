#!/usr/bin/env bash
# Guess: five JSON readers for Python that keep integers apart from floats agree on a count of
#   2^64, or refuse it.
# Seen: `json`, msgspec, jiter and pydantic-core give the integer. orjson gives the float
#   1.8446744073709552e+19 without an error, and a negative one beyond 64 bits likewise, while 2^64 - 1
#   is still an integer: the type of a count depends on its size.
# Why it matters to a meter: a hostile or broken `usage` decides which type the meter calculates with.
#   A check such as `isinstance(value, int)` drops the figure, and one that allows floats books a
#   rounded one as exact; the two readers of one body then disagree.
# Versions: orjson 3.13.0, msgspec 0.22.0, jiter 0.19.0, pydantic-core 2.50.5; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
    orjson==3.13.0 msgspec==0.22.0 jiter==0.19.0 pydantic-core==2.50.5
"$folder/venv/bin/python" - <<'PYTHON'
import json

import jiter
import msgspec
import orjson
import pydantic_core

readers = {
    "json": json.loads,
    "msgspec": msgspec.json.decode,
    "jiter": jiter.from_json,
    "pydantic-core": pydantic_core.from_json,
    "orjson": orjson.loads,
}
counts = (2**64 - 1, 2**64, -(2**63), -(2**63) - 1)
kinds = {}
for name, read in readers.items():
    values = [read(b'{"prompt_tokens": %d}' % count)["prompt_tokens"] for count in counts]
    print(f"{name:14}", *(f"{value!r}" for value in values))
    kinds[name] = "".join(type(value).__name__[0] for value in values)
assert kinds == {**dict.fromkeys(readers, "iiii"), "orjson": "ifif"}, kinds
PYTHON
