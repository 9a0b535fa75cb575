"""Damaged files of every kind: no reader raises anything but one line that refuses the file.

pytest -m "soak or not soak" tests/soak/test_readers.py
TOKENTEE_MUTATIONS=100000 TOKENTEE_SEED=7 pytest -m soak tests/soak/test_readers.py
"""

import os
import random
from functools import partial
from pathlib import Path

import pytest

from tests.soak.mutations import TOKENS, Check, mutated, try_many
from tests.soak.readers import READERS, check_reader, examples

MUTATIONS = int(os.environ.get("TOKENTEE_MUTATIONS", "5000"))
"""Of each kind of file."""
WORDS = (
    *TOKENS,
    b"1e999999999", b"-0.0", b"NaN", b"Infinity", b"9999-12-31", b"0001-01-01T00:00:00Z", b"[[",
    b"]]", b"=", b"'''", b'"""', b"\\ud800", b"\\u0000", b"true", b"<", b"%", b"#", b";", b"\t",
    b"1970-01-01", b"99:99", b"://", b"@", b"{}", b"[]", b"12:", b"9" * 400,
)  # fmt: skip


@pytest.mark.parametrize("kind", sorted(READERS))
def test_examples_are_read(kind: str, tmp_path: Path) -> None:
    for example in examples()[kind]:
        check_reader(kind, example, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("kind", sorted(READERS))
def test_no_damaged_file_raises(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(rng: random.Random) -> tuple[bytes, Check]:
        data = mutated(rng, examples()[kind], WORDS)
        return data, partial(check_reader, kind, data, tmp_path)

    said = try_many(kind, MUTATIONS, make)
    with capsys.disabled():
        print(f"\n{said}")
