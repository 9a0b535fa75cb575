"""The last chunk of a body under a content-length waits, and nothing else does."""

from addon.proxy.held_end import HeldEnd


def test_only_the_last_chunk_is_held():
    passed = HeldEnd(lambda data: data or [], length=10)
    assert passed(b"12345") == b"12345"
    assert passed(b"67890") == []
    assert passed(b"") == []
    assert passed.release() == b"67890"
    assert passed.release() == b""


def test_a_body_that_is_cut_is_not_held():
    passed = HeldEnd(lambda data: data or [], length=10)
    assert passed(b"123456789") == b"123456789"
    assert passed(b"") == []
    assert passed.release() == b""


def test_bytes_beyond_the_length_are_not_lost():
    passed = HeldEnd(lambda data: data or [], length=3)
    assert passed(b"123") == []
    assert passed(b"45") == []
    assert passed.release() == b"12345"
