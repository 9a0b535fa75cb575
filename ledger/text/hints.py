"""Pure. What an error suggests: the nearest known word, or the command to type."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from types import MappingProxyType

from ledger.text.printable import without_passwords

WORD_CHARACTERS_MAX = 60
"""Characters that an error repeats of a wrong word; a longer word is not a typing slip."""
NO_WORDS: Mapping[str, str] = MappingProxyType({})
SIMILARITY_MIN = 0.5
"""difflib's ratio: `colour` is not offered `hour` (0.6 is its default; words here are short)."""
ASK_A_LEDGER = (
    *("run", "replay", "rebuild", "import", "verify"),
    *("report", "requests", "show", "top", "statusline", "serve", "limits", "context", "cache"),
    *("reprice", "prices update", "export", "reconcile", "names suggest"),
    *("budget check", "budget alert", "budget"),
    *("db upgrade", "db current", "db check", "db describe", "db drop", "db forget-error-texts"),
)
"""Commands with the option `--ledger`."""
OTHERS = ("demo", "path", "prices", "names", "db", "sync", "--help", "--version")
_COMMAND = re.compile(rf"\btokentee (?=(?:{'|'.join((*ASK_A_LEDGER, *OTHERS))})(?![\w-]))")
"""A command in a text; not the product's name in a sentence."""
_OF_A_LEDGER = re.compile(rf"\btokentee (?:{'|'.join(ASK_A_LEDGER)})(?![\w-]| --ledger)")


def as_typed(text: str, environment: Mapping[str, str], ledger: str | None = None) -> str:
    """A text in which each command `tokentee …` is one that runs where it is read: it names the
    ledger, if one was named, and in a checkout it begins with `uv run`."""
    if ledger is not None:
        option = f" --ledger {shlex.quote(without_passwords(ledger))}"
        text = _OF_A_LEDGER.sub(lambda found: found[0] + option, text)
    if "UV_RUN_RECURSION_DEPTH" not in environment:  # uv sets it for what it runs
        return text
    return _COMMAND.sub("uv run tokentee ", text)


def named_ledger(words: Sequence[str]) -> str | None:
    """The ledger that a command line names with `--ledger`; the last counts. Not one of the command
    behind `--`."""
    ours = words[: words.index("--")] if "--" in words else words
    values = [word.partition("=")[2] for word in ours if word.startswith("--ledger=")]
    values += [value for word, value in pairwise(ours) if word == "--ledger"]
    return values[-1] if values else None


def suggestion(word: str, known: Iterable[str], meant: Mapping[str, str] = NO_WORDS) -> str:
    """`; did you mean 'model'?`, or an empty text if none is similar: the end of an error about a
    word. `meant`: words of other tools -> ours."""
    if (ours := meant.get(word.lower())) is not None:
        return f"; did you mean {ours!r}?"
    found = get_close_matches(word[:WORD_CHARACTERS_MAX].lower(), list(known), 1, SIMILARITY_MIN)
    return f"; did you mean {found[0]!r}?" if found else ""
