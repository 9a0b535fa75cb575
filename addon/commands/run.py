"""Wiring. `tokentee run`: a recording proxy, alone or around a command; `tokentee path`: where its
script for other mitmproxies is."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from addon.run.imports import uncollected_imports

SCRIPT = Path(__file__).parent.parent / "tee.py"
HELP = """\
Usage: tokentee run [OPTIONS] [--] COMMAND ...  record what a command sends
       tokentee run [OPTIONS]                   a recording proxy, until Ctrl-C

Around a command: the command uses a proxy on loopback that serves it alone.
Connections to LLM hosts are decrypted and recorded, all others are tunnelled
untouched. When the command ends, its bill is printed to stderr, and run ends
with its exit code. HTTPS_PROXY, NO_PROXY and certificate variables that you
have set stay in force, also for what the proxy sends. Calls to servers on this
machine (Ollama) pass the proxy only if tee_hosts or a base URL variable names
them.

Options:
  --config FILE          Settings: upstreams with listeners, ledger, tags,
                         prices. Default: TOKENTEE_CONFIG, tokentee.toml in the
                         user's config folder or in /etc/tokentee. Options
                         override it. No file of the current folder is read
                         unless you name it.
  --unrecorded-ok        If the recorder cannot start (a ledger that cannot be
                         opened, say), start the command without it. Default:
                         do not start.
  --max-usd N, --max-list-usd N, --max-tokens N, --max-requests N
                         A cap: a request that could pass it is refused before
                         it goes upstream (docs/caps.md). usd is what is billed;
                         list-usd also counts what a plan covers, at list
                         prices.
  --unpriced pass        Requests whose cost has no bound go on, and count when
                         it is known: for them the cap is a budget. Default:
                         refuse.
  --everything           Decrypt all TLS connections of the command, not only
                         those to LLM hosts.
  --listen HOST[:PORT]   Without a command: where to listen [127.0.0.1:8080].
                         0.0.0.0 lets everyone who reaches this machine in.
  --workers N            Without a command: N processes on the same addresses,
                         with one ledger, one log and one /metrics. One that
                         dies is started again. SIGHUP reads the config file
                         again and replaces one after the other; no connection
                         is refused.
  --mode SPEC            Without a command:
                         reverse:https://api.openai.com@8080, regular,
                         upstream:http://proxy:3128, ...
  --ledger URL           sqlite:///FILE or postgresql+psycopg://...
  --tag NAME=VALUE       On every request; may be given again.
  --prices FILE          Your own prices.
  --capture FOLDER       Keep whole exchanges there, without credentials.
  --set NAME=VALUE       A further option of the recorder or of mitmproxy:
                           ledger_commit=before_end|async
                           tee_hosts=HOST[:PORT][=PROVIDER],...
                           tee_inject=auto|always|never
                           tee_metrics=[HOST:]PORT, tee_otlp=URL
                           tee_log=exchanges, tee_log_format=json
                           tee_client_tags=allow|ignore
                           tee_segments=on|off, tee_error_text=off|on
                           tee_fast=auto|yes|no, tee_wrap=yes|no
  -s FILE, -w FILE, -q, -v, --proxyauth, --ssl-insecure, ...
                         As for mitmdump.
  -h, --help             Print this.

Example:
  tokentee run -- python my_agent.py
In a second terminal, what runs now: tokentee top
"""


def run(words: Sequence[str]) -> int:
    """Run `tokentee run` with these words; returns the exit code. Raises LedgerError."""
    from addon.run.call.arguments import parse
    from addon.run.call.config_file import completed

    call = parse(words)
    if call.is_help:
        sys.stdout.write(HELP)
        return 0
    given = dict(os.environ)
    call = completed(call, given)
    if call.workers is not None and not call.command:
        from addon.run.workers import run_workers

        first = iter([call])
        return run_workers(
            call.workers, lambda: next(first, None) or completed(parse(words), given)
        )
    with uncollected_imports():
        if call.command:
            from addon.run.proxied_command import run_proxied as start
        else:
            from addon.run.standalone import run_proxy as start
    return start(call)


def path_command() -> None:
    """Print the path of the script for mitmdump, mitmweb and mitmproxy.

    mitmdump -s "$(tokentee path)" --mode reverse:https://api.openai.com@127.0.0.1:8080

    mitmproxy has to be installed in the same environment as tokentee, as it is by default.
    """
    sys.stdout.write(f"{SCRIPT}\n")
