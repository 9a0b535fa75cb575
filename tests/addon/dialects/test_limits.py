"""Quotas in response headers and events: header sets as providers send them, figures by hand; and how they reach
the row, over HTTP, in a stream's event, over WebSocket."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from addon.dialects.limits import (
    AHEAD_MAX,
    COUNT_MAX,
    QUOTAS_MAX,
    RETRY_AFTER_MAX,
    USED_PPM_MAX,
    is_quota_header,
    limits_of,
    quotas_of,
    quotas_of_event,
    retry_after_ms,
)
from addon.metering.messages import Body, End, RecordedTimes, Response
from addon.metering.opening import RunRules
from addon.metering.session import RATE_LIMITS_BYTES_MAX, MeteredSession
from addon.metering.settlement import Settled
from ledger.model.exchange import Quota, QuotaKind
from tests.addon.metering.opened import REQUEST, opened, tapped
from tests.named import for_each

NOW = datetime(2026, 9, 30, 20, 0, tzinfo=UTC)
EPOCH = 1790798400
"""`NOW` in seconds since 1970: 20 726 days of 86 400 s, and 20 hours."""


def plan(window: str, minutes: int | None, used_ppm: int | None, **more: Any) -> Quota:
    return Quota(
        window=window,
        window_minutes=minutes,
        kind=QuotaKind.PLAN,
        used_ppm=used_ppm,
        **{"window_name": window} | more,
    )


def rate(window: str, limit: int, remaining: int, **more: Any) -> Quota:
    return Quota(
        window=window,
        window_name=window,
        kind=QuotaKind.RATE,
        limit=limit,
        remaining=remaining,
        **more,
    )


def after(**delta: float) -> datetime:
    return NOW + timedelta(**delta)


UNIFIED = "anthropic-ratelimit-unified-"
SETS = [
    pytest.param(
        {
            f"{UNIFIED}5h-utilization": "0.05",
            f"{UNIFIED}5h-reset": str(EPOCH + 16_200),
            f"{UNIFIED}5h-status": "allowed",
            f"{UNIFIED}7d-utilization": "1.02",
            f"{UNIFIED}7d-reset": str(EPOCH + 432_000),
            f"{UNIFIED}7d-status": "rejected",
            f"{UNIFIED}7d-surpassed-threshold": "1.0",
            f"{UNIFIED}7d_oi-utilization": "0.2",
            f"{UNIFIED}overage-status": "rejected",
            f"{UNIFIED}overage-disabled-reason": "org_level_disabled",
            f"{UNIFIED}status": "allowed",
            f"{UNIFIED}reset": str(EPOCH + 16_200),
            f"{UNIFIED}representative-claim": "five_hour",
            f"{UNIFIED}fallback-percentage": "0.5",
        },
        {
            plan("5h", 300, 50_000, status="allowed", resets_at=after(minutes=270)),
            plan("7d", 10_080, 1_020_000, status="rejected", resets_at=after(days=5)),
            plan("7d_oi", 10_080, 200_000),
            plan("overage", None, None, status="rejected"),
        },
        id="claude-plan",
    ),
    pytest.param(
        {
            f"{UNIFIED}status": "rejected",
            f"{UNIFIED}reset": str(EPOCH + 60),
            f"{UNIFIED}representative-claim": "seven_day",
        },
        {plan("7d", 10_080, None, status="rejected", resets_at=after(minutes=1))},
        id="claude-plan-429-names-its-limit",
    ),
    pytest.param(
        {
            "anthropic-ratelimit-requests-limit": "4000",
            "anthropic-ratelimit-requests-remaining": "3999",
            "anthropic-ratelimit-requests-reset": "2026-09-30T20:00:01Z",
            "anthropic-ratelimit-input-tokens-limit": "400000",
            "anthropic-ratelimit-input-tokens-remaining": "300000",
            "anthropic-priority-output-tokens-limit": "10000",
            "anthropic-priority-output-tokens-remaining": "0",
        },
        {
            rate("requests", 4000, 3999, used_ppm=250, resets_at=after(seconds=1)),
            rate("input-tokens", 400_000, 300_000, used_ppm=250_000),
            rate("priority-output-tokens", 10_000, 0, used_ppm=1_000_000),
        },
        id="anthropic-api",
    ),
    pytest.param(
        {
            "x-codex-primary-used-percent": "28.5",
            "x-codex-primary-window-minutes": "300",
            "x-codex-primary-reset-after-seconds": "3600",
            "x-codex-secondary-used-percent": "59",
            "x-codex-secondary-window-minutes": "10080",
            "x-codex-secondary-reset-at": str(EPOCH + 86_400),
            "x-codex-other-primary-used-percent": "1",
            "x-codex-other-primary-window-minutes": "300",
            "x-codex-primary-over-secondary-limit-percent": "12",
            "x-codex-credits-unlimited": "true",
            "x-codex-plan-type": "pro",
        },
        {
            plan("5h", 300, 285_000, window_name="primary", resets_at=after(hours=1)),
            plan("7d", 10_080, 590_000, window_name="secondary", resets_at=after(days=1)),
            plan("5h other", 300, 10_000, window_name="other-primary"),
        },
        id="codex",
    ),
    pytest.param(
        {
            "x-codex-primary-used-percent": "4",
            "x-codex-primary-window-minutes": "10080",
            "x-codex-secondary-used-percent": "0",
            "x-codex-secondary-window-minutes": "0",
        },
        {plan("7d", 10_080, 40_000, window_name="primary")},
        id="codex-week-in-the-first-slot",
    ),
    pytest.param(
        {
            "x-quota-snapshot-premium_interactions": (
                "ent=300&ov=0.0&ovPerm=false&rem=80.1&rst=2026-10-01T00%3A00%3A00Z"
            ),
            "x-quota-snapshot-completions": "ent=-1&ov=0.0&rem=100.0&rst=2026-10-01T00%3A00%3A00Z",
            "x-quota-snapshot-chat": "ent=50&ov=1382.4&ovPerm=true&rem=0.0&rst=bad",
            "x-usage-ratelimit-session": "ent=0&ov=0.0&rem=99.6&rst=2026-09-30T21%3A30%3A00Z",
            "x-usage-ratelimit-weekly": "ent=0&ov=0.0&rem=101&rst=2026-10-05T20%3A00%3A00Z",
        },
        {
            plan("premium_interactions", None, 199_000, limit=300, resets_at=after(hours=4)),
            plan("chat", None, 1_000_000, limit=50, status="overage"),
            plan("5h", 300, 4_000, window_name="session", resets_at=after(minutes=90)),
            plan("7d", 10_080, None, window_name="weekly", resets_at=after(days=5)),
        },
        id="copilot",
    ),
    pytest.param(
        {
            "x-ratelimit-limit-requests": "5000",
            "x-ratelimit-remaining-requests": "4999",
            "x-ratelimit-reset-requests": "120ms",
            "x-ratelimit-limit-tokens": "800000",
            "x-ratelimit-remaining-tokens": "600000",
            "x-ratelimit-reset-tokens": "6m0s",
            "x-ratelimit-limit-project-tokens": "-1",
            "x-ratelimit-remaining-project-tokens": "999",
        },
        {
            rate("requests", 5000, 4999, used_ppm=200, resets_at=after(milliseconds=120)),
            rate("tokens", 800_000, 600_000, used_ppm=250_000, resets_at=after(minutes=6)),
        },
        id="openai",
    ),
    pytest.param(
        {
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-reset-requests": "2m59.56s",
        },
        {
            # 30 of 14 400 = 0.00208333...
            rate("requests", 14_400, 14_370, used_ppm=2_083, resets_at=after(seconds=179.56))
        },
        id="groq",
    ),
    pytest.param(
        {
            "x-ratelimit-limit-tokens-minute": "500000",
            "x-ratelimit-remaining-tokens-minute": "499000",
            "x-ratelimit-limit-req-minute": "60",
            "x-ratelimit-remaining-req-minute": "45",
            "x-ratelimit-tokens-query-cost": "1000",
        },
        {
            rate("tokens-minute", 500_000, 499_000, window_minutes=1, used_ppm=2_000),
            rate("req-minute", 60, 45, window_minutes=1, used_ppm=250_000),
        },
        id="mistral",
    ),
    pytest.param(
        {
            "x-ratelimit-limit-requests-day": "1000",
            "x-ratelimit-remaining-requests-day": "999",
            "x-ratelimit-reset-requests-day": "14400.5",
        },
        {
            rate("requests-day", 1000, 999, window_minutes=1440, used_ppm=1_000,
                 resets_at=after(seconds=14_400.5))
        },
        id="cerebras",
    ),
    pytest.param(
        {
            "x-ratelimit-limit": "20",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": f"{EPOCH + 60}000",
        },
        {rate("ratelimit", 20, 0, used_ppm=1_000_000, resets_at=after(minutes=1))},
        id="openrouter",
    ),
    pytest.param({"content-type": "application/json"}, set(), id="none"),
]  # fmt: skip


@for_each("headers, expected", SETS)
def test_header_sets_of_providers(headers: dict[str, str], expected: set[Quota]) -> None:
    found = quotas_of(headers, arrived_at=NOW)
    assert len(found) == len(expected)
    assert {quota.window: quota for quota in found} == {quota.window: quota for quota in expected}
    # A capture keeps quota headers alone, so those must state the same quotas.
    kept = {name: value for name, value in headers.items() if is_quota_header(name)}
    assert bool(kept) == bool(expected)
    assert quotas_of(kept, arrived_at=NOW) == found


def test_an_event_states_what_the_headers_state() -> None:
    event = {
        "type": "codex.rate_limits",
        "metered_limit_name": "codex",
        "rate_limits": {
            "primary": {"used_percent": 12.5, "window_minutes": 300, "reset_at": EPOCH + 60},
            "secondary": {
                "used_percent": 40, "window_minutes": 10080, "reset_after_seconds": 3600
            },
        },
    }  # fmt: skip
    expected = {
        plan("5h", 300, 125_000, window_name="primary", resets_at=after(minutes=1)),
        plan("7d", 10_080, 400_000, window_name="secondary", resets_at=after(hours=1)),
    }
    found = quotas_of_event(event, arrived_at=NOW)
    assert {quota.window: quota for quota in found} == {quota.window: quota for quota in expected}
    other = quotas_of_event(event | {"metered_limit_name": "codex_other"}, arrived_at=NOW)
    assert [quota.window for quota in other] == ["5h other", "7d other"]


EVENT_KEYS = (
    "type", "rate_limits", "primary", "secondary", "used_percent", "window_minutes", "reset_at",
    "reset_after_seconds", "metered_limit_name",
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(EVENT_KEYS),
            inner,
            max_size=5,
        )
    ),
)


@given(JSON, JSON)
def test_no_event_is_an_error(limits: object, name: object) -> None:
    event = {"type": "codex.rate_limits", "rate_limits": limits, "metered_limit_name": name}
    _assert_bounded(quotas_of_event(event, arrived_at=NOW))
    assert quotas_of_event(limits, arrived_at=NOW) == ()


@for_each("limits", [None, [], "5h"])
def test_what_is_no_event_of_limits_states_none(limits: object) -> None:
    event = {"type": "codex.rate_limits", "rate_limits": limits}
    assert quotas_of_event(event, arrived_at=NOW) == ()


def test_a_window_of_minutes_is_named_by_them() -> None:
    headers = {
        "x-codex-primary-used-percent": "25",
        "x-codex-primary-window-minutes": "90",
        "x-" + "n" * 2_000: "25",
    }
    (found,) = quotas_of(headers, arrived_at=NOW)
    assert (found.window, found.window_minutes, found.used_ppm) == ("90m", 90, 250_000)


@for_each("reset", ["", "soon", "9" * 2_000])
def test_a_claim_without_a_usable_reset_keeps_its_status(reset: str) -> None:
    headers = {
        f"{UNIFIED}representative-claim": "five_hour",
        f"{UNIFIED}status": "rejected",
        f"{UNIFIED}reset": reset,
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "4",
        "x-ratelimit-reset-requests": reset,
    }
    found = {quota.window: quota for quota in quotas_of(headers, arrived_at=NOW)}
    assert found["5h"] == plan("5h", 300, None, status="rejected")
    assert found["requests"] == rate("requests", 10, 4, used_ppm=600_000)


@for_each(
    "bad",
    ["", "abc", "-5", "NaN", "Infinity", "1e9", "1_0", "\u0665", "0x10", "1.2.3", str(2**64),
     "9" * 300],
)  # fmt: skip
def test_a_figure_that_is_no_number_is_not_known(bad: str) -> None:
    headers = {
        f"{UNIFIED}5h-utilization": bad,
        "x-codex-primary-used-percent": bad,
        "x-ratelimit-limit-requests": bad,
        "x-ratelimit-remaining-requests": bad,
    }
    assert quotas_of(headers, arrived_at=NOW) == ()


@for_each(
    "reset",
    ["0", str(EPOCH - 1), "253402300799", "2020-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
     "99999999h", "-5s", "5 m", "soon", "9" * 20],
)  # fmt: skip
def test_a_reset_in_the_past_or_too_far_ahead_is_not_known(reset: str) -> None:
    found = quotas_of(
        {f"{UNIFIED}5h-utilization": "0.5", f"{UNIFIED}5h-reset": reset}, arrived_at=NOW
    )
    assert [quota.resets_at for quota in found] == [None]


def test_many_windows_are_bounded_and_made_up_ones_ignored() -> None:
    models = {f"{UNIFIED}7d_m{number}-utilization": "0.1" for number in range(900)}
    real = {f"{UNIFIED}5h-utilization": "0.5"}
    found = quotas_of(models | real, arrived_at=NOW)
    assert len(found) == QUOTAS_MAX
    assert "5h" in {quota.window for quota in found}
    made_up = {f"x-ratelimit-limit-thing{number}": "1" for number in range(5000)}
    assert quotas_of(made_up, arrived_at=NOW) == ()


NAMES = sorted({name for case in SETS for name in case.values[0]})  # type: ignore[union-attr]
VALUES = st.text(max_size=30) | st.from_regex(
    r"-?[0-9]{1,30}(\.[0-9]{1,30})?[hms]?", fullmatch=True
)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=40), VALUES, max_size=20))
def test_no_value_is_an_error(headers: dict[str, str]) -> None:
    _assert_bounded(quotas_of(headers, arrived_at=NOW))
    retry_after_ms({"retry-after": next(iter(headers.values()), "")}, arrived_at=NOW)


def _assert_bounded(quotas: tuple[Quota, ...]) -> None:
    assert len(quotas) <= QUOTAS_MAX
    assert len({(quota.kind, quota.window) for quota in quotas}) == len(quotas)
    for quota in quotas:
        for figure in (quota.limit, quota.remaining):
            assert figure is None or 0 <= figure <= COUNT_MAX
        assert quota.used_ppm is None or 0 <= quota.used_ppm <= USED_PPM_MAX
        assert quota.resets_at is None or NOW <= quota.resets_at <= NOW + AHEAD_MAX
        assert len(quota.window) <= 64
        assert len(quota.window_name) <= 64


@for_each(
    "headers, expected",
    [
        ({"retry-after": "30"}, 30_000),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "30", "retry-after-ms": "1250.5"}, 1_250),
        ({"retry-after": "2", "retry-after-ms": "soon"}, 2_000),
        ({"retry-after": "Wed, 30 Sep 2026 20:01:00 GMT"}, 60_000),
        ({"retry-after": "Wed, 30 Sep 2020 20:01:00 GMT"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"retry-after": "99999999"}, None),
        ({"retry-after": "-1"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_an_answer_asks_for(headers: dict[str, str], expected: int | None) -> None:
    assert retry_after_ms(headers, arrived_at=NOW) == expected


AT = datetime(2026, 11, 2, 12, tzinfo=UTC)
RESET = int(AT.timestamp()) + 3_600
HEADERS = {"x-codex-primary-used-percent": "42", "x-codex-primary-window-minutes": "300"}


def event(percent, slot="primary"):
    window = {"used_percent": percent, "window_minutes": 300, "reset_at": RESET}
    return {"type": "codex.rate_limits", "rate_limits": {slot: window}}


def asked(host="api.openai.com", path="/v1/responses", **headers):
    headers = {"authorization": "Bearer sk-1", **headers}
    body = Body(b'{"model":"gpt-5","input":"Hi","stream":true}')
    request = structs.replace(
        REQUEST, host=host, path=path, headers=headers, body=body, began_at=AT
    )
    return opened(request, RunRules(node="n", secret=b"s" * 32))


def answered(exchange, body, status=200, times=None, **headers):
    kind = "text/event-stream" if body.startswith("data") else "application/json"
    tapped(exchange, body.encode(), kind, status, headers=headers)
    row, _ = exchange.settle(End.FINISHED, cause=None, now=AT, times=times)
    assert row.degraded is None
    return row


def used(row):
    return {each.window: each.used_ppm for each in row.quotas}


def test_headers_of_an_answer():
    row = answered(asked(), "{}", **HEADERS)
    assert used(row) == {"5h": 420_000}
    assert row.retry_after_ms is None


def test_the_event_of_a_stream_is_newer_than_its_headers():
    events = [{"type": "response.created", "response": {"id": "r"}}, event(43)]
    events += [{"type": "response.output_text.delta", "delta": str(n)} for n in range(50)]
    events += [event(44)]
    stream = "".join(f"data: {json.dumps(each)}\n\n" for each in events)
    assert used(answered(asked(), stream, **HEADERS)) == {"5h": 440_000}


@for_each("status, wait", [(429, 1_500), (529, 1_500), (200, None)])
def test_the_wait_that_an_error_asks_for(status, wait):
    assert answered(asked(), "{}", status, **{"retry-after": "1.5"}).retry_after_ms == wait


def test_a_relative_reset_counts_from_the_arrival_of_a_recorded_answer():
    began = AT + timedelta(seconds=7)
    times = RecordedTimes(first_byte_at=began, ended_at=began)
    headers = HEADERS | {"x-codex-primary-reset-after-seconds": "60"}
    (quota,) = answered(asked(), "{}", times=times, **headers).quotas
    assert quota.resets_at == began + timedelta(seconds=60)


def test_keys_of_one_account_have_one_account():
    of_answer = {"openai-organization": "org-1"}
    first = answered(asked(), "{}", **of_answer)
    assert first.account
    assert answered(asked(authorization="Bearer other"), "{}", **of_answer).account == first.account
    assert answered(asked(), "{}", **{"openai-organization": "org-2"}).account != first.account
    codex = asked("chatgpt.com", "/backend-api/codex/responses", **{"chatgpt-account-id": "a-1"})
    assert answered(codex, "{}").account is not None
    assert "org-1" not in repr(first)
    assert answered(asked(), "{}").account is None


def test_over_websocket_the_next_response_has_what_was_said():
    handshake = asked(upgrade="websocket")
    handshake.answer(Response(status=101, headers=HEADERS), edits=False, clock=lambda: 0.0)
    session = MeteredSession(handshake)

    def say(message, *, from_client=False):
        return session.message(json.dumps(message).encode(), from_client=from_client, at=AT)

    def respond(*between):
        say({"type": "response.create", "model": "gpt-5", "input": "Hi"}, from_client=True)
        say({"type": "response.created", "response": {"id": "r"}})
        for each in between:
            say(each)
        done = say({"type": "response.completed", "response": {"id": "r", "usage": {}}})
        (settled,) = [each for each in done if isinstance(each, Settled)]
        return used(settled.exchange)

    assert respond() == {"5h": 420_000}, "of the handshake"
    assert respond() == {}
    assert respond(event(50), event(51)) == {"5h": 510_000}
    assert respond({**event(60), "filler": "x" * RATE_LIMITS_BYTES_MAX}) == {}
    assert respond({"type": "made.up", "text": '"codex.rate_limits"'}) == {}


def test_an_event_replaces_only_its_own_window():
    found = limits_of(HEADERS, status=200, event=event(3, "secondary"), arrived_at=AT)
    assert [each.used_ppm for each in found.quotas] == [30_000]
    other = event(3)
    other["rate_limits"]["primary"]["window_minutes"] = 10_080
    found = limits_of(HEADERS, status=None, event=other, arrived_at=AT)
    assert {each.window: each.used_ppm for each in found.quotas} == {"5h": 420_000, "7d": 30_000}


@for_each(
    "more, field, at_the_bound, beyond, value",
    [
        ({}, "used-percent", "100000", "100000.1", ("used_ppm", USED_PPM_MAX)),
        ({}, "used-percent", "5".ljust(256), "5".ljust(257), ("used_ppm", 50_000)),
        ({"used-percent": "5"}, "window-minutes", "576000", "576001", ("window_minutes", 576_000)),
        ({"used-percent": "5"}, "reset-after-seconds", "34560000", "34560001",
         ("resets_at", NOW + AHEAD_MAX)),
    ],
)  # fmt: skip
def test_figures_are_believed_up_to_their_bounds(more, field, at_the_bound, beyond, value):
    def stated(text: str) -> list[Any]:
        headers = {f"x-codex-primary-{name}": each for name, each in {**more, field: text}.items()}
        return [getattr(quota, value[0]) for quota in quotas_of(headers, arrived_at=NOW)]

    assert stated(at_the_bound) == [value[1]]
    assert stated(beyond) in ([], [None])


@for_each(
    "headers",
    [
        {"x-quota-snapshot-chat": "ent=300&rem=100"},
        {"x-ratelimit-limit-requests": "7", "x-ratelimit-remaining-requests": "7"},
    ],
)
def test_all_of_a_quota_may_be_left(headers: dict[str, str]):
    assert [quota.used_ppm for quota in quotas_of(headers, arrived_at=NOW)] == [0]


@for_each(
    "status, wait, milliseconds",
    [
        (399, "5", None),
        (400, "5", 5_000),
        (429, "2678400", 2_678_400_000),
        (429, "2678401", None),
        (429, format_datetime(NOW), 0),
        (429, format_datetime(NOW - timedelta(seconds=1)), None),
        (429, format_datetime(NOW + RETRY_AFTER_MAX), 2_678_400_000),
        (429, format_datetime(NOW + RETRY_AFTER_MAX + timedelta(seconds=1)), None),
    ],
)
def test_a_wait_is_believed_up_to_its_bounds(status: int, wait: str, milliseconds: int | None):
    found = limits_of({"retry-after": wait}, status=status, event=None, arrived_at=NOW)
    assert found.retry_after_ms == milliseconds
