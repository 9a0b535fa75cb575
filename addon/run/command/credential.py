"""Pure. The credential that a request to a proxy of ours shows: Basic, in Proxy-Authorization."""

import binascii
import hmac
import re
from base64 import b64decode

USER = "tokentee"
_CREDENTIAL = re.compile(rb"^proxy-authorization:[ \t]*basic[ \t]+(\S+)[ \t]*\r?$", re.I | re.M)


def shows(head: bytes, secret: str) -> bool:
    """Whether the head of a request shows this secret."""
    found = _CREDENTIAL.search(head)
    if found is None:
        return False
    try:
        given = b64decode(found[1], validate=True)
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(given, f"{USER}:{secret}".encode())
