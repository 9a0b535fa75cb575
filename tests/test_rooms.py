"""The rooms of the house: which modules there are, and which room may use which.

The table of arrows is literal and written by hand: a room may use itself and the rooms named beside
it, nothing else. A new arrow fails here, with its file and line; so does one that nothing uses any
more. Imports under `TYPE_CHECKING` and inside functions count like all others.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from addon.attach import PARTS, options_of_parts
from addon.parts import POINTS as ADDON_POINTS
from ledger.attach import loaded
from ledger.parts import POINTS as LEDGER_POINTS
from tests.named import for_each

ROOT = Path(__file__).parent.parent
MODULES = sorted([*ROOT.glob("addon/**/*.py"), *ROOT.glob("ledger/**/*.py")])

VALUES = {"ledger.model", "ledger.text"}

ARROWS: dict[str, set[str]] = {
    "ledger.model": set(),
    "ledger.text": {"ledger.model"},
    "ledger.settings": {*VALUES},
    "ledger.pricing": {*VALUES, "ledger.settings"},
    "ledger.store": {*VALUES, "ledger.settings", "ledger.store.engines", "ledger.store.schema"},
    "ledger.store.engines": {
        *(*VALUES, "ledger.settings", "ledger.store", "ledger.store.processes"),
        "ledger.store.schema",
    },
    "ledger.store.processes": {"ledger.model", "ledger.store", "ledger.store.engines"},
    "ledger.store.schema": {"ledger.model", "ledger.store"},
    "ledger.store.writing": {
        *VALUES,
        *("ledger.store", "ledger.store.engines", "ledger.store.processes"),
        "ledger.store.schema",
    },
    "ledger.maintenance": {
        *("ledger.model", "ledger.pricing", "ledger.store", "ledger.store.engines"),
        *("ledger.store.processes", "ledger.store.schema", "ledger.store.writing"),
    },
    "ledger.figures": {
        *VALUES,
        "ledger.settings",
        *("ledger.maintenance", "ledger.store", "ledger.store.engines", "ledger.store.processes"),
        "ledger.store.schema",
    },
    "ledger.reports": {
        *VALUES,
        *("ledger.figures", "ledger.maintenance", "ledger.pricing", "ledger.store"),
        *("ledger.settings", "ledger.store.schema"),
    },
    "ledger.commands": {
        "ledger",
        *VALUES,
        "ledger.settings",
        *("ledger", "ledger.figures", "ledger.maintenance", "ledger.pricing"),
        *("ledger.reports", "ledger.store", "ledger.store.engines", "ledger.store.schema"),
    },
    "ledger.parts": {"ledger"},
    "ledger": {
        *VALUES,
        *("ledger.parts", "ledger.settings"),
        *("ledger.maintenance", "ledger.store.engines"),
        *("ledger.store.processes", "ledger.store.writing"),
    },
    "addon.framing": set(),
    "addon.dialects": {
        *("addon.dialects.clouds", "addon.dialects.openai", "addon.dialects.vendors"),
        "addon.framing",
        "ledger.model",
    },
    "addon.dialects.openai": {"addon.dialects", "ledger.model"},
    "addon.dialects.vendors": {
        *("addon.dialects", "addon.dialects.openai", "addon.framing"),
        "ledger.model",
    },
    "addon.dialects.clouds": {"addon.dialects", "addon.dialects.openai", "ledger.model"},
    "addon.usage_opt_in": {"addon.framing", "ledger.model"},
    "addon.metering": {
        *("addon.dialects", "addon.framing"),
        "addon.usage_opt_in",
        "ledger.model",
    },
    "addon.recordings.formats": {"addon.framing", "addon.metering", "ledger.model"},
    "addon.recordings": {
        *VALUES,
        "ledger.settings",
        *("addon.dialects", "addon.framing", "addon.metering"),
        *("addon.recordings.formats", "addon.usage_opt_in"),
        *("ledger", "ledger.maintenance", "ledger.pricing", "ledger.reports"),
        *("ledger.store.processes", "ledger.store.writing"),
    },
    "addon.proxy": {
        *("addon", *VALUES),
        "ledger.settings",
        *("addon.dialects", "addon.framing", "addon.metering"),
        *("addon.recordings", "addon.recordings.formats", "addon.usage_opt_in"),
        *("ledger", "ledger.pricing", "ledger.store.engines", "ledger.store.writing"),
    },
    "addon.demo": {
        *VALUES,
        "addon.metering",
        "addon.recordings",
        "addon.recordings.formats",
        "addon.run",
        "ledger.commands",
        "ledger.figures",
        "ledger.reports",
        "ledger.store",
    },
    "addon.run": {
        *VALUES,
        "ledger.settings",
        *("addon", "addon.proxy", "addon.run.call", "addon.run.command"),
        *("ledger.figures", "ledger.reports", "ledger.store", "ledger.store.engines"),
    },
    "addon.run.call": {*VALUES, "addon", "ledger.settings"},
    "addon.run.command": {*VALUES, "ledger.settings"},
    "addon.commands": {
        *VALUES,
        "ledger.settings",
        *("addon.demo", "addon.metering", "addon.recordings"),
        *("addon.recordings.formats", "addon.run", "addon.run.call"),
        *("ledger.commands", "ledger.figures", "ledger.maintenance"),
        *("ledger.pricing", "ledger.reports", "ledger.store.engines", "ledger.store.writing"),
    },
    "addon.parts": {"ledger"},
    "addon": {
        *("addon.parts", "addon.proxy", "addon.run"),
        *("ledger", "ledger.parts", "ledger.text"),
    },
    "addon.parts.agent_logs": {
        *(*VALUES, "addon.dialects", "addon.dialects.openai", "addon.dialects.vendors"),
        *("addon.framing", "ledger", "ledger.commands", "ledger.figures", "ledger.maintenance"),
        *("ledger.pricing", "ledger.reports", "ledger.settings", "ledger.store"),
        *("ledger.store.engines", "ledger.store.writing"),
    },
    "addon.parts.caps": {
        *("addon.dialects", "addon.framing", "addon.metering", "addon.proxy", "ledger.model"),
        *("ledger.parts.budgets", "ledger.pricing", "ledger.settings", "ledger.store.writing"),
    },
    "addon.parts.fast": {
        "addon.proxy",
    },
    "addon.parts.telemetry": {
        *(*VALUES, "addon.proxy", "addon.recordings", "ledger.settings", "ledger.store"),
        *("ledger.store.processes", "ledger.store.writing"),
    },
    "ledger.parts.budgets": {
        *(*VALUES, "ledger", "ledger.commands", "ledger.figures", "ledger.pricing"),
        *("ledger.reports", "ledger.settings", "ledger.store", "ledger.store.engines"),
        "ledger.store.processes",
    },
    "ledger.parts.exports": {
        *(*VALUES, "ledger", "ledger.commands", "ledger.figures", "ledger.pricing"),
        *("ledger.settings", "ledger.store", "ledger.store.schema"),
    },
    "ledger.parts.pages": {
        *(*VALUES, "ledger", "ledger.commands", "ledger.figures", "ledger.parts.pages.live"),
        *("ledger.pricing", "ledger.reports", "ledger.settings", "ledger.store"),
        *("ledger.store.engines", "ledger.store.schema"),
    },
    "ledger.parts.pages.live": {
        *(*VALUES, "ledger", "ledger.figures", "ledger.parts.pages", "ledger.reports"),
        *("ledger.settings", "ledger.store", "ledger.store.engines", "ledger.store.schema"),
    },
    "ledger.parts.plans": {
        *(*VALUES, "ledger.commands", "ledger.figures", "ledger.reports", "ledger.settings"),
        "ledger.store",
    },
    "ledger.parts.reconcile": {
        *(*VALUES, "ledger.commands", "ledger.figures", "ledger.pricing", "ledger.reports"),
        *("ledger.settings", "ledger.store", "ledger.store.schema"),
    },
    "ledger.parts.sync": {
        *(*VALUES, "ledger.commands", "ledger.pricing", "ledger.reports", "ledger.settings"),
        *("ledger.store", "ledger.store.engines", "ledger.store.processes", "ledger.store.schema"),
        *("ledger.maintenance", "ledger.store.writing"),
    },
    "ledger.parts.why": {
        *(*VALUES, "ledger.commands", "ledger.figures", "ledger.pricing", "ledger.reports"),
        *("ledger.store", "ledger.store.schema"),
    },
}
"""Room -> the rooms that it may use."""

ROWS = {part.package: part for part in PARTS if ".parts." in part.package}
"""Package of a part -> its row."""

DIFFERENT = {"HERE", "PARTS", "POINTS", "logger", "OTHER", "SCRIPT"}
"""Constants of one name and value that are no rule: labels, and the path of the script, which two
rooms need that may not use each other."""

IMPORT_MITMPROXY = {
    "addon.proxy",
    "addon.parts.caps",
    "addon.parts.fast",
    "addon.recordings.formats",
    "addon.run",
    "addon.run.command",
}
"""Rooms whose modules may import mitmproxy."""
IMPORT_SQLALCHEMY = {
    "ledger.store",
    "ledger.store.engines",
    "ledger.store.processes",
    "ledger.store.schema",
    "ledger.store.writing",
    "ledger.maintenance",
    "ledger.figures",
    "ledger.reports",
    *(package for package in ROWS if package.startswith("ledger.")),
    "ledger.parts.pages.live",
}
"""Rooms whose modules may import sqlalchemy, alembic or psycopg; and sqlite3."""
SQLITE_OF_OTHERS = {"addon.parts.agent_logs"}
"""These may import sqlite3, too: some agents keep their logs in databases."""
SANS_IO = {
    "addon.framing",
    "addon.dialects",
    "addon.dialects.openai",
    "addon.dialects.vendors",
    "addon.dialects.clouds",
    "addon.usage_opt_in",
    "addon.metering",
    "ledger.model",
    "ledger.text",
}
"""Rooms that take values and return values."""
IO_MODULES = {
    "asyncio",
    "http",
    "io",
    "os",
    "pathlib",
    "queue",
    "select",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib.request",
}
SQL_MODULES = {"sqlalchemy", "alembic", "psycopg"}
EFFECTS = (
    (IO_MODULES - {"io", "pathlib"})
    | SQL_MODULES
    | {"logging", "mitmproxy", "random", "rich.console", "secrets", "shutil", "signal", "sys"}
)
"""Modules that no pure module imports, unless for a type."""
EFFECT_METHODS = {
    *("now", "today", "utcnow", "monotonic", "getenv", "exists", "is_file", "is_dir", "stat"),
    *("read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "unlink", "resolve"),
}
WITHOUT_EFFECT = {
    "ledger.parts.pages.period_sums.ranked_names",
    "ledger.parts.why.caches.cache_of",  # of a file that comes with the package, read once
}
"""Functions of modules of another kind that touch nothing outside."""
KINDS = ("Pure", "Edge", "Wiring", "Database")
UNKNOWN_TO_READERS = re.compile(r"\b(DESIGN|FIELD|FINDINGS|MITMPROXY|STYLE|WIRE)(\.md| §| ?\d)")
"""Documents that are neither in the repository nor on the web."""
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "manager"}
LINES_MAX = 600


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def room_of(module: str) -> str:
    """The package that a module lies in."""
    is_package = (ROOT / module.replace(".", "/") / "__init__.py").exists()
    return module if is_package else module.rpartition(".")[0]


NAMES = {name_of(path) for path in MODULES}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    """Whole names of what a module imports: of ours, down to the module; and the line."""
    return list(_imports_of(path))


def statements_of(node: ast.AST, *, types: bool = True) -> Iterator[ast.AST]:
    """Every statement within, at any depth; not the expressions, which are far more.

    Without `types`: not those under `TYPE_CHECKING`.
    """
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for inner in getattr(node, field, ()):
            is_typing = isinstance(inner, ast.If) and ast.unparse(inner.test) == "TYPE_CHECKING"
            if types or not is_typing:
                yield inner
                yield from statements_of(inner, types=types)


def _imports_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in statements_of(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield (name if name in NAMES else node.module), node.lineno


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def part_of(room: str) -> str | None:
    """The package of the part that a room belongs to; None: it is the core's."""
    words = room.split(".")
    return ".".join(words[:3]) if words[1:2] == ["parts"] and len(words) > 2 else None


