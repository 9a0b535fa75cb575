"""Quick records are what `dataclasses` makes: made, changed, compared, frozen."""

import dataclasses
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from datetime import UTC, datetime

import pytest
from msgspec import Struct
from msgspec import field as msgspec_field

from ledger.model.charge import Charge
from ledger.model.exchange import Exchange
from ledger.model.reading import Reading
from ledger.model.records import changed, quick_init, with_dataclass_fields
from ledger.model.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usual:
    name: str
    count: int | None = None
    tags: dict[str, str] = field(default_factory=dict)


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class _Quick:
    name: str
    count: int | None = None
    tags: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    "given", [{"name": "a"}, {"name": "a", "count": 0}, {"name": "a", "tags": {"b": "c"}}]
)
def test_a_quick_record_has_the_fields_of_the_usual_one(given):
    assert dataclasses.asdict(_Quick(**given)) == dataclasses.asdict(_Usual(**given))
    assert repr(_Quick(**given)).replace("_Quick", "_Usual") == repr(_Usual(**given))


def test_a_default_is_made_for_each_record():
    assert _Quick(name="a").tags is not _Quick(name="a").tags


@pytest.mark.parametrize("kind", [_Usual, _Quick])
def test_what_is_missing_unknown_or_positional_is_refused(kind):
    for call in ({"count": 1}, {"name": "a", "nmae": "b"}):
        with pytest.raises(TypeError):
            kind(**call)
    with pytest.raises(TypeError):
        kind("a")


def test_a_quick_record_is_frozen_hashable_by_its_rules_and_pickled():
    made = _Quick(name="a", count=2)
    with pytest.raises(FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]  # what must not be possible
    assert pickle.loads(pickle.dumps(made)) == made
    assert replace(made, count=3) == changed(made, count=3) == _Quick(name="a", count=3)


def test_a_change_leaves_the_record_itself_alone():
    made = _Quick(name="a")
    other = changed(made, name="b")
    assert (made.name, other.name, other.tags) == ("a", "b", made.tags)
    assert changed(made) == made
    assert changed(made) is not made


def test_an_unknown_name_is_refused():
    with pytest.raises(TypeError, match="_Quick has no field 'nmae'"):
        changed(_Quick(name="a"), nmae="b")


@pytest.mark.parametrize("kind", [Exchange, Reading, Charge, Usage])
def test_the_ledgers_records_take_a_change_in_every_field(kind):
    """Filled with what is needed, then each field set to a value of its own."""
    needed = {
        one.name: datetime(2026, 1, 1, tzinfo=UTC) if one.name.endswith("_at") else one.name
        for one in fields(kind)
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    }
    made = kind(**needed)
    for one in fields(kind):
        value = object()
        other = changed(made, **{one.name: value})
        assert getattr(other, one.name) is value
        assert [
            n.name for n in fields(kind) if getattr(other, n.name) is not getattr(made, n.name)
        ] == [one.name]


@with_dataclass_fields
class _Struct(Struct, frozen=True, kw_only=True):
    name: str
    count: int | None = None
    tags: dict[str, str] = msgspec_field(default_factory=dict)


def test_a_struct_is_taken_for_a_dataclass():
    made = _Struct(name="a", count=2)
    assert [one.name for one in fields(_Struct)] == ["name", "count", "tags"]
    assert dataclasses.asdict(made) == {"name": "a", "count": 2, "tags": {}}
    assert replace(made, count=3) == changed(made, count=3) == _Struct(name="a", count=3)
    assert changed(made) is not made
    assert {one.name for one in fields(_Struct) if one.default is dataclasses.MISSING} == {
        "name",
        "tags",
    }
    with pytest.raises(TypeError):
        changed(made, nmae="b")
    with pytest.raises(AttributeError):
        made.name = "b"  # type: ignore[misc]  # what must not be possible
