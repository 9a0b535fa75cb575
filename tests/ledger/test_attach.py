"""Parts: what their rows attach is imported when it is asked for, and only of parts that are there."""

import inspect
import subprocess
import sys

from ledger.attach import attached, missing_for, with_options
from ledger.part import Part
from ledger.text import figures, period

THERE = Part(
    package="ledger.text",
    about="a package",
    attaches=(("amount", "figures:money"), ("zone", "period:zone_of"), ("amount", "figures:ratio")),
)
FURTHER = Part(package="ledger.model", about="another", attaches=(("amount", "money:decimal_of"),))
DELETED = Part(package="ledger.parts.gone", about="none", attaches=(("amount", "gone:money"),))
WITHOUT = Part(
    package="ledger.text", about="uses it", uses=(DELETED.package,), attaches=THERE.attaches
)


def test_a_point_has_what_is_attached_in_the_order_of_the_table():
    from ledger.model.money import decimal_of

    assert attached("amount", [THERE, FURTHER]) == [figures.money, figures.ratio, decimal_of]
    assert attached("zone", [THERE, FURTHER]) == [period.zone_of]
    assert attached("nothing", [THERE, FURTHER]) == []


def test_a_part_without_its_folder_is_not_there_nor_one_that_uses_it():
    assert attached("amount", [DELETED, WITHOUT, FURTHER]) == attached("amount", [FURTHER])
    assert missing_for(DELETED) == missing_for(WITHOUT) == (DELETED.package,)
    assert missing_for(THERE) == ()


def test_nothing_of_a_part_is_imported_before_it_is_asked_for():
    code = (
        "import sys, addon.cli; addon.cli.overview();"
        "print([name for name in sys.modules if '.parts.' in name or name == 'typer'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_option_of_a_part_answers_in_the_place_of_the_command():
    calls: list[object] = []

    def command(*, words: str = "all", number: int = 1) -> None:
        calls.append((words, number))

    def shout(loud: str | None, given: dict[str, object]) -> None:
        calls.append((loud, given))

    assert with_options(command, []) is command
    whole = with_options(command, [shout])
    assert list(inspect.signature(whole).parameters) == ["words", "number", "loud"]
    whole(words="some", number=2, loud=None)
    whole(words="some", number=2, loud="very")
    assert calls == [("some", 2), ("very", {"words": "some", "number": 2})]
