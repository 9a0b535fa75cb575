"""Reports: what a set of requests adds up to, by anything, to the last pico-USD."""

from datetime import timedelta

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from ledger.figures.figures import Times
from ledger.figures.queries import report
from ledger.model.errors import LedgerError
from ledger.model.exchange import Outcome, UsageSource
from ledger.model.usage import COUNT_MAX, FurtherUsage, Usage
from ledger.settings.names import NO_NAMES, WORDS, read
from ledger.store.scope import Scope, conditions, requests
from tests.ledger import written
from tests.ledger.priced import BOTH, NOVEMBER, exchange, fill, filled, reading, settled
from tests.ledger.written import opened, put, whole

DAY = timedelta(days=1)


def entries():
    """Ten requests whose figures are worked out by hand below."""
    gpt = exchange(
        "gpt-4.1",
        tags={"team": "search", "env": "prod"},
        key_fingerprint="k1",
        project="shop",
        git_branch="main",
        agent="codex",
    )
    claude = exchange("claude-haiku-4-5", provider="anthropic", key_fingerprint="k2")
    yield (
        settled(replace(gpt, id="a1", session_id="s1"), first_token_ms=200, took_ms=1200),
        reading(input_tokens=1000, cache_read_tokens=400, output_tokens=50),
    )
    yield (
        settled(replace(gpt, id="a2", session_id="s1"), first_token_ms=400, took_ms=2400),
        reading(input_tokens=500, cache_read_tokens=0, output_tokens=100, reasoning_tokens=30),
    )
    yield (
        settled(replace(gpt, id="a3", opened_at=NOVEMBER + DAY), outcome=Outcome.HTTP_ERROR),
        reading(usage_source=UsageSource.NONE),
    )
    yield (
        settled(replace(gpt, id="a4", opened_at=NOVEMBER + DAY), outcome=Outcome.CLIENT_LEFT),
        reading(usage_source=UsageSource.ESTIMATED, input_tokens=10, output_tokens=20),
    )
    yield (
        settled(replace(claude, id="b1"), first_token_ms=100, took_ms=600),
        reading(
            input_tokens=3000,
            cache_read_tokens=1000,
            cache_write_tokens=1000,
            cache_write_1h_tokens=1000,
            output_tokens=10,
            further=(
                FurtherUsage(
                    kind="compaction", model=None, usage=Usage(input_tokens=70, output_tokens=7)
                ),
            ),
        ),
    )
    yield (
        settled(replace(claude, id="b2", response_model="claude-9", opened_at=NOVEMBER + DAY)),
        reading(input_tokens=10, output_tokens=1),
    )
    yield (
        settled(replace(claude, id="b3", response_model="claude-9")),
        reading(input_tokens=10, output_tokens=1, reported_cost_picousd=5_000_000),
    )
    yield (
        settled(replace(claude, id="b4")),
        reading(output_tokens=1, reported_cost_picousd=4_000_000, tool_units={"made_up": 2}),
    )
    yield (
        settled(replace(claude, id="b5")),
        reading(output_tokens=1, reported_cost_picousd=4_000_000),
    )
    yield (
        settled(replace(claude, id="b6")),
        reading(
            output_tokens=1,
            reported_cost_picousd=1_000_000,
            reported_upstream_cost_picousd=5_500_000,
            is_byok=True,
        ),
    )


@pytest.fixture(scope="module", params=BOTH)
def engine(request, tmp_path_factory):
    still_open = [replace(exchange(), id="open")]
    yield from filled(request, tmp_path_factory, entries(), still_open=still_open)


def by(engine, *words, **scope):
    found = report(engine, words, Scope(**scope))
    return {row.key: row.figures for row in found.rows}


