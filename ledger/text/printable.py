"""Pure. The one function for text that is displayed: in a terminal, a log, CSV or Markdown.

Models, tags, ids, error messages and paths come from clients and upstreams. Unescaped, they could
move the cursor, set the window's title, hide themselves, or reverse the direction of the text
beside them. `printable` replaces every such character by its escape. JSON output needs no such
step: it is ASCII, with everything else escaped.
"""

import re
from unicodedata import category

_SUSPECT = re.compile(r"[^\x20-\x7e]")
"""Characters outside of printable ASCII are checked; few texts have any."""

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Invisible letters and marks (Unicode's Default_Ignorable_Code_Point, as far as Python calls them
printable, and the empty Braille cell): fillers and variation selectors."""

SHORT_LENGTH_MAX = 48
"""Characters of a name beside others; no model's name is longer."""
FORMULA_STARTS = "=+@\uff1d\uff0b\uff0d\uff20-"
"""First characters that make a spreadsheet read a text as a formula (OWASP, CSV injection), also in
full width; tabs and line ends have the same effect and are escaped before."""


def printable(text: str) -> str:
    """The text with an escape for everything that is not a visible character or a space.

    Controls (ESC among them), format characters (bidi controls, zero-width ones, soft hyphens,
    tags), surrogates, private and unassigned code points, line and paragraph separators.
    """
    if text.isascii() and text.isprintable():
        return text
    return _SUSPECT.sub(_escaped, text)


def short_text(text: str) -> str:
    """Printable text that fits a line of a page: its first characters."""
    shown = printable(text)
    return shown if len(shown) <= SHORT_LENGTH_MAX else f"{shown[: SHORT_LENGTH_MAX - 1]}…"


def spreadsheet_text(text: str) -> str:
    """Printable text that a spreadsheet does not read as a formula."""
    text = printable(text)
    return f"'{text}" if text.lstrip().startswith(tuple(FORMULA_STARTS)) else text


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    is_shown = character.isprintable() or category(character) == "Zs"
    if is_shown and not _INVISIBLE.match(character):
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
