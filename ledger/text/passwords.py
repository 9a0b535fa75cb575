"""Pure. Texts without the passwords that URLs and database drivers' errors repeat.

Error lines, logs, `/readyz` and `config show` repeat an operator's own URL. Each of these texts
passes `without_passwords`; text that cannot be parsed as a URL passes `mistyped_url`, and the URL
of an endpoint `without_credentials`.
"""

import re
from urllib.parse import quote

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
