"""Who is behind a request, and where the file lies that says so. The file of exchange rates. Tables of a
TOML text, and the lines of what is wrong. Every small file is read with one bound and refused in the
same words."""

import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from addon.run.call import config_file
from ledger.model.errors import LedgerError
from ledger.parts.budgets import budgets_file as budget_files
from ledger.parts.reconcile import statement_files
from ledger.pricing import litellm, overrides
from ledger.settings import names_file, small_files
from ledger.settings.names import NAME_ENTRIES_MAX, NO_NAMES, GroupFacts, pattern, read
from ledger.settings.toml_tables import (
    FaultError,
    TomlProblem,
    converted,
    fault_of,
    line_in_table,
    line_of_key,
    parse,
    unknown_tables,
)
from ledger.store import secret
from tests.ledger.written import opened
from tests.named import for_each

FILE = """
[[name]]
key = "3f2a9c81"
name = "CI"
team = "search"
cost_centre = "4711"
until = 2026-11-01

[[name]]
key = ["3f2a9c81", "aaaaaaaa*"]
name = "CI"
team = "platform"
from = 2026-11-01

[[name]]
key_hint = "…1111"
person = "Ada"

[[name]]
tag = "team=growth*"
team = "growth"

[[name]]
host = "LLM-*.Example.com."
session = "s?"
project = "shop"
team = "shop"
"""
KEY = "3f2a9c81" + "0" * 24
OCTOBER, NOVEMBER = date(2026, 10, 31), date(2026, 11, 1)


def names(text=FILE):
    found, problems = read(text)
    assert problems == []
    return found


@for_each(
    "word, facts, expected",
    [
        ("team", GroupFacts(key=KEY, day=OCTOBER), "search"),
        ("team", GroupFacts(key=KEY, day=NOVEMBER), "platform"),
        ("team", GroupFacts(key=KEY), None),
        ("cost_centre", GroupFacts(key=KEY, day=OCTOBER), "4711"),
        ("cost_centre", GroupFacts(key=KEY, day=NOVEMBER), None),
        ("name", GroupFacts(key="aaaaaaaab", day=NOVEMBER), "CI"),
        ("team", GroupFacts(key="b" * 32, day=NOVEMBER), None),
        ("person", GroupFacts(key="b" * 32, key_hint="1111"), "Ada"),
        ("person", GroupFacts(key="b" * 32, key_hint="2222"), None),
        ("team", GroupFacts(tags={"team": "growth-eu"}), "growth"),
        ("team", GroupFacts(tags={"team": None}), None),
        ("team", GroupFacts(tags={"team": "search"}), "search"),
        ("name", GroupFacts(tags={"name": "search"}), None),
        ("team", GroupFacts(host="llm-1.example.com", session="s1", project="shop"), "shop"),
        ("team", GroupFacts(host="llm-1.example.com", session="s12", project="shop"), None),
        ("team", GroupFacts(host="llm-1.example.com", session="s1"), None),
        ("team", GroupFacts(host="other", session="s1", project="shop"), None),
        ("team", GroupFacts(), None),
    ],
)
def test_the_name_of_a_request(word, facts, expected):
    assert names().word_of(word, facts) == expected


def test_the_first_entry_that_fits_decides_each_word_by_itself():
    found = names(
        '[[name]]\nhost = "a"\nteam = "one"\n[[name]]\nhost = "*"\nteam = "two"\nperson = "x"\n'
    )
    facts = GroupFacts(host="a")
    assert (found.word_of("team", facts), found.word_of("person", facts)) == ("one", "x")
    assert found.word_of("team", GroupFacts(host="b")) == "two"


def test_what_must_be_asked_for():
    found = names()
    assert found.facts_of(("person",)) == {"key_hint", "tag"}
    assert found.facts_of(("team",)) == {"key", "tag", "host", "session", "project"}
    assert found.tags_of(("team", "person")) == ("team", "person")
    assert found.boundaries(("team",)) == (datetime(2026, 11, 1, tzinfo=UTC),)
    assert found.boundaries(("person",)) == ()
    assert NO_NAMES.facts_of(("team",)) == {"tag"}
    assert NO_NAMES.facts_of(("name",)) == frozenset()


