"""The live page: what it answers, what it costs to ask again, and that it ends."""

import csv
import html
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ledger.figures.queries import report
from ledger.parts.pages import sections
from ledger.parts.pages.live import read_only, server
from ledger.store.scope import Scope
from ledger.text import figures
from tests.app import APP
from tests.ledger.parts.pages.conftest import NOW
from tests.ledger.parts.pages.serving import pages
from tests.ledger.parts.pages.test_html_file import HOSTILE, Elements, hostile_ledger
from tests.ledger.written import put, settled, whole

pytestmark = pytest.mark.large


@pytest.fixture
def site(weeks, weeks_url):
    """The pages of some weeks, read-only."""
    with pages(weeks_url, now=lambda: NOW) as client:
        yield client


def test_the_first_screen_has_the_reports_total(site, weeks):
    answer = site.get("/?days=10")
    assert answer.status == 200
    since = NOW.replace(hour=0, minute=0) - timedelta(days=9)
    total = report(weeks, ["model"], Scope(since=since)).total.figures
    assert figures.exact_money(total.cost_picousd) in answer.text


def links(text: str) -> list[str]:
    return [attrs["href"] or "" for _, attrs in Elements(text).tags if "href" in attrs]


def pages_of(site, address: str) -> Iterator[str]:
    """The pages of a list."""
    while address:
        page = site.get(address)
        assert page.status == 200
        yield page.text
        (address,) = [
            link for link in links(page.text) if re.match(r"/requests\?.*before=", link)
        ] or [""]


def listed(site, address: str) -> list[str]:
    """The ids of all requests of a list, over its pages."""
    found: list[str] = []
    for text in pages_of(site, address):
        found += re.findall(r'<a href="/exchange/([^"]+)"', text)
    return found


def test_tiles_and_warnings_lead_to_the_requests_that_they_count(site, weeks):
    text = site.get("/?days=10").text
    since = NOW.replace(hour=0, minute=0) - timedelta(days=9)
    total = report(weeks, ["model"], Scope(since=since)).total.figures
    expected = {
        "kind=errors": total.errors,
        "kind=unpriced": total.without_price,
        "kind=complete_without_usage": total.complete_without_usage,
    }
    for pair, count in expected.items():
        (address,) = {link for link in links(text) if link.endswith(pair)}
        assert len(listed(site, address)) == count > 0, pair
    everything = listed(site, "/requests?days=10")
    assert len(everything) == len(set(everything)) == total.requests


def test_a_form_narrows_and_each_condition_can_be_removed(site):
    errors = listed(site, "/requests?days=10&kind=errors")
    page = site.get("/requests?days=10&outcome=http_error&model=gpt-5&key=&min_cost=0&tag=")
    assert page.status == 200
    removed = [link for link in links(page.text) if link.startswith("/requests?")]
    assert len(removed) == 3
    narrow = listed(site, "/requests?days=10&outcome=http_error&model=gpt-5")
    assert 0 < len(narrow) < len(errors)
    assert set(narrow) < set(errors)
    of_status = listed(site, "/requests?days=10&http_status=4*")
    assert 0 < len(of_status) < len(errors)
    for wrong in ("kind=x", "min_cost=x", "before=x", "min_seconds=-1"):
        assert site.get(f"/requests?days=10&{wrong}").status == 400


def test_commands_that_a_page_advises_run_as_they_stand(site, weeks_url, weeks):
    """Each is called with nothing but the ledger."""
    text = site.get("/?days=10").text
    part = text[text.index('class="problems"') :]
    commands = [
        html.unescape(re.sub("<[^>]+>", "", each))
        for each in re.findall("<code>(tokentee .*?)</code>", part[: part.index("</ul>")])
    ]
    assert len(commands) >= 3
    runner = CliRunner(env={"TOKENTEE_LEDGER": weeks_url})
    for command in commands:
        words = shlex.split(command)[1:]
        done = runner.invoke(APP, [*words, *(["--dry-run"] if words[0] == "reprice" else [])])
        assert done.exit_code == 0, (command, done.output, done.exception)


