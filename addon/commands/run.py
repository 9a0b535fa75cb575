"""Wiring. `tokentee run`: a recording proxy, alone or around a command."""

import gc
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from addon.run.arguments import Call

HELP = """\
Usage: tokentee run [OPTIONS] [--] COMMAND ...   record what a command sends to LLMs
       tokentee run [OPTIONS]                    a recording proxy, until Ctrl-C

Around a command: the command is led through a proxy on loopback that answers it
alone. Connections to LLM hosts are decrypted and recorded, all others are
tunnelled untouched. When the command ends, its bill is printed to stderr, and
its exit code is ours. HTTPS_PROXY, NO_PROXY and certificate variables that are
set go on to hold, for the way out too. Servers on this machine (Ollama) are not
led through the proxy unless tee_hosts or a base URL variable names them.

Options:
  --config FILE          Settings: upstreams with listeners, ledger, tags, prices.
                         Default: TOKENTEE_CONFIG, ./tokentee.toml, the user's
                         config folder, /etc/tokentee. Options stand above it.
  --everything           Decrypt all TLS connections of the command, not only
                         those to LLM hosts.
  --listen HOST[:PORT]   Without a command: where to listen [127.0.0.1:8080].
                         0.0.0.0 lets everyone who reaches this machine in.
  --mode SPEC            Without a command: reverse:https://api.openai.com@8080,
                         regular, upstream:http://proxy:3128, ...
  --set NAME=VALUE       An option of the recorder or of mitmproxy:
                           ledger_url=sqlite:///FILE, or postgresql+psycopg://...
                           ledger_commit=before_end|async
                           tee_hosts=HOST[:PORT][=PROVIDER],...
                           tee_inject=auto|always|never
                           tee_tags=NAME=VALUE,...
                           tee_capture=FOLDER
                           tee_prices=FILE
  -s FILE, -w FILE, -q, -v, --proxyauth, --ssl-insecure, ...
                         As for mitmdump.
  -h, --help             Print this.

Example:
  tokentee run -- python my_agent.py
"""


def run(words: Sequence[str]) -> int:
    """Do what the words behind `tokentee run` ask for; the exit code."""
    from addon.run.arguments import WrongCallError, parse

    try:
        call = parse(words)
    except WrongCallError as error:
        sys.stderr.write(f"tokentee: {error}\n")
        return 2
    if call.is_help:
        sys.stdout.write(HELP)
        return 0

    from addon.run import lean

    call = _with_config(call)
    lean.install()
    # Imports make objects that stay: a tenth of the start goes into looking for garbage in them.
    gc.disable()
    if call.command:
        from addon.run.around import run_around as start
    else:
        from addon.run.alone import run_proxy as start
    gc.freeze()
    gc.enable()
    return start(call)


def _with_config(call: "Call") -> "Call":
    """The call with the config file's settings below its own options; as it is without a file."""
    import os

    from addon.config import reading, words

    path = reading.path_of(call.config)
    if path is None:
        return call
    settings = reading.load(path)
    options = words.options_of(
        settings,
        ledger_url=reading.ledger_url(settings, path),
        folder=path.parent,
        environment=os.environ,
    )
    has_modes = bool(call.command or call.listen) or any(
        word in ("--mode", "-m") or word.startswith("--mode=") for word in call.options
    )
    added = words.words_of(
        options, words.modes_of(settings), given=call.set_names, has_modes=has_modes
    )
    if settings.names and not os.environ.get("TOKENTEE_NAMES"):
        os.environ["TOKENTEE_NAMES"] = str(reading.beside(path, settings.names))
    sys.stderr.write(f"tokentee: settings from {path}\n")
    return replace(call, options=(*added, *call.options))
