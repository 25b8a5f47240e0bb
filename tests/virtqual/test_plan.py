"""How many pairs a session may take."""

from types import SimpleNamespace

import pytest
from made_series import FIVE, PRIOR, judge_session

from calling import call
from made_runs import keep, made_run, session_of
from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.wording import Range
from virtqual.harness import catalogue
from virtqual.harness.order import SIDE_OF_LETTER, order_slots
from virtqual.qualify import plan
from virtqual.references import project_references
from virtqual.session.session import Request, Round
from virtqual.site.held import Rotation
from virtqual.verdict import Case, Outcome
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.session import Need


@pytest.mark.parametrize(
    ("pairs", "at_most", "says"),
    [
        (None, 3, "--max-pairs 3: at least 4 are needed to decide"),
        (99, 18, "--pairs 99 is more than --max-pairs 18 allows"),
    ],
)
def test_pairs_that_could_not_decide_or_are_not_allowed_are_refused(pairs, at_most, says):
    with pytest.raises(UsageError, match=says):
        plan.check_pairs(Request(system="x", pairs=pairs, max_pairs=at_most))


@pytest.mark.parametrize(
    ("class_name", "fast", "pairs", "first_pairs"),
    [
        ("kvm", False, None, 4),
        ("kvm", True, None, LOOKS[0]),
        ("kvm-on-emulated-hosts", False, None, LOOKS[0]),
        ("kvm", True, 6, 6),
    ],
)
def test_a_session_that_may_qualify_a_build_takes_four_pairs_first(class_name, fast, pairs, first_pairs):
    chosen = project_references().hypervisor_class(class_name)
    looks, first = plan.look_schedule(Request(system="x", pairs=pairs, fast=fast), chosen)
    assert (looks, first) == (LOOKS, first_pairs)


@pytest.mark.parametrize("at_most", [4, 7, 8, 18])
def test_the_least_that_is_allowed_can_convict(metrics, make, at_most):
    chosen = project_references().hypervisor_class("kvm")
    looks, first = plan.look_schedule(Request(system="x", max_pairs=at_most), chosen)
    assert first == (at_most if at_most < 8 else 4)
    lost = Case(make(metrics["hpl"], [0.5] * at_most), FIVE, PRIOR)
    assert judge_session([lost], looks=looks).outcome is Outcome.OVER


def test_the_command_refuses_them_before_it_looks_for_the_system():
    for options, says in ((("--max-pairs", "3"), "4"), (("--pairs", "19"), "--max-pairs 18")):
        done = call("qualify", "--system", "none", *options)
        assert (done.exit_code, says in done.output) == (2, True), done.output


def test_how_long_a_session_takes_follows_from_the_last_runs_of_what_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    tags_by_name = {
        "hpl n=1": ("linpack", "quick", "full"),
        "hpl n=2": ("linpack", "full"),
        "slow": ("app", "quick", "full"),
        "never_run": ("new", "full"),
    }
    made = (("1", [("hpl %n=1", 7), ("hpl %n=2", 70), ("slow", 300)]), ("2", [("slow", 100)]), ("3", []))
    for name, times in made:
        runs = [
            made_run(side, 0, check=check, end=end) for check, end in times for side in ("native", "virtual")
        ]
        keep(session_of(runs, name=name), paths.sessions())

    native = SimpleNamespace(scale="standard", run_seconds=None)

    def seconds(**asked):
        longer = "" if asked.get("full") else "only with --full"
        entries = [
            catalogue.Entry(name=name, description="d", tags=tags, lacks="" if "quick" in tags else longer)
            for name, tags in tags_by_name.items()
        ]
        alone = {"rotated": {}, "capacity": (set(), 1), "entries": entries}
        system = SimpleNamespace(name=session_of([]).system, native_extras=native)
        job = SimpleNamespace(request=Request(system="site", **asked), system=system, **alone)
        return plan.estimate_round(job, session_of([]), (), 2)

    def both(expected):
        return (expected, expected)

    assert seconds(names=("hpl",)) == both(5 + 2 * (8 + 8))
    assert seconds(names=("hpl",), full=True) == both(5 + 2 * (8 + 8 + 71 + 71))
    # The last time that it ran counts, and what only an earlier session ran is not forgotten.
    assert seconds(tags=("app",)) == both(5 + 2 * (101 + 101))
    assert seconds() == both(5 + 2 * (8 + 8 + 101 + 101))
    # 20 to 60 s are assumed, and up to five to start the run.
    assert seconds(names=("never_run",), full=True) == (5 + 2 * (21 + 21), 5 + 2 * (65 + 65))


def test_nodes_that_all_work_at_once_are_as_busy_as_the_slower_side():
    rotated = {"bare": ["n1", "n2"], "vm": ["v1", "v2"]}
    times = {"native": 9.0, "virtual": 19.0}
    # A second more for each run, and five for ReFrame.
    one = plan.PlannedCase("a", 1, times, Range(1.0, 2.0))
    alone = plan.estimate_turns([one], 2, rotated)
    assert alone.low == plan.estimate_turns([one], 2, {}).high == 5 + 2 * (10 + 20)
    assert plan.estimate_turns([one] * 3, 2, rotated).high == 5 + 2 * 3 * 20
    # Runs between nodes have them for themselves.
    cases = [one, one, one._replace(nodes=2)]
    assert plan.estimate_turns(cases, 2, rotated).high == 5 + 2 * (2 * 20 + 30)


