"""What a command used against what a file expects."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from addon.run import expect
from addon.run.expect import Expected, Figures, differences
from ledger.model.errors import LedgerError
from tests.ledger.priced import exchange, fill, reading, settled

GPT = "gpt-4.1"


@pytest.fixture
def ledger(tmp_path):
    """Two runs with the same answer, which counts in each."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    mine = exchange(GPT, id="a", tags={"run": "r1"})
    again = replace(mine, id="b", tags={"run": "r2"})
    other = exchange("other-model", id="c", tags={"run": "r2"})
    fill(
        url,
        [
            (settled(mine), reading(input_tokens=1_000, cache_read_tokens=200, output_tokens=50)),
            (settled(again), reading(input_tokens=1_000, cache_read_tokens=200, output_tokens=50)),
            (settled(other), reading(input_tokens=7)),
        ],
    )
    return url


def test_a_run_is_compared_with_what_was_written(ledger, tmp_path):
    path = tmp_path / "costs.toml"
    assert expect.check(ledger, "r1", path, update=True) == []
    text = path.read_text()
    assert text.startswith("tolerance = 0\n\n[total]\nrequests = 1\ninput_tokens = 1000\n")
    assert f'[models."{GPT}"]' in text
    assert expect.read(path).models[GPT].list_value_usd == Decimal("0.0021")
    assert expect.check(ledger, "r1", path, update=False) == []
    assert expect.check(ledger, "r2", path, update=False) == [
        "total: requests 2, expected 1, +100.0%",
        "total: input_tokens 1007, expected 1000, +0.7%",
        "other-model: requests 1, expected 0",
    ]
    assert len(expect.check(ledger, "no such run", path, update=False)) == 10
    path.write_text(text.replace("tolerance = 0", "tolerance = 1", 1))
    assert expect.check(ledger, "r2", path, update=False) == ["other-model: requests 1, expected 0"]
    expect.check(ledger, "r2", path, update=True)
    assert path.read_text().startswith("tolerance = 1\n")


def test_only_what_is_written_is_compared():
    found = {GPT: Figures(requests=2, input_tokens=100, list_value_usd=Decimal("0.5"))}
    for expected, lines in (
        (Expected(), 0),
        (Expected(total=Figures(requests=2)), 0),
        (Expected(total=Figures(requests=2, input_tokens=90)), 1),
        (Expected(total=Figures(input_tokens=90), tolerance=Decimal("0.2")), 0),
        (Expected(total=Figures(list_value_usd=Decimal("0.4"))), 1),
        (Expected(models={GPT: Figures()}), 0),
        (Expected(models={"another": Figures(requests=1)}), 2),
    ):
        assert len(list(differences(expected, found))) == lines, expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tolerance = 2", "tolerance 2 is not from 0 to 1"),
        ("tolerance = -0.1", "is not from 0 to 1"),
        ("tolerance = nan", "is not from 0 to 1"),
        ("[total]\nrequest = 1", "unknown field `request`"),
        ("[total]\nrequests = 'many'", "requests"),
        ("requests", "Expected '='"),
        ("[total]\nlist_value_usd = inf", "list_value_usd Infinity is not a number"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, said):
    path = tmp_path / "costs.toml"
    path.write_text(text)
    with pytest.raises(LedgerError, match=r"costs\.toml: ") as error:
        expect.read(path)
    assert said in str(error.value)


def test_a_file_that_is_missing_or_cannot_be_written(ledger, tmp_path):
    with pytest.raises(LedgerError, match="cannot read the file of expected costs"):
        expect.check(ledger, "r1", tmp_path / "none.toml", update=False)
    with pytest.raises(LedgerError, match="cannot write"):
        expect.check(ledger, "r1", tmp_path / "none" / "costs.toml", update=True)
