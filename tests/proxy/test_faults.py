"""Our failure is not theirs: an exception in any function of ours costs the client nothing.

No list of functions stands here: those that an exchange calls on the event loop are found by running
one, and each is broken at its first and at its last call.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.proxy import rows
from tests.proxy.client import BrokenHttpError
from tests.proxy.mitmdump import SCRIPTS
from tests.proxy.pair import OPENAI, Pair, exchange, new_tag, pair, speak
from tests.proxy.upstream import Answer, Request, document

pytestmark = pytest.mark.proxy

DOCUMENT = (
    b'{"id":"chatcmpl-plain","model":"m","choices":[{"message":{"content":"hi"}}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":64}}'
)
ERROR = b'{"error":{"message":"no model m for: a prompt of some length","type":"invalid"}}'
REFUSAL = b'{"error":{"message":"no stream_options"}}'
PLAIN = b'{"model":"m","messages":[{"role":"user","content":"a prompt of some length"}]}'
KEY = ("authorization", "Bearer sk-secret-0123456789")
SLOW_SECONDS = 4.0
"""Less than an end waits for a commit that does not come."""
GUARDS = (
    "addon/metering/troubles.py",
    "addon/metering/tap.py:Tap._listen",
    "addon/metering/tap.py:Tap._cut",
    "addon/metering/tap.py:Tap._decode_and_cut",
    "addon/proxy/answers.py:_run_by_run.<locals>.edit",
    "addon/proxy/answers.py:_captured.<locals>.capture",
    "addon/proxy/answers.py:_as_list",
    "addon/proxy/event_loop.py:guarded",
    "addon/proxy/event_loop.py:notifier",
    "addon/proxy/event_loop.py:wait_for_commit",
    "addon/proxy/event_loop.py:_resol",
    "addon/parts/fast/",
    "addon/proxy/recording.py:Recording.settle",
    "addon/proxy/wrapped.py",
)
"""What has no guard before itself: the guards, and the callables that mitmproxy has of us, which
have one inside; a wrapper that calls its watcher alone; what wakes an end that waits for its commit,
without which it waits 5 s."""


def refuse(request: Request) -> Answer:
    is_asked = b"stream_options" in request.body
    return document(REFUSAL, 400) if is_asked else Answer(pieces=OPENAI.frames)


@dataclass(frozen=True, kw_only=True)
class Kind:
    script: Callable[[Request], Answer]
    body: bytes | None = None
    asked: bool | None = None
    may_get: Callable[[bytes], bool] = lambda _: False
    """Another body that the client may get where a step failed."""


def has_our_usage(body: bytes) -> bool:
    """What we asked for reaches the client: more than it wanted, and whole."""
    unasked = b"".join(OPENAI.answer(asked=False)).removesuffix(b"data: [DONE]\n\n")
    return body.replace(b',"usage":null', b"").startswith(unasked) and body.endswith(b"[DONE]\n\n")


KINDS = {
    "edited": Kind(script=speak(OPENAI), may_get=has_our_usage),
    "as-asked": Kind(script=speak(OPENAI), asked=True),
    "whole": Kind(script=lambda _: document(DOCUMENT), body=PLAIN),
    "error": Kind(script=lambda _: document(ERROR, 400), body=PLAIN),
    "refused": Kind(script=refuse, may_get=lambda body: body == REFUSAL),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("faulty")
    with pair(
        folder,
        with_bare=False,
        beside=(SCRIPTS / "faults.py",),
        environment={"FAULT_RECORD": str(folder / "calls.json")},
        options={"tee_capture": str(folder / "captures")},
    ) as running:
        yield running


def strikes(faulty: Pair, send: Callable[..., object]) -> list[str]:
    """Each function that an exchange calls, and the number of calls that pass first."""
    record = faulty.tee.folder.parent / "calls.json"
    send(new_tag(), ("x-fault-record", "1"))
    send(new_tag())
    calls: dict[str, int] = json.loads(Path(record).read_text())
    return [
        f"{name}@{at}"
        for name, count in sorted(calls.items())
        if not name.startswith(GUARDS)
        for at in sorted({0, count - 1})
    ]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_fault_costs_the_client_nothing(faulty: Pair, kind: Kind) -> None:
    """The client gets its answer in time; the row is settled and says so, or a line does; nothing
    of a text is logged; the exchanges behind it are whole."""
    faulty.upstream.script = kind.script

    def send(tag: str, *headers: tuple[str, str]) -> tuple[int, bytes]:
        more = (KEY, *headers)
        try:
            got = exchange(faulty.tee, OPENAI, tag, *more, asked=kind.asked, body=kind.body)
        except (OSError, BrokenHttpError) as error:
            return 0, repr(error).encode()
        return got.status, got.body

    send(new_tag())
    whole = send(new_tag())
    struck = {new_tag(): step for step in strikes(faulty, send)}
    assert len(struck) > 200
    wrong = []
    logged = len(faulty.tee.log.splitlines())
    for tag, step in struck.items():
        began = time.monotonic()
        got = send(tag, ("x-fault", step))
        if got != whole and not kind.may_get(got[1]):
            wrong.append(f"{step}: the client got {got}")
        if time.monotonic() - began > SLOW_SECONDS:
            wrong.append(f"{step}: the client waited")
    tag = new_tag()
    assert send(tag) == whole
    assert faulty.row(tag)["degraded"] is None
    found = rows.by_tag(faulty.tee.ledger, "case")
    for tag, step in struck.items():
        for row in found.get(tag, []):
            if row["state"] != "settled":
                wrong.append(f"{step}: its row is {row['state']}")
            if "secret" in str(row):
                wrong.append(f"{step}: {row}")
        if len(found.get(tag, [])) > 1:
            wrong.append(f"{step}: {len(found[tag])} rows")
    lines = faulty.tee.log.splitlines()[logged:]
    wrong += [line for line in lines if "secret" in line or "Traceback" in line]
    assert wrong == [], "\n".join(wrong)
    assert sum("FaultError" in line for line in lines) <= len(struck)
    degraded = [row["degraded"] for tag in struck for row in found.get(tag, [])]
    assert sum("FaultError in " in (text or "") for text in degraded) > 80
