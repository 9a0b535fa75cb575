"""Mistral's conversations, event by event; whole answers are cases in `tests/data`."""

from addon.dialects.facts import Facts
from addon.dialects.vendors import mistral


def test_the_first_output_gives_a_stream_its_id() -> None:
    facts = Facts()
    for number in (1, 2):
        mistral.read(facts, "message.output.delta", {"id": f"msg_{number}", "content": "x"})
    assert facts.response_id == "msg_1"
    assert not facts.id_unstable