def is_ours(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in ("addon", "ledger")


def test_a_module_uses_only_the_rooms_that_its_own_room_may_use():
    wrong = []
    for path in MODULES:
        room = room_of(name_of(path))
        for name, line in imports_of(path):
            target = room_of(name)
            if is_ours(name) and target not in {room, *ARROWS[room]}:
                wrong.append(f"{ids(path)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_core_names_no_part_and_a_part_those_of_its_row():
    for room, targets in ARROWS.items():
        part = part_of(room)
        others = {part_of(target) for target in targets} - {part, None}
        assert others <= set(ROWS[part].uses if part else ()), room
        if room.startswith("ledger"):
            assert all(target.startswith("ledger") for target in targets), room
        if part:
            assert not targets & {"addon.parts", "ledger.parts"}, room


def test_every_arrow_of_the_table_is_used():
    used = {
        (room_of(name_of(path)), room_of(name)) for path in MODULES for name, _ in imports_of(path)
    }
    unused = {(room, target) for room, targets in ARROWS.items() for target in targets} - used
    assert unused == set()


def test_mitmproxy_sqlalchemy_and_io_stay_in_their_rooms():
    wrong = []
    for path in MODULES:
        room = room_of(name_of(path))
        for name, line in imports_of(path):
            top = name.split(".")[0]
            if (
                (top == "mitmproxy" and room not in IMPORT_MITMPROXY)
                or (top in SQL_MODULES and room not in IMPORT_SQLALCHEMY)
                or (top == "sqlite3" and room not in IMPORT_SQLALCHEMY | SQLITE_OF_OTHERS)
                or (room in SANS_IO and IO_MODULES & {top, name})
            ):
                wrong.append(f"{ids(path)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_there_are_no_circles():
    """Between modules, `TYPE_CHECKING` imports included."""
    graph = {
        name_of(path): {name for name, _ in imports_of(path) if name in NAMES} for path in MODULES
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for target in sorted(graph[name]):
                if target != name:
                    visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_a_module_states_its_kind_and_stays_small():
    wrong = []
    for path in MODULES:
        docstring = ast.get_docstring(parsed(path)) or ""
        kind = docstring.split(" ")[0].rstrip(".:,")
        if not docstring:
            wrong.append(f"{ids(path)} has no docstring")
        elif path.name != "__init__.py" and kind not in KINDS:
            wrong.append(f"{ids(path)}: the docstring begins with none of {', '.join(KINDS)}")
        if path.stem in FORBIDDEN_NAMES:
            wrong.append(f"{ids(path)}: no name for a module")
        if len(path.read_text().splitlines()) > LINES_MAX:
            wrong.append(f"{ids(path)} has more than {LINES_MAX} lines")
    assert not wrong, "\n".join(wrong)


def test_a_pure_module_touches_nothing_outside():
    """Neither itself nor through a function of a module of another kind; paths are values."""
    kinds = {name_of(path): kind_of(path) for path in MODULES}
    wrong = []
    for path in MODULES:
        if kinds[name_of(path)] == "Pure":
            wrong += [f"{ids(path)}:{line} {what}" for line, what in effects_of(path, kinds)]
    assert not wrong, "\n".join(wrong)


def kind_of(path: Path) -> str:
    """The first word of a module's docstring."""
    return (ast.get_docstring(parsed(path)) or "").split(" ")[0].rstrip(".:,")


def effects_of(path: Path, kinds: dict[str, str]) -> Iterator[tuple[int, str]]:
    for node in statements_of(parsed(path), types=False):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if EFFECTS & {alias.name, alias.name.split(".")[0]}:
                    yield node.lineno, f"imports {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            if EFFECTS & {node.module, node.module.split(".")[0]}:
                yield node.lineno, f"imports {node.module}"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                kind = kinds.get(inner) or kinds.get(node.module, "Pure")
                is_value = alias.name[0].isupper() and inner not in kinds
                if kind in KINDS[1:] and not is_value and inner not in WITHOUT_EFFECT:
                    yield node.lineno, f"uses {inner}, which is {kind}"
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("open", "print", "input") or called.rpartition(".")[2] in EFFECT_METHODS:
                yield node.lineno, f"calls {called}"


@for_each("folder", ["addon", "ledger", "migrations", "tests"])
def test_a_source_cites_what_its_reader_can_find(folder: str):
    paths = [path for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    assert paths
    cited = {path: UNKNOWN_TO_READERS.findall(path.read_text()) for path in paths}
    assert {path: found for path, found in cited.items() if found} == {}


def test_no_module_of_the_addon_shadows_the_standard_library():
    """mitmproxy puts a script's folder on `sys.path` while it loads it."""
    for path in (ROOT / "addon").iterdir():
        assert path.stem not in sys.stdlib_module_names, path


ROOMS = sorted({room_of(name) for name in NAMES})


def test_every_room_is_in_the_table_of_arrows_and_every_part_has_a_row():
    assert set(ROOMS) == set(ARROWS)
    assert {part_of(room) for room in ROOMS} - {None} == set(ROWS)


def test_a_part_names_the_parts_that_it_uses_and_theirs_without_circles():
    for name, row in ROWS.items():
        used = {
            part_of(room_of(imported))
            for path in MODULES
            if part_of(room_of(name_of(path))) == name
            for imported, _ in imports_of(path)
            if is_ours(imported)
        }
        named = set(row.uses)
        further = {each for one in named for each in ROWS[one].uses}
        assert named == (used - {None, name}) | further, name
        assert name not in named, f"{name} uses itself by way of another"


def test_a_part_uses_the_public_modules_of_the_core_alone():
    """ARCHITECTURE.md lists them; a package stands for its modules."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    listed = page.partition("<!-- public modules -->")[2].partition("<!-- /public modules -->")[0]
    public = set(re.findall(r"`((?:addon|ledger)\.[a-z_.]+)`", listed))
    used: set[str] = set()
    for path in MODULES:
        for name, line in imports_of(path) if part_of(room_of(name_of(path))) else ():
            if is_ours(name) and part_of(room_of(name)) is None:
                words = name.split(".")
                above = {".".join(words[:end]) for end in range(2, len(words) + 1)}
                assert above & public, f"{ids(path)}:{line} uses {name}"
                used |= above & public
    assert used == public, "listed, and used by no part"


def test_what_a_part_attaches_is_there_and_its_point_is_asked_for():
    sources = "".join(path.read_text() for path in MODULES)
    for point in {*LEDGER_POINTS, *ADDON_POINTS}:
        about = point.partition(" ")[0]
        is_asked_for = re.search(rf'(attached|_made)\(\s*"{point}"', sources)
        assert is_asked_for or about == "option", point
    for part in PARTS:
        points = LEDGER_POINTS if part.package.startswith("ledger.") else {}
        for point, place in part.attaches:
            assert point in points | ADDON_POINTS, f"{part.name}: {point}"
            module, attribute = place.split(":")
            assert loaded(f"{part.package}.{module}", attribute) is not None
    there, missing = options_of_parts()
    assert (set(there), missing) == ({name for part in PARTS for name, _ in part.options}, {})


HALVES = ("addon", "ledger")


def used_by(room: str) -> str:
    """The rooms that a room's modules import, as its docstring states them."""
    used = {
        room_of(name)
        for path in MODULES
        if room_of(name_of(path)) == room
        for name, _ in imports_of(path)
        if is_ours(name) and room_of(name) not in (room, *HALVES)
    }
    own, other = (
        ", ".join(sorted(each.partition(".")[2] for each in used if each.startswith(half + ".")))
        for half in (room.partition(".")[0], "ledger")
    )
    if room.startswith("ledger"):
        other = ""
    parts = [own, f"of the ledger: {other}" if other else ""]
    return "; ".join(filter(None, parts)) or "nothing of ours"


@for_each("room", sorted({*ROOMS} - {*HALVES}))
def test_what_a_room_says_that_it_uses_is_what_it_imports(room: str):
    docstring = ast.get_docstring(parsed(ROOT / room.replace(".", "/") / "__init__.py")) or ""
    found = re.search(r"^Uses: (.*?)\.$", docstring, re.MULTILINE | re.DOTALL)
    assert found, f"{room}: no line begins with Uses:"
    assert " ".join(found[1].split()) == used_by(room)


@for_each("room", ROOMS)
def test_a_room_states_what_it_uses(room: str):
    docstring = ast.get_docstring(
        ast.parse((ROOT / room.replace(".", "/") / "__init__.py").read_text())
    )
    assert docstring
    for word in (r"In( and out)?:", r"(Out|In and out):", r"Uses:"):
        assert re.search(rf"\b{word}", docstring), f"{room}: {word}"


def test_a_constant_of_one_name_and_value_stands_once():
    """A rule that is written twice is changed once. Bounds may be equal by accident."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in MODULES:
        for each in parsed(path).body:
            if not isinstance(each, ast.Assign | ast.AnnAssign) or each.value is None:
                continue
            for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                name = ast.unparse(target)
                is_bound = name.endswith(("_MAX", "_BYTES", "_SECONDS"))
                if not (is_bound or name.startswith("_") or name in DIFFERENT):
                    found.setdefault((name, ast.unparse(each.value)), []).append(str(path))
    assert len(found) > 500
    assert {name: paths for (name, _), paths in found.items() if len(paths) > 1} == {}