def test_the_total_of_a_ledger(engine):
    """gpt-4.1: $2 in, $0.50 cached, $8 out. claude-haiku-4-5: $1, $0.10, $2 for 1h, $5 out."""
    found = report(engine, ["model"], Scope())
    total = found.total.figures
    a1 = 600 * 2_000_000 + 400 * 500_000 + 50 * 8_000_000
    a2 = 500 * 2_000_000 + 100 * 8_000_000
    a4 = 10 * 2_000_000 + 20 * 8_000_000
    b1 = 1000 * 1_000_000 + 1000 * 100_000 + 1000 * 2_000_000 + 10 * 5_000_000
    b1 += 70 * 1_000_000 + 7 * 5_000_000
    b3_to_b6 = 5_000_000 + 3 * 5_000_000
    assert total.cost_picousd == a1 + a2 + b1 + b3_to_b6
    assert total.estimated_cost_picousd == a4  # beside, never inside
    assert (total.requests, total.errors, total.without_usage, total.estimated) == (10, 1, 0, 1)
    assert (total.input_tokens, total.output_tokens) == (4520, 165)
    assert (total.estimated_input_tokens, total.estimated_output_tokens) == (10, 20)
    assert total.uncached_input_tokens == 600 + 500 + 1000 + 10 + 10
    assert (total.cache_read_tokens, total.cache_write_tokens) == (1400, 1000)
    assert total.cacheable_input_tokens == 4500  # the others said nothing of a cache
    assert total.reasoning_tokens == 30
    assert (total.extra_input_tokens, total.extra_output_tokens) == (70, 7)
    # 400 x (2 - 0.5) and 1000 x (1 - 0.1) saved, 1000 x (2 - 1) paid more for writing
    assert total.saved_picousd == 400 * 1_500_000 + 1000 * 900_000 - 1000 * 1_000_000
    assert total.reported_cost_picousd == 5_000_000 + 4_000_000 + 4_000_000 + 6_500_000
    # b5: ours 5, theirs 4; b6: ours 5, theirs 1 + 5.5 under BYOK; b4 is partial, b3 only theirs
    assert total.difference_picousd == 1_000_000 - 1_500_000
    assert (total.priced, total.partial, total.unpriced, total.reported) == (5, 1, 1, 1)
    assert total.cost_state == "partial"
    # 50 in 1 s, 100 in 2 s, 10 in 0.5 s
    assert (total.generated_tokens, total.generation_ms) == (160, 3500)
    assert found.open_requests == 1


def test_rows_by_model(engine):
    rows = by(engine, "model")
    assert set(rows) == {("gpt-4.1",), ("claude-haiku-4-5",), ("claude-9",)}
    assert rows["claude-9",].cost_picousd == 5_000_000
    assert rows["claude-9",].cost_state == "partial"
    assert rows["gpt-4.1",].requests == 4
    assert rows["gpt-4.1",].reported_cost_picousd is None


def test_times_by_model_and_in_all(engine):
    found = report(engine, ["model"], Scope())
    times = {row.key: row.times for row in found.rows}
    assert times["gpt-4.1",] == Times(
        first_token_ms_p50=200, first_token_ms_p95=400, duration_ms_p50=0, duration_ms_p95=2400
    )
    assert found.total.times == Times(
        first_token_ms_p50=200, first_token_ms_p95=400, duration_ms_p50=0, duration_ms_p95=2400
    )


