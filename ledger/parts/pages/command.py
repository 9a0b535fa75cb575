"""Wiring. `tokentee serve`: the ledger, read-only, as a live page in a browser; and the option
`--html` of `tokentee report`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ledger.commands.options import LedgerOption, NamesOption, TimezoneOption, scope_of
from ledger.commands.output import print_line

PORT = 8377


def serve(
    *,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Where to listen; 0 for any free port."
        ),
    ] = PORT,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="An address of this machine; another than loopback shows your figures to "
            "everyone who has the token, unencrypted.",
        ),
    ] = "127.0.0.1",
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in your browser.")
    ] = False,
    timezone: TimezoneOption = None,
    names: NamesOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Browse the ledger: spend, models, keys, sessions, down to one request. Until Ctrl-C.

    The page is for this machine alone, asks for the token in the address that is printed, and
    only reads the ledger, which may be recorded into meanwhile.
    """
    import ipaddress
    import secrets

    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import LedgerError
    from ledger.parts.pages.live import read_only, server
    from ledger.settings import names_file
    from ledger.store.engines import urls
    from ledger.text.period import zone_of

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise LedgerError(f"not an address: {host[:60]!r}; write --host 127.0.0.1") from None
    zone = zone_of(timezone) if timezone else UTC
    url = ledger or urls.default_url()
    with existing_ledger(url):
        pass  # like every command, this migrates an older SQLite ledger
    engine = read_only.open_read_only(url)
    on = server.listen(host, port)
    bound = on.getsockname()[1]
    token = secrets.token_urlsafe(24)
    shown = f"[{host}]" if address.version == 6 else host
    address_shown = f"http://{shown}:{bound}/?token={token}"
    if not address.is_loopback:
        print_line(f"other machines can reach {host}: whoever has the token can read the pages")
    typer.echo(address_shown)
    print_line("Ctrl-C ends it")
    if open_browser:
        import webbrowser

        webbrowser.open(address_shown)
    pages = server.Pages(
        engine,
        ledger=urls.shown(url),
        option=urls.option(url),
        names=names_file.load(names),
        now=lambda: datetime.now(zone),
    )
    app = server.application(pages, port=bound, is_loopback=address.is_loopback, token=token)
    try:
        server.serve(app, on)
    except KeyboardInterrupt:
        print_line("ended")
    finally:
        on.close()
        engine.dispose()


def html(
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a page instead: charts, warnings, tables, in one file."
        ),
    ],
    given: Mapping[str, Any],
) -> None:
    """The option `--html` of `tokentee report`; `given`: the others."""
    from ledger.figures.queries import existing_ledger
    from ledger.model.errors import WrongCallError
    from ledger.parts.pages import html_file

    assert html is not None
    unused = [name for name in ("by", "top", "exact") if given[name]]
    if given["format"] != "table":
        unused.append("format")
    if unused:
        raise WrongCallError(
            "--html writes one page, with tables of its own: "
            f"leave {', '.join(f'--{name}' for name in unused)} out"
        )
    scope = scope_of(*(given[name] for name in ("since", "until", "only", "names", "timezone")))
    with existing_ledger(given["ledger"]) as engine:
        text = html_file.page(engine, scope, now=datetime.now(scope.zone or UTC))
        print_line(f"{html}: {html_file.write(text, html):,} bytes")
