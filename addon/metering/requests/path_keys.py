"""Pure. Credentials in paths: webhook-like URLs carry a key as a segment.

Each segment is checked once, and no pattern can backtrack, so the work is linear.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from addon.metering.requests.redaction import REDACTED

# A word of a path is a key if it is long and looks random, or begins as keys do.
_KEY_BEGINS = re.compile(
    r"(?i)(?:sk|pk|rk|ak|xai|gsk|hf|api|key|tok|ghp|gho|ghs|ghu|glpat|pat|aiza|ya29|eyj|akia|asia|"
    r"nvapi|r8|pplx|fw|csk|tgp|vck|jina|pa)[-_.]?"
)
_WORD_LENGTH_MIN = 20
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SEPARATOR = re.compile(r"([/:])")


def redacted_path(path: str) -> str:
    """A path without its query, with each segment that looks like a key replaced."""
    pieces = _SEPARATOR.split(path)
    return "".join(
        REDACTED if at % 2 == 0 and looks_like_key(piece) else piece
        for at, piece in enumerate(pieces)
    )


def looks_like_key(word: str) -> bool:
    """Whether a segment of a path may be a credential.

    Model names and resource ids stay: they are short, UUIDs, or made of words and digits that are
    joined. A key is one long run of letters and digits, or has a prefix that only keys have.
    """
    word = unquote(word)
    if len(word) < _WORD_LENGTH_MIN or _UUID.fullmatch(word):
        return False
    runs = re.split(r"[^A-Za-z0-9]+", word)
    longest = max(runs, key=len)
    if _KEY_BEGINS.match(word) and (len(longest) >= 16 or len(runs) > 5):
        return True
    return len(longest) >= _WORD_LENGTH_MIN and _is_mixed(longest)


def _is_mixed(run: str) -> bool:
    """Whether letters and digits are mixed, as in random text."""
    digits = sum(char.isdigit() for char in run)
    return 0 < digits < len(run) and (digits >= 3 or run.lower() != run != run.upper())