@pytest.mark.parametrize(
    ("words", "requests"),
    [
        (["provider"], {("openai",): 4, ("anthropic",): 6}),
        (
            ["origin"],
            {("https://api.openai.com:443",): 4, ("https://api.anthropic.com:443",): 6},
        ),
        (["dialect"], {("openai.chat",): 10}),
        (["key"], {("k1",): 4, ("k2",): 6}),
        (["session"], {("s1",): 2, (None,): 8}),
        (["end_user"], {(None,): 10}),
        (["tag:team"], {("search",): 4, (None,): 6}),
        (["tag"], {('{"team":"search","env":"prod"}',): 4, ("{}",): 6}),
        (["day"], {("2026-11-02",): 7, ("2026-11-03",): 3}),
        (["hour"], {("2026-11-02 12",): 7, ("2026-11-03 12",): 3}),
        (["month"], {("2026-11",): 10}),
        (["week"], {("2026-11-02",): 10}),  # from Monday
        (["project"], {("shop",): 4, (None,): 6}),
        (["branch"], {("main",): 4, (None,): 6}),
        (["agent"], {("codex",): 4, (None,): 6}),
        (["tag:$.team"], {(None,): 10}),  # a tag that is a path is a name
        (
            ["day", "provider"],
            {
                ("2026-11-02", "openai"): 2,
                ("2026-11-02", "anthropic"): 5,
                ("2026-11-03", "openai"): 2,
                ("2026-11-03", "anthropic"): 1,
            },
        ),
        (["outcome"], {("complete",): 8, ("http_error",): 1, ("client_left",): 1}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)
def test_a_report_by_anything(engine, words, requests):
    assert {key: figures.requests for key, figures in by(engine, *words).items()} == requests


@pytest.mark.parametrize(
    ("scope", "requests"),
    [
        ({"since": NOVEMBER + DAY}, 3),
        ({"until": NOVEMBER + DAY}, 7),
        ({"since": NOVEMBER + timedelta(microseconds=1)}, 3),
        ({"since": NOVEMBER, "until": NOVEMBER}, 0),
        ({"only": (("model", "gpt-4.1"),)}, 4),
        ({"only": (("tag:team", "search"), ("day", "2026-11-03"))}, 2),
    ],
)
def test_a_scope(engine, scope, requests):
    """From a moment on, up to and not including another."""
    assert report(engine, ["model"], Scope(**scope)).total.figures.requests == requests


def ids(engine, *only, names=NO_NAMES):
    scope = Scope(only=tuple(pair.split("=", 1) for pair in only), names=names)
    with engine.connect() as connection:
        where = conditions(scope, connection.dialect.name)
        return set(connection.scalars(sa.select(requests.c.id).where(*where)))


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["model=gpt-4.1", "model=claude-9"], {"a1", "a2", "a3", "a4", "b2", "b3"}),
        (["model=gpt-4.1", "day=2026-11-03"], {"a3", "a4"}),
        (["model=claude*", "day=2026-11-03"], {"b2"}),
        (["model=gpt-?.1"], {"a1", "a2", "a3", "a4"}),
        (["model=[g]*"], set()),
        (["model=claude_*"], set()),  # what LIKE reads as a pattern is a character here
        (["model=%aude*"], set()),
        (["tag:team=se*"], {"a1", "a2", "a3", "a4"}),
        (["tag:team=(none)"], {"b1", "b2", "b3", "b4", "b5", "b6"}),
        (["session=(none)", "key=k1"], {"a3", "a4"}),
        (["week=2026-11-02", "model=claude-9"], {"b2", "b3"}),
        (["project=sh*", "branch=main", "agent=codex"], {"a1", "a2", "a3", "a4"}),
        (["key=…1111"], set()),
    ],
)
def test_conditions_are_or_within_a_word_and_and_between(engine, only, expected):
    assert ids(engine, *only) == expected
    found = report(engine, ["model"], Scope(only=tuple(pair.split("=", 1) for pair in only)))
    assert found.total.figures.requests == len(expected)


NAMES, _ = read(
    """
    [[name]]
    tag = "team=se*"
    until = 2026-11-03
    team = "old"
    [[name]]
    tag = "team=se*"
    from = 2026-11-03
    team = "new"
    person = "Ada"
    [[name]]
    host = "api.anthropic.com"
    team = "writers"
    """
)


