"""Lengths and digests of what passed."""

import hashlib

import pytest

from addon.metering.digests import HASH_BYTES, Digests, hash_into


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 1, HASH_BYTES, HASH_BYTES + 1, 3 * HASH_BYTES])
def test_bytes_hashed_in_pieces_have_the_digest_of_the_whole(size: int):
    data = bytes(at % 251 for at in range(size))
    digest = hashlib.sha256()
    hash_into(digest, data)
    assert digest.hexdigest() == digest_of(data)


def test_an_answer_that_is_not_edited_has_one_digest():
    digests = Digests(edits=False, decodes=False)
    digests.add_upstream(b"one ")
    digests.add_upstream(b"two")
    assert digests.upstream_bytes == 7
    assert digests.upstream == digest_of(b"one two")
    assert digests.client is None
    assert digests.removed is None


def test_an_edited_answer_has_three_digests():
    digests = Digests(edits=True, decodes=False)
    digests.add_upstream(b"word usage word")
    assert digests.removed is None
    digests.add_edited(b"word", b" usage")
    digests.add_edited(b" word", b"")
    assert digests.removed_bytes == 6
    assert digests.upstream == digest_of(b"word usage word")
    assert digests.client == digest_of(b"word word")
    assert digests.removed == digest_of(b" usage")


def test_the_digest_of_a_decoded_answer_is_of_the_encoded_bytes():
    digests = Digests(edits=True, decodes=True)
    digests.add_wire(b"encoded")
    digests.add_upstream(b"decoded text")
    digests.add_edited(b"decoded text", b"")
    assert (digests.wire_bytes, digests.upstream_bytes) == (7, 12)
    assert digests.upstream == digest_of(b"encoded")
    assert digests.client == digest_of(b"decoded text")
