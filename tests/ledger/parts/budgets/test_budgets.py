"""The budgets file, and how far a budget is used. Each alert is sent once, whoever sends it."""

import dataclasses
import importlib
import json
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import sqlalchemy as sa
from msgspec import structs
from msgspec.structs import replace

from ledger import recording
from ledger.model.errors import LedgerError
from ledger.model.exchange import UsageSource
from ledger.parts.budgets import alerts, budgets_file
from ledger.parts.budgets.alerts import send_due
from ledger.parts.budgets.budgets_file import Budgets, Destination, read
from ledger.parts.budgets.caps import NOTHING, Budget
from ledger.parts.budgets.status import Status, document, notes, statuses
from ledger.parts.budgets.status import table as status_table
from ledger.parts.budgets.watcher import BudgetWatcher, watcher_of
from ledger.reports.layout import Amount
from ledger.settings.names import NO_NAMES
from ledger.settings.names import read as read_names
from ledger.store.engines import urls
from ledger.store.tables import alerts as table
from ledger.text.period import SPANS
from tests.ledger.priced import BOTH, exchange, fill, filled, reading, settled
from tests.ledger.stated_limits import answered, play, stated
from tests.ledger.written import NOON
from tests.named import for_each

NOW = datetime(2026, 11, 16, tzinfo=UTC)
BUDGETS, _ = read(
    """
    [[budget]]
    name = "all"
    usd = 0.0001
    period = "month"
    thresholds = [50, 80, 100, 300]
    [[budget]]
    name = "today"
    usd = 0.0001
    period = "day"
    """
)


def entries():
    """gpt-4.1 is $2 in and $8 out: $0.00028, and an estimate that is in no total."""
    gpt = exchange("gpt-4.1", id="a", tags={"team": "search"})
    yield settled(gpt), reading(input_tokens=100, output_tokens=10)
    yield (
        settled(structs.replace(gpt, id="b")),
        reading(usage_source=UsageSource.ESTIMATED, input_tokens=100, output_tokens=10),
    )
    yield settled(structs.replace(gpt, id="c", response_model="nobody")), reading(output_tokens=1)


@pytest.fixture(params=BOTH)
def engine(request, tmp_path_factory):
    yield from filled(request, tmp_path_factory, entries())


def test_what_is_spent(engine):
    everything, today = statuses(engine, BUDGETS.budgets, NO_NAMES, NOW)
    assert everything.spent_picousd == 280_000_000
    assert everything.estimated_picousd == 280_000_000
    assert everything.requests_without_price == 1
    assert today.spent_picousd == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[[budget]]\nname = "x"\nusd = 1\nperiod = "months"\n',
            "line 4: budget 1: period: 'months' is not known; did you mean 'month'?; "
            "one of run, session, day, week, month, 5h",
        ),
        (
            '[[cap]]\nname = "x"\nusd = 1\nperiod = "day"\nunpriced = "refused"\n',
            "line 5: cap 1: unpriced: 'refused' is not known; did you mean 'refuse'?; "
            "one of refuse, pass",
        ),
    ],
)
def test_a_wrong_word_gets_the_valid_ones(text, problem):
    _, problems = read(text)
    assert [str(each) for each in problems] == [problem]


def test_a_wrong_file_has_all_its_mistakes_in_one_error(tmp_path):
    path = tmp_path / "budgets.toml"
    path.write_text('[[budget]]\nname = "x"\nusd = 1\nperiod = "months"\n' * 12)
    with pytest.raises(LedgerError) as error:
        budgets_file.load(str(path))
    assert str(error.value).count("'months' is not known") == 10
    assert str(error.value).endswith("; and 2 more")


def test_by_team(engine):
    budgets, _ = read('[[budget]]\nname = "x"\nusd = 1\nperiod = "month"\nteam = "finders"\n')
    names, _ = read_names('[[name]]\ntag = "team=search"\nteam = "finders"\n')
    assert statuses(engine, budgets.budgets, names, NOW)[0].spent_picousd == 280_000_000
    assert statuses(engine, budgets.budgets, NO_NAMES, NOW)[0].spent_picousd == 0


