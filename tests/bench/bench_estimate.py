"""How far off the estimate of an aborted stream's output is, on streams whose figures are known.

    pytest -m bench tests/bench/bench_estimate.py -s

Each recorded stream that reported its output is cut after 25, 50, 75 and 100 % of the frames that
carry text, and the estimate is held against that share of what the provider billed for the whole.
Hidden reasoning cannot be estimated; short streams are mostly tool calls, of which little passes.
"""

import math
from collections.abc import Iterable
from typing import Any

import pytest

from addon.framing.document import NDJSON
from addon.framing.sse import SSE
from addon.metering.estimate import text_bytes_of
from tests.addon.feeding import Answer
from tests.addon.test_corpus import CORPUS, exchanges, expectations, metered

SHARES = (0.25, 0.5, 0.75, 1.0)
GROUPS = ((20, False), (200, False), (20, True))
"""From how many tokens on, and whether some of them are hidden reasoning."""

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(
        not CORPUS.is_dir(), reason=f"the recorded corpus is not beside the project ({CORPUS})"
    ),
]


def cut_after(row: dict[str, Any], meter: Answer, share: float) -> list[bytes]:
    """The blocks up to such a share of those with text; [] if there is none with any."""
    framing = meter.framing
    assert isinstance(framing, SSE | NDJSON)
    fresh = type(framing)()
    blocks = fresh.split(fresh.feed(row["body"]) + fresh.end())
    marks = meter._dialect.text_marks
    with_text = [at for at, block in enumerate(blocks) if text_bytes_of(block, marks)]
    return blocks[: with_text[math.ceil(len(with_text) * share) - 1] + 1] if with_text else []


def errors(share: float, *, reasoning: bool, tokens_min: int) -> Iterable[float]:
    for row in exchanges():
        expected = expectations()[row["name"]]
        output, hidden = expected["output_tokens_total"], expected["output_reasoning"]
        if not expected["streamed"] or (output or 0) < tokens_min or bool(hidden) != reasoning:
            continue
        _, whole = metered(row)
        if not isinstance(whole.framing, SSE | NDJSON):
            continue
        blocks = cut_after(row, whole, share)
        estimated = metered(row, blocks)[1].estimated_output_tokens()
        if blocks and estimated is not None:
            yield abs(estimated - output * share) / (output * share)


def at(errors: list[float], part: float) -> float:
    return sorted(errors)[min(len(errors) - 1, int(len(errors) * part))]


def test_how_far_off_estimates_are(capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    for tokens_min, reasoning in GROUPS:
        name = f"{tokens_min} tokens up, {'with' if reasoning else 'no'} reasoning"
        for share in SHARES:
            off = list(errors(share, reasoning=reasoning, tokens_min=tokens_min))
            median, p90 = at(off, 0.5), at(off, 0.9)
            lines.append(f"{name:32}{share:>6.0%}{len(off):>9}{median:>9.0%}{p90:>8.0%}")
    with capsys.disabled():
        print(f"\n\n{'streams':32}{'cut':>6}{'number':>9}{'median':>9}{'p90':>8}")
        print("\n".join(lines))
    assert len(lines) == len(GROUPS) * len(SHARES)
