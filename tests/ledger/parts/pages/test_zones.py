"""Pages of a zone: each of their days has the figures that `report` has for it."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from ledger.maintenance import rollup
from ledger.model.errors import WrongCallError
from ledger.store import db
from ledger.text.period import zone_of
from tests.app import APP
from tests.ledger.parts.pages.serving import pages
from tests.ledger.parts.pages.test_html_file import Elements
from tests.ledger.priced import exchange, fill, settled
from tests.ledger.priced import reading as usage

pytestmark = pytest.mark.large
CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),
    "Asia/Kathmandu": ("2026-03-29", "2026-10-25"),
    "UTC": ("2026-03-29", "2026-10-25"),
}
BY_DEFAULT = {
    *(("Europe/Berlin", 1), ("America/New_York", 0)),
    *(("Australia/Lord_Howe", 0), ("Australia/Lord_Howe", 1), ("Asia/Kathmandu", 0)),
}
"""A day of 23, of 24½, of 25 hours, and one that never changes."""
NOW = datetime(2026, 11, 9, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A request each 37 minutes around the changes, with the sums of all days but the last."""
    url = f"sqlite:///{tmp_path_factory.mktemp('zones') / 'ledger.sqlite3'}"
    moments = [
        datetime.fromisoformat(f"{day}T00:00Z") + timedelta(minutes=37 * step)
        for day in sorted({each for days in CHANGES.values() for each in days})
        for step in range(-50, 100)
    ]
    fill(
        url,
        [
            (settled(exchange(at=at, id=f"e{n}")), usage(at=at, input_tokens=n + 1))
            for n, at in enumerate(moments)
        ],
    )
    with db.disposing(db.ensure(url)) as engine:
        rollup.roll(engine, now=NOW)
    return url


def told(url, *words):
    done = CliRunner().invoke(APP, [*words, "--ledger", url])
    assert done.exit_code == 0, done.output
    return done.stdout


def drawn(text, measure):
    """Bar -> its height, of the one model."""
    blocks = [json.loads(each) for each in Elements(text).scripts["application/json"]]
    (stack,) = (each for each in blocks if each.get("word") == "model")
    (heights,) = stack[measure]
    return {bar: height for bar, height in zip(stack["bars"], heights, strict=True) if height}


@pytest.mark.parametrize(
    ("zone", "place"),
    [
        pytest.param(zone, place, marks=() if (zone, place) in BY_DEFAULT else pytest.mark.nightly)
        for zone in CHANGES
        for place in (0, 1)
    ],
)
def test_each_day_has_the_figures_of_the_report(url, tmp_path, zone, place):
    change = datetime.fromisoformat(CHANGES[zone][place])
    since, until = (f"{change + timedelta(days=days):%Y-%m-%d}" for days in (-2, 4))
    of_zone = ("--since", since, "--until", until, "--timezone", zone)
    told(url, "report", "--html", str(tmp_path / "page.html"), *of_zone)
    rows = json.loads(told(url, "report", "--by", "day", "-f", "json", *of_zone))["rows"]
    assert CHANGES[zone][place] in {row["day"] for row in rows}
    clock = NOW.astimezone(zone_of(zone))
    with pages(url, now=lambda: clock) as site:
        live = site.get(f"/?since={since}&until={until}").text
        for text in ((tmp_path / "page.html").read_text(), live):
            assert drawn(text, "requests") == {row["day"]: row["requests"] for row in rows}
            assert drawn(text, "microusd") == {
                row["day"]: row["cost_picousd"] // 10**6 for row in rows
            }
            assert f"2026 {zone}" in Elements(text).text
        for row in rows:  # a bar leads to its requests, as does an hour of the day
            end = datetime.fromisoformat(row["day"]) + timedelta(days=1)
            day = f"since={row['day']}&until={end:%Y-%m-%d}"
            assert site.get(f"/requests?{day}").text.count("<summary><span>") == row["requests"]
        day = f"since={change:%Y-%m-%d}&until={change + timedelta(days=1):%Y-%m-%d}"
        hours = drawn(site.get(f"/?{day}").text, "requests")
        (of_day,) = (row["requests"] for row in rows if row["day"] == f"{change:%Y-%m-%d}")
        assert sum(hours.values()) == of_day
        for hour, count in hours.items():
            begin = datetime.fromisoformat(f"{hour}:00")
            between = f"since={begin:%Y-%m-%dT%H:%M:%S}"
            between += f"&until={begin + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}"
            assert site.get(f"/requests?{between}").text.count("<summary><span>") == count


@pytest.mark.parametrize("words", [("report", "--html", "page.html"), ("serve",)])
def test_a_zone_that_is_none_is_a_wrong_call(url, words):
    done = CliRunner().invoke(APP, [*words, "--timezone", "Europe/Berlni", "--ledger", url])
    assert isinstance(done.exception, WrongCallError)  # one line, and exit code 2
    assert "'Europe/Berlni'" in str(done.exception)
    assert "\n" not in str(done.exception)
