"""The parts of the ledger: what a user can do without. Each is a folder here and a row below.

To delete a part, delete its folder; its row may go, too. A row says what the part is, which other
parts it uses, and what it attaches to which point of the core. `POINTS` has the points.

In: the core's public names (ARCHITECTURE.md). Out: what the rows attach.
Uses: nothing of ours.
"""

from ledger.part import Part, commands_in

POINTS: dict[str, str] = {}
"""Attach point -> what the core does with what is attached."""

PARTS: tuple[Part, ...] = (
    Part(
        package="ledger.parts.exports",
        about="requests, charges and FOCUS billing rows as files, one a day",
        commands=commands_in(
            "ledger.parts.exports",
            "Money",
            ("export", "command", "export", "Write the ledger as CSV, Parquet or FOCUS"),
        ),
    ),
)
