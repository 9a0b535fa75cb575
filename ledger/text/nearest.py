"""Pure. The known word that is nearest to a mistyped one."""

from collections.abc import Iterable
from difflib import get_close_matches

WORD_CHARACTERS_MAX = 60
"""Characters that an error repeats of a wrong word; a longer word is not a typing slip."""
SIMILARITY_MIN = 0.5
"""difflib's ratio: `colour` is not offered `hour` (0.6 is its default; words here are short)."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to this one; None if none is similar."""
    found = get_close_matches(word[:WORD_CHARACTERS_MAX].lower(), list(known), 1, SIMILARITY_MIN)
    return found[0] if found else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'model'?`, or an empty text: the end of an error about a word."""
    found = nearest(word, known)
    return f"; did you mean {found!r}?" if found else ""
