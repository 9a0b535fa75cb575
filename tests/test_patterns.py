"""Every regular expression of the product takes work linear in its text, whatever the text is.

Which text is untrusted is easily judged wrong, so no expression is left out. Two tables stand here:
`INLINE` for expressions that are made in a function, and `BOUNDED` for those that are not linear and
run on a short text alone. A new expression is found by a scan of the source, and tried with texts
that are made of what it matches: the beginning of a match, and a part of one repeated.
"""

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addon.dialects.routes import ROWS, WEBSOCKET_ROWS, template_of
from addon.metering import estimate
from ledger.model import provider_table
from ledger.settings import names

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path for room in ("addon", "ledger", "migrations") for path in (ROOT / room).rglob("*.py")
)
TEXT_BYTES = 16 * 1024
"""Quadratic work on so many bytes takes a hundred milliseconds, linear work one."""
CPU_MS_ENOUGH = 4.0
GROWTH_MAX = 8.0
"""From a quarter of the bytes to all of them linear work grows fourfold, quadratic 16-fold."""

type Expression = re.Pattern[str] | re.Pattern[bytes]

INLINE: dict[tuple[str, str], tuple[Expression, ...]] = {
    ("addon/dialects/routes.py", "template_of"): tuple(
        pattern
        for row in (*ROWS, *WEBSOCKET_ROWS)
        if (pattern := template_of(row.path).pattern) is not None
    ),
    ("addon/parts/agent_logs/files.py", "read"): (re.compile(b'"assistant"|"cost\\-state"'),),
    ("addon/metering/estimate.py", "_texts"): (
        estimate._texts((b'"content"', b'"text"', b'"arguments"')),
    ),
    ("addon/metering/attribution.py", "looks_like_key"): (re.compile(r"[^A-Za-z0-9]+"),),
    ("ledger/model/provider_table.py", "__init__"): tuple(
        pattern for pattern, _ in provider_table.TABLE._globs
    ),
    ("ledger/model/provider_table.py", "_host_pattern"): (
        provider_table._host_pattern("api.openai.com"),
        provider_table._host_pattern("*.openai.azure.com"),
    ),
    ("ledger/model/provider_table.py", "_families"): tuple(
        pattern for pattern, _ in (*provider_table.TABLE._closed, *provider_table.TABLE._open)
    ),
    ("ledger/pricing/snapshots.py", "_check_pattern"): (re.compile("gpt-4.*"),),
    ("ledger/parts/reconcile/comparison.py", "spelling"): (
        re.compile(r"[\s._@]+"),
        re.compile(r"-(20\d{6}|20\d\d-\d\d-\d\d|latest)$"),
    ),
    ("ledger/settings/names.py", "pattern"): (names.pattern("*a*b?c*"), names.pattern("team-*")),
    ("ledger/settings/toml_tables.py", "parse"): (re.compile(r"line (\d+)"),),
    ("ledger/settings/toml_tables.py", "line_of_key"): (re.compile(r"\s*\[{1,2}\s*key\b"),),
    ("ledger/settings/toml_tables.py", "_mentions"): (
        re.compile(r"(^|[\s{,.\"'])(key)[\"']?\s*="),
    ),
    ("ledger/settings/toml_tables.py", "line_in_table"): (re.compile(r"\s*\[\[\s*name\s*\]\]"),),
    ("ledger/store/schema/links.py", "_member_view"): (re.compile(r"\bn\."),),
    ("ledger/text/period.py", "span"): (re.compile(r"[\s_]+"),),
}
"""Expressions that are made in functions, by file and function: themselves, or the same with an
example for what is put into them."""
BOUNDED: dict[str, tuple[int, str]] = {
    "ledger/text/printable.py:_USERINFO": (1_024, "an operator's own URL, or a driver's error"),
    "ledger/text/printable.py:_USER_WITH_SLASH": (1_024, "an operator's own URL"),
}
"""Those that are not linear: the characters of their longest text, and what bounds it."""


def is_made_here(call: ast.Call, modules: set[str], functions: set[str]) -> bool:
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return call.func.value.id in modules and call.func.attr != "escape"
    return isinstance(call.func, ast.Name) and call.func.id in functions


@cache
def calls() -> dict[tuple[str, str], list[str]]:
    """File and function ("" for none) -> the expressions that it makes, as source text."""
    found: dict[tuple[str, str], list[str]] = {}

    def visit(
        node: ast.AST, place: tuple[str, str], modules: set[str], functions: set[str]
    ) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            place = (place[0], node.name)
        if isinstance(node, ast.Import):
            modules |= {
                each.asname or each.name for each in node.names if each.name in ("re", "regex")
            }
        if isinstance(node, ast.ImportFrom) and node.module in ("re", "regex"):
            functions |= {each.asname or each.name for each in node.names if each.name.islower()}
        if isinstance(node, ast.Call) and is_made_here(node, modules, functions):
            found.setdefault(place, []).append(ast.unparse(node))
        for child in ast.iter_child_nodes(node):
            visit(child, place, modules, functions)

    for path in SOURCES:
        text = path.read_text("utf-8")
        if re.search(r"\b(import|from)\b.*\b(re|regex)\b", text):  # each worker collects it
            visit(ast.parse(text), (str(path.relative_to(ROOT)), ""), set(), set())
    return found


