"""Our failure is not theirs: an exception at any step of ours costs the client nothing."""

from collections.abc import Iterator

import pytest

from tests.proxy import rows
from tests.proxy.client import Http1, Received
from tests.proxy.mitmdump import SCRIPTS
from tests.proxy.pair import OPENAI, Pair, exchange, headers_for, new_tag, pair, speak
from tests.proxy.upstream import Answer, Framing, Request

pytestmark = pytest.mark.proxy

ASKED, UNASKED = (b"".join(OPENAI.answer(asked=asked)) for asked in (True, False))
ALWAYS_STEPS = [
    "addon.metering.opening:read_request",
    "addon.metering.requests.attribution:api_key_of",
    "addon.metering.requests.attribution:fingerprint_of",
    "addon.metering.requests.attribution:tags_of_headers",
    "addon.proxy.opt_in:ask",
    "addon.metering.answers.meter:Meter.usage",
    "addon.metering.answers.meter:Meter.end",
    "addon.metering.exchange:MeteredExchange._result",
    "addon.metering.exchange:result_of",
]
"""Steps that every exchange takes: without them it passes as if they had been taken."""
ASKING_STEPS = [
    "addon.usage_opt_in.asking:inject_usage_option",
    "addon.usage_opt_in.policy:asks_of",
]
"""Steps of asking for usage: it is not asked then."""
TAP_STEPS = [
    "addon.metering.exchange:MeteredExchange.answer",
    "addon.metering.answers.meter:Meter.__init__",
]
LISTENING_STEPS = ["addon.metering.answers.meter:Meter.feed@1"]
EDITING_STEPS = ["addon.metering.answers.meter:Meter.feed_events@1"]
STRIP_STEPS = [
    "addon.usage_opt_in.stripping:Stripper.feed@2",
    "addon.usage_opt_in.stripping:Stripper.end",
]
OPENING_STEPS = ["addon.proxy.exchanges:open_exchange", "addon.dialects.routes:match"]
LATE_STEPS = ["addon.proxy.opt_in:learn", "ledger.pricing.prices:PriceBook.price"]
STEPS = [
    *ALWAYS_STEPS,
    *LISTENING_STEPS,
    *EDITING_STEPS,
    *ASKING_STEPS,
    *TAP_STEPS,
    *STRIP_STEPS,
    *OPENING_STEPS,
    *LATE_STEPS,
]
STEPS += ["addon.proxy.opt_in:revert_if_refused"]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    steps = " ".join(dict.fromkeys(step.partition("@")[0] for step in STEPS))
    with pair(
        tmp_path_factory.mktemp("faulty"),
        with_bare=False,
        beside=(SCRIPTS / "faults.py",),
        environment={"FAULT_STEPS": steps},
    ) as running:
        yield running


def strike(faulty: Pair, step: str, asked: bool | None) -> tuple[bytes, rows.Row | None]:
    """One exchange in which `step` fails, and one after it in which nothing does."""
    before = {row["id"] for row in rows.exchanges(faulty.tee.ledger)}
    after = new_tag()
    faulty.upstream.script = speak(OPENAI)
    key = ("authorization", "Bearer sk-secret-0123456789")
    if "@" in step:
        received = slowly(faulty, ("x-fault", step), key, asked=asked)
        faulty.upstream.script = speak(OPENAI)
    else:
        received = exchange(faulty.tee, OPENAI, new_tag(), ("x-fault", step), key, asked=asked)
    assert received.status == 200
    assert exchange(faulty.tee, OPENAI, after).body == UNASKED
    healthy = faulty.row(after)
    assert (healthy["degraded"], healthy["output_tokens"]) == (None, 64)
    assert rows.open_count(faulty.tee.ledger) == 0
    assert "sk-secret" not in faulty.tee.log
    new = [row for row in rows.exchanges(faulty.tee.ledger) if row["id"] not in before]
    struck = [row for row in new if row["id"] != healthy["id"]]
    assert len(struck) <= 1
    return received.body, struck[0] if struck else None


def slowly(faulty: Pair, *headers: tuple[str, str], asked: bool | None) -> Received:
    """One exchange whose first chunks come one by one, so that a fault can strike between them."""
    gate = faulty.upstream.gate()
    faulty.upstream.script = speak(OPENAI, gate=gate)
    with Http1(faulty.tee.address()) as client:
        body = OPENAI.request(asked=asked)
        client.send("POST", OPENAI.target, headers_for(OPENAI, new_tag(), *headers), body)
        received = client.head()
        for _ in range(3):
            gate.release()
            client.more(received)
        gate.release(1_000)
        while client.more(received):
            pass
        assert client.is_quiet()
    return received


