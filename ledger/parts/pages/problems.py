"""Pure. The problems in the figures of a period: how often, and what to do about them."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from ledger.figures.figures import Figures
from ledger.figures.request_filter import ErrorKind
from ledger.model.exchange import NO_MODEL
from ledger.parts.pages.period import Period
from ledger.parts.pages.period_sums import ProblemCounts
from ledger.parts.pages.unusual import DAYS, UnusualDay
from ledger.reports.page_parts import Problem
from ledger.text import figures
from ledger.text.figures import counted
from ledger.text.printable import short_text

ERROR_RATE_PERCENT = 5
"""From this rate on, errors get a line of their own."""
NAMES_IN_LINE_MAX = 4
"""Models named in one line."""


def problems(
    total: Figures,
    by_model: Mapping[str | None, Figures],
    counts: ProblemCounts,
    more: Sequence[Problem] = (),
    *,
    period: Period,
    only: Sequence[tuple[str, str]] = (),
    unknown_fields: Sequence[str] = (),
    other_models: Mapping[tuple[str, str], int] = MappingProxyType({}),
    unusual: Sequence[UnusualDay] = (),
    error_kinds: Sequence[ErrorKind] = (),
    ledger: str = "",
) -> list[Problem]:
    """The problems of a period, the worst first. `only`: the conditions of the page, which `counts`
    and `more` do not have. `more`: those that parts know. `unknown_fields`: billing fields whose
    value no rule knows, as reasons. `other_models`: (asked for, answered) -> requests.
    `ledger`: the option of a command that names the ledger, if it needs one."""
    order = {"bad": 0, "look": 1, "note": 2}
    narrowed = "".join(f" --only {shlex.quote(f'{word}={value}')}" for word, value in only)
    of_period = period.options() + ledger
    everywhere = ", whatever this page selects" if only else ""
    found = [
        *more,
        *_of_ledger(counts, period, everywhere, ledger),
        *_of_unusual(unusual, narrowed + period.zone_option() + ledger),
        *_of_sums(total, by_model, unknown_fields, narrowed + of_period, narrowed + ledger),
    ]
    rate = figures.percent(figures.ratio(total.errors, total.requests))
    named = ", ".join(
        f"{short_text(each.text)} ({figures.count(each.requests)})"
        for each in error_kinds[:NAMES_IN_LINE_MAX]
    )
    found.append(
        Problem(
            kind="errors",
            level="look" if total.errors * 100 >= total.requests * ERROR_RATE_PERCENT else "note",
            count=total.errors,
            headline=f"{figures.requests(total.errors)} ended in an error, {rate}",
            advice=f"{named}{', …' if len(error_kinds) > NAMES_IN_LINE_MAX else ''}",
            command=f"tokentee requests --errors{narrowed}{of_period}",
            listed=("kind", "errors"),
        )
    )
    count = sum(other_models.values())
    most = sorted(other_models, key=lambda pair: (-other_models[pair], pair))[:NAMES_IN_LINE_MAX]
    found.append(
        Problem(
            kind="other model",
            level="look",
            count=count,
            headline=f"{figures.requests(count)} answered by another model than asked for",
            advice=", ".join(
                f"{short_text(answered)} for {short_text(asked)}" for asked, answered in most
            ),
            command=f"tokentee report --by request_model,model{narrowed}{of_period}",
        )
    )
    return sorted((each for each in found if each.count), key=lambda each: order[each.level])


def _of_unusual(days: Sequence[UnusualDay], options: str) -> Iterator[Problem]:
    if not days:
        return
    worst = max(days, key=lambda one: one.cost_picousd - one.usual_picousd)
    yield Problem(
        kind="unusual",
        level="look",
        count=len(days),
        headline=counted(len(days), "unusual day"),
        advice=f"{worst.day:%-d %b} cost {figures.money(worst.cost_picousd)}; days before it cost "
        f"{figures.money(worst.usual_picousd)} (the median of the last {DAYS} with spend)",
        command=f"tokentee report --by key,model --since {worst.day} "
        f"--until {worst.day + timedelta(days=1)}{options}",
    )


def _of_ledger(
    counts: ProblemCounts,
    period: Period,
    everywhere: str,
    ledger: str,
) -> Iterator[Problem]:
    """Problems of the whole ledger, whatever the page selects."""
    options = period.options() + ledger
    yield Problem(
        kind="lost",
        level="bad",
        count=counts.lost,
        headline=f"{figures.requests(counts.lost)} lost{everywhere}",
        advice="The proxy was killed while they ran, so their usage is unknown; captures of "
        "them can be replayed",
        command=f"tokentee requests --outcome lost{options}",
        listed=("outcome", "lost"),
    )
    yield Problem(
        kind="degraded",
        level="bad",
        count=counts.degraded,
        headline=f"{figures.requests(counts.degraded)} not read to the end{everywhere}",
        advice="Tokentee failed while it read them (degraded); clients got every byte. Each one "
        "says why",
        command=f"tokentee requests --degraded{options}",
        listed=("kind", "degraded"),
    )
    yield Problem(
        kind="duplicates",
        level="note",
        count=counts.duplicates,
        headline=f"{counted(counts.duplicates, 'duplicate')} left out{everywhere}",
        advice="The same billed response was recorded again; it is in no total",
    )
    yield Problem(
        kind="open",
        level="note",
        count=counts.still_open,
        headline=f"{figures.requests(counts.still_open)} still open{everywhere}",
        advice="They are still running, or their proxy died and was not missed yet; no "
        "figure counts them",
    )


def _of_sums(
    total: Figures,
    by_model: Mapping[str | None, Figures],
    unknown_fields: Sequence[str],
    options: str,
    of_repricing: str,
) -> Iterator[Problem]:
    models = "; ".join((_named(by_model, "without_price"), *unknown_fields))
    yield Problem(
        kind="unpriced",
        level="look",
        count=total.without_price,
        headline=f"{figures.requests(total.without_price)} without a price",
        advice=f"So the cost is a lower bound: {models}; add the price to your price file, "
        "then reprice them",
        command=f"tokentee reprice --unpriced{of_repricing}",
        listed=("kind", "unpriced"),
    )
    yield Problem(
        kind="without usage",
        level="look",
        count=total.complete_without_usage,
        headline=f"{figures.requests(total.complete_without_usage)} answered without usage",
        advice=f"Billed, but in no total here: {_named(by_model, 'complete_without_usage')}; "
        "a recorder with --set tee_inject=always asks for it",
        command=f"tokentee requests --without-usage --outcome complete{options}",
        listed=("kind", "complete_without_usage"),
    )
    yield Problem(
        kind="cap",
        level="look",
        count=total.refused,
        headline=f"{figures.requests(total.refused)} refused by caps",
        advice="They did not go upstream and count in no other figure",
        command=f"tokentee requests --outcome refused{options}",
        listed=("outcome", "refused"),
    )


def _named(by_model: Mapping[str | None, Figures], name: str) -> str:
    """The models with the highest counts."""
    every = [(getattr(sums, name), model or NO_MODEL) for model, sums in by_model.items()]
    ranked = sorted(((n, model) for n, model in every if n), key=lambda pair: (-pair[0], pair[1]))
    named = ", ".join(
        f"{short_text(model)} ({figures.count(n)})" for n, model in ranked[:NAMES_IN_LINE_MAX]
    )
    return f"{named}, …" if len(ranked) > NAMES_IN_LINE_MAX else named
