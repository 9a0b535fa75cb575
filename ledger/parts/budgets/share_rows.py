"""Database. The rows of `shared.py`, in a file of SQLite or a table of PostgreSQL.

An account has a row without a node, which is the whole, and one for each process. The row of a
process without a cap is its sign of life.
"""

import contextlib
import os
import re
import sqlite3
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine

from ledger.parts.budgets.book import Place
from ledger.parts.budgets.caps import NOTHING, Amounts
from ledger.store.engines.sqlite_file import is_locked

BUSY_SECONDS = 0.000_1
"""Between two tries while another process writes the file, which takes some 0.1 ms."""
DEAD_SECONDS = 15
"""After its last sign."""
STEPS_MAX = 1_000
"""Minutes of a rolling period that are kept: a clock that jumps ahead makes nobody forget."""
KEPT_SECONDS = 62 * 86_400
"""Accounts that nobody used for longer are dropped; they would be added up again."""
WORDS = Amounts._fields
COLUMNS = tuple(f"{part}_{word}" for part in ("spent", "held") for word in WORDS)
_NAMES = ", ".join(COLUMNS)
_TABLE = f"""CREATE TABLE IF NOT EXISTS cap_shares (
  cap TEXT NOT NULL, account TEXT NOT NULL, node TEXT NOT NULL,
  {", ".join(f"{name} INTEGER NOT NULL DEFAULT 0" for name in COLUMNS)}, at REAL NOT NULL,
  PRIMARY KEY (cap, account, node)) WITHOUT ROWID"""
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")

type Whole = tuple[Amounts, Amounts]