def sent(engine, budgets, now, *destinations):
    """What was posted or logged, and whether all were taken."""
    said: list[tuple[str, str]] = []
    budgets = dataclasses.replace(budgets, destinations=destinations)
    due, taken = send_due(engine, budgets, NO_NAMES, now, lambda *line: said.append(line))
    assert all("secret" not in line for _, line in said)
    return due == taken, [line.removeprefix("tokentee: ") for _, line in said]


def test_each_threshold_and_period_is_sent_once(engine):
    assert sent(engine, BUDGETS, NOW) == (
        True,
        ["budget all, 2026-11: $0.00028 of $0.00010 (100%)"],
    )
    later = NOW + timedelta(seconds=alerts.CLAIM_SECONDS + 1)
    assert sent(engine, BUDGETS, NOW) == sent(engine, BUDGETS, later) == (True, [])
    with engine.connect() as connection:
        rows = connection.execute(sa.select(table).where(table.c.sent_at == NOW)).all()
    assert sorted((row.budget, row.threshold) for row in rows) == [
        ("all", 50),
        ("all", 80),
        ("all", 100),
    ]


def test_one_that_nobody_took_is_sent_again_and_given_up_in_the_end(engine):
    moment, taken = NOW, []
    for _ in range(alerts.ATTEMPTS_MAX + 2):
        taken.append(
            sent(engine, BUDGETS, moment, Destination(webhook="http://127.0.0.1:1/secret"))
        )
        moment += timedelta(seconds=alerts.CLAIM_SECONDS + 1)
    assert [is_taken for is_taken, _ in taken] == [False] * alerts.ATTEMPTS_MAX + [True] * 2
    assert taken[0][1] == ["alert 1 was not delivered: URLError"]
    assert taken[-1][1] == []


def test_several_proxies_send_one_alert(engine):
    found, barrier = [], threading.Barrier(4)

    def check():
        barrier.wait(60)
        found.extend(sent(engine, BUDGETS, NOW)[1])

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum("(100%)" in line for line in found) == 1