def test_a_report_by_team_names_history_and_keeps_what_has_no_name_apart(engine):
    found = report(engine, ["team"], Scope(names=NAMES))
    rows = {row.key[0]: row.figures.requests for row in found.rows}
    assert rows == {"old": 2, "new": 2, "writers": 6}
    assert found.total.figures == report(engine, ["model"], Scope()).total.figures
    found = report(engine, ["day", "person"], Scope(names=NAMES))
    assert {row.key: row.figures.requests for row in found.rows} == {
        ("2026-11-02", None): 7,
        ("2026-11-03", "Ada"): 2,
        ("2026-11-03", None): 1,
    }
    (old,) = [
        row for row in report(engine, ["team"], Scope(names=NAMES)).rows if row.key[0] == "old"
    ]
    assert old.times == Times(
        first_token_ms_p50=200, first_token_ms_p95=400, duration_ms_p50=1200, duration_ms_p95=2400
    )


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["team=old"], {"a1", "a2"}),
        (["team=old", "team=new"], {"a1", "a2", "a3", "a4"}),
        (["team=*", "model=gpt*"], {"a1", "a2", "a3", "a4"}),
        (["person=Ada"], {"a3", "a4"}),
        (["person=(none)", "team=new"], set()),
        (["team=(none)"], set()),
    ],
)
def test_conditions_by_name(engine, only, expected):
    """Once as the database chooses rows, once as the report chooses groups."""
    assert ids(engine, *only, names=NAMES) == expected
    scope = Scope(only=tuple(pair.split("=", 1) for pair in only), names=NAMES)
    assert report(engine, ["model"], scope).total.figures.requests == len(expected)


def test_a_team_by_its_project(engine):
    names, _ = read('[[name]]\nproject = "shop"\nteam = "sellers"\n')
    found = report(engine, ["team"], Scope(names=names))
    assert {row.key[0]: row.figures.requests for row in found.rows} == {"sellers": 4, None: 6}
    assert ids(engine, "team=sellers", names=names) == {"a1", "a2", "a3", "a4"}


@pytest.mark.parametrize(
    ("word", "meant"),
    [("modle", "model"), ("teams", "team"), ("days", "day"), ("keys", "key"), ("name", "key")],
)
def test_the_nearest_word_is_named(engine, word, meant):
    with pytest.raises(LedgerError, match=f"no such dimension: '{word}'; did you mean '{meant}'"):
        report(engine, [word], Scope())
    with pytest.raises(LedgerError, match=f"did you mean '{meant}'"):
        report(engine, ["model"], Scope(only=((word, "x"),)))


def test_another_model_than_was_asked_for_is_told_from_an_alias(sqlite_engine):
    """Whatever else the report is by: a deployment of Azure may have any name."""
    asked = [
        ("openai", "gpt-5", "gpt-5-2025-08-07"),
        ("openai", "gpt-5", "gpt-5-nano"),
        ("openai", "gpt-5", "gpt-5-nano"),
        ("azure.ai.openai", "mine", "gpt-5"),
        ("openai", None, "gpt-5"),
    ]
    entries = []
    for number, (provider, request_model, response_model) in enumerate(asked):
        one = exchange("gpt-5", id=f"m{number}", request_model=request_model)
        ended = replace(settled(one), provider=provider, response_model=response_model)
        entries.append((ended, reading(input_tokens=10, output_tokens=5)))
    fill(sqlite_engine, entries)
    found = report(sqlite_engine, ["request_model", "model"], Scope())
    assert found.other_models == {("gpt-5", "gpt-5-nano"): 2}
    assert report(sqlite_engine, ["model"], Scope()).other_models == {}


def test_figures_of_providers_that_differ_are_counted(sqlite_engine):
    """gpt-4.1 at OpenAI: 10 out at $8 a million are 80 000 000 pico-USD; the last row has none."""
    figures = {"same": 80_000_000, "other": 90_000_000, "third": 1, "none": None}
    fill(
        sqlite_engine,
        [
            (settled(exchange(id=name)), reading(output_tokens=10, reported_cost_picousd=figure))
            for name, figure in figures.items()
        ],
    )
    assert report(sqlite_engine, ("model",), Scope()).differing == 2
    assert report(sqlite_engine, (), Scope(only=(("provider", "x_ai"),))).differing == 0
    remarked = written.rows(
        sqlite_engine, "SELECT id FROM requests WHERE remarks <> '[]' ORDER BY id"
    )
    assert remarked == [("other",), ("third",)]
    late = settled(exchange(id="late", opened_at=NOVEMBER + timedelta(days=31)))
    fill(sqlite_engine, [(late, reading(output_tokens=10, reported_cost_picousd=2))])
    assert report(sqlite_engine, (), Scope()).differing == 1, "of the last 31 days"
    assert report(sqlite_engine, (), Scope(until=late.opened_at)).differing == 2