def test_filters_and_parts(site):
    page = site.get("/?days=10&only=model%3Dgpt-5")
    elements = Elements(page.text)
    assert "model = gpt-5 ×" in elements.text
    parts = [attrs["data-load"] or "" for _, attrs in elements.tags if "data-load" in attrs]
    assert len([part for part in parts if part.startswith("/section/")]) == 3
    for part in parts:
        answer = site.get(part)
        assert answer.status == 200
        assert "<html" not in answer.text
    assert "first token" in site.get("/rows?days=10&row=model%3Dgpt-5").text


def test_down_to_one_request(site, weeks):
    listed = Elements(site.get("/requests?days=10&only=model%3Dgpt-5").text)
    links = (attrs.get("href") or "" for _, attrs in listed.tags)
    paths = [link for link in links if link.startswith("/exchange/")]
    one = site.get(paths[0])
    assert one.status == 200
    assert ">uncached_input<" in one.text
    assert "genai-prices 0.2.3" in one.text
    name = paths[0].rpartition("/")[2]
    assert site.get(f"/exchange?id={name}").headers["location"] == paths[0]
    assert site.get("/exchange?id=").headers["location"] == "/"


def test_tables_and_lists_are_there_as_csv(site, weeks):
    """The links of the page; the sums are those of the report, the rows those of the list."""
    words = {}
    for href in (each for each in links(site.get("/?days=10").text) if "/report.csv" in each):
        rows = list(csv.DictReader(site.get(href).text.splitlines()))
        words[href.rpartition("by=")[2]] = sum(int(row["requests"]) for row in rows)
    since = NOW.replace(hour=0, minute=0) - timedelta(days=9)
    requests = report(weeks, ["model"], Scope(since=since)).total.figures.requests
    assert words
    assert set(words.values()) == {requests}
    found = []
    for text in pages_of(site, "/requests?days=10"):
        (href,) = [each for each in links(text) if each.startswith("/requests.csv")]
        found += [row["id"] for row in csv.DictReader(site.get(href).text.splitlines())]
    assert found == listed(site, "/requests?days=10")
    assert len(found) > server.PAGE_REQUESTS


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/?days=x", 400, "not a number of days"),
        ("/?only=nothing%3D1", 400, "no such dimension:"),
        ("/exchange/nothing-like-it", 400, "no exchange has an id"),
        ("/section/none", 400, "no part of a page is called"),
        ("/rows?days=1", 400, "not a condition"),
        ("/rows?row=model%3Da&at=later", 400, "not a day"),
        ("/?days=0000019999999999", 400, "not a number of days"),
        ("/static/none.js", 404, "Not found"),
        ("/none", 404, "Not Found"),
        ("/report.csv?by=nothing", 400, "no such dimension:"),
        ("/requests.csv?min_cost=x", 400, "not a number of USD"),
    ],
)
def test_what_cannot_be_answered_is_said(site, path, status, reason):
    answer = site.get(path)
    assert answer.status == status
    assert reason in Elements(answer.text).text


