"""Pure. The first minute of a recorder: what clients have to be told, what to type next, and why
nothing was recorded."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct, field

from ledger.model import provider_table
from ledger.text.figures import counted
from ledger.text.printable import printable

NEXT = "to see what was recorded: tokentee top, tokentee report --since today"
SAVED_WITHOUT_BODIES = (
    "-w: answers are streamed on, and saved without their bodies; --set store_streamed_bodies=true "
    "saves them, too, and holds each in memory until it ends"
)
HOSTS_SHOWN_MAX = 3
"""Hosts that a line names; further ones are counted."""

TUNNELLED_SHOWN_MAX = 8
"""Hosts that have a line of their own, each with the command that records it."""

type Counts = Mapping[str, int]
"""HOST[:PORT] -> how often it was seen."""


class PassedTraffic(Struct, kw_only=True):
    """What passed a proxy, whatever was recorded of it."""

    connections: int = 0
    """Of clients."""
    requests: dict[str, int] = field(default_factory=dict)
    """HTTP requests that went on to a host."""
    without_password: dict[str, int] = field(default_factory=dict)
    """Requests and tunnels that were refused: the client did not name the proxy's user."""
    untrusting: dict[str, int] = field(default_factory=dict)
    """Connections whose client refused the proxy's certificate."""
    prior_knowledge: dict[str, int] = field(default_factory=dict)
    """Connections that spoke HTTP/2 without TLS at once, which mitmproxy refuses."""
    unreachable: dict[str, int] = field(default_factory=dict)
    """Connections that could not be made; with the reason after the host."""
    unread: dict[str, int] = field(default_factory=dict)
    """Connections that were passed on untouched, as no table names the host."""
    local: dict[str, int] = field(default_factory=dict)
    """Connections of a command to this machine, past the proxy."""

    def add(self, other: "PassedTraffic") -> None:
        """Count what another process has seen, too."""
        self.connections += other.connections
        for name in self.__struct_fields__[1:]:
            counts = getattr(self, name)
            for place, count in getattr(other, name).items():
                counts[place] = counts.get(place, 0) + count


def lines_at_start(
    listeners: Iterable[tuple[str, str, int]], *, authority: str, asks_password: bool
) -> list[str]:
    """What clients have to set, a line for each listener, and what to type next. Empty without
    listeners.

    `listeners`: mitmproxy's mode (`reverse:https://HOST`), host and port; `authority`: the file of
    the proxy's certificate; `asks_password`: clients name a user (`--proxyauth`).
    """
    lines = []
    user = "USER:PASSWORD@" if asks_password else ""
    listeners = list(listeners)
    for mode, host, port in listeners:
        if host == "::" and (mode, "0.0.0.0", port) in listeners:  # noqa: S104  # one server, listening on both
            continue
        shown = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104  # where a client of this machine reaches it
        url = f"http://{f'[{shown}]' if ':' in shown and '[' not in shown else shown}:{port}"
        kind, _, target = mode.partition("@")[0].partition(":")
        match kind:
            case "reverse":
                # The variable that the SDKs of the target read, with the URL of its proxy.
                setting = provider_table.TABLE.base_url_setting(urlsplit(target).hostname, url)
                words = f"their base URL to {url} in the place of {target}, with the same path"
                lines.append(f"clients set {setting or words}")
            case "regular" | "upstream":
                url = url.replace("://", f"://{user}")
                lines.append(f"clients set HTTPS_PROXY={url} and SSL_CERT_FILE={authority}")
            case "socks5":
                url = url.replace("http://", f"socks5h://{user}")
                lines.append(f"clients set ALL_PROXY={url} and SSL_CERT_FILE={authority}")
            case _:
                lines.append(f"clients trust {authority}: SSL_CERT_FILE names it")
    return [*dict.fromkeys(lines), NEXT] if lines else []


