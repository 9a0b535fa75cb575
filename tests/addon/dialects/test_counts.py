from addon.dialects.counts import (
    Counts,
    lookup,
    object_at,
    objects_at,
    unknown_counts,
    unknown_values,
)


def test_the_first_that_is_reported_counts() -> None:
    counts = Counts({"a": None, "b": {"c": 3}, "d": 0})
    assert counts.first("a", "b.c", "d") == 3
    assert counts.first("d") == 0
    assert counts.first("b", "b.x", "x.y") is None
    assert counts.remarks == ()


def test_what_is_no_count_is_remarked_once_and_passed_over() -> None:
    counts = Counts({"a": -1, "b": "12", "c": 5})
    assert counts.first("a", "b", "c") == 5
    assert counts.first("a") is None
    assert counts.remarks == (
        "a is no count: '-1'",
        "b is no count: '12'",
    )


def test_amounts_are_exact() -> None:
    """The shortest decimal form of a float is what the provider wrote."""
    counts = Counts({"cost": 0.0000355, "text": "0.1", "bad": "free", "minus": -1})
    assert counts.picousd("none", "cost") == 35_500_000
    assert counts.picousd("text") == 100_000_000_000
    assert counts.picousd("bad", "minus") is None
    assert len(counts.remarks) == 2


def test_durations_come_in_seconds() -> None:
    counts = Counts({"a": 6, "b": 5.4996, "c": True, "d": -1, "e": 1e300})
    assert counts.milliseconds("a") == 6_000
    assert counts.milliseconds("b") == 5_500
    assert counts.milliseconds("c", "d", "e") is None
    assert len(counts.remarks) == 3


def test_units_take_the_ledgers_names_and_leave_out_zeros() -> None:
    counts = Counts({"tools": {"search": 2, "code": 0, "odd": "x"}, "other": 1})
    names = {"tools.search": "web_searches", "tools.code": "code_executions", "tools.odd": "odd"}
    assert counts.units(names) == {"web_searches": 2}


def test_tools_without_a_name_here_keep_their_own() -> None:
    """BerriAI/litellm#15227: fees of server tools are missing where nobody knew the tool."""
    counts = Counts({"tools": {"webSearchRequests": 2, "moon_landings": 1, "none": 0}, "other": 5})
    assert counts.units({}, within="tools") == {"web_search_requests": 2, "moon_landings": 1}
    assert counts.units({"tools.moon_landings": "landings"}, within="tools") == {
        "web_search_requests": 2,
        "landings": 1,
    }


def test_keys_that_nobody_knows() -> None:
    known = {"a", "b", "b.c", "d", "d.*"}
    usage = {"a": 1, "b": {"c": 1, "x": 2}, "d": {"anything": 1}, "e": {"y": 1}, "z" * 99: 0}
    assert {key for key, _ in unknown_values(usage, known)} == {"b.x", "e", "z" * 64}


def test_depth_is_bounded() -> None:
    nested: dict[str, object] = {"n": 1}
    for _ in range(2_000):
        nested = {"k": nested}
    assert Counts(nested).first("k") is None


def test_looking_up_never_raises() -> None:
    assert lookup({"a": {"b": 1}}, "a.b") == 1
    assert lookup({"a": [1]}, "a.b") is None
    assert object_at([], "a") is None
    assert object_at({"a": 1}, "a") is None
    assert objects_at({"a": [{"x": 1}, 2, None]}, "a") == [{"x": 1}]
    assert objects_at({"a": {"x": 1}}, "a") == []


def test_remarks_are_bounded_and_each_stands_once() -> None:
    """Upstream decides how many of its values are no counts, and how long they are."""
    counts = Counts({"a": "x" * 10_000})
    assert counts.first("a") is None
    assert len(counts.remarks[0]) < 80
    counts = Counts({f"key{n}": "x" for n in range(10_000)})
    for n in range(10_000):
        counts.first(f"key{n}")
        counts.first("key0")
    assert len(counts.remarks) == 16
    assert counts.remarks[0] == "key0 is no count: 'x'"


def test_unknown_counts_are_bounded_and_leave_out_what_is_no_unit() -> None:
    usage = {"speed_tokens": 0, "seconds": 4, "made_up": {"tokens": 3, "name": "x"}}
    assert unknown_counts(usage, frozenset()) == {"made_up_tokens": 3}
    many = {f"made_up_{n}_tokens": n + 1 for n in range(1_000)}
    first = {key: value for key, value in many.items() if value <= 16}
    assert unknown_counts(many, frozenset()) == first
    assert unknown_counts({"made_up": many}, frozenset()) == {
        f"made_up_{key}": value for key, value in first.items()
    }
