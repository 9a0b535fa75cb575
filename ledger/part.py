"""Pure. The rows of the table of parts: what a part is, and what it attaches to the core.

A part is a folder below `ledger/parts/` or `addon/parts/` that a user can do without. Its row names
what it attaches as text, `module:attribute` below its folder, so that nothing is imported before it
is used.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of `tokentee`."""

    group: str
    """The heading of the overview that it stands under."""
    name: str
    module: str
    attribute: str
    """Of the module: a function for Typer, or a `typer.Typer` with sub-commands."""
    summary: str
    """For `tokentee --help`; fits one line of 80 columns with the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: what it is, the parts that it needs, and what it attaches."""

    package: str
    """Its folder: `ledger.parts.exports`."""
    about: str
    """What it is, in a line."""
    uses: tuple[str, ...] = ()
    """Packages of other parts, without which it cannot work."""
    commands: tuple[Command, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    """Option of the proxy -> `module:attribute` below the folder: its text and its reader."""
    attaches: tuple[tuple[str, str], ...] = ()
    """Attach point -> `module:attribute` below the folder."""

    @property
    def name(self) -> str:
        """The last word of its package."""
        return self.package.rpartition(".")[2]


def commands_in(package: str, group: str, *rows: tuple[str, str, str, str]) -> tuple[Command, ...]:
    """Commands of a package under one heading: name, module, attribute and summary of each."""
    return tuple(
        Command(
            group=group,
            name=name,
            module=f"{package}.{module}",
            attribute=attribute,
            summary=summary,
        )
        for name, module, attribute, summary in rows
    )
