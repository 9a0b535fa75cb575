"""Pure. The table of known endpoints and providers: generated from the routes and the providers,
so that the documentation stays up to date.

`python -m addon.dialects.coverage` prints the table of the README.
"""

from collections.abc import Iterator

from addon.dialects import routes
from addon.dialects.routes import ROWS, WEBSOCKET_ROWS, Row
from ledger.model.providers import PROVIDERS, Provider, StreamUsage

BEGIN = "<!-- endpoints -->"
END = "<!-- /endpoints -->"
"""The README has the table between these lines."""
HOSTS_SHOWN_MAX = 2
_USAGE = {
    StreamUsage.OPT_IN: "when asked for",
    StreamUsage.AUTOMATIC: "always",
    StreamUsage.UNKNOWN: "learned",
}


def endpoint_table() -> str:
    """Dialects with their operation and paths, in Markdown."""
    lines = ["| format | operation | paths end in | only at |", "| --- | --- | --- | --- |"]
    for name, rows in _by_dialect():
        dialect = routes.DIALECTS[name]
        paths = ", ".join(f"`{_shown(row)}`" for row in rows)
        only = sorted({provider for row in rows for provider in row.providers})
        lines.append(f"| {name} | {dialect.operation} | {paths} | {', '.join(only)} |")
    return "\n".join(lines)


def provider_table() -> str:
    """Providers with their hosts, price list, and the way to get usage in streams."""
    lines = [
        "| provider | hosts | price list | usage in streams |",
        "| --- | --- | --- | --- |",
    ]
    rows = sorted(PROVIDERS, key=lambda provider: provider.name)
    lines += [
        f"| {row.name} | {_hosts(row)} | {row.prices or '-'} | {_USAGE[row.stream_usage]} |"
        for row in rows
    ]
    return "\n".join(lines)


def tables() -> str:
    """Both tables, as the README has them between the markers."""
    return f"{BEGIN}\n\n{endpoint_table()}\n\n{provider_table()}\n\n{END}"


def _by_dialect() -> Iterator[tuple[str, list[Row]]]:
    found: dict[str, list[Row]] = {}
    for row in (*ROWS, *WEBSOCKET_ROWS):
        if row.dialect is not None:
            found.setdefault(row.dialect.name, []).append(row)
    yield from sorted(found.items())


def _shown(row: Row) -> str:
    method = "GET " if "GET" in row.methods else "WS " if row in WEBSOCKET_ROWS else ""
    return f"{method}{row.path.replace('{}', '*').replace('{model}', 'MODEL')}"


def _hosts(row: Provider) -> str:
    hosts = (*row.hosts, *row.unlisted_hosts)
    more = f" and {len(hosts) - HOSTS_SHOWN_MAX} more" if len(hosts) > HOSTS_SHOWN_MAX else ""
    return ", ".join(f"`{host}`" for host in hosts[:HOSTS_SHOWN_MAX]) + more


if __name__ == "__main__":
    print(tables())  # noqa: T201  # this is its output