def prior_knowledge_refused(counts: Counts) -> str:
    """What a proxy other than `tokentee run` does to HTTP/2 with prior knowledge, with the cure."""
    return (
        f"HTTP/2 without TLS to {_named(counts)} was refused: mitmproxy does not answer prior "
        "knowledge, which the AWS SDK for JavaScript speaks at http:// endpoints. `tokentee run` "
        "with the same --mode answers it"
    )


def nothing_recorded(seen: PassedTraffic, *, is_command: bool) -> list[str]:
    """Why no LLM request was recorded, with the cure: the likeliest reasons by what was seen.
    `is_command`: of `run -- COMMAND`."""
    start = "tokentee run --set tee_hosts={} -- COMMAND" if is_command else "--set tee_hosts={}"
    lines = []
    if seen.untrusting:
        lines.append(
            f"the client did not trust the proxy's certificate for {_named(seen.untrusting)}: it "
            "must read mitmproxy-ca-cert.pem (SSL_CERT_FILE, REQUESTS_CA_BUNDLE, "
            "NODE_EXTRA_CA_CERTS)"
        )
    if seen.prior_knowledge:
        lines.append(prior_knowledge_refused(seen.prior_knowledge))
    if seen.without_password:
        lines.append(
            f"requests to {_named(seen.without_password)} were refused: they did not have the user "
            "and the password of --proxyauth; clients set HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"
        )
    if seen.unreachable:
        lines.append(
            f"the proxy could not connect to {_named(seen.unreachable)}; check the name, the "
            "network, and the proxy that leads out of it, if there is one"
        )
    if seen.requests:
        lines.append(
            f"requests passed to {_named(seen.requests)}, and none looked like an LLM call; if one "
            f"is a gateway or a local server: {start.format(_first(seen.requests))}"
        )
    if seen.local:
        lines.append(
            f"the command called {_named(seen.local)} on this machine, which did not pass through "
            f"the proxy; if it is an LLM server: {start.format(_first(seen.local))}"
        )
    if seen.unread:
        lines.append(
            f"connections to {_named(seen.unread)} were passed on unread, as it is not known as an "
            f"LLM host; if it is a gateway: {start.format(_first(seen.unread))}"
        )
    if not lines and seen.connections:
        lines.append(
            f"{counted(seen.connections, 'connection')} came to the proxy, without an HTTP request "
            "that it could read: the client may speak another protocol than the proxy's mode, or "
            "lack the password of --proxyauth"
        )
    elif not lines and is_command:
        lines.append(
            "no connection of the command came through the proxy. For a server on this machine: "
            f"{start.format('127.0.0.1:PORT')}. For a client that reads no proxy variables: "
            "tokentee run --mode reverse:https://api.openai.com@8080, and "
            "OPENAI_BASE_URL=http://127.0.0.1:8080/v1 for the client"
        )
    elif not lines:
        lines.append("no client connected: the lines at the start say what each has to set")
    return lines


def tunnelled(unread: Counts) -> list[str]:
    """A line for each of the hosts named like sellers of models whose tunnels were not read."""
    lines = [
        f"{counted(count, 'connection')} to {printable(place)} passed unread, as no table has it; "
        "if it is an LLM, its calls are missing here. To record it: "
        f"tokentee run --set tee_hosts={printable(place)} -- COMMAND"
        for place, count in sorted(unread.items(), key=lambda item: -item[1])
    ]
    more = len(lines) - TUNNELLED_SHOWN_MAX
    return lines[:TUNNELLED_SHOWN_MAX] + ([f"and to {counted(more, 'more host')}"] * (more > 0))


def _first(counts: Counts) -> str:
    """The one that was seen most."""
    return printable(max(counts, key=lambda place: counts[place]))


def _named(counts: Counts) -> str:
    ordered = sorted(counts, key=lambda place: -counts[place])
    named = ", ".join(map(printable, ordered[:HOSTS_SHOWN_MAX]))
    more = len(ordered) - HOSTS_SHOWN_MAX
    return f"{named} and {counted(more, 'more host')}" if more > 0 else named
