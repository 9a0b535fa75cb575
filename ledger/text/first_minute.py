"""Pure. The first minute of a recorder: what clients have to be told, what to type next, and why
nothing was recorded."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from ledger.model import providers
from ledger.text.figures import counted
from ledger.text.printable import printable

NEXT = "to see what was recorded: tokentee top, tokentee report --since today"
SAVED_WITHOUT_BODIES = (
    "-w: answers are streamed on, and saved without their bodies; --set store_streamed_bodies=true "
    "saves them, too, and holds each in memory until it ends"
)
HOSTS_SHOWN_MAX = 3
"""Hosts that a line names; further ones are counted."""

type Counts = Mapping[str, int]
"""HOST[:PORT] -> how often it was seen."""


def lines_at_start(listeners: Iterable[tuple[str, str, int]], *, authority: str) -> list[str]:
    """What clients have to set, a line for each listener, and what to type next. Empty without
    listeners.

    `listeners`: mitmproxy's mode (`reverse:https://HOST`), host and port; `authority`: the file of
    the proxy's certificate.
    """
    lines = []
    for mode, host, port in listeners:
        shown = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104  # where a client of this machine reaches it
        url = f"http://{f'[{shown}]' if ':' in shown and '[' not in shown else shown}:{port}"
        kind, _, target = mode.partition("@")[0].partition(":")
        match kind:
            case "reverse":
                # The variable that the SDKs of the target read, with the URL of its proxy.
                setting = f"their base URL to {url} in the place of {target}, with the same path"
                upstream = urlsplit(target).hostname
                for each in providers.TABLE.base_urls():
                    default = urlsplit(each.default or "")
                    if default.hostname == upstream is not None:
                        setting = f"{each.variable}={url}{default.path}"
                        break
                lines.append(f"clients set {setting}")
            case "regular" | "upstream":
                lines.append(f"clients set HTTPS_PROXY={url} and SSL_CERT_FILE={authority}")
            case "socks5":
                url = url.replace("http://", "socks5h://")
                lines.append(f"clients set ALL_PROXY={url} and SSL_CERT_FILE={authority}")
            case _:
                lines.append(f"clients trust {authority}: SSL_CERT_FILE names it")
    return [*dict.fromkeys(lines), NEXT] if lines else []


def nothing_recorded(
    *, requests: Counts, untrusting: Counts, unread: Counts, local: Counts, is_command: bool
) -> list[str]:
    """Why no LLM request was recorded, with the cure: the likeliest reasons by what was seen.

    `requests`: HTTP requests that passed; `untrusting`: connections whose client refused the
    proxy's certificate; `unread`: connections that were passed on untouched, as no table names the
    host; `local`: connections past the proxy to this machine. `is_command`: of `run -- COMMAND`.
    """
    start = "tokentee run --set tee_hosts={} -- COMMAND" if is_command else "--set tee_hosts={}"
    lines = []
    if untrusting:
        lines.append(
            f"the client did not trust the proxy's certificate for {_named(untrusting)}: it must "
            "read mitmproxy-ca-cert.pem (SSL_CERT_FILE, REQUESTS_CA_BUNDLE, NODE_EXTRA_CA_CERTS)"
        )
    if requests:
        lines.append(
            f"requests passed to {_named(requests)}, and none looked like an LLM call; if one is a "
            f"gateway or a local server: {start.format(_first(requests))}"
        )
    if local:
        lines.append(
            f"the command called {_named(local)} on this machine, which did not pass through the "
            f"proxy; if it is an LLM server: {start.format(_first(local))}"
        )
    if unread:
        lines.append(
            f"connections to {_named(unread)} were passed on unread, as it is not known as an LLM "
            f"host; if it is a gateway: {start.format(_first(unread))}"
        )
    if not lines and is_command:
        lines.append(
            "no connection of the command came through the proxy; for a client that reads no proxy "
            "variables: tokentee run --mode reverse:https://api.openai.com@8080, and "
            "OPENAI_BASE_URL=http://127.0.0.1:8080/v1 for the client"
        )
    elif not lines:
        lines.append("no client connected: the lines at the start say what each has to set")
    return lines


def _first(counts: Counts) -> str:
    """The one that was seen most."""
    return printable(max(counts, key=lambda place: counts[place]))


def _named(counts: Counts) -> str:
    ordered = sorted(counts, key=lambda place: -counts[place])
    named = ", ".join(map(printable, ordered[:HOSTS_SHOWN_MAX]))
    more = len(ordered) - HOSTS_SHOWN_MAX
    return f"{named} and {counted(more, 'more host')}" if more > 0 else named
