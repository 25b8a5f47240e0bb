"""Sessions that measure a build again, after others that could not pass it."""

from unittest.mock import Mock

import pytest

from made_runs import DECLARED, alternating, keep, session_of
from virtqual import paths, qualify
from virtqual.qualify import checking, concluding, plan
from virtqual.runs import Result
from virtqual.session.log import DOCUMENT, Log
from virtqual.session.session import Request, SessionDocument
from virtqual.session.store import load

CLEAN, SLOWER = 1.0, 1.3
#: Its interval ends below budget plus margin in a first session, and not in a third one.
NEARLY = 1.0855
PINNED = {"native": {}, "virtual": {"placement": {"pinned": True}}}


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Return how to measure a build on one day and conclude the session, and to read it."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))

    def measure_on(day, slowdowns, pairs=4, **more):
        def results(side, pair):
            seconds = (1 + 0.005 * (-1) ** (pair // 2)) * (1 + 1e-5 * pair)
            return tuple(
                Result.scalar(
                    metric, "here", seconds * (slowdown if side == "virtual" else 1), declared=DECLARED
                )
                for metric, slowdown in slowdowns.items()
            )

        circumstances = {name: more.pop(name) for name in ("interrupted", "looks") if name in more}
        created = f"2026-01-{day:02}T00:00:00+00:00"
        made = session_of(
            alternating(results, pairs), name=f"202601{day:02}-000000-site", created=created, **more
        )
        return concluding.conclude_session(Log(keep(made, paths.sessions())), None, **circumstances)

    return measure_on


def test_sessions_are_counted_from_the_last_that_passed(measure):
    def attempts(day):
        return measure(day, {"a": SLOWER, "b": CLEAN}).basis.attempts

    assert [attempts(1), attempts(2)] == [{}, {"overhead": {"a@here": 2}}]
    measure(3, {"a": CLEAN})
    assert [attempts(4), attempts(5)] == [{}, {"overhead": {"a@here": 2}}]


def test_a_build_does_not_pass_because_it_is_measured_again(measure):
    first = measure(1, {"a": NEARLY})
    assert first.outcome == "WITHIN"
    for day in (2, 3):
        measure(day, {"a": SLOWER})
    again = measure(4, {"a": NEARLY})
    assert (again.outcome, again.verdicts[0].next_pairs) == ("UNDECIDED", 8)
    named = "Measured again, since this build did not pass: a here (session 3 in a row)."
    assert (named in again.conclusion, "again" in first.conclusion) == (True, False)
    # A mended build passes with as few pairs as before.
    assert measure(5, {"a": CLEAN}).outcome == "WITHIN"


@pytest.mark.parametrize(
    ("more", "is_counted"),
    [
        ({}, True),
        ({"interrupted": True}, True),
        ({"pairs": 2}, True),
        ({"pairs": 1}, False),  # no look
        ({"looks": (4,)}, True),
        ({"hypervisor_class": "esxi"}, False),
        ({"stack": {"hash": "1"}}, False),
        ({"identity": {"virtual": {"hypervisor": {"build": "9"}, "placement": {"pinned": True}}}}, False),
        ({"identity": {"virtual": {"placement": {"pinned": False}}}}, False),
        ({"label": "after lunch", "request": Request(system="site", fast=True)}, True),
        ({"system": "other"}, False),
    ],
)
def test_a_session_counts_that_could_have_passed_the_same_build(measure, more, is_counted):
    measure(1, {"a": SLOWER}, **{"identity": PINNED, **more})
    attempts = measure(2, {"a": SLOWER}, identity=PINNED).basis.attempts
    assert attempts == ({"overhead": {"a@here": 2}} if is_counted else {})


def test_a_session_that_was_invalid_does_not_count(measure):
    assert measure(1, {"a": 0.5}).outcome == "INVALID"
    assert measure(2, {"a": SLOWER}).basis.attempts == {}


def test_a_repeated_session_is_judged_again_by_the_same_attempts(measure):
    for day in (1, 2):
        measure(day, {"a": SLOWER})
    again = measure(3, {"a": NEARLY})
    directory = paths.sessions() / again.session
    assert checking.check_session(directory).doubts == []
    document = SessionDocument.model_validate_json((directory / DOCUMENT).read_text("utf-8"))
    assert document.basis.attempts == {"overhead": {"a@here": 3}}
    # With other attempts the runs give another answer.
    again = load(directory)
    again.basis = again.basis.model_copy(update={"attempts": {}})
    drawn = again.model_copy()
    checking.draw_conclusion(drawn, None, directory)
    assert drawn.outcome == "WITHIN"


def test_further_pairs_are_planned_by_the_same_attempts(measure, monkeypatch):
    for day, slowdown in ((1, SLOWER), (2, SLOWER), (3, NEARLY)):
        measure(day, {"a": slowdown})
    log = Log(paths.sessions() / "20260103-000000-site")
    planned = []
    monkeypatch.setattr(plan, "plan_next_rounds", lambda job, session, judged: planned.append(judged) or [])
    monkeypatch.setattr(plan, "repeat_unfinished", lambda *_: [])
    monkeypatch.setattr(plan, "divide_among_boots", lambda job, session, rounds: rounds)
    qualify._run_rounds(Mock(log=log, first_pairs=4, earlier=None, looks=(2, 4, 8, 12, 18)))
    assert [(need.first, need.last) for need in planned[0].verdict.needs] == [(4, 7)]
