"""Who is let in: over real HTTP, as a browser and as a stranger would ask."""

import http.client

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ledger.model.errors import LedgerError
from ledger.pages.live import server
from ledger.pages.live.guard import Guard
from tests.ledger.pages.serving import Page, running

TOKEN = "t0ken"


@pytest.fixture(scope="module")
def site():
    """A guarded page that says what it was asked."""

    def said(request):
        return PlainTextResponse(str(request.url.query))

    # It takes any method itself, so that only the guard can refuse one.
    methods = ["GET", "HEAD", "POST", "PUT", "DELETE"]
    inner = Starlette(routes=[Route("/{path:path}", said, methods=methods)])
    with running(lambda port: Guard(app=inner, port=port, is_loopback=True, token=TOKEN)) as port:
        yield port


def ask(port, path="/", *, method="GET", cookie=None, host=None, **more):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    for value in [f"127.0.0.1:{port}"] if host is None else host:
        connection.putheader("Host", value)
    if cookie:
        connection.putheader("Cookie", cookie)
    for name, value in more.items():
        connection.putheader(name, value)
    connection.endheaders()
    page = Page.of(connection.getresponse())
    connection.close()
    return page


def cookie_of(port):
    answer = ask(port, f"/?token={TOKEN}")
    return answer.headers["set-cookie"].split(";")[0]


def test_the_token_becomes_a_cookie_and_leaves_the_address(site):
    answer = ask(site, f"/requests?days=7&token={TOKEN}&only=model%3Da")
    assert answer.status == 303
    assert answer.headers["location"] == "/requests?days=7&only=model%3Da"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"tokentee-{site}=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    inside = ask(site, "/?days=7", cookie=f"other=1; {cookie.split(';')[0]}")
    assert (inside.status, inside.text) == (200, "days=7")


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", "/static/page.js", "/?token=%C3%A9"]
)
def test_without_the_cookie_nothing_is_shown(site, path):
    answer = ask(site, path)
    assert answer.status == 401
    assert "Open the address" in answer.text


@pytest.mark.parametrize("cookie", ["tokentee=1", "tokentee-{}=guess", "tokentee-{}=", "\x7f=;;="])
def test_another_cookie_is_none(site, cookie):
    assert ask(site, cookie=cookie.format(site)).status == 401


@pytest.mark.parametrize(
    "hosts",
    [
        ["evil.example:{}"],
        ["127.0.0.1"],
        ["127.0.0.1:1"],
        ["localhost.evil.example:{}"],
        ["10.0.0.7:{}"],
        ["127.0.0.1:{}", "evil.example:{}"],
        [],
    ],
)
def test_a_foreign_host_header_is_refused_even_with_the_cookie(site, hosts):
    answer = ask(site, cookie=cookie_of(site), host=[host.format(site) for host in hosts])
    assert answer.status in (400, 421)  # the parser refuses what HTTP/1.1 forbids


@pytest.mark.parametrize("host", ["localhost:{}", "127.0.0.1:{}", "[::1]:{}", "127.8.8.8:{}"])
def test_the_names_of_this_machine_are_let_in(site, host):
    assert ask(site, cookie=cookie_of(site), host=[host.format(site)]).status == 200


def test_only_reading_is_allowed(site):
    for method in ("POST", "PUT", "DELETE"):
        assert ask(site, method=method, cookie=cookie_of(site)).status == 405


def test_a_redirect_stays_here(site):
    for path in ("//evil.example/", "/\\evil.example/"):
        location = ask(site, f"{path}?token={TOKEN}").headers["location"]
        assert location == "/evil.example/"


def test_every_answer_carries_the_policy(site):
    for path in ("/", f"/?token={TOKEN}"):
        answer = ask(site, path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("host", "is_loopback", "is_let_in"),
    [
        ("10.0.0.7:80", False, True),
        ("10.0.0.7", False, True),
        ("10.0.0.7", True, False),
        ("localhost", True, True),
        ("evil.example", False, False),
    ],
)
def test_port_80_and_other_addresses(host, is_loopback, is_let_in):
    guard = Guard(app=Starlette(), port=80, is_loopback=is_loopback, token=TOKEN)
    assert guard._is_our_host([host]) is is_let_in


def test_a_taken_port_is_one_line():
    taken = server.listen("127.0.0.1", 0)
    try:
        with pytest.raises(LedgerError, match=r"cannot listen on 127\.0\.0\.1:.*--port"):
            server.listen("127.0.0.1", taken.getsockname()[1])
    finally:
        taken.close()
