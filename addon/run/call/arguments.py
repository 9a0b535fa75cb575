"""Edge (imports what parts attach). Parses the words after `tokentee run` into options for the
proxy, and the command.

    tokentee run [OPTIONS] [--] COMMAND ...     the first word that is no option begins the command
    tokentee run [OPTIONS]                      a proxy until Ctrl-C

An unknown option is refused here, with the nearest known one: mitmproxy's own parser accepts
abbreviations, and prints a page of usage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from addon.attach import attached
from ledger.model.errors import WrongCallError
from ledger.text.origins import listen_address

FLAGS = frozenset(
    {
        "--quiet", "-q", "--verbose", "-v", "--options", "--commands", "--server", "--no-server",
        "-n", "--rawtcp", "--no-rawtcp", "--http2", "--no-http2", "--ssl-insecure", "-k",
        "--no-ssl-insecure", "--showhost", "--no-showhost", "--show-ignored-hosts",
        "--no-show-ignored-hosts", "--store-streamed-bodies", "--no-store-streamed-bodies",
    }
)  # fmt: skip
"""mitmdump's options without a value that the lean master knows."""
VALUES = frozenset(
    {
        "--set", "--mode", "-m", "--scripts", "-s", "--save-stream-file", "-w", "--listen-host",
        "--listen-port", "-p", "--ignore-hosts", "--allow-hosts", "--tcp-hosts", "--upstream-auth",
        "--proxyauth", "--certs", "--cert-passphrase",
    }
)  # fmt: skip
"""mitmdump's options with a value."""
SHORT_FOR = {
    "--ledger": "ledger_url",
    "--prices": "tee_prices",
    "--capture": "tee_capture",
    "--tag": "tee_tags",
}
"""Options as other commands name them -> options of the recorder."""
LIMITS = {
    "--max-usd": "usd",
    "--max-list-usd": "list_value_usd",
    "--max-tokens": "tokens",
    "--max-requests": "requests",
}
"""Options that cap what the command spends -> limits of a cap."""
OUR_VALUES = frozenset({"--listen", "--config", "--workers", "--unpriced", *SHORT_FOR, *LIMITS})
OUR_FLAGS = frozenset({"--everything", "--unrecorded-ok", "--help", "-h"})
OURS = OUR_VALUES | OUR_FLAGS
_FIGURES = "report --only tag:run=RUN --format json has the figures of a run"
GONE_OPTIONS = {"--expect": _FIGURES, "--expect-update": _FIGURES}
"""Option of before -> what is there instead."""
FILTER_SIGNS = "~!("
"""First characters of mitmproxy's filter expressions; no command begins with them."""
WORKERS_MAX = 64
"""Each is a process of about 150 MB with a connection to the ledger; a machine with more cores
than this needs a second proxy."""
LOOPBACK = "127.0.0.1"

type Address = tuple[str, int]
"""Host and port as in mitmproxy's options; an empty host means all interfaces, port 0 any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The parsed command line."""

    options: tuple[str, ...] = ()
    """For mitmproxy's parser, filter expressions last."""
    command: tuple[str, ...] = ()
    """Empty: a proxy alone."""
    everything: bool = False
    listen: tuple[str, int | None] | None = None
    config: str | None = None
    """A config file; None: search the default places."""
    workers: int | None = None
    """None: one process without a supervisor."""
    unrecorded_ok: bool = False
    """Start the command without a recorder if that cannot start."""
    caps: tuple[Any, ...] = ()
    """What the command may spend at most."""
    is_help: bool = False


def set_options(words: Sequence[str]) -> dict[str, str]:
    """Name -> the last value that `--set NAME=VALUE` gives it in these words."""
    pairs = (value.partition("=") for word, value in pairwise(words) if word == "--set")
    return {name: value for name, _, value in pairs}


