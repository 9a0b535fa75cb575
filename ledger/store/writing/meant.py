"""Database. The model that a requested name stands for, for exchanges that no model answered.

A failure names no model, so it would stand under the name that was asked for, and the answers under
a snapshot of it. Its row is given the model that last answered the name at that provider, from its
begin on: if this process is killed, nobody else can. What is asked for and what answered have to be
the same model (`model/aliases.py`): nobody knows which one a router would have chosen.
"""

import sqlite3
import time

from msgspec.structs import replace

from ledger.model.aliases import NAMES_MAX, is_another, is_router
from ledger.model.exchange import Exchange, Outcome

SEARCHED_ROWS = 10_000
"""Of the newest exchanges in the ledger, for a name that this process has seen no answer of: some
10 ms."""
SEARCH_AGAIN_SECONDS = 10.0
_ANSWERED = (
    "SELECT response_model FROM (SELECT provider, request_model, response_model FROM exchanges "
    "ORDER BY opened_at DESC LIMIT ?) WHERE provider = ? AND request_model = ? "
    "AND response_model <> '' LIMIT 1"
)

type _Name = tuple[str, str | None]
"""A provider, and what was asked for."""


class MeantModels:
    """What names stand for, as far as this process knows."""

    def __init__(self) -> None:
        self._models: dict[_Name, str] = {}
        self._searched: dict[_Name, float] = {}
        """Names that no model of the ledger answered -> when it was searched, monotonic."""

    def learn(self, exchange: Exchange) -> None:
        """Remember which model answered."""
        if exchange.response_model:
            name = exchange.provider, exchange.request_model
            if self._models.get(name) != exchange.response_model:
                self._remember(name, exchange.response_model)

    def named(self, exchange: Exchange, connection: sqlite3.Connection) -> Exchange:
        """The exchange; if no model has answered it, with the one that was meant."""
        if exchange.response_model or exchange.outcome is Outcome.COMPLETE:
            return exchange
        model = self._model_of((exchange.provider, exchange.request_model), connection)
        if model in (None, exchange.request_model):
            return exchange
        return replace(exchange, meant_model=model)

    def _model_of(self, name: _Name, connection: sqlite3.Connection) -> str | None:
        now = time.monotonic()
        if (
            name[1]
            and name not in self._models
            and now - self._searched.get(name, -SEARCH_AGAIN_SECONDS) >= SEARCH_AGAIN_SECONDS
        ):
            _put(self._searched, name, now)
            for (model,) in connection.execute(_ANSWERED, (SEARCHED_ROWS, *name)):
                self._remember(name, model)
        return self._models.get(name)

    def _remember(self, name: _Name, model: str) -> None:
        if name[1] and not is_router(name[1]) and not is_another(*name, model):
            _put(self._models, name, model)


def _put[V](names: dict[_Name, V], name: _Name, value: V) -> None:
    """In place of the oldest name if there are too many: clients invent them."""
    names.pop(name, None)
    names[name] = value
    if len(names) > NAMES_MAX:
        del names[next(iter(names))]
