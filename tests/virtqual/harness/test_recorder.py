"""The reason why a case left no run, by the kind of its error and not by the words of a message."""

from types import SimpleNamespace

import pytest
from reframe.core.exceptions import FailureLimitError, SanityError, SkipTestError

from virtqual.harness.order import ONE_PLACE
from virtqual.harness.recorder import Recorder, failure_of
from virtqual.site.held import Rotation


def task(name, error, *deps, exitcode=0):
    check = SimpleNamespace(
        case=name,
        display_name=name,
        unique_name=name,
        slot=SimpleNamespace(pair=0, side="virtual", warm_up=False),
        rotation=ONE_PLACE,
        job=SimpleNamespace(jobid=1, state="COMPLETED", exitcode=exitcode),
    )
    case = SimpleNamespace(
        check=check,
        environ=SimpleNamespace(name="stack"),
        partition=SimpleNamespace(name="vm"),
        deps=[dep.testcase for dep in deps],
    )
    return SimpleNamespace(check=check, testcase=case, exc_info=(type(error), error, None))


@pytest.fixture
def recorded():
    """Return a recorder of which `build` is a fixture and no measurement, and the events of its log."""
    events = []
    log = SimpleNamespace(append=events.append)
    return Recorder(lambda task: None if task.check.case == "build" else log), events


@pytest.mark.parametrize("words", ["dependencies failed", "the node has no GPU"])
def test_a_check_that_skips_itself_is_refused_in_any_words(recorded, words):
    recorder, events = recorded
    recorder.on_task_skip(task("lj", SkipTestError(words)))
    assert [(event.failure.kind, event.failure.reason) for event in events] == [("refused", words)]


def test_only_the_cause_of_cases_that_wait_for_it_is_written_down(recorded):
    recorder, events = recorded
    failed = task("0N", SanityError("wrong energy"))
    failed.check.slot.warm_up = True
    waiting = task("0V", SkipTestError("dependencies failed"), failed)
    recorder.on_task_failure(failed)
    recorder.on_task_skip(waiting)
    recorder.on_task_skip(task("1V", SkipTestError("dependencies failed"), waiting))
    assert [event.failure.case for event in events] == ["0N"]


def test_a_fixture_that_failed_is_infrastructure_of_the_case_that_needs_it(recorded):
    recorder, events = recorded
    build = task("build", SanityError("no compiler"))
    recorder.on_task_failure(build)
    recorder.on_task_skip(task("0N", SkipTestError("dependencies failed"), build))
    assert [(event.failure.case, event.failure.kind) for event in events] == [("0N", "infrastructure")]


@pytest.mark.parametrize(("exitcode", "kind"), [(0, "refused"), (1, "failed")])
def test_a_program_that_fails_is_recognised_by_its_exit_code(exitcode, kind):
    error = SanityError("the log says: job exited with exit code 1")
    assert failure_of(task("lj", error, exitcode=exitcode)).kind == kind


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (137, "exit code 137 (killed by SIGKILL: was its memory used up?)"),
        (139, "exit code 139 (killed by SIGSEGV)"),
        (1, "exit code 1"),
        (255, "exit code 255"),
    ],
)
def test_the_signal_that_killed_a_program_is_named(code, reason):
    error = SanityError(f"job exited with exit code {code}")
    failure = failure_of(task("stream", error, exitcode=code))
    assert (failure.kind, failure.reason) == ("failed", f"job exited with {reason}")


def fail(recorder, programs, places="0" * 9, of=1, state="COMPLETED", exitcode=1):
    """Report a failed run of each program on one of so many places."""
    for number, (program, place) in enumerate(zip(programs, places, strict=False)):
        failed = task(f"check %case={number}", SanityError("no such file"), exitcode=exitcode)
        failed.check.feature, failed.check.slot.pair = program, int(place)
        failed.check.rotation, failed.check.job.state = Rotation(of, of), state
        recorder.on_task_failure(failed)


@pytest.mark.parametrize(
    ("programs", "places", "of"), [("abc", "000", 1), ("abcabc", "012345", 8), ("aaabbbbcc", "001001201", 8)]
)
def test_reframe_ends_once_three_programs_have_failed_on_a_side(recorded, programs, places, of):
    recorder, events = recorded
    fail(recorder, programs[:-1], places, of)
    with pytest.raises(FailureLimitError, match="no run has ended well on vm, and 3 programs failed there"):
        fail(recorder, programs[-1], places[-1], of)
    assert len(events) == len(programs)


@pytest.mark.parametrize(
    ("programs", "how"),
    [
        ("aaabbb", {}),
        ("abcabc", {"of": 8}),
        ("abc", {"state": "NODE_FAIL"}),
        ("abc", {"exitcode": 0}),
    ],
    ids=["two programs", "one node", "a lost node", "results are refused"],
)
def test_reframe_goes_on_if_something_may_work(recorded, programs, how):
    recorder, events = recorded
    fail(recorder, programs, **how)
    assert len(events) == len(programs)


def test_reframe_goes_on_if_a_run_has_ended_well(recorded):
    recorder, events = recorded
    warm_up = task("works", None)
    warm_up.check.slot.warm_up = True
    recorder.on_task_success(warm_up)
    fail(recorder, "abc")
    assert len(events) == 1 + 3


def test_reframe_goes_on_if_a_run_of_an_earlier_round_has_ended_well():
    events = []
    log = SimpleNamespace(append=events.append)
    fail(Recorder(lambda task: log, working={("stack", "virtual")}), "abc")
    assert len(events) == 3
