"""Database. PostgreSQL connections that give up on a server that does not answer.

PostgreSQL's own limits (`statement_timeout`, `lock_timeout`) are kept by the server. Where a load
balancer or a tunnel goes silent and still acknowledges what it gets, no answer and no error ever
comes. So the client keeps a limit, too, for each exchange with the server.
"""

import time
from collections.abc import Generator
from typing import Any

import psycopg


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed if an answer takes longer than `answer_seconds_max`."""

    answer_seconds_max: float = 75.0

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        """Wait for the server, for so long at most."""
        deadline = time.monotonic() + self.answer_seconds_max
        return super().wait(self._bounded(gen, deadline), *arguments, **options)

    def _bounded(self, gen: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
        # A generator asks for readiness of the socket, and gets 0 where an interval passed first.
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"the server did not answer within {self.answer_seconds_max:g} s"
                    )
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def connector(answer_seconds_max: float) -> type[BoundedConnection]:
    """A class of connections with this limit."""
    return type(
        "BoundedConnection", (BoundedConnection,), {"answer_seconds_max": answer_seconds_max}
    )
