"""The arrows of DESIGN §2: who may import whom. A new arrow fails here, with its file and line."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted([*ROOT.glob("addon/**/*.py"), *ROOT.glob("ledger/**/*.py")])
KINDS = ("Pure", "Edge", "Wiring", "Database")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "manager"}


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            yield node.module, node.lineno


def kind_of(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split(" ")[0].rstrip(".:,")


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_a_module_says_its_kind_first(path: Path):
    if path.name != "__init__.py":
        assert kind_of(path) in KINDS, "the docstring begins with Pure, Edge, Wiring or Database"


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_imports_point_one_way(path: Path):
    kind = kind_of(path)
    for name, line in imports_of(path):
        top = name.split(".")[0]
        where = f"{ids(path)}:{line} imports {name}"
        if path.is_relative_to(ROOT / "ledger"):
            assert top not in ("addon", "mitmproxy"), where
        if top == "mitmproxy":
            assert kind in ("Edge", "Wiring"), where
        if top in ("sqlalchemy", "alembic", "psycopg"):
            assert kind == "Database", where
        if top == "sqlite3" and path.parent.name == "ledger":
            assert kind == "Database", where
        if kind == "Pure" and top in ("addon", "ledger"):
            source = ROOT / (name.replace(".", "/") + ".py")
            if source.exists():
                assert kind_of(source) == "Pure", f"{where}, which is not pure"


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_modules_stay_small_and_well_named(path: Path):
    assert path.stem not in FORBIDDEN_NAMES
    assert len(path.read_text().splitlines()) <= 600


def test_no_module_of_the_addon_shadows_the_standard_library():
    """mitmproxy puts a script's folder on `sys.path` while it loads it (MITMPROXY.md)."""
    import sys

    for path in (ROOT / "addon").iterdir():
        assert path.stem not in sys.stdlib_module_names, path
