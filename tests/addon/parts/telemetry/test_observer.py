"""What telemetry keeps of an exchange; prices and commits are joined, and no sink can hurt the writer."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from queue import Queue

import pytest
from msgspec.structs import replace

from addon.parts.telemetry import observer as module
from addon.parts.telemetry.observer import Observer, observed
from ledger.model.charge import Charge
from ledger.model.exchange import Outcome, UsageSource
from ledger.store.processes import supervision
from tests.addon.parts.telemetry.made import NOON, exchange, line, one, reading
from tests.named import for_each


@dataclass
class Receipt:
    exchange_id: str
    committed: bool = True


class Sink:
    def __init__(self):
        self.seen = []
        self.closed = False
        self.arrived = threading.Event()

    def observe(self, one):
        self.seen.append(one)
        self.arrived.set()

    def close(self, timeout_seconds):
        self.closed = True


class Broken(Sink):
    def observe(self, one):
        raise RuntimeError("secret text")


def price(_exchange, _reading):
    return (line(7),)


@contextmanager
def observing(*sinks: Sink) -> Iterator[Observer]:
    observer = Observer([*sinks])
    observer.start()
    yield observer
    observer.stop(5)


def commit(observer: Observer, *receipts: Receipt) -> None:
    """As the writer does, and nobody else waits for it."""
    done: Callable[[Sequence[Receipt]], None] = observer.on_commit(None)
    done(receipts)


def test_what_is_committed_is_observed_with_its_price():
    sink = Sink()
    told: list[Sequence[Receipt]] = []
    with observing(sink) as observer:
        assert observer.pricing(price)(exchange(), reading()) == (line(7),)
        observer.on_commit(told.append)([Receipt("e1"), Receipt("unknown")])
    assert [one.amounts.cost_picousd for one in sink.seen] == [7]
    assert sink.closed
    assert len(told) == 1
    assert observer.dropped == 0


def test_what_is_not_committed_is_not_observed():
    sink = Sink()
    with observing(sink) as observer:
        observer.pricing(price)(exchange(), reading())
        commit(observer, Receipt("e1", committed=False))
    assert sink.seen == []


def test_a_sink_that_raises_leaves_the_others_and_says_no_text(caplog):
    sink = Sink()
    with observing(Broken(), sink) as observer:
        observe(observer, "e0", "e1", "e2")
    assert len(sink.seen) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "tokentee: telemetry failed: RuntimeError"
    ]


def test_a_full_queue_drops_and_counts(monkeypatch):
    monkeypatch.setattr(module, "QUEUE_MAX", 2)
    observer = Observer([])
    observe(observer, *(f"e{number}" for number in range(5)))
    assert observer.dropped == 3


def test_prices_whose_commit_never_comes_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "PRICED_MAX", 2)
    observer = Observer([])
    for number in range(5):
        observer.pricing(price)(exchange(id=f"e{number}"), reading())
    assert observer.dropped == 3


def observe(observer: Observer, *ids: str) -> None:
    for name in ids:
        observer.pricing(price)(exchange(id=name), reading())
        commit(observer, Receipt(name))


def test_an_exchange_that_cannot_be_observed_is_counted_and_the_next_is_observed(monkeypatch):
    def broken(about, *rest):
        return observed(replace(about, settled_at=None) if about.id == "e1" else about, *rest)

    monkeypatch.setattr(module, "observed", broken)
    sink = Sink()
    with observing(sink) as observer:
        observe(observer, "e1", "e2")
    assert len(sink.seen) == 1
    assert observer.health().set_aside == 1


def test_a_sink_that_fails_to_close_leaves_the_others():
    class Clinging(Sink):
        def close(self, timeout_seconds):
            raise RuntimeError

    sink = Sink()
    with observing(Clinging(), sink) as observer:
        pass
    assert sink.closed
    assert observer.health().set_aside == 1


@pytest.mark.parametrize("error", [MemoryError, SystemExit])
def test_a_thread_that_fails_is_started_again(monkeypatch, caplog, capfd, error):
    """The step that no guard covers: the queue itself, or a sink that wants to end the process."""
    monkeypatch.setattr(supervision, "PAUSE_SECONDS", 0.001)

    class Failing(Queue[object]):
        left = 2

        def get(self, block=True, timeout=None):
            if self.left:
                self.left -= 1
                raise error
            return super().get(block, timeout)

    monkeypatch.setattr(module, "Queue", Failing)
    sink = Sink()
    with observing(sink) as observer:
        observe(observer, "e1")
        assert sink.arrived.wait(60)
        health = observer.health()
        assert (health.name, health.is_working, health.failures) == ("telemetry", True, 2)
    assert observer.health().is_working
    assert "the telemetry failed 1 times" in caplog.text
    assert "the telemetry failed" in capfd.readouterr().err


def test_a_callback_that_fails_leaves_the_observations():
    def fail(_: Sequence[Receipt]) -> None:
        raise ZeroDivisionError

    sink = Sink()
    with observing(sink) as observer:
        observer.pricing(price)(exchange(), reading())
        with pytest.raises(ZeroDivisionError):
            observer.on_commit(fail)([Receipt("e1")])
    assert len(sink.seen) == 1


def test_what_cannot_be_priced_is_the_writers_concern():
    def fail(*_: object) -> tuple[Charge, ...]:
        raise ZeroDivisionError

    observer = Observer([])
    with pytest.raises(ZeroDivisionError):
        observer.pricing(fail)(exchange(), reading())


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = threading.active_count()
    yield
    assert threading.active_count() <= before


@for_each(
    "charges, cost, is_unpriced",
    [((), None, True), ((line(None),), None, True), ((line(3), line(None)), 3, True)],
)
def test_a_line_without_a_price_is_unpriced_and_never_free(charges, cost, is_unpriced):
    found = one(charges=charges)
    assert (found.amounts.cost_picousd, found.is_unpriced) == (cost, is_unpriced)


def test_no_usage_is_not_unpriced():
    found = one(reading(UsageSource.NONE), charges=())
    assert not found.has_usage
    assert not found.is_unpriced


@for_each(
    "changed, error",
    [
        ({}, None),
        ({"outcome": Outcome.CLIENT_LEFT}, "client_left"),
        ({"outcome": Outcome.HTTP_ERROR, "http_status": 429}, "429"),
        ({"outcome": Outcome.HTTP_ERROR, "http_status": None}, "http_error"),
        ({"outcome": Outcome.ERROR_FRAME, "error_type": "overloaded_error"}, "overloaded_error"),
    ],
)
def test_error_types(changed, error):
    assert one(**changed).error_type == error


def test_a_clock_that_went_back_gives_no_negative_duration():
    found = one(settled_at=NOON - timedelta(seconds=5), first_token_at=NOON - timedelta(seconds=9))
    assert (found.seconds, found.seconds_to_first_token) == (0.0, 0.0)


def test_what_is_not_known():
    found = one(
        origin="http://h:70000", response_model=None, request_model=None, first_token_at=None
    )
    assert (found.model, found.server[1], found.seconds_to_first_token) == ("unknown", None, None)
