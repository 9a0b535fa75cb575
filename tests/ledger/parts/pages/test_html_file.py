"""The page as a file: the figures of `report`, nothing from elsewhere, nothing that runs."""

import base64
import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from ledger.figures.queries import report
from ledger.model.errors import LedgerError
from ledger.parts.pages import html_file
from ledger.store import db
from ledger.store.scope import Scope
from ledger.text import figures
from tests.ledger.parts.pages.conftest import NOW
from tests.ledger.written import charge, put, settled, whole

pytestmark = pytest.mark.large

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'};alert(1);//",
    "</script><script>alert(1)</script>",
    "{{ 7*7 }}{% raw %}",
    "\x1b[2J\x07bell",
    "abc\u202etxt.exe\u2066",
    "`rm -rf`",
    "x" * 500,
)
SIZE_MAX = 2 * 1024 * 1024


class Elements(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, list[str]] = {"": [], "application/json": []}
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs).get("type", "") if tag == "script" else None
        if self._script is not None:
            self.scripts[self._script].append("")

    def handle_endtag(self, tag):
        self._script = None if tag == "script" else self._script

    def handle_data(self, data):
        if self._script is not None:
            self.scripts[self._script][-1] += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def page(weeks_file):
    """The page of ten days."""
    with db.disposing(db.ensure(f"sqlite:///{weeks_file}")) as engine:
        yield html_file.page(engine, Scope(since=NOW - timedelta(days=10)), now=NOW)


def hostile_ledger(engine):
    for place, text in enumerate(HOSTILE):
        exchange = settled(
            f"{place}-{text[:40]}",
            at=NOW - timedelta(hours=place + 1),
            response_model=text,
            provider=text,
            session_id=text,
            key_fingerprint=text,
            key_hint=text[-4:],
            tags={"team": text},
            finish_reason=text,
            user_agent=text,
            error_message=text,
        )
        lines = [charge("output", 10, None if place % 2 else 10**9, reason=text)]
        put(engine, whole(exchange, lines))


def test_the_total_and_every_line_are_the_reports(page, weeks):
    found = report(weeks, ["model"], Scope(since=NOW - timedelta(days=10)))
    elements = Elements(page)
    total = found.total.figures
    assert figures.money(total.cost_picousd, is_lower_bound=total.unpriced > 0) in elements.text
    titles = [attrs.get("title") for _, attrs in elements.tags]
    assert figures.exact_money(total.cost_picousd) in titles
    for row in found.rows:
        assert row.key[0] is not None
        assert row.key[0] in elements.text
        assert figures.exact_money(row.figures.cost_picousd) in titles
        assert f"{row.figures.requests:,}" in elements.text
    assert figures.money(total.saved_picousd) in elements.text
    stacks = [json.loads(text) for text in elements.scripts["application/json"]]
    (by_model,) = (each for each in stacks if each.get("word") == "model")
    drawn = sum(sum(row) for row in by_model["microusd"])
    assert total.cost_picousd is not None
    assert abs(drawn - total.cost_picousd // 10**6) <= 8 * len(by_model["bars"])


def test_nothing_comes_from_elsewhere(page):
    for tag, attrs in Elements(page).tags:
        assert tag not in ("iframe", "object", "embed", "base", "form")
        for name in ("src", "href", "action", "data"):
            assert (attrs.get(name) or "data:").startswith("data:"), (tag, attrs)
    assert "@import" not in page
    assert "url(" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert len(page.encode()) < SIZE_MAX


def test_the_policy_allows_our_scripts_and_no_other(page):
    elements = Elements(page)
    (policy,) = (
        attrs["content"]
        for tag, attrs in elements.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(elements.scripts[""]) == 2
    for script in elements.scripts[""]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not any(name == "style" or name.startswith("on") for _, a in elements.tags for name in a)


def test_hostile_text_is_shown_and_does_nothing(sqlite_engine):
    plain = Elements(html_file.page(sqlite_engine, Scope(), now=NOW))
    hostile_ledger(sqlite_engine)
    text = html_file.page(sqlite_engine, Scope(), now=NOW)
    elements = Elements(text)
    assert {tag for tag, _ in elements.tags} - {tag for tag, _ in plain.tags} <= {
        "button", "canvas", "details", "dl", "dt", "dd", "fieldset", "legend", "input", "label",
        "figure", "figcaption", "header", "summary", "table", "thead", "tbody", "tr", "th", "td",
        "svg", "rect", "b", "i", "strong", "ul", "li", "div", "p", "a", "h2", "code", "span",
    }  # fmt: skip
    assert len(elements.scripts[""]) == 2
    assert "img" not in {tag for tag, _ in elements.tags}
    assert not any(name.startswith("on") for _, attrs in elements.tags for name in attrs)
    assert "<script>alert(1)</script>" in elements.text
    assert "{{ 7*7 }}{% raw %}" in elements.text
    assert "\\x1b[2J" in elements.text
    assert "abc\\u202etxt.exe\\u2066" in elements.text
    for character in "\x1b\x07\u202e\u2066":
        assert character not in text
    assert "x" * 50 in text  # whole in a tooltip
    assert "x" * 50 not in elements.text
    for script in elements.scripts["application/json"]:
        json.loads(script)


def test_an_empty_ledger_says_how_to_fill_it(engine):
    elements = Elements(html_file.page(engine, Scope(), now=NOW))
    assert "No requests in this period" in elements.text
    assert "tokentee run" in elements.text
    assert "Nothing is wrong" not in elements.text


def test_a_sound_ledger_says_so(sqlite_engine):
    lines = [charge("output", 10, 10**9)]
    put(sqlite_engine, whole(settled("a", at=NOW - timedelta(hours=1)), lines))
    scope = Scope(since=NOW - timedelta(days=1))
    text = html_file.page(sqlite_engine, scope, now=NOW)
    assert "Nothing is wrong" in text
    assert "day before" not in text, "nothing was recorded then"
    put(sqlite_engine, whole(settled("b", at=NOW - timedelta(days=3)), lines))
    assert "nothing in the day before" in html_file.page(sqlite_engine, scope, now=NOW)


def test_a_file_that_cannot_be_written_is_one_line(engine, tmp_path):
    with pytest.raises(LedgerError, match=r"cannot write .*: No such file"):
        html_file.write(html_file.page(engine, Scope(), now=NOW), tmp_path / "nowhere" / "x.html")


@pytest.mark.parametrize("is_there", [False, True])
def test_only_its_owner_can_read_a_file(engine, tmp_path, is_there):
    path = tmp_path / "x.html"
    if is_there:
        path.write_text("an older page" * 100_000)
        path.chmod(0o644)
    size = html_file.write(html_file.page(engine, Scope(), now=NOW), path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size == size


def test_a_page_goes_into_a_pipe(engine, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path, mode=0o644)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(path.read_bytes)
        size = html_file.write(html_file.page(engine, Scope(), now=NOW), path)
        assert len(read.result(60)) == size
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_file_is_written_whole(engine, tmp_path):
    size = html_file.write(html_file.page(engine, Scope(), now=NOW), tmp_path / "x.html")
    assert (tmp_path / "x.html").stat().st_size == size
