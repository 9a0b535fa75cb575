"""What clients have to set, and why nothing was recorded."""

from typing import Any

from ledger.text.first_minute import NEXT, lines_at_start, nothing_recorded
from tests.named import for_each

NOTHING: dict[str, Any] = {"requests": {}, "untrusting": {}, "unread": {}, "local": {}}


@for_each(
    "mode, host, line",
    [
        (
            "reverse:https://api.openai.com@8001",
            "127.0.0.1",
            "OPENAI_BASE_URL=http://127.0.0.1:1/v1",
        ),
        ("reverse:https://api.anthropic.com", "0.0.0.0", "ANTHROPIC_BASE_URL=http://127.0.0.1:1"),
        (
            "reverse:http://gateway:4000",
            "10.0.0.1",
            "their base URL to http://10.0.0.1:1 in the place of",
        ),
        ("regular", "::", "HTTPS_PROXY=http://[::1]:1 and SSL_CERT_FILE=ca.pem"),
        ("upstream:http://proxy:3128", "127.0.0.1", "HTTPS_PROXY=http://127.0.0.1:1 and"),
        ("socks5", "127.0.0.1", "ALL_PROXY=socks5h://127.0.0.1:1 and SSL_CERT_FILE=ca.pem"),
        ("transparent", "", "clients trust ca.pem"),
    ],
)
def test_each_mode_says_what_its_clients_set(mode: str, host: str, line: str):
    said, after = lines_at_start([(mode, host, 1)], authority="ca.pem")
    assert line in said
    assert after == NEXT


def test_no_listener_says_nothing():
    assert lines_at_start([], authority="ca.pem") == []


@for_each("is_command", [True, False])
@for_each("kind", list(NOTHING))
def test_what_was_seen_names_the_cure(kind: str, is_command: bool):
    seen = NOTHING | {kind: {"a:1": 1, "b:2": 9, "c": 2, "d": 1, "e\x1b": 1}}
    (line,) = nothing_recorded(**seen, is_command=is_command)
    assert "b:2, c, a:1 and 2 more hosts" in line
    cure = "SSL_CERT_FILE" if kind == "untrusting" else "--set tee_hosts=b:2"
    assert cure in line


def test_nothing_was_seen():
    (line,) = nothing_recorded(**NOTHING, is_command=True)
    assert "reads no proxy variables" in line
    (line,) = nothing_recorded(**NOTHING, is_command=False)
    assert "no client connected" in line