@pytest.mark.parametrize(
    ("order", "runs", "expected"),
    [
        # The first round was cut off in its pair 1, which began with the virtual run, and in its pair 2.
        ("", "0N 0V 1V", (2, 4, "VNN")),
        ("", "0N 0V 1V 1N 2N", (3, 4, "NN")),
        ("", "", (0, 3, "NVNN")),
        # It was resumed, and cut off again.
        ("", "0N 0V 1V 2V 2N 3N", (4, 5, "NN")),
        ("", "0N 0V 1V 2V 2N 3N 3V 4N 4V", None),
        ("NVVV", "4N 4V 5V 5N 6V", (7, 8, "VV")),
    ],
)
def test_pairs_that_were_cut_off_keep_their_order(order, runs, expected):
    part = Round(number=1, first=4 * bool(order), last=3 + 4 * bool(order), order=order, checks=("lj",))
    made = [
        made_run(SIDE_OF_LETTER[slot[1]], int(slot[0]), check="lj", start=10.0 * time, end=10.0 * time + 5)
        for time, slot in enumerate(runs.split())
    ]
    job = SimpleNamespace(
        entries=[catalogue.Entry(name="lj", description="d", tags=("quick",))],
        rotation=lambda nodes: Rotation(1, 1),
    )
    rounds = plan.repeat_unfinished(job, session_of(made), part)
    assert [(part.first, part.last, part.order) for part in rounds] == [expected] * bool(expected)


def test_a_round_of_an_older_session_has_the_standard_order():
    part = Round.model_validate({"number": 1, "first": 0, "last": 3})
    assert (
        part.order,
        [str(slot) for slot in order_slots(part.first, part.last, order=part.order)][2:6],
    ) == (
        "",
        ["0N", "0V", "1V", "1N"],
    )


@pytest.mark.parametrize(
    ("lost", "is_failing"),
    [
        ([("virtual", 21)], False),
        ([("virtual", 9), ("virtual", 21)], False),
        ([("virtual", 21), ("native", 31)], False),
        ([("virtual", 21), ("virtual", 31)], True),
    ],
)
def test_a_check_whose_warm_up_is_lost_twice_in_a_row_gets_no_more_pairs(lost, is_failing):
    """A pair of it, and other checks, ended before or meanwhile."""
    runs = [made_run("native", 0, check=check, end=end) for check, end in (("lj", 19.0), ("eam", 29.0))]
    failures = [
        SimpleNamespace(check="lj", side=side, warm_up=True, end=float(end), job="1") for side, end in lost
    ]
    failures += [SimpleNamespace(check="lj", side="virtual", warm_up=False, end=40.0, job="2")] * 2
    session = SimpleNamespace(runs=runs, failures=failures)
    assert plan.find_failing_checks(session) == ({"lj"} if is_failing else set())


SERIES = "lammps_loop_time@lj"


def plan_next(*, first=4, last=7, order="", failed=(), recreate_vms=(), boots=1, places=1):
    """Return the ranges of the rounds that bring the pairs of one series, and why no more are run.

    With an order, the ranges have theirs.
    """
    notes = []
    session = SimpleNamespace(
        # Its pair is no obstacle to those that are needed.
        runs=[
            SimpleNamespace(check="lj", pair=-1, turn=None, end=1.0, results=[SimpleNamespace(series=SERIES)])
        ],
        failures=[
            SimpleNamespace(check=check, side="virtual", warm_up=True, end=2.0, job="2") for check in failed
        ],
        rounds=[SimpleNamespace(recreated=10.0 if number else None) for number in range(boots)],
    )
    job = SimpleNamespace(
        request=Request(system="site"),
        system=SimpleNamespace(virtual_extras=SimpleNamespace(recreate_vms=recreate_vms)),
        entries=[catalogue.Entry(name="lj", description="d", tags=("quick",))],
        screen=SimpleNamespace(note=notes.append),
        rotation=lambda nodes: Rotation(places, places),
    )
    judged = SimpleNamespace(verdict=SimpleNamespace(needs=(Need(SERIES, first, last, order),)))
    rounds = plan.plan_next_rounds(job, session, judged)
    return [(part.first, part.last, *([part.order] if order else [])) for part in rounds], notes


@pytest.mark.parametrize(
    ("first", "failed", "reason"),
    [(4, ["lj"] * 2, "its warm-up was lost twice in a row"), (36, [], "too many of its pairs do not count")],
)
def test_needed_pairs_that_are_not_run_are_named(first, failed, reason):
    rounds, notes = plan_next(first=first, last=first + 3, failed=failed)
    assert (rounds, notes) == ([], [f"no more pairs, although undecided: lj ({reason})"])


def test_pairs_of_a_rotation_are_bounded_by_turns():
    """The last look of eight places rests on 18 turns, which are 144 pairs."""
    assert plan_next(first=32, last=143, places=8)[0] == [(4, 17)]
    assert plan_next(first=36 * 8, last=37 * 8 - 1, places=8)[0] == []


def test_pairs_that_a_flagged_metric_needs_have_boots_of_their_own_two_by_two():
    assert plan_next()[0] == [(4, 7)]
    anew = {"recreate_vms": ("recreate",), "last": 8}
    assert plan_next(**anew)[0] == [(4, 5), (6, 8)]
    assert plan_next(**anew, boots=2)[0] == [(4, 8)]
    assert plan_next(**anew, order="NVVNV")[0] == [(4, 5, "NV"), (6, 8, "VNV")]
    assert plan_next(order="NVVN")[0] == [(4, 7, "NVVN")]
    # Four pairs have two boots.
    assert plan_next(first=0, last=3, recreate_vms=("recreate",), boots=0)[0] == [(0, 1), (2, 3)]
