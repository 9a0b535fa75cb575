"""Pure. The one function for text that is shown: to a terminal, a log, CSV or Markdown.

Models, tags, ids, error messages and paths come from clients and upstreams. Shown as they are,
they could move the cursor, set the window's title, hide, or turn the direction of what stands
beside them. `printable` replaces every such character by its escape. JSON output needs no such
step: it is ASCII, with everything else escaped.
"""

import re
from unicodedata import category

_SUSPECT = re.compile(r"[^\x20-\x7e]")
"""Everything outside of printable ASCII is looked at; few texts have any of it."""

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Letters and marks that show nothing (Unicode's Default_Ignorable_Code_Point, as far as Python
calls them printable, and the empty Braille cell): fillers and variation selectors."""

FORMULA_STARTS = "=+@\uff1d\uff0b\uff0d\uff20-"
"""What makes a spreadsheet take a text for a formula (OWASP, CSV injection), full-width too; tabs
and line ends, which do so as well, are escaped before."""


def printable(text: str) -> str:
    """The text with everything that is not a visible character or a space shown as an escape.

    Controls (ESC among them), format characters (bidi controls, zero-width ones, soft hyphens,
    tags), surrogates, private and unassigned code points, line and paragraph separators.
    """
    if text.isascii() and text.isprintable():
        return text
    return _SUSPECT.sub(_escaped, text)


def spreadsheet_text(text: str) -> str:
    """Printable, and no formula for a spreadsheet that opens the file."""
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
