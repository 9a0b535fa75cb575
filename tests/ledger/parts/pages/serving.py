"""A server of pages on a thread, and a client with its cookie."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message

import uvicorn

from ledger.parts.pages.live import server
from ledger.parts.pages.live.read_only import open_read_only
from ledger.parts.pages.live.server import Pages
from ledger.store import db

TOKEN = "a-token"
STOP_SECONDS_MAX = 60


@contextmanager
def running(make_app) -> Iterator[int]:
    """`make_app(port)`, served; gives the port."""
    on = server.listen("127.0.0.1", 0)
    port = on.getsockname()[1]
    config = uvicorn.Config(
        make_app(port), log_level="warning", access_log=False, ws="none", lifespan="off"
    )
    serving = uvicorn.Server(config)
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [on]})
    thread.start()
    try:
        yield port
    finally:
        serving.should_exit = True
        thread.join(STOP_SECONDS_MAX)
        on.close()
        assert not thread.is_alive()


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a server answered, read to its end."""

    status: int
    headers: Message
    text: str

    @classmethod
    def of(cls, answer: http.client.HTTPResponse) -> "Page":
        return cls(status=answer.status, headers=answer.headers, text=answer.read().decode())


class Client:
    """A browser without a window: one cookie, no redirects."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""
        self.cookie = self.get(f"/?token={TOKEN}").headers["set-cookie"].split(";")[0]

    def get(self, path: str, **headers: str) -> Page:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Cookie": self.cookie, **headers})
        page = Page.of(connection.getresponse())
        connection.close()
        return page


@contextmanager
def pages(place, **more) -> Iterator[Client]:
    """The live pages of an engine's ledger or of a URL, read-only, and a client that is let in."""
    if isinstance(place, str):
        with db.disposing(open_read_only(place)) as engine, pages(engine, **more) as client:
            yield client
        return
    made = Pages(place, **more)
    with running(
        lambda port: server.application(made, port=port, is_loopback=True, token=TOKEN)
    ) as port:
        yield Client(port)