class Rows:
    """What both have in common."""

    now = "(julianday('now') - 2440587.5) * 86400.0"
    is_server = False

    @abstractmethod
    def execute(self, statement: str, values: Mapping[str, Any] = {}) -> list[Any]:
        """The rows of a statement."""

    @abstractmethod
    def writing(self) -> contextlib.AbstractContextManager[None]:
        """What a block writes is written together, if that costs no round trip."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the rows are those that others see."""

    @abstractmethod
    def close(self, *, is_broken: bool) -> None:
        """Close it; `is_broken`: what is in it cannot be read."""

    def put(
        self,
        place: Place,
        row: str,
        spent: Amounts,
        held: Amounts,
        limits: Amounts | None,
        *,
        since: str | None = None,
    ) -> Whole | None:
        """Make a process's part this, and the whole accordingly; what it is then. None: it would
        exceed a limit, or there is no such account. `since`: spending before this step does not
        count."""
        limited = tuple(word for word in WORDS if limits and getattr(limits, word) is not None)
        values: dict[str, Any] = {"cap": place.cap, "account": place.account, "row": row}
        values |= zip(COLUMNS, (*spent, *held), strict=True)
        values |= {f"limit_{word}": getattr(limits, word) for word in limited}
        values["since"] = since
        whole, own = _statements(limited, is_rolling=since is not None, now=self.now)
        if self.is_server:  # one round trip
            own = own.replace("/*whole*/", "FROM whole")
            statement = f"WITH whole AS ({whole}), own AS ({own}) SELECT * FROM whole"
            found = self.execute(statement, values)
        else:
            found = self.execute(whole, values)
            if found:
                self.execute(own.replace("/*whole*/", "WHERE true"), values)
        return _whole(found)

    def read(self, place: Place, *, since: str | None = None) -> Whole | None:
        """What all have of an account."""
        statement = (
            f"SELECT {_counted(is_rolling=since is not None)} FROM cap_shares "
            "WHERE cap = :cap AND account = :account AND node = ''"
        )
        values = {"cap": place.cap, "account": place.account, "since": since}
        return _whole(self.execute(statement, values))

    def insert(self, cap: str, accounts: Mapping[Any, Amounts]) -> bool:
        """Add accounts that are not there; whether the first one was added."""
        statement = (
            f"INSERT INTO cap_shares (cap, account, node, {_NAMES}, at) VALUES (:cap, :account, '',"
            f" {', '.join(f':{name}' for name in COLUMNS)}, {self.now}) "
            "ON CONFLICT (cap, account, node) DO NOTHING RETURNING account"
        )
        added = []
        with self.writing():
            for account, amounts in accounts.items():
                values = dict(zip(COLUMNS, (*amounts, *NOTHING), strict=True))
                added.append(self.execute(statement, {"cap": cap, "account": account, **values}))
        return bool(added and added[0])

    def sign(self, node: str) -> None:
        """This process lives."""
        self.execute(
            f"INSERT INTO cap_shares (cap, account, node, at) VALUES ('', '', :node, {self.now}) "
            "ON CONFLICT (cap, account, node) DO UPDATE SET at = excluded.at",
            {"node": node},
        )

    def signed(self) -> set[str]:
        """The processes that have given a sign; on a server, of late."""
        late = f" AND at > {self.now} - {DEAD_SECONDS}" if self.is_server else ""
        found = self.execute(f"SELECT node FROM cap_shares WHERE cap = ''{late}")
        return {row[0] for row in found}

    def holding(self, node: str) -> Iterator[tuple[Place, str, Amounts, Amounts]]:
        """The parts of other processes that hold something."""
        is_any = " OR ".join(f"held_{word} <> 0" for word in WORDS)
        statement = f"SELECT cap, account, node, {_NAMES} FROM cap_shares WHERE node <> ''"
        for cap, account, row, *amounts in self.execute(f"{statement} AND ({is_any})"):
            if row.rpartition("#")[0] != node:
                whole = _whole([amounts])
                assert whole is not None
                yield Place(cap, account), row, *whole

    def leave(self, node: str) -> None:
        """Forget the parts of a process, which hold nothing: the whole has them."""
        is_none = " AND ".join(f"held_{word} = 0" for word in WORDS)
        self.execute(
            "DELETE FROM cap_shares WHERE "
            f"(node = :node OR substr(node, 1, length(:begin)) = :begin) AND {is_none}",
            {"node": node, "begin": f"{node}#"},
        )

    def prune(self) -> None:
        """Drop what nobody used for long."""
        self.execute(f"DELETE FROM cap_shares WHERE at < {self.now} - {KEPT_SECONDS}")
        rolling = "SELECT cap FROM cap_shares WHERE account = '5h' AND node = ''"
        for (cap,) in self.execute(rolling):
            (count,) = self.execute(
                "SELECT count(*) FROM cap_shares "
                "WHERE cap = :cap AND node = '' AND account > '5h '",
                {"cap": cap},
            )[0]
            if count <= STEPS_MAX:
                continue
            steps = self.execute(
                "SELECT account FROM cap_shares WHERE cap = :cap AND node = '' AND account > '5h ' "
                "ORDER BY account LIMIT :many",
                {"cap": cap, "many": count - STEPS_MAX},
            )
            values = {"cap": cap, "last": steps[-1][0]}
            old = "cap = :cap AND account > '5h ' AND account <= :last"
            less = ", ".join(
                f"spent_{word} = spent_{word} - (SELECT sum(spent_{word}) FROM cap_shares "
                f"WHERE {old} AND node = '')"
                for word in WORDS
            )
            with self.writing():
                mine = "cap = :cap AND account = '5h' AND node = ''"
                self.execute(f"UPDATE cap_shares SET {less} WHERE {mine}", values)
                self.execute(f"DELETE FROM cap_shares WHERE {old}", values)


