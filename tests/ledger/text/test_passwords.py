"""No password of a URL stays in a text."""

import pytest

from ledger.text.passwords import mistyped_url, without_credentials, without_passwords

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("text", "expected"),
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


@pytest.mark.parametrize(
    ("url", "expected"),
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


@pytest.mark.parametrize(
    ("url", "expected"),
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