def test_a_ledger_of_nothing(sqlite_engine):
    found = report(sqlite_engine, ["model"], Scope())
    assert found.rows == ()
    assert found.total.figures.requests == 0
    assert found.total.figures.cost_picousd is None


@pytest.mark.parametrize("word", ["colour", "tag:", 'tag:a"b', "id"])
def test_what_nothing_is_by(engine, word):
    with pytest.raises(LedgerError, match=r"no such dimension: .*; use one of model, provider"):
        report(engine, [word], Scope())


def test_a_report_agrees_with_the_public_views(engine):
    """langwatch#7034: two pages, two totals."""
    row = written.row(
        engine,
        "SELECT SUM(requests), SUM(input_tokens), SUM(output_tokens), SUM(cost_picousd), "
        "SUM(unpriced), SUM(errors), SUM(extra_input_tokens), SUM(estimated_output_tokens) "
        "FROM usage_daily",
    )
    by_state = "SELECT cost_state, COUNT(*) FROM requests GROUP BY cost_state"
    states = dict(map(tuple, written.rows(engine, by_state)))
    total = report(engine, ["day"], Scope()).total.figures
    assert tuple(row) == (
        total.requests,
        total.input_tokens,
        total.output_tokens,
        total.cost_picousd,
        total.unpriced + total.partial,
        total.errors,
        total.extra_input_tokens,
        total.estimated_output_tokens,
    )
    assert states == {"priced": 6, "partial": 1, "unpriced": 1, "reported": 1, None: 1}


def test_more_than_64_bits(sqlite_engine):
    """SQLite's own sum would overflow at 9.2 million USD. Counts of an upstream that lies are
    bounded before they are stored, so that no sum of theirs can."""
    about = exchange("unknown-model")
    lies = dict.fromkeys(("input_tokens", "cache_read_tokens", "output_tokens"), COUNT_MAX)
    read = reading(**lies, reported_cost_picousd=10**17)
    fill(sqlite_engine, [(settled(replace(about, id=f"e{n:02}")), read) for n in range(100)])
    total = report(sqlite_engine, ["model"], Scope()).total.figures
    assert total.cost_picousd == total.reported_cost_picousd == 10**19
    assert total.input_tokens == total.output_tokens == 100 * COUNT_MAX


def test_open_requests_are_those_of_the_scope(sqlite_engine):
    """The bill of a run counts no request of another one."""
    put(
        sqlite_engine,
        (opened("a", tags={"run": "1"}), None, ()),
        (opened("b", tags={"run": "2"}, request_model="model-2"), None, ()),
    )
    for only, count in (
        ((), 2),
        ((("tag:run", "1"),), 1),
        ((("model", "model-2"),), 1),
        ((("model", "model-2"), ("tag:run", "1")), 0),
        ((("team", "x"),), 0),
        ((("billing", "plan"),), 0),
    ):
        assert report(sqlite_engine, ["model"], Scope(only=only)).open_requests == count


@pytest.mark.parametrize("word", WORDS)
def test_a_request_whose_word_the_names_file_does_not_decide_has_that_of_its_tag(
    sqlite_engine, word
):
    """Row by row, and not for all rows once the file has the word for one of them."""
    named, _ = read(f'[[name]]\nhost = "named.example.com"\n{word} = "everybody"\n')
    tagged = written.settled("x", tags={word: "search"})
    other = written.settled("y", tags={word: "search"}, origin="https://named.example.com")
    put(sqlite_engine, whole(tagged), whole(other), whole(written.settled("z")))
    found = {"everybody": {"y"}, "search": {"x"}}
    for names, of in ((NO_NAMES, {"search": {"x", "y"}}), (named, found)):
        for value, expected in of.items():
            scope = Scope(only=((word, value),), names=names)
            assert ids(sqlite_engine, f"{word}={value}", names=names) == expected
            assert report(sqlite_engine, ["model"], scope).total.figures.requests == len(expected)
            rows = report(sqlite_engine, [word], scope).rows
            assert {row.key: row.figures.requests for row in rows} == {(value,): len(expected)}