class FileRows(Rows):
    """A file beside the ledger. That of processes that have all ended is not believed: the machine
    may have lost power."""

    def __init__(self, path: Path, *, is_alive: Callable[[str], bool], seconds_max: float) -> None:
        """`is_alive`: whether another process is."""
        self._path = path
        self._seconds_max = seconds_max
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._inode = path.stat().st_ino
        self._connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self._patiently("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = OFF")
            with self.writing():
                self._connection.execute(_TABLE)
                if not any(map(is_alive, self.signed())):
                    self._connection.execute("DELETE FROM cap_shares")
        except BaseException as error:
            self.close(is_broken=type(error) is sqlite3.DatabaseError)
            raise

    def execute(self, statement: str, values: Mapping[str, Any] = {}) -> list[Any]:
        """The rows of a statement."""
        if self._connection.in_transaction:
            return self._connection.execute(statement, values).fetchall()
        return self._patiently(statement, values)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction."""
        if self._connection.in_transaction:
            yield
            return
        self._patiently("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.execute("COMMIT")

    def _patiently(self, statement: str, values: Mapping[str, Any] = {}) -> list[Any]:
        """SQLite's own patience doubles from 1 ms on, ten times what a write takes."""
        deadline = time.monotonic() + self._seconds_max
        while True:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if not is_locked(error) or time.monotonic() > deadline:
                    raise
            time.sleep(BUSY_SECONDS)

    def is_there(self) -> bool:
        """Whether the file is still the one that was opened."""
        try:
            return self._path.stat().st_ino == self._inode
        except OSError:
            return False

    def close(self, *, is_broken: bool) -> None:
        """Close it; a broken one is removed, and made again from the ledger."""
        self._connection.close()
        for ending in ("", "-wal", "-shm") if is_broken else ():
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)


class ServerRows(Rows):
    """The table of a PostgreSQL ledger, over a connection that commits each statement."""

    now = "extract(epoch FROM clock_timestamp())"
    is_server = True

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def execute(self, statement: str, values: Mapping[str, Any] = {}) -> list[Any]:
        """The rows of a statement."""
        found = self._connection.exec_driver_sql(_for_server(statement), dict(values))
        return [tuple(row) for row in found] if found.returns_rows else []

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction."""
        yield

    def is_there(self) -> bool:
        """Whether the file is still the one that was opened."""
        return True

    def close(self, *, is_broken: bool) -> None:  # noqa: ARG002
        """Close it; a broken one is removed, and made again from the ledger."""
        self._connection.invalidate()
        self._connection.close()


@cache
def _for_server(statement: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def _counted(*, is_rolling: bool) -> str:
    """The columns of the whole, of a rolling period without the steps that are over."""
    return ", ".join(
        f"{name} - {_over(name)}" if is_rolling and name.startswith("spent") else name
        for name in COLUMNS
    )


def _over(name: str) -> str:
    return (
        f"(SELECT COALESCE(sum(step.{name}), 0) FROM cap_shares AS step WHERE step.cap = :cap "
        "AND step.node = '' AND step.account > '5h ' AND step.account < :since)"
    )


@cache
def _statements(limited: tuple[str, ...], *, is_rolling: bool, now: str) -> tuple[str, str]:
    """What moves the whole if it fits, and what writes a process's part."""
    moved = ", ".join(f"{name} = {name} + :{name} - before_{name}" for name in COLUMNS)
    before = ", ".join(f"COALESCE(sum({name}), 0) AS before_{name}" for name in COLUMNS)
    place = "cap = :cap AND account = :account"
    fitting = "".join(
        f" AND spent_{word} + :spent_{word} - before_spent_{word} + held_{word} + :held_{word} "
        f"- before_held_{word}{f' - {_over(f"spent_{word}")}' if is_rolling else ''} "
        f"<= :limit_{word}"
        for word in limited
    )
    whole = (
        f"UPDATE cap_shares SET {moved}, at = {now} FROM (SELECT {before} FROM cap_shares "
        f"WHERE {place} AND node = :row) AS own WHERE {place} AND node = ''{fitting} "
        f"RETURNING {_counted(is_rolling=is_rolling)}"
    )
    part = ", ".join(f":{name}" for name in COLUMNS)
    set_to = ", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS, "at"))
    own = (
        f"INSERT INTO cap_shares (cap, account, node, {_NAMES}, at) SELECT CAST(:cap AS TEXT), "
        f"CAST(:account AS TEXT), CAST(:row AS TEXT), {part}, {now} /*whole*/ "
        f"ON CONFLICT (cap, account, node) DO UPDATE SET {set_to}"
    )
    return whole, own


def _whole(found: list[Any]) -> Whole | None:
    if not found:
        return None
    amounts = [int(each) for each in found[0]]
    return Amounts(*amounts[:4]), Amounts(*amounts[4:])
