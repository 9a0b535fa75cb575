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
from ledger.budgets import alerts, budgets_file, sender
from ledger.budgets.alerts import claim_alerts, mark_sent
from ledger.budgets.budgets import Budget, Budgets, Destination, read
from ledger.budgets.status import BudgetStatus, document, notes, statuses
from ledger.budgets.status import table as status_table
from ledger.budgets.watcher import BudgetWatcher, watcher_of
from ledger.model.errors import LedgerError
from ledger.model.exchange import UsageSource
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


def test_by_team(engine):
    budgets, _ = read('[[budget]]\nname = "x"\nusd = 1\nperiod = "month"\nteam = "finders"\n')
    names, _ = read_names('[[name]]\ntag = "team=search"\nteam = "finders"\n')
    assert statuses(engine, budgets.budgets, names, NOW)[0].spent_picousd == 280_000_000
    assert statuses(engine, budgets.budgets, NO_NAMES, NOW)[0].spent_picousd == 0


def test_each_threshold_and_period_is_claimed_once(engine):
    (alert,) = claim_alerts(engine, BUDGETS, NO_NAMES, NOW)
    assert (alert.name, alert.threshold) == ("all", 100)
    assert alert.text == (
        "budget all, 2026-11: 280% used, $0.00028 of $0.00010 (threshold 100%); "
        "at this rate ~$0.00056 at its end"
    )
    assert claim_alerts(engine, BUDGETS, NO_NAMES, NOW) == []
    mark_sent(engine, [alert], NOW)
    later = NOW + timedelta(seconds=alerts.CLAIM_SECONDS + 1)
    assert claim_alerts(engine, BUDGETS, NO_NAMES, later) == []
    with engine.connect() as connection:
        rows = connection.execute(sa.select(table).where(table.c.sent_at == NOW)).all()
    assert sorted((row.budget, row.threshold) for row in rows) == [
        ("all", 50),
        ("all", 80),
        ("all", 100),
    ]


def test_a_claim_that_nobody_served_is_free_again_and_given_up_in_the_end(engine):
    moment, due = NOW, []
    for _ in range(alerts.ATTEMPTS_MAX + 2):
        due.append(len(claim_alerts(engine, BUDGETS, NO_NAMES, moment)))
        moment += timedelta(seconds=alerts.CLAIM_SECONDS + 1)
    assert due == [1] * alerts.ATTEMPTS_MAX + [0, 0]


def test_several_proxies_send_one_alert(engine):
    found, barrier = [], threading.Barrier(4)

    def check():
        barrier.wait(10)
        found.extend(claim_alerts(engine, BUDGETS, NO_NAMES, NOW))

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(alert.threshold for alert in found).count(100) == 1


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


def test_a_limit_is_claimed_once_for_each_window_and_threshold(sqlite_engine):
    assert not PROBLEMS
    reset = NOON + timedelta(hours=5)

    def claimed(minutes, *stated):
        play(sqlite_engine, [answered(str(minutes), minutes, "s", "k", stated)])
        found = claim_alerts(sqlite_engine, QUOTAS, NO_NAMES, NOON + timedelta(minutes=minutes))
        mark_sent(sqlite_engine, found, NOON)
        return [(each.data["window"], each.threshold) for each in found]

    assert claimed(0, stated(79, reset), stated(99, None, window="overage")) == []
    assert claimed(1, stated(80, reset)) == [("5h", 80)]
    assert claimed(2, stated(81, reset + timedelta(seconds=9))) == [], "the same window"
    assert claimed(3, stated(97, reset), stated(96, reset, window="7d")) == [("5h", 95), ("7d", 95)]
    assert claimed(4, stated(98, reset)) == []
    assert claimed(301, stated(85, reset + timedelta(hours=5))) == [("5h", 80)], "the next window"


def test_what_a_limit_s_alert_says(sqlite_engine):
    play(sqlite_engine, [answered("1", 0, "s", "k", [stated(84, NOON + timedelta(hours=5))])])
    (alert,) = claim_alerts(sqlite_engine, QUOTAS, NO_NAMES, NOON)
    assert alert.text == (
        "limit 5h of example: 84% used (threshold 80%), resets at 2026-11-02 17:00 UTC"
    )


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
def alert(sqlite_engine):
    fill(sqlite_engine, entries())
    evil = replace(BUDGETS.budgets[0], name="<!channel> \x1b[2J", thresholds=[100])
    (found,) = claim_alerts(sqlite_engine, Budgets(budgets=(evil,)), NO_NAMES, NOW)
    return found


