"""What a live page is asked, and by whom: its address, read and written; who is let in, over real HTTP,
as a browser and as a stranger would ask; read-only access, its deadline, and how a change is seen."""

import http.client
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import parse_qsl

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ledger.figures.figures import Figures
from ledger.model.errors import LedgerError
from ledger.parts.pages.live import address, read_only, server
from ledger.parts.pages.live.guard import Guard
from ledger.parts.pages.sections import PageRow
from ledger.store import db
from tests.ledger.parts.pages.conftest import NOW
from tests.ledger.parts.pages.serving import Page, running
from tests.ledger.written import alter, put, rows, settled, whole
from tests.named import for_each

TODAY = datetime(2026, 11, 21, tzinfo=UTC)


def parse(*pairs):
    return address.parse(pairs, now=NOW)


def row(value, **more):
    return PageRow(word="model", value=value, label="x", sums=Figures(), share=Decimal(0), **more)


def test_without_a_word_it_is_thirty_days():
    found = parse()
    assert found.question.period.since == TODAY - timedelta(days=29)
    assert found.question.period.until is None
    assert found.time == (("days", "30"),)
    assert [name for name, _, is_current in found.presets() if is_current] == ["30 days"]


def test_since_and_until_as_report_takes_them():
    found = parse(("since", "2026-11-01"), ("until", "2026-11-08"), ("only", "model=a=b"))
    assert found.question.period.until == datetime(2026, 11, 8, tzinfo=UTC)
    assert found.question.only == (("model", "a=b"),)
    assert (found.day("since"), found.day("until")) == ("2026-11-01", "2026-11-08")
    assert found.section("speed") == (
        "/section/speed?since=2026-11-01&until=2026-11-08&only=model%3Da%3Db"
    )
    assert parse(("until", "2026-11-08")).question.period.since is None


def test_each_preset_is_an_address_of_its_period():
    begins = {}
    for name, href, _ in parse(("only", "key=k")).presets():
        found = parse(*parse_qsl(href.removeprefix("/?")))
        assert [each for each, _, is_current in found.presets() if is_current] == [name]
        assert found.question.only == (("key", "k"),)
        begins[name] = found
    month, last = begins["this month"], begins["last month"]
    assert month.question.period.since == datetime(2026, 11, 1, tzinfo=UTC)
    assert month.question.period.until is None
    assert (month.day("since"), month.day("until")) == ("2026-11-01", "")
    assert last.question.period.since == datetime(2026, 10, 1, tzinfo=UTC)
    assert (last.day("since"), last.day("until")) == ("2026-10-01", "2026-11-01")
    assert begins["7 days"].day("since") == ""


def test_links_keep_the_period_and_add_the_line():
    found = parse(("days", "7"), ("only", "key=k"))
    assert found.link(row("gpt-5")) == "/?days=7&only=key%3Dk&only=model%3Dgpt-5"
    assert found.link(row("a&b", last_time="2026-11-20"), "rows") == (
        "/rows?days=7&only=key%3Dk&at=2026-11-20&row=model%3Da%26b"
    )
    assert found.link(row("x"), "rows") == "/rows?days=7&only=key%3Dk&row=model%3Dx"
    assert found.link(None) == "/requests?days=7&only=key%3Dk"
    assert list(found.chosen("/")) == [("key", "k", "/?days=7")]


@for_each(
    "pairs, reason",
    [
        ([("days", "0")], "not a number of days: '0'"),
        ([("days", "٣")], "not a number of days"),
        ([("days", "9" * 50)], "not a number of days"),
        ([("since", "soon")], "not a date or period: 'soon'"),
        (
            [("since", "2026-11-08"), ("until", "2026-11-01")],
            "ends at 2026-11-01, before it begins at 2026-11-08",
        ),
        ([("only", "model")], "not a condition: 'model'"),
        ([("only", "=x")], "not a condition"),
        ([("only", "model=" + "x" * 600)], "not a condition"),
        ([("only", "model=x")] * 11, "11 conditions; at most 10"),
    ],
)
def test_what_cannot_be_read_is_named(pairs, reason):
    with pytest.raises(LedgerError, match=reason):
        parse(*pairs)


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
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
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


@for_each(
    "host, is_loopback, is_let_in",
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


FOREVER = {
    "sqlite": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n",
    "postgresql": "SELECT pg_sleep(60)",
}


@pytest.mark.large
def test_a_question_has_a_deadline(ledger_url, monkeypatch):
    db.ensure(ledger_url).dispose()
    monkeypatch.setattr(read_only, "QUESTION_SECONDS_MAX", 1)
    with (
        db.disposing(read_only.open_read_only(ledger_url)) as engine,
        pytest.raises(read_only.TooLongError, match="choose a shorter period"),
        read_only.deadline(),
    ):
        rows(engine, FOREVER[engine.dialect.name])


def test_another_trouble_of_the_database_is_one_line(engine):
    with pytest.raises(LedgerError, match="the ledger cannot be read"), read_only.deadline():
        rows(engine, "SELECT * FROM nothing_like_it")


def test_the_version_moves_with_every_commit_and_only_then(url):
    with db.disposing(read_only.open_read_only(url)) as engine:
        before = read_only.version_of(engine)
        assert read_only.version_of(engine) == before
        put(url, whole(settled("one")))
        assert read_only.version_of(engine) != before


def test_no_ledger_is_made(tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        read_only.open_read_only(f"sqlite:///{tmp_path}/none.sqlite3")
    assert list(tmp_path.iterdir()) == []


def test_another_schema_is_refused(url):
    alter(url, "UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(LedgerError, match="run `tokentee db upgrade`"):
        read_only.open_read_only(url)