def test_what_a_key_is_called():
    text = (
        '[[name]]\nkey = "aaaaaa"\nhost = "x"\nname = "no"\n[[name]]\nkey = "aaaaaa"\nname = "yes"'
    )
    assert names(text).key_name("aaaaaabb", None) == "yes"
    assert names(text).key_name("bb", None) is None


NAME = '[[name]]\nhost = "x"\nteam = "x"\n'
PLAN = '[[plan]]\nname = "a"\nhost = "a"\n'


@for_each(
    "text, problem",
    [
        (
            'nmae = 1\n[[name]]\nhost = "x"\nteam = "y"',
            "line 1: nmae: unknown; did you mean 'name'",
        ),
        ('[[name]]\nteam = "y"', "line 1: name 1: name: one of key, key_hint"),
        ('[[name]]\nhost = "x"', "line 1: name 1: name: give a name, team"),
        ('[[name]]\nhost = "x"\nname = "y"', "line 3: name 1: name: it is the name of a key"),
        ('[[name]]\nhost = ""\nteam = "x"', "line 2: name 1: host: empty"),
        ('[[name]]\nhost = []\nteam = "x"', "line 2: name 1: host: empty"),
        ('[[name]]\nkey = "3f2"\nteam = "x"', "line 2: name 1: key: '3f2' is too short"),
        ('[[name]]\ntag = "team"\nteam = "x"', "line 2: name 1: tag: 'team' is not NAME=VALUE"),
        (
            NAME + "from = 2026-01-02\nuntil = 2026-01-02",
            "line 5: name 1: until: it is not after from",
        ),
        (
            NAME + NAME.replace('team = "x"\n', 'team = "y"'),
            "line 6: name 2: team: entry 1 gives it already",
        ),
        (NAME + 'from = "soon"', "line 4: name 1: from: "),
        ('[[plan]]\nname = "a"\n', "line 1: plan 1: plan: one of key, key_hint, host, agent must"),
        ('[[plan]]\nname = ""\nhost = "a"\n', "line 2: plan 1: name: empty"),
        ('[[plan]]\nname = "a"\nhost = ""\nagent = "x"\n', "line 3: plan 1: host: empty"),
        (PLAN + "usd_per_month = -1\n", "line 4: plan 1: usd_per_month: -1 is not an amount"),
        (
            PLAN + "usd_per_month = inf\n",
            "line 4: plan 1: usd_per_month: Infinity is not an amount",
        ),
        (
            PLAN + "from = 2026-11-02\nuntil = 2026-11-02\n",
            "line 5: plan 1: until: it is not after from",
        ),
        (PLAN + 'billing = "paid"\n', "line 4: plan 1: billing:"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, problem):
    _, problems = read(text)
    assert str(problems[0]).startswith(problem)
    assert "\n" not in str(problems[0])


def test_the_valid_entries_of_a_wrong_file_stay():
    found, problems = read(NAME + "[[name]]\nteam = 1\n")
    assert len(found.entries) == len(problems) == 1


def test_there_is_a_bound():
    entry = '[[name]]\nhost = "h{0}"\nteam = "x"\n'
    found, problems = read("".join(entry.format(n) for n in range(NAME_ENTRIES_MAX + 1)))
    assert len(found.entries) == NAME_ENTRIES_MAX
    assert str(problems[0]) == "more than 10000 names and plans"


def test_brackets_are_no_pattern():
    assert pattern("[a]*").match("[a]b")
    assert not pattern("[a]*").match("ab")


PLANS = """
[[plan]]
name = "Max"
usd_per_month = 200
key_hint = "1a2b"
from = 2026-11-01
until = 2026-12-01

[[plan]]
name = "Lab"
host = "*.lab.example"
agent = ["codex", "aider"]
billing = "free"
"""


@for_each(
    "facts, expected",
    [
        ({"key_hint": "1a2b"}, "plan"),
        ({"key_hint": "1a2b", "opened_at": datetime(2026, 12, 1, tzinfo=UTC)}, None),
        ({"origin": "https://x.lab.example:443", "agent": "codex"}, "free"),
        ({"origin": "https://x.lab.example:443", "agent": "cline"}, None),
        ({"origin": "http://[bad"}, None),
        ({}, None),
    ],
)
def test_how_the_operator_says_that_an_exchange_is_billed(facts, expected):
    names, problems = read(PLANS)
    assert problems == []
    assert names.billing_of(opened("a", **facts)) == expected
    assert names.plans[0].usd_per_month == 200


TEXT = '[[name]]\nhost = "x"\nteam = "search"\n'


@pytest.fixture(autouse=True)
def own_config_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOKENTEE_NAMES", raising=False)
    return tmp_path / "config" / "tokentee"


def test_without_a_file_nothing_has_a_name():
    assert names_file.load(None) is NO_NAMES


def test_the_file_among_the_settings_the_variable_and_the_option(
    own_config_directory, tmp_path, monkeypatch
):
    own_config_directory.mkdir(parents=True)
    (own_config_directory / "names.toml").write_text(TEXT)
    assert names_file.load(None).entries[0].team == "search"
    (tmp_path / "other.toml").write_text(TEXT.replace("search", "other"))
    monkeypatch.setenv("TOKENTEE_NAMES", str(tmp_path / "other.toml"))
    assert names_file.load(None).entries[0].team == "other"
    assert names_file.load(str(own_config_directory / "names.toml")).entries[0].team == "search"


def test_a_wrong_file_is_one_line(text_file):
    path = text_file("names.toml", "[[name]]\nx = 1\n[[name]]\ny = 1\n")
    with pytest.raises(LedgerError, match=r"line 2: name 1: x: unknown.*\(and 1 more: tokentee"):
        names_file.load(str(path))


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    figure: int = 0


class Kind(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    price: Decimal = Decimal(0)
    inner: list[Inner] = []

    def __post_init__(self):
        if self.name == "bad":
            raise FaultError("name", "it is bad")


def problems(text):
    document, wrong = parse(text)
    assert wrong == []
    return [str(problem) for problem in converted(text, document, "item", Kind)[1]]


@for_each(
    "text, expected",
    [
        ('[[item]]\nname = "x"\nprice = 1.5', []),
        ("item = 1", ["line 1: item: write [[item]] for each"]),
        ("item = [1]", ["line 1: item: write [[item]] for each"]),
        ("[[item]]\nname = 1", ["line 2: item 1: name: not a text but a whole number"]),
        ("[[item]]\nprice = 1.5", ["line 1: item 1: name: missing"]),
        ('[[item]]\nname = "bad"', ["line 2: item 1: name: it is bad"]),
        (
            '[[item]]\nname = "x"\n[[item]]\nnam = "x"',
            ["line 4: item 2: nam: unknown; did you mean 'name'?; one of inner, name, price"],
        ),
        (
            '[[item]]\nname = "x"\n[[item.inner]]\nfigur = 1',
            ["line 4: item 1: inner[0].figur: unknown"],
        ),
        (
            '[[item]]\nname = "x"\n[[item.inner]]\nfigure = "y"',
            ["line 4: item 1: inner[0].figure: not a whole number but a text"],
        ),
        ("item = [{name = 1}]", ["item 1: name: not a text but a whole number"]),
    ],
)
def test_each_problem_has_its_line(text, expected):
    assert problems(text) == expected


def test_figures_are_decimals():
    document, _ = parse('[[item]]\nname = "x"\nprice = 0.1\n')
    ((place, value),), wrong = converted("", document, "item", Kind)
    assert (place, value.price, wrong) == (0, Decimal("0.1"), [])


@for_each("text", ["x = ", "x = 1\nx = 2", "a = " + "[" * 100_000])
def test_what_is_not_toml(text):
    document, (problem,) = parse(text)
    assert document == {}
    assert "not TOML" in str(problem)
    assert "\n" not in str(problem)


def test_unknown_keys_of_the_file():
    text = "\nitems = 1\n[other]\n"
    found = [str(each) for each in unknown_tables(text, parse(text)[0], ("item",))]
    assert found == [
        "line 2: items: unknown; did you mean 'item'?; the file has item",
        "line 3: other: unknown; the file has item",
    ]


def test_lines_that_are_not_found():
    assert line_in_table("x = 1", "item", 0, "x") is None
    assert line_in_table("[[item]]\n", "item", 0, "x") == 1
    assert line_of_key("[[item]]\n", "x") is None


def test_a_table_that_is_no_object():
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(1, Kind)
    assert str(fault_of(error.value, Kind)) == "the table: not a table { ... } but a whole number"


def test_nesting_is_bounded():
    inner: dict[str, Any] = {"name": "x"}
    document = {"item": [inner]}
    for _ in range(100_000):
        inner["name"] = [{}]
        inner = inner["name"][0]
    _, (problem,) = converted("[[item]]", document, "item", Kind)
    assert str(problem).startswith("line 1: item 1: name: not a text")


def test_an_exponent_beyond_all_decimals_is_no_figure():
    document, problems = parse("a = 1e99999999999999999999")
    assert problems == []
    assert not document["a"].is_finite()


def test_a_problem_with_a_long_value_stays_one_readable_line():
    problem = TomlProblem(line=3, text="commit: '" + "9" * 10_000 + "' is not known")
    assert len(str(problem)) < 700
    assert str(problem).startswith("line 3: commit: '999")
    assert str(problem).endswith("' is not known")


def test_known_tables_are_no_problem():
    text = "price = 1\ngatewy = 2\nlitellm = 3\n"
    document, _ = parse(text)
    (problem,) = unknown_tables(text, document, ("price", "gateway", "litellm"))
    assert problem.line == 2
    assert problem.text.startswith("gatewy: unknown")
    assert "gateway" in problem.text


READERS = {
    "names file": names_file.check,
    "price file": lambda path: overrides.check(str(path)),
    "LiteLLM price file": litellm.LiteLLM.load,
    "budgets file": lambda path: budget_files.load(str(path)),
    "config file": config_file.load,
    "statement": lambda path: statement_files.load(str(path), provider=None),
    "secret of key fingerprints": secret._read,
}
LIMITS = {
    "LiteLLM price file": litellm.FILE_BYTES_MAX,
    "statement": statement_files.STATEMENT_BYTES_MAX,
    "secret of key fingerprints": secret.SECRET_FILE_BYTES_MAX,
}


NULL_IN_PATH = (
    "embedded null byte" if sys.version_info < (3, 13) else "open: embedded null character in path"
)
"""Python's words."""


@for_each("kind", READERS)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, kind):
    for path, reason in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "a\0b", NULL_IN_PATH),
    ):
        with pytest.raises(LedgerError) as raised:
            READERS[kind](path)
        shown = str(path).replace("\0", "\\x00")
        assert str(raised.value) == f"cannot read the {kind} {shown}: {reason}"