def sent(alert, *destinations):
    said: list[tuple[str, str]] = []
    pauses: list[float] = []
    taken = sender.send(
        alert,
        destinations,
        log=lambda level, line: said.append((level, line)),
        pause=pauses.append,
    )
    assert all("secret" not in line for _, line in said)
    return taken, said, pauses


def test_a_webhook_gets_json_as_slack_takes_it(alert, hook):
    assert sent(alert, Destination(webhook=hook.url)) == (True, [], [])
    ((path, body),) = hook.seen
    assert path == "/T0/secret"
    text = json.loads(body)["text"]
    assert text.startswith("budget &lt;!channel&gt; \\x1b[2J, 2026-11: ")
    assert list(json.loads(body)) == ["text"]


def test_a_webhook_is_tried_again_a_few_times(alert, hook):
    hook.codes = [500, 503]
    assert sent(alert, Destination(webhook=hook.url)) == (True, [], [1.0, 2.0])
    hook.codes = [500] * 9
    taken, said, _ = sent(alert, Destination(webhook=hook.url))
    assert taken is False
    assert said == [("error", "tokentee: alert 1 (webhook) was not delivered: HTTP 500")]
    assert len(hook.seen) == 6


def test_a_redirect_is_not_followed(alert, hook):
    hook.codes = [302, 307, 308]
    taken, said, _ = sent(alert, Destination(webhook=hook.url))
    assert (taken, said[0][1]) == (False, "tokentee: alert 1 (webhook) was not delivered: HTTP 308")


def test_nobody_there(alert):
    taken, said, _ = sent(alert, Destination(webhook="http://127.0.0.1:1/secret"))
    assert (taken, said[0][1].rpartition(": ")[2]) == (False, "URLError")