class HookServer(HTTPServer):
    """Answers with the codes that it is given, and keeps what was sent to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.codes: list[int] = []
        self.seen: list[tuple[str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/T0/secret"


class Hook(BaseHTTPRequestHandler):
    """Answers as its server was told."""

    server: HookServer

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append((self.path, body))
        self.send_response(self.server.codes.pop(0) if self.server.codes else 200)
        self.send_header("location", "http://127.0.0.1:1/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def hook():
    server = HookServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


QUOTAS, PROBLEMS = read(
    """
    [[quota]]
    window = ["5h", "7d"]
    [[quota]]
    window = "overage"
    above = [1]
    provider = "other"
    """
)


def test_a_limit_is_told_once_for_each_window_and_threshold(sqlite_engine):
    assert not PROBLEMS
    reset = NOON + timedelta(hours=5)

    def told(minutes, *stated):
        play(sqlite_engine, [answered(str(minutes), minutes, "s", "k", stated)])
        return sent(sqlite_engine, QUOTAS, NOON + timedelta(minutes=minutes))[1]

    assert told(0, stated(79, reset), stated(99, None, window="overage")) == []
    assert told(1, stated(80, reset)) == ["limit 5h of example: 80% used (80%)"]
    assert told(2, stated(81, reset + timedelta(seconds=9))) == [], "the same window"
    assert told(3, stated(97, reset), stated(96, reset, window="7d")) == [
        "limit 5h of example: 97% used (95%)",
        "limit 7d of example: 96% used (95%)",
    ]
    assert told(4, stated(98, reset)) == []
    next_window = stated(85, reset + timedelta(hours=5))
    assert told(301, next_window) == ["limit 5h of example: 85% used (80%)"]


@for_each(
    "text, problem",
    [
        ('window = ""', "window: empty"),
        ('window = "5h"\nabove = []', "above: write per cents from 1 to 1000"),
        ('window = "5h"\nabove = [0]', "above: write per cents from 1 to 1000"),
        ('window = "5h"\nprovider = []', "provider: empty"),
        ("above = [80]", "window"),
    ],
)
def test_a_wrong_rule_names_its_place(text, problem):
    _, (found,) = read(f"[[quota]]\n{text}\n")
    assert problem in found.text


@pytest.fixture
def evil(sqlite_engine):
    """A budget that is used up, with a name that a terminal would obey."""
    fill(sqlite_engine, entries())
    return Budgets(
        budgets=(replace(BUDGETS.budgets[0], name="<!channel> \x1b[2J", thresholds=[100]),)
    )


def test_an_address_gets_json(sqlite_engine, evil, hook):
    assert sent(sqlite_engine, evil, NOW, Destination(webhook=hook.url)) == (True, [])
    ((path, body),) = hook.seen
    assert path == "/T0/secret"
    found = json.loads(body)
    assert found["text"] == "budget <!channel> \\x1b[2J, 2026-11: $0.00028 of $0.00010 (100%)"
    assert (found["threshold"], found["state"], found["limit_usd"]) == (100, "over", "0.0001")


@pytest.mark.parametrize("code", [302, 307, 308, 500])
def test_another_answer_is_named_and_a_redirect_is_not_followed(sqlite_engine, evil, hook, code):
    hook.codes = [code]
    assert sent(sqlite_engine, evil, NOW, Destination(webhook=hook.url)) == (
        False,
        [f"alert 1 was not delivered: HTTP {code}"],
    )


def test_one_address_that_takes_it_is_enough(sqlite_engine, evil, hook):
    gone = Destination(webhook="http://127.0.0.1:1/secret")
    found = sent(sqlite_engine, evil, NOW, gone, Destination(webhook=hook.url))
    assert found == (True, ["alert 1 was not delivered: URLError"])


def test_an_address_from_the_environment_or_a_file(
    sqlite_engine, evil, hook, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOOK", hook.url)
    assert Destination(webhook_env="HOOK").address() == hook.url
    (tmp_path / "hook").write_text(f"{hook.url}\n")
    assert Destination(webhook_file=str(tmp_path / "hook")).address() == hook.url
    monkeypatch.setenv("HOOK", "secret")
    is_taken, said = sent(sqlite_engine, evil, NOW, Destination(webhook_env="HOOK"))
    assert not is_taken
    assert "the variable HOOK holds no URL" in said[0]
    with pytest.raises(LedgerError, match="cannot read the webhook file"):
        Destination(webhook_file="/nowhere").address()


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TOKENTEE_BUDGETS", "TOKENTEE_NAMES"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "config" / "tokentee"
    folder.mkdir(parents=True)
    return folder


MONTHLY = '[[budget]]\nname = "all"\nusd = 0.0001\nperiod = "month"\n'


def test_a_watcher_sends_once(url, settings):
    fill(url, entries())
    said = []
    watcher = BudgetWatcher(url, log=lambda *line: said.append(line))
    assert watcher.check(NOW) == 0
    (settings / "budgets.toml").write_text(MONTHLY)
    assert [watcher.check(NOW), watcher.check(NOW)] == [1, 0]
    assert "budget all, 2026-11: $0.00028 of $0.00010 (100%)" in said[0][1]


def test_a_watcher_goes_on_after_trouble(tmp_path, settings, monkeypatch):
    (settings / "budgets.toml").write_text("[[budget]]\nname = 1\n")
    said, turns = [], threading.Event()
    (watcher,) = watcher_of(
        urls.parse_url(f"sqlite:///{tmp_path / 'l.sqlite3'}"), lambda *line: said.append(line)
    )
    monkeypatch.setattr("ledger.parts.budgets.watcher.FIRST_CHECK_SECONDS", 0)
    monkeypatch.setattr("ledger.parts.budgets.watcher.CHECK_EVERY_SECONDS", 0)
    check, count = watcher.check, iter(range(10**9))

    def counted(now):
        if next(count) == 3:
            turns.set()
        return check(now)

    monkeypatch.setattr(watcher, "check", counted)
    watcher.start()
    assert turns.wait(30)
    watcher.stop(1)
    watcher._thread.join(30)
    assert len(said) == 1
    assert "budgets are not checked: " in said[0][1]
    assert "line 2: budget 1: name: not a text but a whole number" in said[0][1]


def test_without_a_file_there_is_no_watcher(settings):
    assert watcher_of(urls.parse_url("sqlite:///x"), lambda *_: None) == ()
    assert budgets_file.load(None) == Budgets()


def test_a_ledger_that_records_watches_its_budgets(tmp_path, settings):
    (settings / "budgets.toml").write_text('[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\n')
    ledger = recording.open_ledger(
        f"sqlite:///{tmp_path / 'l.sqlite3'}", node="n/1/1", log=lambda *_: None
    )
    names = {thread.name for thread in threading.enumerate()}
    ledger.close(timeout_seconds=30)
    assert "tokentee-budgets" in names


STEPS = (
    ("ledger.parts.budgets.budgets_file", "load"),
    ("ledger.settings.names_file", "load"),
    ("ledger.store.db", "open_existing"),
    ("ledger.parts.budgets.alerts", "send_due"),
)


@pytest.mark.large
@pytest.mark.parametrize("errors", [(RuntimeError, LedgerError), (OSError, RuntimeError)])
@pytest.mark.parametrize("step", STEPS)
def test_whatever_a_step_raises_the_watcher_goes_on(
    url, settings, monkeypatch, failing_twice, step, errors
):
    fill(url, entries())
    (settings / "budgets.toml").write_text(MONTHLY)
    monkeypatch.setattr("ledger.store.processes.supervision.PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("ledger.parts.budgets.watcher.FIRST_CHECK_SECONDS", 0)
    monkeypatch.setattr("ledger.parts.budgets.watcher.CHECK_EVERY_SECONDS", 0.01)
    worked = threading.Event()
    failing_twice(importlib.import_module(step[0]), step[1], errors, worked)
    watcher = BudgetWatcher(url, log=lambda *_: None)
    monkeypatch.setattr(watcher, "check", lambda _, check=watcher.check: check(NOW))
    watcher.start()
    assert worked.wait(30)
    watcher.stop(1)
    assert watcher._thread.join(30)


FILE = """
[[budget]]
name = "search"
team = ["search", "ads*"]
tag = "env=prod"
usd = 0.5
period = "month"
thresholds = [50, 100]

