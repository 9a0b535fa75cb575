"""A million random cuts of recorded answers, without a difference.

pytest -m soak tests/soak/test_cuts.py
"""

import random

import pytest

from tests.addon.feeding import pieces
from tests.addon.test_corpus import CORPUS, exchanges, metered, picture

CUTS = 1_000_000

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(
        not CORPUS.is_dir(), reason=f"the recorded corpus is not beside the project ({CORPUS})"
    ),
]


def test_a_million_cuts_mean_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(4)
    cut = 0
    rounds = 0
    rows = [row for row in exchanges() if len(row["body"]) > 1]
    wholes = {row["name"]: picture(metered(row)[1]) for row in rows}
    while cut < CUTS:
        rounds += 1
        for row in rows:
            body = row["body"]
            # Few cuts and many: chunks of a network, and chunks of single bytes in between.
            chunks = pieces(
                body, (rng.randrange(1, len(body)) for _ in range(2 ** rng.randrange(8)))
            )
            cut += len(chunks) - 1
            assert picture(metered(row, chunks)[1]) == wholes[row["name"]], row["name"]
    with capsys.disabled():
        print(f"\n{cut} cuts of {len(rows)} answers in {rounds} rounds, no difference")
