"""Pure. Text that is displayed: what it may hold, and what it must not.

Models, tags, ids, error messages and paths come from clients and upstreams. Unescaped, they could
move the cursor, set the window's title, hide themselves, or reverse the direction of the text
beside them. `printable` replaces every such character by its escape. JSON output needs no such
step: it is ASCII, with everything else escaped.

Error lines, logs, `/readyz` and `config show` repeat an operator's own URL. Each of these texts
passes `without_passwords`; text that cannot be parsed as a URL passes `mistyped_url`, and the URL
of an endpoint `without_credentials`.
"""

import re
from unicodedata import category
from urllib.parse import quote

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

SECRET_LENGTH_MIN = 4
"""A shorter password may be part of any word, so it is redacted only at its place in a URL."""

_USERINFO = re.compile(r"(//[^/?#:@\s]*:)\S*@")
"""`//user:password@` in a text: up to the last @, because a password may contain one."""
_USER_WITH_SLASH = re.compile(r"(://)[^/?#:@\s]*/\S*@")
"""`//user/password@host/database`: a slash typed instead of the colon."""
_PASSWORD = re.compile(
    r"((?:password|passwd|pwd|passfile|sslpassword)\s*=\s*)"
    r"""(?:'(?:[^'\\]|\\.)*'?|"[^"]*"?|[^&\s'"]+)""",
    re.IGNORECASE,
)
"""In a query, and in libpq's `key=value` strings, where a value may be quoted."""
_MISTYPED = re.compile(r"^(\s*+(?:[\w+.-]*+:?/+)?+)([^:@]*):(?:.*(@)|.*)", re.DOTALL)
"""The beginning of a mistyped URL: `postgres:/u:p w@h`, `u:p@h`. Without an @ the end of the
password is unknown, so everything after the colon is redacted: `//u:p#h/d`."""

_CREDENTIALS = re.compile(r"^(\s*+(?:[\w+.-]*+:)?+/*+).*@", re.DOTALL)
"""Everything before the @ of a URL: it may be a name, a password or a token."""


def printable(text: str) -> str:
    """The text with an escape for everything that is not a visible character or a space.

    Controls (ESC among them), format characters (bidi controls, zero-width ones, soft hyphens,
    tags), surrogates, private and unassigned code points, line and paragraph separators.
    """
    if not isinstance(text, str):  # a column of a foreign row
        text = str(text)
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


def without_passwords(text: str, *known: str | None) -> str:
    """A text that may hold a URL, with possible passwords redacted.

    `known`: passwords that are redacted anywhere in the text, as a driver's error may quote them.
    """
    for password in known:
        if password is not None and len(password) >= SECRET_LENGTH_MIN:
            text = text.replace(password, "***").replace(quote(password, safe=""), "***")
    text = _USERINFO.sub(r"\1***@", text)
    text = _USER_WITH_SLASH.sub(r"\1***@", text)
    return _PASSWORD.sub(r"\1***", text)


def mistyped_url(url: str) -> str:
    """A text that was given as a URL, without its password, even if it is mistyped."""
    return without_passwords(_MISTYPED.sub(r"\1\2:***\3", url))


def without_credentials(url: str) -> str:
    """The URL of a service without user name and password."""
    return without_passwords(_CREDENTIALS.sub(r"\1***@", url))
