"""The words behind `tokentee run`; a config file's text: its settings, and the line of every
mistake."""

import pytest

from addon.run.call.arguments import Call, parse, set_options
from addon.run.call.config_file import MetricsSettings, UpstreamSettings, read
from ledger.model.errors import WrongCallError
from tests.named import for_each

WHOLE = """
ledger_file = "ledger_url"
listen = "127.0.0.1:8080"
commit = "async"
hosts = ["llm.example.com"]
log_format = "json"

[tags]
team = "search"

[metrics]
listen = "127.0.0.1:9464"

[otlp]
endpoint = "http://127.0.0.1:4318"

[[upstream]]
name = "openai"
url = "https://api.openai.com"
listen = "127.0.0.1:8001"

[[upstream]]
name = "mine"
url = "http://127.0.0.1:11434/"
listen = "[::1]:8002"
provider = "ollama"
"""


def problems(text):
    return [str(problem) for problem in read(text)[1]]


def test_a_whole_file():
    settings, found = read(WHOLE)
    assert found == []
    assert settings.tags == {"team": "search"}
    assert settings.metrics == MetricsSettings(listen="127.0.0.1:9464")
    assert settings.upstream[1] == UpstreamSettings(
        name="mine", url="http://127.0.0.1:11434/", listen="[::1]:8002", provider="ollama"
    )


def test_an_empty_file_gives_nothing():
    settings, found = read("")
    assert (settings.upstream, settings.ledger, found) == ((), None, [])


@for_each(
    "text, says",
    [
        ("ledgr = 'x'", "line 1: ledgr: unknown; did you mean 'ledger'?"),
        ("a = ", "not TOML"),
        ("a = 1\nb c", "line 2: not TOML"),
        ("\ncommit = 'later'", "line 2: commit: 'later' is not one of before_end, async"),
        ("commit = 3", "line 1: commit: not a text but a whole number"),
        ("listen = '8080'", "line 1: listen: '8080' is not HOST:PORT"),
        ("listen = 'h:99999'", "line 1: listen: 'h:99999' is not HOST:PORT"),
        ("listen = 'h:0'", "line 1: listen: 'h:0' is not HOST:PORT"),
        ("listen = ':80'", "line 1: listen: ':80' is not HOST:PORT"),
        ("ledger = 'a'\nledger_file = 'b'", "line 2: ledger_file: ledger is given, too"),
        ("[metrics]\nport = 1", "line 2: metrics.port: unknown"),
        ("[metrics]\nlisten = 'x'", "line 1: metrics: listen: 'x' is not HOST:PORT"),
        ("[otlp]\nendpoint = 'collector'", "line 1: otlp: endpoint: 'collector' is not a URL"),
        ("[[upstream]]\nname = 'a'\nurl = 'https://h'", "line 1: upstream 1: listen: missing"),
        (
            "[[upstream]]\nname = 'a'\nurl = 'https://h/v1'\nlisten = 'h:1'",
            "line 3: upstream 1: url: 'https://h/v1' is not http(s)://HOST[:PORT]",
        ),
        (
            "[[upstream]]\nname = 'a'\nurl = 'https://h:x'\nlisten = 'h:1'",
            "line 3: upstream 1: url: 'https://h:x' is not http(s)://HOST[:PORT]",
        ),
        (
            "[[upstream]]\nname = 'a'\nurl = 'https://h'\nlisten = 'nowhere'",
            "line 4: upstream 1: listen: 'nowhere' is not HOST:PORT",
        ),
        ("workers = 0", "line 1: workers: 0 is not a number from 1 to 64"),
        ("workers = 65", "line 1: workers: 65 is not a number from 1 to 64"),
        ("workers = '2'", "line 1: workers: not a whole number but a text"),
        ("[tags]\nteam = 1", "line 1: tags: write every value as text"),
    ],
)
def test_each_mistake_has_its_line_and_what_to_do(text, says):
    (found,) = problems(text)
    assert found.replace("`", "").startswith(says.replace("`", "")), found


def test_all_mistakes_are_told_at_once_in_the_order_of_lines():
    text = "comit = 'async'\nlisten = 'x'\n[[upstream]]\nname = 'a'\nurl = 'ftp://h'\nlisten = 'y'"
    assert [line.partition(":")[0] for line in problems(text)] == [
        "line 1",
        "line 2",
        "line 5",
        "line 6",
    ]