@pytest.mark.parametrize("kind", READERS)
def test_a_file_beyond_the_bound_is_refused_and_no_more_of_it_is_read(tmp_path, kind, noted):
    asked = noted(small_files, "first_bytes")
    limit = LIMITS.get(kind, small_files.FILE_BYTES_MAX)
    path = tmp_path / "dump"
    with path.open("wb") as file:
        file.truncate(limit + 1)
    with pytest.raises(LedgerError) as raised:
        READERS[kind](path)
    size = f"{limit >> 20} MiB" if limit >> 20 else f"{limit} bytes"
    message = str(raised.value)
    assert message.startswith(f"{path} is not a {kind}: it is larger than {size}; ")
    assert [bytes_max for _, bytes_max in asked] == [limit + 1]


@for_each("kind", [each for each in READERS if each != "LiteLLM price file"])
def test_a_file_that_is_not_utf_8_is_refused_with_the_place(tmp_path, kind):
    path = tmp_path / "image"
    path.write_bytes(b"\x89PNG")
    with pytest.raises(LedgerError) as raised:
        READERS[kind](path)
    message = str(raised.value)
    assert message.startswith(f"{path} is not a {kind}: not UTF-8 text at byte 0; ")


def test_a_file_as_large_as_the_bound_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert small_files.read_text(path, "file", bytes_max=5) == "12345"
    with pytest.raises(LedgerError, match="larger than 4 bytes; shorten it"):
        small_files.read_bytes(path, "file", bytes_max=4, advice="shorten it")
    assert small_files.first_bytes(path, 2) == b"12"