def expressions_of(value: object, depth: int = 2) -> Iterator[Expression]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict) and depth:
        for inner in value.values():
            yield from expressions_of(inner, depth - 1)
    elif isinstance(value, list | tuple | set | frozenset) and depth:
        for inner in value:
            yield from expressions_of(inner, depth - 1)


@cache
def expressions() -> dict[str, Expression]:
    """All of the product, by where they stand."""
    found: dict[str, Expression] = {}
    for path in sorted({path for path, function in calls() if not function}):
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        for name, value in vars(module).items():
            for at, each in enumerate(expressions_of(value)):
                found[f"{path}:{name}:{at}" if at else f"{path}:{name}"] = each
    for (path, function), made in INLINE.items():
        for at, each in enumerate(made):
            found[f"{path}:{function}:{at}"] = each
    return found


def test_every_expression_is_found() -> None:
    """One that is made in a function needs a row in `INLINE`; of those made by a module, there are
    at least as many values as calls."""
    inside = {place: len(made) for place, made in calls().items() if place[1]}
    assert set(inside) == set(INLINE)
    for place, count in inside.items():
        assert len(INLINE[place]) >= count, place
    for (path, function), made in calls().items():
        named = [name for name in expressions() if name.startswith(f"{path}:")]
        assert function or len(named) >= len(made), path
    assert len(expressions()) > 90


@pytest.mark.nightly
@pytest.mark.large
@pytest.mark.parametrize("name", sorted(expressions()))
@settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_work_is_linear(name: str, data: st.DataObject) -> None:
    """The text begins as a match does, then a part of a match comes again and again."""
    expression = expressions()[name]
    size = BOUNDED.get(name, (TEXT_BYTES,))[0]
    sample: Any = data.draw(st.from_regex(expression).filter(bool) | words_of(expression))
    start = data.draw(st.integers(0, len(sample) - 1))
    end = data.draw(st.integers(start + 1, len(sample)))
    kind = type(sample)
    odd = data.draw(st.sampled_from(["", "\0", "!", "\n"]))
    ending = odd if kind is str else odd.encode()

    def text(length: int) -> Any:
        word = sample[start:end]
        return sample[:start] + word * (length // len(word)) + ending

    assert_linear(expression, text, size, ways_of(name))


def words_of(expression: Expression) -> st.SearchStrategy[Any]:
    """The literal words of an expression, in a row."""
    pattern = expression.pattern
    found = re.findall(
        r"[A-Za-z0-9_=\"',:;./<>@ -]+",
        pattern if isinstance(pattern, str) else pattern.decode("latin-1"),
    )
    words = [
        word if isinstance(pattern, str) else word.encode() for word in {*found, "\r\n", " ", "a"}
    ]
    empty: Any = "" if isinstance(pattern, str) else b""
    return st.lists(st.sampled_from(sorted(words)), min_size=1, max_size=4).map(empty.join)


WAYS = {"search": "search", "match": "match", "fullmatch": "fullmatch"} | dict.fromkeys(
    ("sub", "subn", "split", "findall", "finditer"), "split"
)
"""Methods of an expression -> one that takes the same work."""


@cache
def ways_of(name: str) -> frozenset[str]:
    """The ways in which a function, or else a file, uses its expressions; all, if none is seen."""
    path, function, *_ = name.split(":")
    called = {
        made.partition("(")[0].rpartition(".")[2] for made in calls().get((path, function), ())
    }
    if not called <= set(WAYS) or not called:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return frozenset(WAYS[way] for way in called & set(WAYS) or WAYS)


def assert_linear(
    expression: Any, text: Callable[[int], Any], size: int, ways: frozenset[str]
) -> None:
    for way in sorted(ways):
        run = getattr(expression, way)
        for length in (size // 64, size // 16, size // 4):  # what explodes is seen early
            part, whole = text(length), text(4 * length)
            if cpu_ms(run, whole) <= CPU_MS_ENOUGH:
                continue
            # In turns, so that what slows the machine for a moment does not slow one of them alone.
            pairs = [(cpu_ms(run, whole), cpu_ms(run, part)) for _ in range(5)]
            large, small = map(min, zip(*pairs, strict=True))
            assert large <= GROWTH_MAX * max(small, CPU_MS_ENOUGH / 4), (whole[:80], large, small)


def cpu_ms(way: Callable[[Any], object], text: Any) -> float:
    before = time.thread_time_ns()
    way(text)
    return (time.thread_time_ns() - before) / 1e6


@pytest.mark.nightly
@pytest.mark.large
@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        pytest.param('name="model"(?:.*\r\n)*\r\n\r\n(.*)', 'name="model"\r\n', id="quadratic"),
        pytest.param(r"(//[^/?#:@\s]*:)\S*@", "//:", id="many-beginnings"),
        pytest.param(r"\s+x", " ", id="blanks"),
    ],
)
def test_what_is_not_linear_is_seen(pattern: str, word: str) -> None:
    with pytest.raises(AssertionError):
        assert_linear(
            re.compile(pattern),
            lambda size: word * (size // len(word)),
            4 * TEXT_BYTES,  # the growth is seen at two sizes above the bound on what is enough
            frozenset({"search"}),
        )
