"""What clients have to set, and why nothing was recorded."""

from ledger.text import first_minute
from ledger.text.first_minute import NEXT, PassedTraffic, lines_at_start, nothing_recorded
from tests.named import for_each

KINDS = [name for name in PassedTraffic.__struct_fields__ if name != "connections"]


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
    said, after = lines_at_start([(mode, host, 1)], authority="ca.pem", asks_password=False)
    assert line in said
    assert after == NEXT


def test_no_listener_says_nothing():
    assert lines_at_start([], authority="ca.pem", asks_password=False) == []


def test_both_families_of_one_port_make_one_line():
    both = [("regular", host, 1) for host in ("::", "0.0.0.0")]
    (line, _) = lines_at_start(both, authority="ca.pem", asks_password=False)
    assert "http://127.0.0.1:1 " in line


@for_each("mode, is_named", [("regular", True), ("socks5", True), ("reverse:http://a:1", False)])
def test_a_proxy_with_users_says_where_their_name_goes(mode: str, is_named: bool):
    (line, _) = lines_at_start([(mode, "::1", 1)], authority="ca.pem", asks_password=True)
    assert ("://USER:PASSWORD@[::1]:1" in line) is is_named


CURES = {
    "untrusting": "SSL_CERT_FILE",
    "without_password": "http://USER:PASSWORD@HOST:PORT",
    "unreachable": "check the name",
    "prior_knowledge": "`tokentee run` with the same --mode",
}


@for_each("is_command", [True, False])
@for_each("kind", KINDS)
def test_what_was_seen_names_the_cure(kind: str, is_command: bool):
    counts = {"a:1": 1, "b:2": 9, "c": 2, "d": 1, "e\x1b": 1}
    (line,) = nothing_recorded(
        PassedTraffic(connections=14, **{kind: counts}), is_command=is_command
    )
    assert "b:2, c, a:1 and 2 more hosts" in line
    assert CURES.get(kind, "--set tee_hosts=b:2") in line


@for_each("is_command", [True, False])
def test_connections_without_a_request_are_no_absence(is_command: bool):
    (line,) = nothing_recorded(PassedTraffic(connections=2), is_command=is_command)
    assert line.startswith("2 connections came")


def test_nothing_was_seen():
    (line,) = nothing_recorded(PassedTraffic(), is_command=True)
    assert "reads no proxy variables" in line
    assert "--set tee_hosts=127.0.0.1:PORT -- COMMAND" in line
    (line,) = nothing_recorded(PassedTraffic(), is_command=False)
    assert "no client connected" in line


def test_what_several_processes_saw_is_added():
    one = PassedTraffic(connections=1, requests={"a": 1})
    one.add(PassedTraffic(connections=2, requests={"a": 1, "b": 1}, unread={"c": 1}))
    assert one == PassedTraffic(connections=3, requests={"a": 2, "b": 1}, unread={"c": 1})


def test_tunnels_that_may_be_calls_have_a_line_each_with_its_cure():
    lines = first_minute.tunnelled({"llm.corp:8443": 1, "api.acme.ai": 6})
    assert [line.split(" passed")[0] for line in lines] == [
        "6 connections to api.acme.ai",
        "1 connection to llm.corp:8443",
    ]
    assert lines[1].endswith("tokentee run --set tee_hosts=llm.corp:8443 -- COMMAND")
    many = first_minute.tunnelled({f"llm-{number}.corp": 1 for number in range(10)})
    assert len(many) == first_minute.TUNNELLED_SHOWN_MAX + 1
    assert many[-1] == "and to 2 more hosts"
    assert first_minute.tunnelled({}) == []
