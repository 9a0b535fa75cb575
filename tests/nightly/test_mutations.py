"""A million mutated bodies: no exception, no changed byte, no more output than allowed; and a million
random cuts of recorded answers, without a difference.

pytest -m nightly tests/nightly/test_mutations.py
TOKENTEE_MUTATIONS=20000 TOKENTEE_SEED=7 pytest -m nightly tests/nightly/test_mutations.py
"""

import os
import random
from functools import partial

import pytest

from tests.addon.feeding import pieces
from tests.addon.test_corpus import CORPUS, exchanges, metered, picture
from tests.nightly.mutations import BODY_BYTES_MAX, Check, check_all, mutated, seeds, try_many

MUTATIONS = int(os.environ.get("TOKENTEE_MUTATIONS", "1000000"))

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(14_400)]


def test_no_mutation_raises_or_changes_a_byte(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = seeds()

    def make(rng: random.Random) -> tuple[bytes, Check]:
        body = mutated(rng, bodies)[: 2 * BODY_BYTES_MAX]
        return body, partial(check_all, rng, body)

    said = try_many("bodies", MUTATIONS, make)
    with capsys.disabled():
        print(f"\n{said}")


CUTS = 1_000_000


@pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"the recorded corpus is not beside the project ({CORPUS})"
)
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
