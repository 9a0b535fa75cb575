"""Builds the wheel: everything of ours goes under one package, `tokentee`.

In a checkout the packages are called `addon` and `ledger`. In somebody's environment those names
may be taken, so the wheel has `tokentee/addon`, `tokentee/ledger` and `tokentee/migrations`, and
their imports of each other are rewritten: `from ledger.model import money` becomes
`from tokentee.ledger.model import money`. Where an import stands is taken from Python's own
parser, so a text that only looks like an import stays as it is.

An editable install leaves the checkout on the path, and adds a `tokentee` with the entry point.
"""

import ast
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "tokentee"
FOLDERS = ("addon", "ledger", "migrations")
RENAMED = ("addon", "ledger")
INIT = '"""Tokentee: a tee for LLM token streams."""\n'
MAIN = '''"""The entry point: `tokentee`, or `python -m tokentee`."""

import sys

if sys.version_info < (3, 12):  # before an import that an older Python cannot parse
    sys.exit("tokentee: needs Python 3.12 or newer; this is %d.%d" % sys.version_info[:2])

try:
    from {prefix}addon.cli import main
except KeyboardInterrupt:  # as of a command that is interrupted later
    sys.exit(130)

if __name__ == "__main__":
    main()
'''


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling's hook."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the package into a temporary folder, and have it included."""
        self._folder = Path(tempfile.mkdtemp(prefix="tokentee-wheel-"))
        is_editable = version == "editable"
        if is_editable:
            write_entry_point(self._folder, prefix="")
        else:
            write_package(Path(self.root), self._folder)
        name = "force_include_editable" if is_editable else "force_include"
        build_data[name] = {str(self._folder / PACKAGE): PACKAGE}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        del version, build_data, artifact_path
        shutil.rmtree(self._folder)


def write_package(root: Path, into: Path) -> None:
    """The whole package, with its imports rewritten."""
    write_entry_point(into, prefix=f"{PACKAGE}.")
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            target = into / PACKAGE / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".py":
                target.write_text(rewritten(path.read_text(), str(path)))
            else:
                shutil.copyfile(path, target)


def write_entry_point(into: Path, *, prefix: str) -> None:
    """`tokentee/__init__.py` and `tokentee/__main__.py`."""
    (into / PACKAGE).mkdir()
    (into / PACKAGE / "__init__.py").write_text(INIT)
    (into / PACKAGE / "py.typed").write_text("")
    (into / PACKAGE / "__main__.py").write_text(MAIN.format(prefix=prefix))


def rewritten(source: str, path: str = "<source>") -> str:
    """The source with its imports of our packages led to where the wheel has them.

    Raises SyntaxError for an import that cannot be rewritten: `import ledger.model` binds the
    name `ledger`, which the wheel does not have.
    """
    lines = source.encode().split(b"\n")
    edits: list[tuple[int, int, bytes, bytes]] = []
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_ours(node.module or ""):
            name = str(node.module).encode()
            at = lines[node.lineno - 1].index(name, node.col_offset + len("from"))
            edits.append((node.lineno, at, name, f"{PACKAGE}.".encode() + name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if not _is_ours(alias.name):
                    continue
                if "." in alias.name and alias.asname is None:
                    raise SyntaxError(f"{path}:{node.lineno}: write `from ... import ...`")
                new = f"{PACKAGE}.{alias.name}"
                if alias.asname is None:
                    new += f" as {alias.name}"
                edits.append((alias.lineno, alias.col_offset, alias.name.encode(), new.encode()))
    for number, at, old, new in sorted(edits, reverse=True):
        line = lines[number - 1]
        assert line[at : at + len(old)] == old
        lines[number - 1] = line[:at] + new + line[at + len(old) :]
    return b"\n".join(lines).decode()


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in RENAMED
