"""The parts of the documentation that are made from the code: commands, options, columns,
endpoints, providers, an example.

    uv run python -m tests.reference          writes them into README.md and docs/

A part stands between `<!-- NAME -->` and `<!-- /NAME -->`; a test compares it with the code.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from addon import attach
from addon.cli import COMMANDS
from addon.dialects import routes
from addon.dialects.routes import ROWS, WEBSOCKET_ROWS, RouteRow
from addon.proxy import options as proxy_options
from ledger.model.providers import PROVIDERS, Provider, StreamUsage
from ledger.store.schema.descriptions import description_of
from ledger.store.scope import REQUEST_COLUMNS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
"""Every page of documentation."""


def commands() -> str:
    """A row for each command; `tokentee COMMAND --help` has the rest."""
    rows = [f"| `tokentee {each.name}` | {_cell(each.summary)} |" for each in COMMANDS]
    return "\n".join(["| command | |", "|---|---|", *rows])


def parts() -> str:
    """A row for each part, with its commands and what else it attaches."""
    rows = [
        f"| `{part.package.replace('.', '/')}` | {_cell(part.about)} | "
        + ", ".join(
            (
                *(f"`{command.name}`" for command in part.commands),
                *dict.fromkeys(point for point, _ in part.attaches),
            )
        )
        + " |"
        for part in attach.PARTS
    ]
    return "\n".join(["| part | what it is | attaches |", "|---|---|---|", *rows])


def options() -> str:
    """A row for each option of the recorder."""
    rows = [f"| `{name}` | {_cell(text)} |" for name, text in proxy_options.help_of().items()]
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def columns() -> str:
    """A row for each column of the view that people ask."""
    rows = [
        f"| `{name}` | {kind} | {_cell(description_of('requests', name))} |"
        for name, kind in REQUEST_COLUMNS.items()
    ]
    return "\n".join(["| column of `requests` | type | |", "|---|---|---|", *rows])


HOSTS_SHOWN_MAX = 2
_USAGE = {
    StreamUsage.OPT_IN: "when asked for",
    StreamUsage.AUTOMATIC: "always",
    StreamUsage.UNKNOWN: "learned",
}


def endpoints() -> str:
    """A row for each dialect, with its operation and paths."""
    lines = ["| format | operation | paths end in | only at |", "|---|---|---|---|"]
    for name, rows in _by_dialect():
        dialect = routes.DIALECTS[name]
        paths = ", ".join(f"`{_shown(row)}`" for row in rows)
        only = sorted({provider for row in rows for provider in row.providers})
        lines.append(f"| {name} | {dialect.operation} | {paths} | {', '.join(only)} |")
    return "\n".join(lines)


def providers() -> str:
    """A row for each provider: hosts, price list, and the way to get usage in streams."""
    lines = ["| provider | hosts | price list | usage in streams |", "|---|---|---|---|"]
    rows = sorted(PROVIDERS, key=lambda provider: provider.name)
    lines += [
        f"| {row.name} | {_hosts(row)} | {row.prices or '-'} | {_USAGE[row.stream_usage]} |"
        for row in rows
    ]
    return "\n".join(lines)


def _by_dialect() -> Iterator[tuple[str, list[RouteRow]]]:
    found: dict[str, list[RouteRow]] = {}
    for row in (*ROWS, *WEBSOCKET_ROWS):
        if row.dialect is not None:
            found.setdefault(row.dialect.name, []).append(row)
    yield from sorted(found.items())


def _shown(row: RouteRow) -> str:
    method = "GET " if "GET" in row.methods else "WS " if row in WEBSOCKET_ROWS else ""
    return f"{method}{row.path.replace('{}', '*').replace('{model}', 'MODEL')}"


def _hosts(row: Provider) -> str:
    hosts = (*row.hosts, *row.unlisted_hosts)
    more = f" and {len(hosts) - HOSTS_SHOWN_MAX} more" if len(hosts) > HOSTS_SHOWN_MAX else ""
    return ", ".join(f"`{host}`" for host in hosts[:HOSTS_SHOWN_MAX]) + more


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "parts": parts,
    "options": options,
    "columns": columns,
    "endpoints": endpoints,
    "providers": providers,
}


def applied(text: str) -> str:
    """A page with each of its parts as the code has it."""
    for name, made in PARTS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if pattern.search(text):
            text = pattern.sub(_with_inside(made()), text)
    return text


def _with_inside(part: str) -> Callable[[re.Match[str]], str]:
    """What `re.sub` puts in place of a part: its two marks and this between them."""
    return lambda found: f"{found[1]}{part}\n{found[2]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(applied(page.read_text()))
