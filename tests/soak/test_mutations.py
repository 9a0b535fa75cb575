"""A million mutated bodies: no exception, no changed byte, no more output than allowed.

pytest -m soak tests/soak/test_mutations.py
TOKENTEE_MUTATIONS=20000 TOKENTEE_SEED=7 pytest -m soak tests/soak/test_mutations.py
"""

import os
import random
from functools import partial

import pytest

from tests.soak.mutations import BODY_BYTES_MAX, Check, check_all, mutated, seeds, try_many

MUTATIONS = int(os.environ.get("TOKENTEE_MUTATIONS", "1000000"))

pytestmark = [pytest.mark.soak, pytest.mark.timeout(14_400)]


def test_no_mutation_raises_or_changes_a_byte(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = seeds()

    def make(rng: random.Random) -> tuple[bytes, Check]:
        body = mutated(rng, bodies)[: 2 * BODY_BYTES_MAX]
        return body, partial(check_all, rng, body)

    said = try_many("bodies", MUTATIONS, make)
    with capsys.disabled():
        print(f"\n{said}")
