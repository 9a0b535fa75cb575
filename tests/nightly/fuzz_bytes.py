"""A coverage-guided fuzz target for framing, stripping, decoding, requests and metering.

    uv run --with atheris python -m tests.nightly.fuzz_bytes seeds DIRECTORY
    uv run --with atheris python -m tests.nightly.fuzz_bytes DIRECTORY -max_total_time=900

atheris is fetched for it, not depended on. The first bytes of an input seed the choices (dialect,
cuts, encoding), the rest is the body.
"""

import random
import sys
from pathlib import Path

import atheris  # only there when it is asked for

with atheris.instrument_imports(include=["addon"]):
    from tests.nightly.mutations import check_all, seeds


def fuzz(data: bytes) -> None:
    check_all(random.Random(data[:4]), data[4:])


def write_seeds(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, body in enumerate(seeds()):
        (folder / f"{number:05}").write_bytes(b"seed" + body)


if __name__ == "__main__":
    if sys.argv[1:2] == ["seeds"]:
        write_seeds(Path(sys.argv[2]))
    else:
        atheris.Setup(sys.argv, fuzz)
        atheris.Fuzz()
