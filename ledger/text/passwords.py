"""Pure. Texts without the passwords that URLs and database drivers' errors repeat.

An operator's own URL comes back in error lines, logs, `/readyz` and `config show`. Each of these
texts passes `without_passwords`; what cannot be parsed as a URL passes `mistyped_url`, and the URL
of an endpoint `without_credentials`.
"""

import re
from urllib.parse import quote

SECRET_LENGTH_MIN = 4
"""A shorter password may stand in any word: only its place in a URL tells it."""

_USERINFO = re.compile(r"(//[^/?#:@\s]*:)\S*@")
"""`//user:password@` in a text: up to the last @, which a password may hold, too."""
_USER_WITH_SLASH = re.compile(r"(://)[^/?#:@\s]*/\S*@")
"""`//user/password@host/database`: a slash typed for the colon."""
_PASSWORD = re.compile(
    r"((?:password|passwd|pwd|passfile|sslpassword)\s*=\s*)"
    r"""(?:'(?:[^'\\]|\\.)*'?|"[^"]*"?|[^&\s'"]+)""",
    re.IGNORECASE,
)
"""In a query, and in libpq's `key=value` strings, where a value may be quoted."""
_MISTYPED = re.compile(r"^(\s*+(?:[\w+.-]*+:?/+)?+)([^:@]*):(?:.*(@)|.*)", re.DOTALL)
"""The beginning of what was meant as a URL: `postgres:/u:p w@h`, `u:p@h`. Without an @ nobody can
tell where a password ends, so all that follows the colon is hidden: `//u:p#h/d`."""

_CREDENTIALS = re.compile(r"^(\s*(?:[\w+.-]*:)?/*).*@", re.DOTALL)
"""Whatever stands before the @ of a URL, and may be a name, a password or a token."""


def without_passwords(text: str, *known: str | None) -> str:
    """A text that may hold a URL, without what may be a password in it.

    `known`: passwords that are removed wherever they stand, as a driver's error may quote them.
    """
    for password in known:
        if password is not None and len(password) >= SECRET_LENGTH_MIN:
            text = text.replace(password, "***").replace(quote(password, safe=""), "***")
    text = _USERINFO.sub(r"\1***@", text)
    text = _USER_WITH_SLASH.sub(r"\1***@", text)
    return _PASSWORD.sub(r"\1***", text)


def mistyped_url(url: str) -> str:
    """What was meant as a URL, however mistyped, without its password."""
    return without_passwords(_MISTYPED.sub(r"\1\2:***\3", url))


def without_credentials(url: str) -> str:
    """The URL of a service, which needs no name and no password to be recognised."""
    return without_passwords(_CREDENTIALS.sub(r"\1***@", url))
