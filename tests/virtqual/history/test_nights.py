"""Ninety nights: who is told what, and once."""

from datetime import timedelta

import pytest
from made_nights import FIRST, night

from virtqual.history.nights import find_notices, find_standings
from virtqual.verdict import Outcome


def told(found):
    return [(one.kind, one.subject.partition(" ")[0], one.session) for one in found]


def test_a_step_is_told_when_it_comes_and_when_it_goes():
    nights = [night(n, {"a": "OVER" if 20 <= n < 40 else "WITHIN", "b": "WITHIN"}) for n in range(90)]
    assert told(find_notices(nights)) == [
        ("over", "", "night-20"),
        ("over", "a", "night-20"),
        ("resolved", "", "night-40"),
        ("resolved", "a", "night-40"),
    ]


def test_the_same_nights_have_the_same_notices_and_later_ones_change_nothing():
    nights = [night(n, {"a": "OVER" if 2 <= n < 4 else "WITHIN"}) for n in range(9)]
    ids = [one.id for one in find_notices(nights)]
    assert ids == [one.id for one in find_notices(nights[::-1])]
    assert len(set(ids)) == len(ids)
    for count in range(9):
        assert [one.id for one in find_notices(nights[:count])] == ids[: len(find_notices(nights[:count]))]


def test_what_is_undecided_is_told_in_the_third_night_and_keeps_what_was_before():
    outcomes = [
        "WITHIN",
        "UNDECIDED",
        "UNDECIDED",
        "WITHIN",
        *["UNDECIDED"] * 4,
        "OVER",
        "UNDECIDED",
        "OVER",
        "WITHIN",
    ]
    nights = [night(n, {"a": one}) for n, one in enumerate(outcomes)]
    assert [one for one in told(find_notices(nights)) if one[1]] == [
        ("undecided", "a", "night-6"),
        ("over", "a", "night-8"),
        ("resolved", "a", "night-11"),
    ]


def test_a_session_without_an_answer_is_told_once_and_leaves_metrics_as_they_were():
    nights = [
        night(0, {"a": "OVER"}),
        *(night(n, {}, outcome="BROKEN") for n in (1, 2)),
        night(3, {"a": "OVER"}),
    ]
    assert told(find_notices(nights)) == [
        ("over", "", "night-0"),
        ("over", "a", "night-0"),
        ("failed", "", "night-1"),
        ("over", "", "night-3"),
    ]


def test_a_night_without_a_session_is_told_once():
    nights = [night(n, {"a": "WITHIN"}) for n in range(10) if n not in (4, 5)]
    expected, end = timedelta(hours=30), FIRST + timedelta(days=9, hours=29)
    (one,) = find_notices(nights, expected=expected, now=end)
    assert (one.kind, one.when) == ("none", FIRST + timedelta(days=3))
    assert "no session since 2026-01-04 22:00 has come to an end" in one.text
    later = find_notices(nights, expected=expected, now=end + timedelta(days=2))
    assert later[0].id == one.id
    assert len(later) == 2
    # Day after day without a session it is the same notice.
    assert later == find_notices(nights, expected=expected, now=end + timedelta(days=5))


def test_a_night_that_has_not_come_to_an_end_changes_nothing_and_fills_no_gap():
    over, within, after = night(0, {"a": "OVER"}), night(0, {"a": "WITHIN"}), night(2, {"a": "WITHIN"})
    expected, hour = timedelta(hours=30), timedelta(hours=1)
    for outcome in ("UNFINISHED", "INTERRUPTED"):
        begun = night(1, {}, outcome="BROKEN").model_copy(update={"outcome": outcome})
        assert told(find_notices([over, begun])) == told(find_notices([over]))
        kinds = [notice.kind for notice in find_notices([over, begun, after])]
        assert kinds == ["over", "over", "resolved", "resolved"]
        assert find_notices([within, begun], expected=expected, now=begun.created + hour) == []
        (late,) = find_notices([within, begun], expected=expected, now=begun.created + 31 * hour)
        # One outage is one notice, however it goes on.
        assert (late.kind, late.when) == ("none", within.created)
        assert find_notices([within, begun, after], expected=expected, now=after.created + hour) == [late]
        many = [begun.model_copy(update={"created": begun.created + n * 24 * hour}) for n in range(14)]
        assert find_notices([within, *many], expected=expected, now=many[-1].created + hour) == [late]


