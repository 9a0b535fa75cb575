"""Forks a mitmdump for each request that comes over a socket. Run by `tests/proxy/forked.py`.

The imports of mitmproxy and of the addon are done once. A forked process then starts as one from
the command line does: its arguments, environment, folder and output are its own, it runs
mitmproxy's entry point, and the interpreter ends in the ordinary way.
"""

import json
import os
import selectors
import signal
import socket
import sys

import mitmproxy.tools.dump  # noqa: F401  # loaded before anything forks
from mitmproxy.tools.main import mitmdump

import addon.proxy.recorder  # noqa: F401

REQUEST_BYTES_MAX = 1 << 20


def serve(requests: socket.socket) -> bool:
    """Fork until the other side is gone: False. In each forked process: True."""
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
        data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 2)
        if not data:
            return False
        output, exit_code = descriptors
        process = os.fork()
        if process == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for opened in (selector, awake, waker, requests):
                opened.close()
            for descriptor in (exit_code, *exits.values()):
                os.close(descriptor)
            become(json.loads(data), output)
            return True
        os.close(output)
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


def become(request: dict[str, object], output: int) -> None:
    """Take over the output, folder, environment and arguments of a request."""
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.argv = ["mitmdump", *request["arguments"]]  # type: ignore[misc]
    sys.path.insert(0, "")


if __name__ == "__main__" and serve(socket.socket(fileno=int(sys.argv[1]))):
    mitmdump()
