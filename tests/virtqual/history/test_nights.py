"""Ninety nights: who is told what, and once."""

from datetime import timedelta

import pytest
from made_nights import FIRST, night

from virtqual.history.nights import notices
from virtqual.verdict import Outcome


def told(found):
    return [(one.kind, one.subject.partition(" ")[0], one.session) for one in found]


def test_a_step_is_told_when_it_comes_and_when_it_goes():
    nights = [night(n, {"a": "OVER" if 20 <= n < 40 else "WITHIN", "b": "WITHIN"}) for n in range(90)]
    assert told(notices(nights)) == [
        ("over", "", "night-20"),
        ("over", "a", "night-20"),
        ("resolved", "", "night-40"),
        ("resolved", "a", "night-40"),
    ]


def test_the_same_nights_have_the_same_notices_and_later_ones_change_nothing():
    nights = [night(n, {"a": "OVER" if 2 <= n < 4 else "WITHIN"}) for n in range(9)]
    ids = [one.id for one in notices(nights)]
    assert ids == [one.id for one in notices(nights[::-1])]
    assert len(set(ids)) == len(ids)
    for count in range(9):
        assert [one.id for one in notices(nights[:count])] == ids[: len(notices(nights[:count]))]


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
    assert [one for one in told(notices(nights)) if one[1]] == [
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
    assert told(notices(nights)) == [
        ("over", "", "night-0"),
        ("over", "a", "night-0"),
        ("failed", "", "night-1"),
        ("over", "", "night-3"),
    ]


def test_a_night_without_a_session_is_told_once():
    nights = [night(n, {"a": "WITHIN"}) for n in range(10) if n not in (4, 5)]
    expected, end = timedelta(hours=30), FIRST + timedelta(days=9, hours=29)
    (one,) = notices(nights, expected=expected, now=end)
    assert (one.kind, one.when) == ("none", FIRST + timedelta(days=3))
    assert "no session since 2026-01-04 22:00" in one.text
    later = notices(nights, expected=expected, now=end + timedelta(days=2))
    assert later[0].id == one.id
    assert len(later) == 2
    # Day after day without a session it is the same notice.
    assert later == notices(nights, expected=expected, now=end + timedelta(days=5))


def test_a_night_that_has_not_come_to_an_end_changes_nothing_and_fills_no_gap():
    over, within, after = night(0, {"a": "OVER"}), night(0, {"a": "WITHIN"}), night(2, {"a": "WITHIN"})
    expected, hour = timedelta(hours=30), timedelta(hours=1)
    for outcome in ("UNFINISHED", "INTERRUPTED"):
        begun = night(1, {}, outcome="BROKEN").model_copy(update={"outcome": outcome})
        assert told(notices([over, begun])) == told(notices([over]))
        assert [one.kind for one in notices([over, begun, after])] == ["over", "over", "resolved", "resolved"]
        assert notices([within, begun], expected=expected, now=begun.created + hour) == []
        (late,) = notices([within, begun], expected=expected, now=begun.created + 31 * hour)
        assert (late.kind, late.when) == ("none", begun.created)


def test_another_patience_tells_no_old_gap_again():
    nights = [night(n, {"a": "WITHIN"}) for n in (0, 1, 4)]
    ids = [
        [one.id for one in notices(nights, expected=timedelta(hours=hours), now=FIRST + timedelta(days=4))]
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
    assert {(one.system, one.hypervisor_class, one.kind) for one in notices(nights)} == {
        ("other", "kvm", "over"),
        ("site", "emulated", "over"),
    }


def test_an_accepted_overhead_is_no_news():
    waived = night(1, {"a": "WITHIN"})
    (verdict,) = waived.verdicts
    accepted = verdict.model_copy(update={"outcome": Outcome.OVER, "passes": True})
    waived = waived.model_copy(update={"verdicts": (accepted,)})
    assert notices([night(0, {"a": "WITHIN"}), waived]) == []
    *_, last = notices([night(0, {"a": "OVER"}), waived])
    assert (last.kind, "accepted by a waiver" in last.text) == ("resolved", True)
    assert not waived.good, "a later night must not be held against it"


@pytest.mark.parametrize(
    ("more", "good"),
    [({}, True), ({"complete": False}, False), ({"exit_code": 3}, False), ({"verdicts": ()}, False)],
)
def test_which_session_is_a_yardstick(more, good):
    assert night(0, {"a": "WITHIN"}, **more).good is good
    assert night(0, {"a": "OVER"}).good is False
