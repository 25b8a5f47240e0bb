"""The notices of simulated nights."""

from datetime import timedelta

from made_nights import FIRST, night

from virtqual.history.nights import find_notices, find_standings
from virtqual.verdict import Outcome


def summarise(nights):
    """Return the kind, metric and session of all notices of nights."""
    return [(n.kind, n.subject.partition(" ")[0], n.session) for n in find_notices(nights)]


def get_ids(nights, **options):
    return [notice.id for notice in find_notices(nights, **options)]


def test_a_step_is_told_when_it_comes_and_when_it_goes():
    nights = [night(n, {"a": "OVER" if 20 <= n < 40 else "WITHIN", "b": "WITHIN"}) for n in range(90)]
    assert summarise(nights) == [
        ("over", "", "night-20"),
        ("over", "a", "night-20"),
        ("resolved", "", "night-40"),
        ("resolved", "a", "night-40"),
    ]


def test_the_same_nights_have_the_same_notices_and_later_ones_change_nothing():
    nights = [night(n, {"a": "OVER" if 2 <= n < 4 else "WITHIN"}) for n in range(9)]
    ids = get_ids(nights)
    assert ids == get_ids(nights[::-1])
    assert len(set(ids)) == len(ids)
    for count in range(9):
        earlier = get_ids(nights[:count])
        assert earlier == ids[: len(earlier)]


def test_what_is_undecided_is_told_in_the_third_night_and_keeps_what_was_before():
    letters = {"W": "WITHIN", "U": "UNDECIDED", "O": "OVER"}
    nights = [night(n, {"a": letters[letter]}) for n, letter in enumerate("WUUWUUUUOUOW")]
    assert [notice for notice in summarise(nights) if notice[1]] == [
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
    assert summarise(nights) == [
        ("over", "", "night-0"),
        ("over", "a", "night-0"),
        ("failed", "", "night-1"),
        ("over", "", "night-3"),
    ]


def test_a_night_without_a_session_is_told_once():
    nights = [night(n, {"a": "WITHIN"}) for n in range(10) if n not in (4, 5)]
    expected, end = timedelta(hours=30), FIRST + timedelta(days=9, hours=29)
    (notice,) = find_notices(nights, expected=expected, now=end)
    assert (notice.kind, notice.when) == ("none", FIRST + timedelta(days=3))
    assert "no session since 2026-01-04 22:00 has come to an end" in notice.text
    later = find_notices(nights, expected=expected, now=end + timedelta(days=2))
    assert later[0].id == notice.id
    assert len(later) == 2
    # Day after day without a session it is the same notice.
    assert later == find_notices(nights, expected=expected, now=end + timedelta(days=5))


def test_a_night_that_has_not_come_to_an_end_changes_nothing_and_fills_no_gap():
    over, within, after = night(0, {"a": "OVER"}), night(0, {"a": "WITHIN"}), night(2, {"a": "WITHIN"})
    expected, hour = timedelta(hours=30), timedelta(hours=1)
    for outcome in ("UNFINISHED", "INTERRUPTED"):
        begun = night(1, {}, outcome="BROKEN").model_copy(update={"outcome": outcome})
        assert summarise([over, begun]) == summarise([over])
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
    assert summarise(nights) == [
        ("over", "", "night-1"),
        ("over", "b", "night-1"),
        ("resolved", "", "night-5"),
        ("resolved", "b", "night-5"),
    ]
    standings = [sorted(over) for _, over in find_standings(nights)]
    assert standings == [[], ["b s"], ["b s"], ["b s"], ["b s"], []]


def test_what_a_whole_session_does_not_measure_any_more_is_over_no_longer():
    nights = [night(0, {"a": "WITHIN", "b": "OVER"}), night(1, {"a": "WITHIN"})]
    assert summarise(nights)[2:] == [("resolved", "", "night-1"), ("resolved", "b", "night-1")]


def test_slow_runs_are_over_until_a_session_of_as_many_checks_has_none():
    nights = [
        night(0, {"a": "WITHIN", "b": "WITHIN"}, outcome="OVER", exit_code=1),
        night(1, {"a": "WITHIN"}, complete=False),
        night(2, {"a": "WITHIN", "b": "UNDECIDED"}, complete=False, exit_code=0),
    ]
    assert summarise(nights) == [
        ("over", "", "night-0"),
        ("over", "slow", "night-0"),
        ("resolved", "", "night-2"),
        ("resolved", "slow", "night-2"),
    ]


def test_each_failure_after_an_answer_is_told():
    outcomes = ["WITHIN", "BROKEN", "UNDECIDED", "BROKEN", "BROKEN", "WITHIN"]
    nights = [
        night(n, {} if outcome == "BROKEN" else {"a": outcome}, outcome=outcome)
        for n, outcome in enumerate(outcomes)
    ]
    assert summarise(nights) == [
        ("failed", "", "night-1"),
        ("failed", "", "night-3"),
        ("resolved", "", "night-5"),
    ]


def test_another_patience_tells_no_old_gap_again():
    nights = [night(n, {"a": "WITHIN"}) for n in (0, 1, 4)]
    end = FIRST + timedelta(days=4)
    ids = [get_ids(nights, expected=timedelta(hours=hours), now=end) for hours in (30, 26)]
    assert ids[0] == ids[1] != []


def test_each_system_and_class_has_a_history_of_its_own():
    nights = [
        night(0, {"a": "WITHIN"}),
        night(1, {"a": "OVER"}, system="other"),
        night(2, {"a": "WITHIN"}),
        night(3, {"a": "OVER"}, hypervisor_class="emulated"),
    ]
    assert {(notice.system, notice.hypervisor_class, notice.kind) for notice in find_notices(nights)} == {
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
