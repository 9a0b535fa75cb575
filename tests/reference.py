"""The parts of the README that are made from the code: commands, options, columns, an example.

    uv run python -m tests.reference          writes them into README.md

A part stands between `<!-- NAME -->` and `<!-- /NAME -->`; a test compares it with the code.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from addon.cli import COMMANDS
from addon.proxy import options as proxy_options
from ledger.store.requests_view import REQUEST_COLUMNS
from ledger.store.schema.descriptions import description_of

README = Path(__file__).parent.parent / "README.md"
NEW_PROVIDER = Path(__file__).parent / "addon" / "dialects" / "test_new_provider.py"


def commands() -> str:
    """A row for each command; `tokentee COMMAND --help` has the rest."""
    rows = [f"| `tokentee {each.name}` | {_cell(each.summary)} |" for each in COMMANDS]
    return "\n".join(["| command | |", "|---|---|", *rows])


def options() -> str:
    """A row for each option of the recorder."""
    rows = [f"| `{name}` | {_cell(text)} |" for name, text in proxy_options.HELP.items()]
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def columns() -> str:
    """A row for each column of the view that people ask."""
    rows = [
        f"| `{name}` | {kind} | {_cell(description_of('requests', name))} |"
        for name, kind in REQUEST_COLUMNS.items()
    ]
    return "\n".join(["| column of `requests` | type | |", "|---|---|---|", *rows])


def dialect() -> str:
    """The wire format that a test adds, so that the example works."""
    text = NEW_PROVIDER.read_text()
    code = text.partition("from here …\n")[2].partition("# … to here")[0].strip()
    return f"```python\n# addon/dialects/lumen.py\n{code}\n```"


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "options": options,
    "columns": columns,
    "dialect": dialect,
}


def applied(text: str) -> str:
    """The README with every part as the code has it."""
    for name, made in PARTS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        assert pattern.search(text), f"the README has no part {name!r}"
        text = pattern.sub(_with_inside(made()), text)
    return text


def _with_inside(part: str) -> Callable[[re.Match[str]], str]:
    """What `re.sub` puts in place of a part: its two marks and this between them."""
    return lambda found: f"{found[1]}{part}\n{found[2]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    README.write_text(applied(README.read_text()))