def test_a_session_of_other_checks_resolves_nothing():
    nights = [
        night(0, {"a": "WITHIN", "b": "WITHIN"}),
        night(1, {"a": "WITHIN", "b": "OVER"}),
        night(2, {"a": "WITHIN"}, complete=False),
        night(3, {"b": "BASELINE"}, complete=False),
        night(4, {"a": "WITHIN", "b": "OVER"}),
        night(5, {"b": "WITHIN"}, complete=False),
    ]
    assert told(find_notices(nights)) == [
        ("over", "", "night-1"),
        ("over", "b", "night-1"),
        ("resolved", "", "night-5"),
        ("resolved", "b", "night-5"),
    ]
    standings = [sorted(over) for _, over in find_standings(nights)]
    assert standings == [[], ["b s"], ["b s"], ["b s"], ["b s"], []]


def test_what_a_whole_session_does_not_measure_any_more_is_over_no_longer():
    nights = [night(0, {"a": "WITHIN", "b": "OVER"}), night(1, {"a": "WITHIN"})]
    assert told(find_notices(nights))[2:] == [("resolved", "", "night-1"), ("resolved", "b", "night-1")]


def test_slow_runs_are_over_until_a_session_of_as_many_checks_has_none():
    nights = [
        night(0, {"a": "WITHIN", "b": "WITHIN"}, outcome="OVER", exit_code=1),
        night(1, {"a": "WITHIN"}, complete=False),
        night(2, {"a": "WITHIN", "b": "UNDECIDED"}, complete=False, exit_code=0),
    ]
    assert told(find_notices(nights)) == [
        ("over", "", "night-0"),
        ("over", "slow", "night-0"),
        ("resolved", "", "night-2"),
        ("resolved", "slow", "night-2"),
    ]


def test_each_failure_after_an_answer_is_told():
    outcomes = ["WITHIN", "BROKEN", "UNDECIDED", "BROKEN", "BROKEN", "WITHIN"]
    nights = [night(n, {"a": one} if one != "BROKEN" else {}, outcome=one) for n, one in enumerate(outcomes)]
    assert told(find_notices(nights)) == [
        ("failed", "", "night-1"),
        ("failed", "", "night-3"),
        ("resolved", "", "night-5"),
    ]


def test_another_patience_tells_no_old_gap_again():
    nights = [night(n, {"a": "WITHIN"}) for n in (0, 1, 4)]
    ids = [
        [
            one.id
            for one in find_notices(nights, expected=timedelta(hours=hours), now=FIRST + timedelta(days=4))
        ]
        for hours in (30, 26)
    ]
    assert ids[0] == ids[1] != []


def test_each_system_and_class_has_a_history_of_its_own():
    nights = [
        night(0, {"a": "WITHIN"}),
        night(1, {"a": "OVER"}, system="other"),
        night(2, {"a": "WITHIN"}),
        night(3, {"a": "OVER"}, hypervisor_class="emulated"),
    ]
    assert {(one.system, one.hypervisor_class, one.kind) for one in find_notices(nights)} == {
        ("other", "kvm", "over"),
        ("site", "emulated", "over"),
    }


def test_an_accepted_overhead_is_no_news():
    waived = night(1, {"a": "WITHIN"})
    (verdict,) = waived.verdicts
    accepted = verdict.model_copy(update={"outcome": Outcome.OVER, "waived": True})
    waived = waived.model_copy(update={"verdicts": (accepted,)})
    assert find_notices([night(0, {"a": "WITHIN"}), waived]) == []
    *_, last = find_notices([night(0, {"a": "OVER"}), waived])
    assert (last.kind, "accepted by a waiver" in last.text) == ("resolved", True)
    assert not waived.good, "a later night must not be held against it"


@pytest.mark.parametrize(
    ("more", "good"),
    [({}, True), ({"complete": False}, False), ({"exit_code": 3}, False), ({"verdicts": ()}, False)],
)
def test_which_session_later_ones_are_compared_with(more, good):
    assert night(0, {"a": "WITHIN"}, **more).good is good
    assert night(0, {"a": "OVER"}).good is False
