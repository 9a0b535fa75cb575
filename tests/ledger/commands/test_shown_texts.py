"""The texts of commands as people see them, at three widths, and that hostile text is harmless.

The files in `shown/` are the expected texts. They were read before they were committed; after a
wanted change write them anew with `TOKENTEE_WRITE_SHOWN=1`, and read them again.
"""

import os
import re
from functools import partial
from pathlib import Path
from unicodedata import category

import pytest
from msgspec.structs import replace

from ledger import cli
from ledger.model.usage import Usage
from tests.app import APP
from tests.ledger.priced import exchange, fill, reading, settled

SHOWN = Path(__file__).parent / "shown"
COMMANDS = {
    "report": ["report"],
    "report_by_day_and_model": ["report", "--by", "day,model"],
    "report_by_key": ["report", "--by", "key"],
    "show": ["show", "b1"],
}


@pytest.mark.parametrize("columns", [80, 100, 140])
@pytest.mark.parametrize("name", COMMANDS)
def test_what_people_see(run, name, columns):
    result = run(*COMMANDS[name], columns=columns)
    text = f"{result.stdout}--\n{result.stderr}"
    text = re.sub(r"genai-prices [0-9.]+", "genai-prices X", text)
    path = SHOWN / f"{name}_{columns}.txt"
    if os.environ.get("TOKENTEE_WRITE_SHOWN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    assert max(map(len, result.stdout.splitlines())) <= columns


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u00ad\u180e\u3164\u2066\u2069\u200b\U000e0041\u2028\r\n\t=1+1|*x*<b>"
EXITS = [
    ["report", "--by", "model,key,session,tag:team,end_user,user_agent"],
    ["report", "--by", "model", "-f", "markdown"],
    ["report", "--by", "tag:team", "-f", "markdown"],
    ["report", "--by", "model,tag,session", "-f", "csv"],
    ["report", "--by", "model,session", "-f", "json"],
    ["report", "--only", f"model={HOSTILE}"],
    ["report", "--by", HOSTILE],
    ["report", "--since", HOSTILE],
    ["show", "evil"],
    ["show", "same"],
    ["show", HOSTILE],
    ["top", "--once"],
    ["limits", "--value"],
    ["names", "suggest"],
    ["prices", "show", HOSTILE],
    ["reprice", "--dry-run"],
]


@pytest.fixture(scope="module")
def hostile_ledger(tmp_path_factory):
    """A ledger in which every text that a client or an upstream decides is hostile."""
    url = f"sqlite:///{tmp_path_factory.mktemp('hostile') / 'ledger.sqlite3'}"
    evil = exchange(
        HOSTILE,
        id="evil",
        request_model=HOSTILE,
        origin=f"https://{HOSTILE}",
        path=f"/{HOSTILE}",
        provider=HOSTILE,
        response_id=HOSTILE,
        finish_reason=HOSTILE,
        error_type=HOSTILE,
        error_code=HOSTILE,
        error_message=HOSTILE,
        service_tier=HOSTILE,
        user_agent=HOSTILE,
        end_user=HOSTILE,
        session_id=HOSTILE,
        key_fingerprint="f" * 32,
        key_hint="\x1b[2J",
        degraded=HOSTILE,
        tags={"team": HOSTILE, HOSTILE: HOSTILE},
    )
    usage = reading(input_tokens=3, output_tokens=1)
    usage = replace(usage, usage=Usage(input_tokens=3, output_tokens=1, tool_units={"x": 1}))
    fill(
        url,
        [
            (settled(evil), replace(usage, usage_json='{"a": 1}', reason=HOSTILE)),
            (settled(replace(evil, id="same-1", response_id="same")), usage),
            (settled(replace(evil, id="same-2", response_id="same", path="/x")), usage),
        ],
    )
    return url


@pytest.mark.parametrize("words", EXITS, ids=lambda words: " ".join(words[:3])[:40])
def test_nothing_that_is_shown_can_do_anything(hostile_ledger, words, capsys, monkeypatch):
    """Errors included: they leave through `cli.run`, as in the command."""
    monkeypatch.setenv("TOKENTEE_LEDGER", hostile_ledger)
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit):
        cli.run(lambda: APP(args=words, prog_name="tokentee"))
    printed = capsys.readouterr()
    shown = printed.out + printed.err
    assert shown
    for character in shown:
        assert character == "\n" or character.isprintable() or category(character) == "Zs"
    for character in ("\u3164", "\u00ad"):
        assert character not in shown


def test_exported_csv_can_do_nothing_either(hostile_ledger, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENTEE_LEDGER", hostile_ledger)
    for what in ("requests", "charges"):
        words = ["export", str(tmp_path / what), "--what", what, "-f", "csv"]
        with pytest.raises(SystemExit):
            cli.run(partial(APP, args=words, prog_name="tokentee"))
        (path,) = tmp_path.glob(f"*/*/{what}.csv")
        text = path.read_text()
        assert "\\u202e" in text
        assert all(each == "\n" or each.isprintable() or category(each) == "Zs" for each in text)
