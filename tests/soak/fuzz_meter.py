"""A coverage-guided fuzz target for the meter; atheris is fetched for it, not depended on.

    uv run --with atheris python -m tests.soak.fuzz_meter seeds DIRECTORY
    uv run --with atheris python -m tests.soak.fuzz_meter DIRECTORY -max_total_time=600

The first command writes the recorded corpus as seeds. An input is: one byte for the dialect, one
for the content type, one for the size of the chunks, then the body. Nothing may raise, and the chunks
may make no difference to what is read. Only an estimate of broken text may hang on them, and
whether an id is noticed to change where another frame of the run repeats the old one twice.
"""

import sys
from pathlib import Path

import atheris  # only there when it is asked for

with atheris.instrument_imports(include=["addon"]):
    from addon.dialects import routes
    from addon.metering.answers.meter import Meter
from tests.addon.feeding import pieces
from tests.addon.test_corpus import exchanges, metered, picture

DIALECTS = sorted(routes.DIALECTS)
CONTENT_TYPES = (
    *("text/event-stream", "application/x-ndjson", "application/json", "audio/mpeg", ""),
    "application/vnd.amazon.eventstream",
)
"""With the first bytes they choose each framing."""


def fuzz(data: bytes) -> None:
    if len(data) < 3:
        return
    dialect, content_type, size, body = data[0], data[1], data[2], data[3:]

    def read(chunks: list[bytes]) -> Meter:
        meter = Meter(
            routes.DIALECTS[DIALECTS[dialect % len(DIALECTS)]],
            content_type=CONTENT_TYPES[content_type % len(CONTENT_TYPES)],
        )
        for chunk in chunks:
            meter.feed(chunk)
        meter.end()
        meter.facts.id_unstable = False
        return meter

    *whole, _estimate = picture(read([body] if body else []))
    *cut, _estimate = picture(read(pieces(body, range(0, len(body), size + 1))))
    assert cut == whole


def write_seeds(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in exchanges():
        route, _ = metered(row)
        head = bytes([DIALECTS.index(route.dialect.name), 0, 100])
        (folder / row["name"]).write_bytes(head + row["body"][:20_000])


if __name__ == "__main__":
    if sys.argv[1:2] == ["seeds"]:
        write_seeds(Path(sys.argv[2]))
    else:
        atheris.Setup(sys.argv, fuzz)
        atheris.Fuzz()