[[budget]]
name = "all"
usd = 1_000
period = "day"

[[alert]]
webhook = "https://hooks.example.com/T0/secret"
"""


DAILY = '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\n'
NO_ZONE = "not a time zone: 'Europe/Berlni'; did you mean 'Europe/Berlin'"


def test_a_file():
    found, problems = read(FILE)
    assert problems == []
    search, everything = found.budgets
    assert search.only() == (("team", "search"), ("team", "ads*"), ("tag:env", "prod"))
    assert (search.limits.usd, search.per_cents) == (5 * 10**11, (50, 100))
    assert (everything.only(), everything.per_cents) == ((), (80, 100))
    assert not search.stops
    assert len(found.destinations) == 1


def test_a_webhook_is_never_shown():
    found, _ = read(FILE)
    assert "secret" not in repr(found)
    assert repr(found.destinations[0]) == "Destination(webhook)"


@for_each(
    "text, problem",
    [
        ('[[budget]]\nname = "x"\nperiod = "day"', "line 1: budget 1: usd: give one of"),
        ('[[budget]]\nname = " "\nusd = 1\nperiod = "day"', "line 2: budget 1: name: empty"),
        ('[[budget]]\nname = "x"\nusd = 0\nperiod = "day"', "line 3: budget 1: usd: 0 is not an"),
        ('[[budget]]\nname = "x"\nusd = 1e400\nperiod = "day"', "line 3: budget 1: usd: 1E+400"),
        ('[[budget]]\nname = "x"\nusd = nan\nperiod = "day"', "line 3: budget 1: usd: NaN is not"),
        (
            '[[budget]]\nname = "x"\nusd = 1\nperiod = "year"',
            "line 4: budget 1: period: 'year' is not known; one of run",
        ),
        (DAILY + "thresholds = [0]", "line 5: budget 1: thr"),
        (DAILY + "thresholds = []", "line 5: budget 1: thr"),
        (DAILY + "model = []", "line 5: budget 1: model: e"),
        (DAILY + 'tag = "x"', "line 5: budget 1: tag: 'x' is"),
        (DAILY + 'taem = "x"', "line 5: budget 1: taem: unkno"),
        (DAILY * 2, "line 2: budget 1: name: 'x' is the name of several budgets"),
        (DAILY + 'timezone = "Europe/Berlni"', f"line 5: budget 1: timezone: {NO_ZONE}"),
        ("[[alert]]", "line 1: alert 1: webhook: give one of webhook, webhook_env"),
        ('[[alert]]\ncommand = ["x"]', "line 2: alert 1: command: alerts run no commands"),
        ("[[alert]]\nlog = true", "line 2: alert 1: log: without any [[alert]] alerts are"),
        (DAILY + 'host = "x"', "line 5: budget 1: host: a budget has no such"),
        (DAILY.replace('"day"', '"5h"'), "line 4: budget 1: period: 5h: a budget is for"),
        ('[[alert]]\nwebhook = "ftp://secret"', "line 2: alert 1: webhook: not a URL"),
        ('[[alert]]\nwebhook = "https://[secret"', "line 2: alert 1: webhook: not a URL"),
        ("budgets = 1", "line 1: budgets: unknown; did you mean 'budget'?"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, problem):
    _, problems = read(text)
    assert str(problems[0]).startswith(problem)
    assert "secret" not in str(problems[0])


def test_there_are_bounds():
    budget = '[[budget]]\nname = "{0}"\nusd = 1\nperiod = "day"\n'
    found, problems = read("".join(budget.format(n) for n in range(1001)))
    assert (len(found.budgets), str(problems[0])) == (1000, "more than 1000 budgets")


USD = 10**12
"""Half of November; a Monday."""


def status(spent=10 * USD, *, period="month", now=NOW, usd=100, **more):
    budget = Budget(name="search", usd=usd, period=period, thresholds=[80, 50, 100])
    span = SPANS[period](now)
    amounts = NOTHING._replace(usd=spent)
    return Status(cap=budget, span=span, since=span.start, now=now, spent=amounts, **more)


@for_each(
    "spent, used, forecast, reached, state",
    [
        (0, 0, 0, (), "ok"),
        (40 * USD, 40, 80 * USD, (), "ok"),
        (50 * USD, 50, 100 * USD, (50,), "near"),
        (51 * USD, 51, 102 * USD, (50,), "over soon"),
        (100 * USD, 100, 200 * USD, (50, 80, 100), "over soon"),
        (101 * USD, 101, 202 * USD, (50, 80, 100), "over"),
    ],
)
def test_a_status(spent, used, forecast, reached, state):
    found = status(spent)
    assert (found.used_percent, found.forecast_picousd) == (used, forecast)
    assert (found.warned, found.state) == (reached, state)


def test_there_is_no_forecast_before_a_tenth_of_the_period():
    start = datetime(2026, 11, 1, tzinfo=UTC)
    assert status(now=start + timedelta(days=3) - timedelta(seconds=1)).forecast_picousd is None
    assert status(now=start + timedelta(days=3)).forecast_picousd == 100 * USD


def test_as_a_table():
    (row,) = status_table([status()]).rows
    spent, forecast = Amount(picousd=10 * USD), Amount(picousd=20 * USD, mark="~")
    assert row == ("search", "2026-11", Amount(picousd=100 * USD), spent, "10%", forecast, "ok")
    unpriced = dataclasses.replace(status(), requests_without_price=2)
    partly = status_table([unpriced]).rows[0][3]
    assert isinstance(partly, Amount)
    assert partly.mark == "≥ "


@for_each(
    "period, text",
    [("day", "2026-11-16"), ("week", "week of 2026-11-16"), ("month", "2026-11")],
)
def test_the_period_in_words(period, text):
    assert status(period=period).period_text == text


def test_as_a_document():
    found = document([status(101 * USD)])
    assert found["is_over"] is True
    (budget,) = found["budgets"]
    assert budget["spent_usd"] == 101
    assert budget["used_percent"] == Decimal("101.0")
    assert budget["resets_at"] == "2026-12-01T00:00:00+00:00"
    assert document([])["is_over"] is False


def test_what_the_reader_must_know():
    told = notes([dataclasses.replace(status(), requests_without_price=1)])
    assert told[0].startswith("forecast: spent so far / share of the period")
    assert "search: 1 request without a price" in told[1]
    assert told[-1] == "budgets are advisory: they never stop traffic"
    assert notes([]) == []
