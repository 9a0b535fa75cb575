"""SQLAlchemy's dialects, but all engines of a kind share their compiled statements.

SQLAlchemy keeps compiled statements by dialect object, and each engine has one of its own. A proxy
has one engine; the tests make thousands. Here two dialects of a kind are equal: they have the same
settings and the same server.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

COMPILED_MAX = 1_000
"""Statements kept for all engines: more than the ledger has, and few megabytes."""
_compiled: LRUCache[Any, Any] = LRUCache(COMPILED_MAX)


class _Shared(DefaultDialect):
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: sa.Engine) -> None:
        engine.update_execution_options(compiled_cache=_compiled)


class Sqlite(_Shared, SQLiteDialect_pysqlite):
    supports_statement_cache = True


class Postgresql(_Shared, PGDialect_psycopg):
    supports_statement_cache = True


def register() -> None:
    """Make these the dialects of the URLs of ledgers."""
    registry.register("sqlite", __name__, Sqlite.__name__)
    registry.register("postgresql.psycopg", __name__, Postgresql.__name__)