def parse(words: Sequence[str]) -> Call:
    """The call. Raises WrongCallError for an unknown option, or one that lacks its value."""
    options: list[str] = []
    filters: list[str] = []
    flags: set[str] = set()
    ours: dict[str, str] = {}
    command: Sequence[str] = ()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            if not rest:
                raise WrongCallError("no command behind --: tokentee run -- COMMAND ...")
            command, rest = rest, []
        elif word in OUR_FLAGS:
            flags.add(word)
        elif name in OUR_VALUES:
            value = value if equals else _value_of(word, rest)
            if name == "--ledger" and not value:  # the shell's variable is not set
                raise WrongCallError("--ledger is empty: name a ledger, or leave it out")
            if name == "--tag":  # each names one more
                value = ",".join(filter(None, (set_options(options).get("tee_tags"), value)))
            if name in SHORT_FOR:
                options += ["--set", f"{SHORT_FOR[name]}={value}"]
            ours[name] = value
        elif taken := _mitmproxys(word, rest):
            options += taken
        elif word.startswith("-") and word != "-":
            if name in GONE_OPTIONS:
                raise WrongCallError(f"run has no option {name} any more; {GONE_OPTIONS[name]}")
            raise WrongCallError(f"run has no option {name}{_nearest(name)}")
        elif word[:1] in FILTER_SIGNS and word:
            filters.append(word)
        else:
            command, rest = [word, *rest], []
    call = Call(
        options=(*options, *filters),
        command=tuple(command),
        everything="--everything" in flags,
        listen=_address(ours["--listen"]) if "--listen" in ours else None,
        config=ours.get("--config"),
        workers=workers_of(ours["--workers"], "--workers") if "--workers" in ours else None,
        unrecorded_ok="--unrecorded-ok" in flags,
        caps=_cap_of(
            {name: value for name, value in ours.items() if name in LIMITS},
            ours.get("--unpriced"),
        ),
        is_help=bool({"--help", "-h"} & flags),
    )
    if call.listen and call.command:
        raise WrongCallError("--listen is for a proxy without a command")
    if call.unrecorded_ok and not call.command:
        raise WrongCallError("--unrecorded-ok is for a command: tokentee run -- COMMAND ...")
    if call.caps and not call.command:
        raise WrongCallError("--max-... is for a command: tokentee run --max-usd 5 -- COMMAND ...")
    if call.caps and call.unrecorded_ok:
        raise WrongCallError("--unrecorded-ok would start the command without its cap")
    if call.workers and call.command:
        raise WrongCallError(
            "--workers is for a proxy without a command: tokentee run --workers 4 --listen 8080, "
            "and then point the command at it"
        )
    return call


def _cap_of(limits: dict[str, str], unpriced: str | None) -> tuple[Any, ...]:
    """The cap of these limits. Raises WrongCallError for one that is none."""
    if unpriced not in (None, "refuse", "pass"):
        raise WrongCallError(f"--unpriced: {unpriced[:40]!r} is neither refuse nor pass")
    if not limits:
        if unpriced is not None:
            raise WrongCallError("--unpriced is for a cap: tokentee run --max-usd 5 -- COMMAND ...")
        return ()
    for caps_of in attached("limits of run"):
        return tuple(caps_of({LIMITS[name]: text for name, text in limits.items()}, unpriced))
    raise WrongCallError(f"{next(iter(limits))} belongs to a part that is missing here: caps")


def workers_of(text: str, name: str) -> int:
    """The number of workers in a text. Raises WrongCallError, whose text contains `name`."""
    is_number = text.isascii() and text.isdigit() and len(text) < 9
    if not is_number or not 0 < int(text) <= WORKERS_MAX:
        raise WrongCallError(f"{name}: {text!r} is not a number from 1 to {WORKERS_MAX}")
    return int(text)


def _mitmproxys(word: str, rest: list[str]) -> list[str]:
    """An option of mitmproxy's with its value, taken from `rest`; empty if it is not one."""
    if word in VALUES:
        return [word, _value_of(word, rest)]
    has_value = word.partition("=")[0] in VALUES or word[:2] in VALUES
    is_cluster = len(word) > 2 and word[0] == "-" != word[1]  # one-letter flags: `-qn`
    is_flag = word in FLAGS or (is_cluster and {f"-{letter}" for letter in word[1:]} <= FLAGS)
    return [word] if has_value or is_flag else []


def _value_of(word: str, rest: list[str]) -> str:
    if not rest or rest[0] == "--":
        raise WrongCallError(f"{word} needs a value")
    return rest.pop(0)


def _address(text: str) -> tuple[str, int | None]:
    if (found := listen_address(text)) is not None:
        return found[0] or LOOPBACK, found[1]
    if not text or text.count(":") == 1:
        raise WrongCallError("--listen needs HOST, PORT or HOST:PORT")
    return text.strip("[]"), None


def _nearest(name: str) -> str:
    if name in FLAGS | OUR_FLAGS:
        return " with a value: it takes none"
    known = [word for word in FLAGS | VALUES | OURS if word.startswith("--") or len(name) == 2]
    found = get_close_matches(name, sorted(known), 1, cutoff=0.7)
    if found:
        return f"; did you mean {found[0]}?"
    return '. Options of mitmdump that it lacks: mitmdump -s "$(tokentee path)"'