def test_a_webhook_from_the_environment_or_a_file(alert, hook, tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK", hook.url)
    assert sent(alert, Destination(webhook_env="HOOK"))[0]
    (tmp_path / "hook").write_text(f"{hook.url}\n")
    assert sent(alert, Destination(webhook_file=str(tmp_path / "hook")))[0]
    monkeypatch.setenv("HOOK", "secret")
    taken, said, pauses = sent(alert, Destination(webhook_env="HOOK"))
    assert (taken, pauses) == (False, [])
    assert "the variable HOOK holds no URL" in said[0][1]
    with pytest.raises(LedgerError, match="cannot read the webhook file"):
        budgets_file.webhook_of(Destination(webhook_file="/nowhere"))


@pytest.mark.process
def test_a_command_gets_json(alert, tmp_path):
    out = tmp_path / "out"
    command = ["/bin/sh", "-c", f"cat > {out}"]
    assert sent(alert, Destination(command=command))[0]
    found = json.loads(out.read_text())
    assert (found["threshold"], found["state"]) == (100, "over")
    taken, said, _ = sent(alert, Destination(command=["/bin/sh", "-c", "exit 3"]))
    assert (taken, said[0][1].rpartition(": ")[2]) == (False, "CalledProcessError")
    assert sent(alert, Destination(command=["/nowhere"]))[0] is False


def test_the_log_is_where_alerts_go_without_a_destination(alert):
    for destinations in ((), (Destination(log=True),)):
        taken, said, _ = sent(alert, *destinations)
        assert taken
        assert said == [("warn", f"tokentee: {alert.text}")]


def test_one_destination_that_takes_it_is_enough(alert):
    gone = Destination(webhook="http://127.0.0.1:1/secret")
    assert sent(alert, gone, Destination(log=True))[0]


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
    assert "budget all, 2026-11: 280% used" in said[0][1]


def test_a_watcher_goes_on_after_trouble(tmp_path, settings, monkeypatch):
    (settings / "budgets.toml").write_text("[[budget]]\nname = 1\n")
    said, turns = [], threading.Event()
    (watcher,) = watcher_of(
        urls.parse_url(f"sqlite:///{tmp_path / 'l.sqlite3'}"), lambda *line: said.append(line)
    )
    monkeypatch.setattr("ledger.budgets.watcher.FIRST_CHECK_SECONDS", 0)
    monkeypatch.setattr("ledger.budgets.watcher.CHECK_EVERY_SECONDS", 0)
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


# Not `send`: an alert that was claimed is free again only after a while.
STEPS = (
    ("ledger.budgets.budgets_file", "load"),
    ("ledger.settings.names_file", "load"),
    ("ledger.store.db", "open_existing"),
    ("ledger.budgets.alerts", "claim_alerts"),
    ("ledger.budgets.alerts", "mark_sent"),
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
    monkeypatch.setattr("ledger.budgets.watcher.FIRST_CHECK_SECONDS", 0)
    monkeypatch.setattr("ledger.budgets.watcher.CHECK_EVERY_SECONDS", 0.01)
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

[[alert]]
log = true
"""


DAILY = '[[budget]]\nname = "x"\nusd = 1\nperiod = "day"\n'
NO_ZONE = "not a time zone: 'Europe/Berlni'; did you mean 'Europe/Berlin'"


def test_a_file():
    found, problems = read(FILE)
    assert problems == []
    search, everything = found.budgets
    assert search.only() == (("team", "search"), ("team", "ads*"), ("tag:env", "prod"))
    assert search.limit_picousd == 5 * 10**11
    assert (everything.only(), everything.thresholds) == ((), [80, 100])
    assert [each.log for each in found.destinations] == [None, True]


def test_a_webhook_is_never_shown():
    found, _ = read(FILE)
    assert "secret" not in repr(found)
    assert repr(found.destinations[0]) == "Destination(webhook)"


@for_each(
    "text, problem",
    [
        ('[[budget]]\nname = "x"\nperiod = "day"', "line 1: budget 1: usd: missing"),
        ('[[budget]]\nname = " "\nusd = 1\nperiod = "day"', "line 2: budget 1: name: empty"),
        ('[[budget]]\nname = "x"\nusd = 0\nperiod = "day"', "line 3: budget 1: usd: 0 is not an"),
        ('[[budget]]\nname = "x"\nusd = 1e400\nperiod = "day"', "line 3: budget 1: usd: 1E+400"),
        ('[[budget]]\nname = "x"\nusd = nan\nperiod = "day"', "line 3: budget 1: usd: NaN is not"),
        ('[[budget]]\nname = "x"\nusd = 1\nperiod = "year"', "line 4: budget 1: period: invalid"),
        (DAILY + "thresholds = [0]", "line 5: budget 1: thr"),
        (DAILY + "thresholds = []", "line 5: budget 1: thr"),
        (DAILY + "model = []", "line 5: budget 1: model: e"),
        (DAILY + 'tag = "x"', "line 5: budget 1: tag: 'x' is"),
        (DAILY + 'taem = "x"', "line 5: budget 1: taem: unkno"),
        (DAILY * 2, "line 2: budget 1: name: 'x' is the name of several budgets"),
        (DAILY + 'timezone = "Europe/Berlni"', f"line 5: budget 1: timezone: {NO_ZONE}"),
        ("[[alert]]", "line 1: alert 1: log: give one of webhook, webhook_env"),
        ('[[alert]]\nlog = true\ncommand = ["x"]', "line 2: alert 1: log: give one of"),
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
    return BudgetStatus(
        budget=budget,
        span=SPANS[period](now),
        now=now,
        spent_picousd=spent,
        estimated_picousd=0,
        requests_without_price=0,
        **more,
    )


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
    assert (found.reached, found.state) == (reached, state)


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
    assert budget["period_end"] == "2026-12-01T00:00:00+00:00"
    assert document([])["is_over"] is False


def test_what_the_reader_must_know():
    told = notes([dataclasses.replace(status(), requests_without_price=1)])
    assert told[0].startswith("forecast: spent so far / share of the period")
    assert "search: 1 request without a price" in told[1]
    assert told[-1] == "budgets are advisory: they never stop traffic"
    assert notes([]) == []
