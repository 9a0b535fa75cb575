"""Damaged files of every kind: no reader raises anything but one line that refuses the file.

pytest -m "soak or not soak" tests/soak/test_readers.py
TOKENTEE_MUTATIONS=100000 TOKENTEE_SEED=7 pytest -m soak tests/soak/test_readers.py
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.soak.mutations import TOKENS
from tests.soak.readers import READERS, check_reader, examples

MUTATIONS = int(os.environ.get("TOKENTEE_MUTATIONS", "5000"))
"""Of each kind of file."""
SEED = int(os.environ.get("TOKENTEE_SEED", "1"))
CPU_SECONDS_MAX = 2.0
"""For one file of a few KB."""
WORDS = (
    *TOKENS,
    b"1e999999999", b"-0.0", b"NaN", b"Infinity", b"9999-12-31", b"0001-01-01T00:00:00Z", b"[[",
    b"]]", b"=", b"'''", b'"""', b"\\ud800", b"\\u0000", b"true", b"<", b"%", b"#", b";", b"\t",
    b"1970-01-01", b"99:99", b"://", b"@", b"{}", b"[]", b"12:", b"9" * 400,
)  # fmt: skip


def damaged(rng: random.Random, bodies: tuple[bytes, ...]) -> bytes:
    """One of some files, changed in one to six places."""
    body = bytearray(rng.choice(bodies))
    for _ in range(rng.randrange(1, 7)):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(7):
            case 0:
                body[at:at] = rng.choice(WORDS) * rng.choice((1, 1, 1, 40))
            case 1:
                del body[at : at + rng.randrange(1, 60)]
            case 2:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 3:
                start = rng.randrange(len(body) + 1)
                body[at:at] = body[start : start + rng.randrange(200)]
            case 4 | 5:
                _replace_value(rng, body, at)
            case _:
                body[at:] = b""
    return bytes(body)


def _replace_value(rng: random.Random, body: bytearray, at: int) -> None:
    """Put another word for the next word or number."""
    while at < len(body) and not chr(body[at]).isalnum():
        at += 1
    end = at
    while (end < len(body) and chr(body[end]) in ".-+_:") or (
        end < len(body) and chr(body[end]).isalnum()
    ):
        end += 1
    body[at:end] = rng.choice(WORDS)


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
    longest = 0.0
    for number in range(MUTATIONS):
        data = damaged(random.Random(SEED * 1_000_000_007 + number), examples()[kind])
        began = time.thread_time()
        try:
            check_reader(kind, data, tmp_path)
        except Exception as failure:
            failure.add_note(f"{kind}, seed {SEED}, mutation {number}: {data!r}")
            raise
        took = time.thread_time() - began
        longest = max(longest, took)
        assert took < CPU_SECONDS_MAX, f"{kind}, seed {SEED}, mutation {number}: {took:.1f} s"
    with capsys.disabled():
        print(f"\n{kind}: {MUTATIONS} files, seed {SEED}: the longest took {1000 * longest:.0f} ms")
