"""What is shown can do nothing where it is read, and no password of a URL stays in it. Origins as they
are stored, and as people read and write them. What an error suggests."""

import shlex
import sys
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.text.hints import as_typed, named_ledger, suggestion
from ledger.text.origins import listen_address, shown_origin, stored_origin
from ledger.text.printable import (
    mistyped_url,
    printable,
    short_text,
    spreadsheet_text,
    without_credentials,
    without_passwords,
)
from tests.named import for_each

SECRET = "hunter2"


@for_each(
    "text, shown",
    [
        ("gpt-5", "gpt-5"),
        ("größe 模型 é", "größe 模型 é"),
        ("no\u00a0break", "no\u00a0break"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("a\r\nb\tc\x00", "a\\x0d\\x0ab\\x09c\\x00"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("soft\u00adhyphen", "soft\\xadhyphen"),
        ("\u180e \u3164 \u2800", "\\u180e \\u3164 \\u2800"),
        ("tags\U000e0041", "tags\\U000e0041"),
        ("\u2066isolate\u2069", "\\u2066isolate\\u2069"),
        ("\u2028\ud800", "\\u2028\\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_by_its_code(text, shown):
    assert printable(text) == shown


def test_every_control_format_and_separator_character_of_unicode_is_escaped():
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    text = "".join(each for each in characters if category(each) in hidden)
    # A million characters have no meaning or a private one: one of 64 stands for its neighbours.
    text += "".join(each for each in characters[::64] if category(each) in {"Co", "Cn"})
    assert len(text) > 10_000
    assert printable(text).isascii()


@given(st.text())
def test_printable_text_is_printable_and_stays_as_it_is(text):
    shown = printable(text)
    assert all(each.isprintable() or category(each) == "Zs" for each in shown)
    assert printable(shown) == shown


@for_each(
    "text, cell",
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\uff1d1+1", "'\uff1d1+1"),
        (" =1", "' =1"),
        ("\t=1", "\\x09=1"),
        ("a=b", "a=b"),
    ],
)
def test_a_spreadsheet_gets_no_formulas(text, cell):
    assert spreadsheet_text(text) == cell


def test_names_are_cut_and_do_nothing():
    assert short_text("a\x1b[2Jb\u202e") == "a\\x1b[2Jb\\u202e"
    assert len(short_text("x" * 500)) == 48


@for_each(
    "text, expected",
    [
        ("no URL in it", "no URL in it"),
        ("postgresql://u:hunter2@h/d", "postgresql://u:***@h/d"),
        ("//v:hunter2@x@h2 either", "//v:***@h2 either"),
        ("postgresql://u/hunter2@h/d", "postgresql://***@h/d"),
        ("postgresql://h/d?password=hunter2&x=1", "postgresql://h/d?password=***&x=1"),
        ("host=h password=hunter2 user=u", "host=h password=*** user=u"),
        ("host=h password = 'hunter2 \\'hunter2' user=u", "host=h password = *** user=u"),
        ('PGPASSWORD="hunter2 hunter2" psql', "PGPASSWORD=*** psql"),
        ("password='hunter2", "password=***"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
    ],
)
def test_texts_without_passwords(text, expected):
    assert without_passwords(text) == expected
    assert SECRET not in without_passwords(text)
    assert without_passwords(expected) == expected


def test_a_known_password_is_removed_wherever_it_stands():
    said = 'invalid integer value "hunter2/x y" for "port"; hunter2%2Fx%20y is none either'
    assert without_passwords(said, None, "hunter2/x y") == (
        'invalid integer value "***" for "port"; *** is none either'
    )


def test_a_short_password_does_not_take_words_apart():
    assert without_passwords("a table", "a") == "a table"


@for_each(
    "url, expected",
    [
        ("postgresql+psycopg://u:hunter2[bad", "postgresql+psycopg://u:***"),
        ("postgresql://u:hunter2#h/db", "postgresql://u:***"),
        ("postgresql://u:hunter2%40h/db", "postgresql://u:***"),
        ("postgresql://u:hunter2:5432/db", "postgresql://u:***"),
        ("postgres:/u:hunter2/d", "postgres:/u:***"),
        ("  u:hunter2", "  u:***"),
        ("u:hunter2@h/d", "u:***@h/d"),
        ("postgresql://u:hunter2 @ h/d", "postgresql://u:***@ h/d"),
        ("postgresql://u/hunter2@h/d", "postgresql://***@h/d"),
        ("ledger", "ledger"),
    ],
)
def test_what_was_meant_as_a_url(url, expected):
    assert mistyped_url(url) == expected


@for_each(
    "url, expected",
    [
        ("localhost:4318", "localhost:4318"),
        ("http://u:hunter2@h:1/x", "http://***@h:1/x"),
        ("http://hunter2@h", "http://***@h"),
        ("u:hunter2@h", "u:***@h"),
        ("http:/u:hunter2@a@h?password=hunter2", "http:/***@h?password=***"),
    ],
)
def test_the_url_of_a_service(url, expected):
    assert without_credentials(url) == expected


WORDS = ("model", "provider", "key", "session")


@for_each(
    "word, added",
    [
        ("modle", "; did you mean 'model'?"),
        ("Models", "; did you mean 'model'?"),
        ("sesion", "; did you mean 'session'?"),
        ("keys", "; did you mean 'key'?"),
        ("zzz", ""),
        ("m" * 10**6, ""),
    ],
)
def test_the_nearest_word(word, added):
    assert suggestion(word, WORDS) == added


def test_what_an_error_adds():
    assert suggestion("modle", WORDS) == "; did you mean 'model'?"
    assert suggestion("zzz", WORDS) == ""
    assert suggestion("m" * 10**6, WORDS) == ""


@for_each(
    "stored, shown",
    [
        ("https://api.example.com:443", "https://api.example.com"),
        ("http://localhost:80", "http://localhost"),
        ("wss://api.example.com:443", "wss://api.example.com"),
        ("ws://localhost:80", "ws://localhost"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("https://localhost:80", "https://localhost:80"),
        ("http://localhost:443", "http://localhost:443"),
        ("https://[::1]:443", "https://[::1]"),
        ("http://[fe80::443]:11434", "http://[fe80::443]:11434"),
        ("https://api.example.com:8443", "https://api.example.com:8443"),
    ],
)
def test_the_default_port_is_not_shown(stored, shown):
    assert shown_origin(stored) == shown
    assert stored_origin(shown) == stored
    assert shown_origin(shown) == shown
    assert stored_origin(stored) == stored


@for_each("origin", ["", "api.example.com", "unix:443", "*example*"])
def test_what_is_no_origin_stays(origin):
    assert shown_origin(origin) == stored_origin(origin) == origin


@for_each(
    "text, address",
    [
        ("h:1", ("h", 1)),
        ("[::1]:80", ("::1", 80)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
        (":80", ("", 80)),
        ("80", ("", 80)),
        ("h:0", ("h", 0)),
        ("h:65536", None),
        ("h", None),
        ("::", None),
        ("::1:80", None),
        ("h:\u00b2", None),
        ("h:+1", None),
        ("", None),
    ],
)
def test_addresses_to_listen_on(text, address):
    assert listen_address(text) == address


def test_a_hint_is_what_can_be_typed_where_it_is_read():
    text = "tokentee: 1 row; run `tokentee db upgrade`: this is tokentee for 0026; tokentee --help"
    assert as_typed(text, {}) == text
    typed = "tokentee: 1 row; run `uv run tokentee db upgrade`: this is tokentee for 0026; "
    assert as_typed(text, {"UV_RUN_RECURSION_DEPTH": "1"}) == typed + "uv run tokentee --help"


@pytest.mark.parametrize(
    ("words", "ledger"),
    [
        (["tokentee", "report", "--ledger", "a.db"], "a.db"),
        (["tokentee", "report", "--ledger=a.db", "--by", "day"], "a.db"),
        (["tokentee", "run", "--", "psql", "--ledger", "a.db"], None),
        (["tokentee", "report", "--ledger"], None),
    ],
)
def test_the_ledger_that_a_command_line_names(words, ledger):
    assert named_ledger(words) == ledger


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("`tokentee requests --unpriced`", "`tokentee requests --ledger L --unpriced`"),
        ("run `tokentee db upgrade`, once", "run `tokentee db upgrade --ledger L`, once"),
        ("tokentee db check --ledger x", "tokentee db check --ledger x"),
        ("tokentee run -- COMMAND", "tokentee run --ledger L -- COMMAND"),
        ("tokentee prices check FILE", "tokentee prices check FILE"),
        ("tokentee prices update", "tokentee prices update --ledger L"),
    ],
)
def test_a_hint_keeps_the_ledger(text, typed):
    assert as_typed(text, {}, "L") == typed
    assert as_typed(text, {"UV_RUN_RECURSION_DEPTH": "1"}, "L") == typed.replace(
        "tokentee", "uv run tokentee"
    )


def test_a_hint_has_no_password_and_is_quoted():
    typed = as_typed("tokentee top", {}, "postgresql://me:secret@db/x y")
    assert "secret" not in typed
    assert shlex.split(typed)[:3] == ["tokentee", "top", "--ledger"]
    assert len(shlex.split(typed)) == 4
