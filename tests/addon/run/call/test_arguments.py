"""The words behind `tokentee run`."""

import pytest

from addon.run.call.arguments import Call, parse, set_options
from ledger.model.errors import WrongCallError


@pytest.mark.parametrize(
    ("words", "options", "command"),
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


@pytest.mark.parametrize(
    ("value", "listen"),
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


@pytest.mark.parametrize(
    ("words", "named"),
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
        ("--expect costs.toml", "--expect is for a command"),
        ("--expect-update -- true", "--expect-update writes the file that --expect names"),
        ("--live -- true", "--live shows what runs already"),
        ("--live --workers 2", "--live shows what runs already"),
        ("--liv", "did you mean --live?"),
        ("--ledger sqlite:///x.db -- true", "--set ledger_url=URL or TOKENTEE_LEDGER"),
    ],
)
def test_a_wrong_call_is_refused(words: str, named: str):
    with pytest.raises(WrongCallError) as raised:
        parse(words.split())
    assert named in str(raised.value)


def test_what_the_call_sets():
    call = parse(["--live", "--set", "a=1", "--set", "ab=2", "-s", "file", "--set", "a=3=4"])
    assert call.live
    assert set_options(call.options) == {"a": "3=4", "ab": "2"}
