"""Forks a program for each request that comes over a socket. Run by `tests/proxy/forked.py`.

The imports of mitmproxy and of the addon are done once. A forked process then starts as one from
the command line does: its arguments, environment, folder and output are its own, it runs
the program's entry point, and the interpreter ends in the ordinary way.
"""

import gc
import json
import os
import selectors
import signal
import socket
import sys

import genai_prices.data  # noqa: F401
import mitmproxy.tools.dump  # noqa: F401  # loaded before anything forks
from mitmproxy.tools import main as tools

import addon.proxy.recorder
import addon.proxy.wrapped
import addon.run.proxied_command  # noqa: F401
from addon import cli

REQUEST_BYTES_MAX = 1 << 20


def run_code() -> None:
    """As `python -c`."""
    exec(sys.argv.pop(1), {"__name__": "__main__"})


PROGRAMS = {
    "mitmdump": tools.mitmdump,
    "mitmweb": tools.mitmweb,
    "tokentee": cli.main,
    "python": run_code,
}


def serve(requests: socket.socket) -> str | None:
    """Fork until the other side is gone: None. In each forked process: its program."""
    awake, waker = socket.socketpair()
    for each in (awake, waker):
        each.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    exits: dict[int, int] = {}
    selector = selectors.DefaultSelector()
    for each in (awake, requests):
        selector.register(each, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        if awake in ready:
            awake.recv(4_096)
            report_ended(exits)
        if requests not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
        if not data:
            return None
        output, errors, exit_code = descriptors
        process = os.fork()
        if process == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for opened in (selector, awake, waker, requests):
                opened.close()
            for descriptor in (exit_code, *exits.values()):
                os.close(descriptor)
            return become(json.loads(data), output, errors)
        os.close(output)
        os.close(errors)
        exits[process] = exit_code
        requests.send(b"%d" % process)


def report_ended(exits: dict[int, int]) -> None:
    """Write the exit code of each process that has ended into its pipe."""
    while exits:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        descriptor = exits.pop(process)
        os.write(descriptor, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(descriptor)


def become(request: dict[str, object], output: int, errors: int) -> str:
    """Take over the output, folder, environment and arguments of a request; it gives the program."""
    for standard, given in ((1, output), (2, errors)):
        os.dup2(given, standard)
        os.close(given)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    program = str(request["program"])
    sys.argv = [program, *request["arguments"]]  # type: ignore[misc]
    sys.path.insert(0, "")
    return program


if __name__ == "__main__":
    gc.freeze()  # what is shared is not written to
    if program := serve(socket.socket(fileno=int(sys.argv[1]))):
        PROGRAMS[program]()  # type: ignore[operator]
