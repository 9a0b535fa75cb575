"""A million mutated bodies: no exception, no changed byte, no more output than allowed.

pytest -m soak tests/soak/test_mutations.py
TOKENTEE_MUTATIONS=20000 TOKENTEE_SEED=7 pytest -m soak tests/soak/test_mutations.py
"""

import os
import random
import time

import pytest

from tests.soak.mutations import check_all, mutated, seeds

MUTATIONS = int(os.environ.get("TOKENTEE_MUTATIONS", "1000000"))
SEED = int(os.environ.get("TOKENTEE_SEED", "1"))
CPU_SECONDS_MAX = 2.0
"""For all steps on one body of at most 8 KB: they take milliseconds."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(14_400)]


def test_no_mutation_raises_or_changes_a_byte(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = seeds()
    longest = 0.0
    for number in range(MUTATIONS):
        rng = random.Random(SEED * 1_000_000_007 + number)
        body = mutated(rng, bodies)
        began = time.thread_time()
        try:
            check_all(rng, body)
        except Exception as failure:
            failure.add_note(f"seed {SEED}, mutation {number}, body {body!r}")
            raise
        took = time.thread_time() - began
        longest = max(longest, took)
        assert took < CPU_SECONDS_MAX, f"seed {SEED}, mutation {number}: {took:.1f} s, {body!r}"
    with capsys.disabled():
        print(f"\n{MUTATIONS} mutations, seed {SEED}: the longest took {1000 * longest:.0f} ms")