def test_addresses_and_names_are_given_once():
    one = "[[upstream]]\nname = 'a'\nurl = 'https://h'\nlisten = '127.0.0.1:1'\n"
    listening = "listen = '127.0.0.1:1'\n[metrics]\nlisten = '127.0.0.1:1'\n"
    assert problems(one + one) == [
        "line 6: upstream 2: name: 'a' is taken by upstream 'a'",
        "line 8: upstream 2: listen: '127.0.0.1:1' is taken by upstream 'a'",
    ]
    assert problems(listening + one) == [
        "line 7: upstream 1: listen: '127.0.0.1:1' is taken by metrics"
    ]


def test_the_number_of_upstreams_is_bounded():
    text = "".join(
        f"[[upstream]]\nname='n{at}'\nurl='https://h'\nlisten='h:{at + 1}'\n" for at in range(101)
    )
    assert problems(text) == ["line 1: upstream: 101 of them; at most 100"]


@for_each(
    "words, options, command",
    [
        ("-- python x.py", "", "python x.py"),
        ("python x.py", "", "python x.py"),
        ("python -m mod --set a=b -- c", "", "python -m mod --set a=b -- c"),
        ("--set a=b -- python --everything", "--set a=b", "python --everything"),
        ("-s file.py claude", "-s file.py", "claude"),
        ("-p8080 -qn claude", "-p8080 -qn", "claude"),
        ("--mode=regular@1 claude", "--mode=regular@1", "claude"),
        ("--mode regular@1", "--mode regular@1", ""),
        ("", "", ""),
    ],
)
def test_the_first_word_that_is_no_option_begins_the_command(
    words: str, options: str, command: str
):
    call = parse(words.split())
    assert list(call.options) == options.split()
    assert list(call.command) == command.split()


def test_our_own_options():
    call = parse(["--everything", "--listen", "0.0.0.0:81", "~d", "-n", "-h"])
    assert call == Call(everything=True, listen=("0.0.0.0", 81), is_help=True, options=("-n", "~d"))


@for_each(
    "value, listen",
    [
        ("0.0.0.0", ("0.0.0.0", None)),
        ("8000", ("127.0.0.1", 8000)),
        (":8000", ("127.0.0.1", 8000)),
        ("::", ("::", None)),
        ("[::1]:9", ("::1", 9)),
        ("host:9", ("host", 9)),
    ],
)
def test_where_to_listen(value: str, listen: tuple[str, int | None]):
    assert parse([f"--listen={value}"]).listen == listen


@for_each(
    "words, named",
    [
        ("--evrything true", "did you mean --everything?"),
        ("--lisen 1", "did you mean --listen"),
        ("-z true", "no option -z"),
        ("--rfile x", "mitmdump -s"),
        ("--", "no command behind --"),
        ("--mode", "--mode needs a value"),
        ("--set -- x", "--set needs a value"),
        ("--listen=", "--listen needs HOST"),
        ("--listen h:99999", "--listen needs HOST"),
        ("--listen 1 true", "without a command"),
        ("--workers 2 -- true", "--workers is for a proxy without a command"),
        ("--workers two", "--workers: 'two' is not a number from 1 to 64"),
        ("--workers=0", "--workers: '0' is not a number"),
        ("--workers 65", "--workers: '65' is not a number"),
        ("--worker 2", "did you mean --workers?"),
        ("--expect costs.toml -- true", "run has no option --expect any more; report"),
        ("--expect-update -- true", "run has no option --expect-update any more; report"),
        ("--quiet=1 -- ls", "run has no option --quiet with a value: it takes none"),
        ("--legder sqlite:///x.db -- true", "did you mean --ledger?"),
        ("--ledger", "--ledger needs a value"),
    ],
)
def test_a_wrong_call_is_refused(words: str, named: str):
    with pytest.raises(WrongCallError) as raised:
        parse(words.split())
    assert named in str(raised.value)


def test_what_the_call_sets():
    call = parse(["--set", "a=1", "--set", "ab=2", "-s", "file", "--set", "a=3=4"])
    assert set_options(call.options) == {"a": "3=4", "ab": "2"}
    words = "--ledger=sqlite:///x --prices p.toml --capture c --tag a=b --tag c=d=e -- ls --tag x"
    call = parse(words.split())
    assert set_options(call.options) == {
        "ledger_url": "sqlite:///x",
        "tee_prices": "p.toml",
        "tee_capture": "c",
        "tee_tags": "a=b,c=d=e",
    }
    assert call.command == ("ls", "--tag", "x")
