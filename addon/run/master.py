"""Edge. The lean master: a mitmproxy with only the addons that a recording proxy needs.

Every hook of every exchange calls every addon. Without the two dozen addons for mitmproxy's other
uses, the same machine handles 1.3 to 1.5 times as many requests. `tests/bench` measures it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from h2.connection import ConnectionInputs, ConnectionState, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event
from mitmproxy import exceptions, http, master, options, optmanager
from mitmproxy.addons import (
    block,
    core,
    disable_h2c,
    errorcheck,
    next_layer,
    proxyserver,
    save,
    script,
    termlog,
    tlsconfig,
    upstream_auth,
)
from mitmproxy.proxy import layer, server
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http._http2 import Http2Server
from mitmproxy.tools import cmdline, main

from addon.proxy import sources
from addon.proxy.recorder import Recorder
from addon.run.call.arguments import set_options
from ledger.model.errors import WrongCallError
from ledger.settings.small_files import FILE_BYTES_MAX, expanded, first_bytes

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n"
"""Its first line (RFC 9113, 3.4)."""
RELIES_ON = {
    "h2.connection:H2Connection._receive_goaway_frame": "adb9adfae94088c4",
    "mitmproxy.proxy.layers.http._http2:Http2Server.handle_h2_event": "d24a023c678de6ce",
    "mitmproxy.proxy.layers.http._http2:Http2Connection.handle_h2_event": "f6b6a52b12548102",
}
"""What `let_streams_end` was written for."""
REQUEST_BODY_BYTES_MAX = 64 * 2**20
"""A larger request body is streamed upstream: it is an upload of a file, not a prompt. Providers
refuse prompts of more than 32 MB."""


class PassOn:
    """Streams bodies that the recorder does not handle; mitmproxy would buffer them until they are
    complete."""

    name = "tokentee-pass-on"

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Stream large uploads, and calls in which both sides send at the same time."""
        headers = flow.request.headers
        length = headers.get("content-length", "")
        is_large = length.isdigit() and int(length) > REQUEST_BODY_BYTES_MAX
        if is_large or headers.get("content-type", "").startswith("application/grpc"):
            flow.request.stream = True

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Runs before the recorder's hook, which overrides it for an answer that must be
        buffered."""
        if flow.response is not None and flow.response.status_code != 101:
            flow.response.stream = True


class PriorKnowledge:
    """Answers clients that speak HTTP/2 at once on a port without TLS, as the AWS SDK for
    JavaScript does at `http://` endpoints. Stands before the addon that chooses the layers."""

    name = "tokentee-prior-knowledge"

    def next_layer(self, nextlayer: layer.NextLayer) -> None:
        """mitmproxy speaks HTTP/2 where it was negotiated; here the preface says so."""
        client = nextlayer.context.client
        if not client.tls and nextlayer.data_client().startswith(HTTP2_PREFACE):
            client.alpn, client.alpn_offers = b"h2", (b"h2", b"http/1.1")


@cache
def let_streams_end() -> None:
    """Let the open streams of a client end after its GOAWAY without an error (RFC 9113, 6.8).

    The AWS SDK for JavaScript closes its session so while an answer is still to come. mitmproxy and
    h2 take it for the end of the connection: the client would get a part of the answer. No hook is
    asked, so a method is wrapped here, where the process is ours.
    """
    try:
        sources.check(RELIES_ON)
    except sources.UnknownSourceError:
        return  # another mitmproxy, which may let them end by itself
    is_open, goaway = ConnectionState.SERVER_OPEN, ConnectionInputs.RECV_GOAWAY
    H2ConnectionStateMachine._transitions[is_open, goaway] = (None, is_open)
    handle = Http2Server.handle_h2_event

    def handle_h2_event(self: Http2Server, event: Event) -> CommandGenerator[bool]:
        if isinstance(event, ConnectionTerminated) and event.error_code == ErrorCodes.NO_ERROR:
            return False
        return (yield from handle(self, event))

    Http2Server.handle_h2_event = handle_h2_event  # type: ignore[method-assign]


class StartCheck(errorcheck.ErrorCheck):
    """mitmproxy's check, which ends a start with errors; calls back when the start has
    succeeded."""

    name = "errorcheck"

    def __init__(self, on_started: Callable[[], None]) -> None:
        super().__init__()
        self._on_started = on_started

    async def shutdown_if_errored(self) -> None:
        """Called by mitmproxy: end a start with errors. Each was logged in a line of its own."""
        await asyncio.sleep(0)  # as mitmproxy: wait for what is being logged
        if self.logger.has_errored:
            sys.exit(1)

    def finish(self) -> None:
        """Called by mitmproxy when everything runs."""
        super().finish()  # type: ignore[no-untyped-call]
        self._on_started()


class RecordingMaster(master.Master):
    """mitmdump with only the addons that a recording proxy uses. Its log goes to stderr."""

    def __init__(
        self,
        opts: options.Options,
        words: Sequence[str],
        recorder: Recorder,
        *,
        chooser: next_layer.NextLayer | None = None,
        passes_on: bool = False,
        first: Sequence[object] = (),
        last: Sequence[object] = (),
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        """`words`: the command line; `chooser`: replaces mitmproxy's NextLayer, and decides who may
        use the proxy; `first`, `last`: addons before and after all others; `on_started`: called
        when the start has succeeded."""
        super().__init__(opts, with_termlog=False)
        let_streams_end()
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            self.event_loop.add_signal_handler(signal.SIGHUP, self.shutdown)
        self._named = set_options(words)
        self._termlog_addon = termlog.TermLog(sys.stderr)
        addons: list[object] = [
            *first,
            self._termlog_addon,
            core.Core(),
            block.Block(),
            disable_h2c.DisableH2C(),
        ]
        # The addon is slow to import: only if the words or mitmproxy's configuration file name it.
        has_proxyauth = any("proxyauth" in word for word in words)
        if not has_proxyauth and chooser is None:
            folder = expanded(self._named.get("confdir") or opts.confdir)
            paths = (folder / "config.yaml", folder / "config.yml")
            has_proxyauth = any(
                path.is_file() and b"proxyauth" in first_bytes(path, FILE_BYTES_MAX)
                for path in paths
            )
        if has_proxyauth:
            from mitmproxy.addons import proxyauth

            addons.append(proxyauth.ProxyAuth())
        addons += [
            proxyserver.Proxyserver(),
            script.ScriptLoader(),
            PriorKnowledge(),
            chooser or next_layer.NextLayer(),
            save.Save(),
            tlsconfig.TlsConfig(),
            upstream_auth.UpstreamAuth(),
        ]
        if passes_on:
            addons.append(PassOn())
        addons += [recorder, StartCheck(on_started), *last]
        self.addons.add(*addons)

    async def run(self) -> None:
        """Refuse unknown options, then run until the proxy stops."""
        if not self.options.scripts:
            # mitmproxy would ignore what it does not know. A configuration file may hold options of
            # addons that the lean master leaves out; those are ignored.
            for name in self.options.deferred:
                if name in self._named:
                    near = get_close_matches(name, list(self.options.keys()), 1)
                    ending = f"; did you mean {near[0]}?" if near else ""
                    sys.stderr.write(f"tokentee: run has no option --set {name}{ending}\n")
                    sys.exit(2)
            # Log connections only if the terminal shows them, and make no `add_log` events: only a
            # script could see either. Both took 4 % of a JSON answer's CPU (measured).
            self._legacy_log_events.uninstall()
            logging.getLogger(server.__name__).setLevel(self.options.termlog_verbosity.upper())
        await super().run()


def hear_no_half_made_loops() -> None:
    """Let a Ctrl-C that comes while Python makes an event loop end the run without a traceback: a
    loop that is half made fails as it is collected."""
    say = sys.unraisablehook

    def hear(failure: sys.UnraisableHookArgs) -> None:
        if failure.object is not asyncio.BaseEventLoop.__del__:
            say(failure)

    sys.unraisablehook = hear


def run_master(
    make: Callable[[options.Options], RecordingMaster],
    words: Sequence[str],
    defaults: Mapping[str, object],
) -> options.Options:
    """Run one of our masters with mitmdump's command line. Returns its options when the proxy has
    stopped. `defaults`: options that the words may override."""

    def make_with_defaults(opts: options.Options) -> RecordingMaster:
        opts.update(**defaults)
        return make(opts)

    def filters(arguments: Any) -> dict[str, str]:
        """What mitmdump does with filter expressions on its command line."""
        found = " ".join(arguments.filter_args)
        return {"save_stream_filter": found} if found else {}

    hear_no_half_made_loops()
    made = main.run(
        make_with_defaults,  # type: ignore[arg-type]  # it is only called
        cmdline.mitmdump,
        words,
        filters,
    )
    return made.options


def parsed_options(words: Sequence[str]) -> tuple[options.Options, bool]:
    """mitmproxy's options by these words and its configuration file, without those of its addons;
    and whether only errors are logged. Raises WrongCallError."""
    opts = options.Options()
    parser = cmdline.mitmdump(opts)
    # The options of its addons, such as --proxyauth, are unknown here; the proxy parses them.
    arguments, _ = parser.parse_known_args(list(words))
    try:
        opts.set(*arguments.setoptions, defer=True)
        confdir = Path(opts.confdir)
        optmanager.load_paths(opts, confdir / "config.yaml", confdir / "config.yml")
        main.process_options(parser, opts, arguments)
    except exceptions.OptionsError as error:
        raise WrongCallError(str(error)) from error
    return opts, bool(arguments.quiet)
