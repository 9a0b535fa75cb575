"""Pure. The problems in the figures of a period: how often, and what to do about them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from ledger.figures.figures import Figures
from ledger.pages import figures
from ledger.pages.sums import Counts

LATE = timedelta(minutes=5)
"""Shipping takes seconds; an exchange that waits longer than this is late."""
ERROR_RATE_PERCENT = 5
"""From this rate on, errors get a line of their own."""
NAMED_MAX = 4
"""Models named in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One line at the top of the page."""

    kind: str
    level: str
    """bad: something was lost or is late; look: a figure is incomplete; note: for information."""
    count: int
    headline: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipping:
    """The exchanges that a spool on this machine has not shipped to the shared ledger yet."""

    waiting: int
    oldest: datetime | None
    refused: int
    trouble: str | None


def problems(
    total: Figures,
    by_model: Mapping[str | None, Figures],
    counts: Counts,
    shipping: Sequence[Shipping],
    *,
    now: datetime,
    unknown_fields: Sequence[str] = (),
    other_models: Mapping[tuple[str, str], int] = MappingProxyType({}),
) -> list[Problem]:
    """The problems of a period, the worst first. `unknown_fields`: billing fields whose value no
    rule knows, as reasons. `other_models`: (asked for, answered) -> requests."""
    order = {"bad": 0, "look": 1, "note": 2}
    found = [
        *_of_shipping(shipping, now),
        *_of_counts(counts),
        *_of_sums(total, by_model, unknown_fields),
        *_of_models(other_models),
    ]
    return sorted(found, key=lambda each: order[each.level])


def _of_models(other_models: Mapping[tuple[str, str], int]) -> Iterator[Problem]:
    if count := sum(other_models.values()):
        most = sorted(other_models, key=lambda pair: (-other_models[pair], pair))[:NAMED_MAX]
        yield Problem(
            kind="other model",
            level="look",
            count=count,
            headline=f"{figures.requests(count)} answered by another model than asked for",
            advice=", ".join(f"{answered} for {asked}" for asked, answered in most)
            + "; `tokentee report --by request_model --by model` has them, by key and week too",
        )


def _of_shipping(shipping: Sequence[Shipping], now: datetime) -> Iterator[Problem]:
    waiting = sum(each.waiting for each in shipping)
    oldest = min((each.oldest for each in shipping if each.oldest), default=None)
    if waiting and oldest is not None and now - oldest > LATE:
        troubles = "; ".join(each.trouble for each in shipping if each.trouble)
        yield Problem(
            kind="late shipping",
            level="bad",
            count=waiting,
            headline=f"{figures.requests(waiting)} of this machine not shipped yet",
            advice=f"the oldest is of {oldest:%Y-%m-%d %H:%M} UTC and stays in the spool until "
            f"the shared database takes it{': ' + troubles if troubles else ''}",
        )
    if refused := sum(each.refused for each in shipping):
        yield Problem(
            kind="refused",
            level="bad",
            count=refused,
            headline=f"{figures.requests(refused)} refused by the shared database",
            advice="they are set aside in the spool; `tokentee db check` gives the reasons",
        )


def _of_counts(counts: Counts) -> Iterator[Problem]:
    if counts.lost:
        yield Problem(
            kind="lost",
            level="bad",
            count=counts.lost,
            headline=f"{figures.requests(counts.lost)} lost",
            advice="the proxy was killed while they ran, so their usage is unknown; "
            "`tokentee replay` reads them in from captures",
        )
    if counts.degraded:
        yield Problem(
            kind="degraded",
            level="bad",
            count=counts.degraded,
            headline=f"{figures.requests(counts.degraded)} degraded",
            advice="our code failed and passed them on untouched; the column `degraded` of "
            "`requests` names the place",
        )
    if counts.duplicates:
        yield Problem(
            kind="duplicates",
            level="note",
            count=counts.duplicates,
            headline=f"{figures.count(counts.duplicates)} duplicates left out",
            advice="the same billed response was recorded again; it is in no total",
        )
    if counts.still_open:
        yield Problem(
            kind="open",
            level="note",
            count=counts.still_open,
            headline=f"{figures.requests(counts.still_open)} still open",
            advice="they are under way, or their proxy died and that is not known yet; they are "
            "in no figure",
        )


def _of_sums(
    total: Figures, by_model: Mapping[str | None, Figures], unknown_fields: Sequence[str]
) -> Iterator[Problem]:
    if total.without_price:
        models = "; ".join((_named(by_model, "without_price"), *unknown_fields))
        yield Problem(
            kind="unpriced",
            level="look",
            count=total.without_price,
            headline=f"{figures.requests(total.without_price)} without a price",
            advice=f"so the cost is a lower bound: {models}; add the price to your price file, "
            "then run `tokentee reprice --unpriced`",
        )
    if total.complete_without_usage:
        yield Problem(
            kind="without usage",
            level="look",
            count=total.complete_without_usage,
            headline=f"{figures.requests(total.complete_without_usage)} answered without usage",
            advice=f"billed, but in no total here: "
            f"{_named(by_model, 'complete_without_usage')}; try `tee_inject=always`",
        )
    if total.requests and total.errors * 100 >= total.requests * ERROR_RATE_PERCENT:
        rate = figures.percent(figures.ratio(total.errors, total.requests))
        yield Problem(
            kind="errors",
            level="look",
            count=total.errors,
            headline=f"{rate} of the requests ended in an error",
            advice="`tokentee report --by outcome,model` says where",
        )


def _named(by_model: Mapping[str | None, Figures], name: str) -> str:
    """The models with the highest counts."""
    counted = [(getattr(sums, name), model or "(no model)") for model, sums in by_model.items()]
    ranked = sorted(((n, model) for n, model in counted if n), key=lambda pair: (-pair[0], pair[1]))
    named = ", ".join(f"{model} ({figures.count(n)})" for n, model in ranked[:NAMED_MAX])
    return f"{named}, …" if len(ranked) > NAMED_MAX else named