VALUES = st.text(max_size=30) | st.sampled_from(
    ["0" * 400 + "9" * 400, "-1", "1e9", "9999-12-31", "0001-01-01", "model=", "=", "\x00", "%"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(
        [
            "/",
            "/section/sessions",
            "/rows",
            "/requests",
            "/exchange",
            "/requests.csv",
            "/report.csv",
        ]
    ),
    name=st.sampled_from(
        ["days", "since", "until", "only", "row", "at", "id", "page", "sort", "by"]
    ),
    value=VALUES,
)
def test_no_parameter_is_an_error_of_ours(site, path, name, value):
    query = urllib.parse.urlencode({name: value}, errors="surrogatepass")
    assert site.get(f"{path}?{query}").status in (200, 303, 400, 404)


@contextmanager
def serving(url):
    """The command in a process of its own, and the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from addon.cli import main; main()", "serve", "--port", "0",
         "--ledger", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def opened(url):
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    return opener.open(url, timeout=30)


@pytest.mark.process
def test_half_sent_requests_keep_nobody_away(weeks_url):
    with serving(weeks_url) as (_, url):
        address = urllib.parse.urlsplit(url)
        half = []
        for _ in range(server.PAGE_CONNECTIONS_MAX + 10):
            one = socket.create_connection((address.hostname or "", address.port or 0))
            one.sendall(b"GET / HTTP/1.1\r\n")
            half.append(one)
        with opened(url) as answer:
            assert answer.status == 200
        for one in half:
            one.close()


def test_asking_again_costs_nothing_until_something_is_written(
    weeks, weeks_url, monkeypatch, noted
):
    monkeypatch.setattr(server, "SLOW_SECONDS", 60)  # also where the tests' machine is busy
    asked = noted(sections, "overview")
    with pages(weeks_url, now=lambda: NOW) as site:
        first = site.get("/")
        tag = first.headers["etag"]
        again = site.get("/", **{"If-None-Match": tag})
        assert (again.status, again.text) == (304, "")
        assert site.get("/").text == first.text
        assert len(asked) == 1
        put(weeks, whole(settled("new", at=NOW - timedelta(minutes=1))))
        changed = site.get("/", **{"If-None-Match": tag})
        assert changed.status == 200
        assert changed.headers["etag"] != tag


@pytest.mark.postgres
def test_on_postgresql(new_postgres):
    url = new_postgres()
    put(url, whole(settled("one", at=NOW - timedelta(minutes=1))))
    with pages(url, now=lambda: NOW) as site:
        assert "1 request" in site.get("/requests?days=1").text
        assert site.get("/?days=2").status == 200
        for part in ("speed", "teams", "sessions"):
            assert site.get(f"/section/{part}?days=2").status == 200


def test_hostile_text_on_every_page(sqlite_engine):
    hostile_ledger(sqlite_engine)
    with pages(str(sqlite_engine.url), now=lambda: NOW) as site:
        first = Elements(site.get("/?days=2").text)
        links = [
            value
            for _, attrs in first.tags
            for name in ("href", "data-load")
            if (value := attrs.get(name) or "").startswith("/") and not value.startswith("/static")
        ]
        listed = Elements(site.get("/requests?days=2").text)
        for tag, attrs in listed.tags:
            if tag == "a":
                assert attrs["href"]
                links.append(attrs["href"])
        assert len(set(links)) > 3 * len(HOSTILE)
        for link in sorted(set(links)):
            answer = site.get(link)
            assert answer.status == 200, link
            if answer.headers["content-type"].startswith("text/csv"):
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["content-disposition"].startswith("attachment;")
                continue
            elements = Elements(answer.text)
            assert elements.scripts[""] in ([], ["", ""])
            assert "img" not in {tag for tag, _ in elements.tags}
            assert not any(name.startswith("on") for _, attrs in elements.tags for name in attrs)
            for character in "\x1b\x07\u202e\u2066":
                assert character not in answer.text


def answer(tag, good_until=0.0):
    return server.RenderedPage(tag=tag, text=tag, good_until=good_until)


def test_only_so_many_answers_are_kept():
    kept = server.PageCache()
    for number in range(server.KEPT_MAX + 5):
        kept.put(str(number), answer("x"))
        kept.get("0", "x")
    assert len(kept.answers) == server.KEPT_MAX
    assert kept.get("0", "x") is not None
    assert kept.get("1", "x") is None


def test_a_slow_answer_holds_for_some_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    kept = server.PageCache()
    kept.put("/", answer("old", good_until=120))
    assert kept.get("/", "new") == answer("old", good_until=120)
    now[0] = 120
    assert kept.get("/", "new") is None
    assert kept.get("/", "old") == answer("old", good_until=120)


@pytest.mark.process
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_address_and_ends(weeks_url, how):
    with serving(weeks_url) as (process, url):
        with opened(url) as answer:
            assert "token" not in answer.url
            assert b"Tokentee" in answer.read()
        process.send_signal(how)
        _, said = process.communicate(timeout=30)
    assert process.returncode in (0, -how)
    assert "Traceback" not in said


def test_a_read_only_engine_cannot_write(either):
    url = either.url.render_as_string(hide_password=False)
    engine = read_only.open_read_only(url)
    with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError, match=r"(?i)read.?only"):
        connection.execute(sa.text("DELETE FROM sums"))
    engine.dispose()