@pytest.mark.parametrize(
    ("step", "asked"),
    [
        *(pytest.param(step, asked) for step in ALWAYS_STEPS for asked in (True, None)),
        *(pytest.param(step, True) for step in LISTENING_STEPS),
        *(pytest.param(step, None) for step in [*EDITING_STEPS, *ASKING_STEPS]),
        *(pytest.param(step, True) for step in TAP_STEPS),
    ],
)
def test_a_fault_costs_the_client_nothing(faulty: Pair, step: str, asked: bool | None) -> None:
    logged = len(faulty.tee.log.splitlines())
    body, row = strike(faulty, step, asked)
    assert body == (ASKED if asked else UNASKED)
    assert row is not None
    assert (row["state"], row["outcome"]) == ("settled", "complete")
    assert "FaultError in " in (row["degraded"] or "")
    lines = [line for line in faulty.tee.log.splitlines()[logged:] if "Fault" in line]
    assert len(lines) == 1, lines
    assert "secret" not in lines[0] + row["degraded"]


@pytest.mark.parametrize("step", [*STRIP_STEPS, *TAP_STEPS])
def test_without_a_stripper_everything_goes_through(faulty: Pair, step: str) -> None:
    """The usage that we asked for then reaches the client: more than it wanted, and whole."""
    body, row = strike(faulty, step, None)
    assert body.endswith(b"data: [DONE]\n\n")
    without_nulls = body.replace(b',"usage":null', b"")
    assert without_nulls.startswith(UNASKED.removesuffix(b"data: [DONE]\n\n"))
    assert row is not None
    assert (row["state"], row["outcome"]) == ("settled", "complete")
    assert "FaultError in " in (row["degraded"] or "")


@pytest.mark.parametrize("step", OPENING_STEPS)
def test_an_exchange_that_cannot_be_opened_passes(faulty: Pair, step: str) -> None:
    """There is no row without what would stand in it, but there is a line in the log."""
    body, row = strike(faulty, step, None)
    assert body == UNASKED
    assert row is None
    assert faulty.tee.has_logged("FaultError in ")


@pytest.mark.parametrize("step", LATE_STEPS)
def test_a_fault_after_the_reading_leaves_the_reading(faulty: Pair, step: str) -> None:
    body, row = strike(faulty, step, None)
    assert body == UNASKED
    assert row is not None
    assert (row["outcome"], row["output_tokens"]) == ("complete", 64)
    assert faulty.tee.has_logged("Fault")


def test_a_fault_in_taking_a_question_back_hands_the_answer_on(faulty: Pair) -> None:
    refusal = b'{"error":{"message":"no stream_options"}}'

    def answer(request: Request) -> Answer:
        if b"stream_options" not in request.body:
            return Answer(pieces=OPENAI.frames)
        return Answer(
            pieces=(refusal,),
            status=400,
            content_type="application/json",
            framing=Framing.LENGTH,
        )

    faulty.upstream.script = answer
    tag = new_tag()
    received = exchange(
        faulty.tee, OPENAI, tag, ("x-fault", "addon.proxy.opt_in:revert_if_refused")
    )
    assert (received.status, received.body) == (400, refusal)
    row = faulty.row(tag)
    assert row["outcome"] == "http_error"
    assert "Fault" in row["degraded"]


def test_a_plain_answer_survives_too(faulty: Pair) -> None:
    document = b'{"id":"chatcmpl-plain","model":"m","choices":[],"usage":{"prompt_tokens":1}}'
    faulty.upstream.script = lambda _: Answer(
        pieces=(document,), content_type="application/json", framing=Framing.LENGTH
    )
    for step in (
        *TAP_STEPS,
        "addon.metering.answers.meter:Meter.feed",
        "addon.metering.exchange:result_of",
    ):
        tag = new_tag()
        body = b'{"model":"m","messages":[]}'
        received = exchange(faulty.tee, OPENAI, tag, ("x-fault", step), body=body)
        assert received.body == document
        # Without a tap nothing holds the end back, so the row may come after it.
        assert "Fault" in faulty.settled_row(tag)["degraded"]
