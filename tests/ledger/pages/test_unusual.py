"""Unusual days, by figures worked out by hand."""

from datetime import date, timedelta

from ledger.pages.unusual import new_names, unusual_days

USD = 10**12
FRIDAY = date(2026, 11, 20)


def weekly(*, of, on=FRIDAY, weeks=8, name="gpt-5"):
    """The same cost on the same weekday of so many weeks before."""
    return {(on - timedelta(weeks=week), name): of for week in range(1, weeks + 1)}


def judged(costs, first_day=FRIDAY - timedelta(weeks=20)):
    return unusual_days(
        {"model": costs},
        first_day=first_day,
        judged_from=FRIDAY,
        judged_until=FRIDAY + timedelta(days=1),
    )


def test_a_day_far_above_the_same_weekday_of_the_weeks_before_stands_out():
    found = judged({**weekly(of=10 * USD), (FRIDAY, "gpt-5"): 15 * USD})
    assert [(one.word, one.name) for one in found] == [("total", None), ("model", "gpt-5")]
    # All weeks alike: the divisor is 5 % of 10 USD.
    assert {one.z for one in found} == {10}
    assert found[0].usual_picousd == 10 * USD


def test_a_silent_day_stands_out_too():
    (one, _) = judged(weekly(of=10 * USD))
    assert (one.cost_picousd, one.z) == (0, -20)


def test_a_quarter_more_is_ordinary():
    assert judged({**weekly(of=10 * USD), (FRIDAY, "gpt-5"): 12 * USD + USD // 2}) == []


def test_what_varies_anyway_must_differ_by_more():
    weeks = {
        (FRIDAY - timedelta(weeks=week), "gpt-5"): (10 + (week % 2) * 10) * USD
        for week in range(1, 9)
    }
    # Median 15, deviations all 5: 22 is (22 - 15) / (1.4826 x 5) = 0.9 away.
    assert judged({**weeks, (FRIDAY, "gpt-5"): 22 * USD}) == []
    # 45 is 4.05 away.
    assert judged({**weeks, (FRIDAY, "gpt-5"): 45 * USD})


def test_cents_are_not_worth_a_line():
    costs = {**weekly(of=100 * USD), **weekly(of=USD // 100, name="tiny")}
    costs |= {(FRIDAY, "gpt-5"): 100 * USD, (FRIDAY, "tiny"): USD}
    assert judged(costs) == []


def test_three_weeks_are_too_few_to_judge():
    costs = {**weekly(of=10 * USD), (FRIDAY, "gpt-5"): 99 * USD}
    assert judged(costs, first_day=FRIDAY - timedelta(weeks=3)) == []
    assert judged(costs, first_day=FRIDAY - timedelta(weeks=4))


def test_a_day_without_any_history_is_not_judged():
    assert judged({}, first_day=FRIDAY) == []
    # Nor one of a weekday on which nothing was usual: a ledger of now and then has many.
    assert judged({(FRIDAY, "gpt-5"): USD}) == []


def test_a_name_is_new_if_the_ledger_is_older_than_it():
    costs = {"model": {(FRIDAY, "gpt-6"): USD, (FRIDAY, None): USD, **weekly(of=USD)}}
    begin = FRIDAY - timedelta(days=2)
    (new,) = new_names(costs, first_day=FRIDAY - timedelta(weeks=8), begin=begin)
    assert (new.name, new.since, new.cost_picousd) == ("gpt-6", FRIDAY, USD)
    assert new_names(costs, first_day=begin - timedelta(days=3), begin=begin) == []
