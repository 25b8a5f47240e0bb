"""What a session says at its end."""

from dataclasses import replace

import pytest
from made_series import CHANGE, FIVE, KVM, PRIOR, TODAY, judge_session, waiver

from made_runs import made_failure, made_run, session_of
from virtqual.preflight.admit import Admitted
from virtqual.references import CheckSet, RequiredCheck
from virtqual.runs import Result
from virtqual.session.conclusion import conclude, refuse
from virtqual.session.judge import Judged
from virtqual.session.session import Basis, Loss, Request
from virtqual.verdict import Case
from virtqual.verdict.outliers import Outlier
from virtqual.verdict.slow_runs import SlowRuns

RUNS = [
    made_run("native", 0, check=check, results=(Result.scalar(metric, "here", 1.0),))
    for check, metric in (("hpl %size=1", "hpl"), ("dgemm", "dgemm"))
]
#: What there is, and what the class asks for, where a test says nothing else.
CASES = ("hpl %size=1", "dgemm", "hplike %size=1")


def checks(*names):
    return CheckSet(scope="full", checks=tuple(RequiredCheck(check=name) for name in names))


ASKED = checks("hpl", "dgemm")


@pytest.fixture
def concluded(metrics, make):
    """Return how to conclude a session whose HPL loses 39 %, and was as fast as native before."""

    def conclude_session(
        *waivers,
        against=None,
        asked=ASKED,
        known=CASES,
        fields=None,
        refused=(),
        unmeasured=None,
        hpl=0.5,
        extra=None,
        **features,
    ):
        lost, equal = make(metrics["hpl"], [hpl] * 8), make(metrics["dgemm"], [0.0] * 8)
        cases = [Case(lost, FIVE, PRIOR), Case(equal, FIVE, PRIOR, refused=refused)]
        if against:
            cases.append(Case(lost, CHANGE, PRIOR, baseline=make(metrics["hpl"], [0.0] * 8)))
        verdict = judge_session(cases, hypervisor_class=KVM, waivers=waivers, build="9", today=TODAY)
        verdict = replace(verdict, **extra or {})
        identity = {"native": {}, "virtual": {"hypervisor": {"vendor": "QEMU", "build": "9"}}}
        for side, has in features.items():
            identity[side]["features"] = has
        session = session_of(RUNS, identity=identity, against=against)
        for name, value in (fields or {}).items():
            setattr(session, name, value)
        judged = Judged(Admitted((), unmeasured or {}, ("finding",)), verdict)
        conclude(session, judged, check_set=asked, cases=known)
        return session

    return conclude_session


OVERHEAD = waiver()
OVER = "over the overhead budget on 1 of 2 metrics."
WORSE = "over the allowed change since session e on 1 of 2 metrics."
WITHIN = "within the overhead budget, except 1 of 2 metrics accepted by waiver."
AS_BEFORE = (
    "within the overhead budget and the allowed change since session e, except 2 of 3 verdicts accepted by "
    "waiver."
)


@pytest.mark.parametrize(
    ("waivers", "against", "conclusion", "qualified"),
    [
        ([OVERHEAD], None, WITHIN, "yes (1 accepted by waiver)"),
        ([waiver(up_to="8%")], None, OVER, "no (over)"),
        ([OVERHEAD], "e", WORSE, "no (over)"),
        ([OVERHEAD, waiver(gate="change")], "e", AS_BEFORE, "yes (2 accepted by waiver)"),
    ],
    ids=["accepted", "accepts less", "not the change", "both"],
)
def test_a_waiver_accepts_its_own_gate_and_is_counted(concluded, waivers, against, conclusion, qualified):
    session = concluded(*waivers, against=against)
    assert (session.conclusion, session.qualified) == (f"QEMU 9 is {conclusion}", qualified)
    assert session.exit_code == (0 if qualified.startswith("yes") else 1)


@pytest.mark.parametrize(
    ("basis", "outcome", "exit_code", "conclusion"),
    [
        ({"broken": ("why",)}, "BROKEN", 5, "Infrastructure failed, so nothing is concluded: why."),
        ({"broken": ("why",), "interrupted": True}, "INTERRUPTED", 130, "Interrupted: nothing is concluded."),
    ],
)
def test_a_session_that_did_not_end_by_itself_concludes_nothing(
    concluded, basis, outcome, exit_code, conclusion
):
    fields = {"basis": Basis(runs="", looks=(4,), **basis), "request": Request(system="site")}
    session = concluded(OVERHEAD, fields=fields)
    assert (session.outcome, session.exit_code, session.conclusion) == (outcome, exit_code, conclusion)
    assert session.qualified == f"no ({outcome.lower()})"
    assert session.next_step == "`virtqual qualify --resume s` goes on with it."


@pytest.mark.parametrize(
    ("fields", "qualified"),
    [
        ({"request": Request(system="site", fast=True)}, "no (--fast: two pairs can lack rare slow runs)"),
        ({"identity": {"native": {}, "virtual": {"placement": {"numa_hidden": True}}}}, "no (NUMA nodes hid"),
    ],
)
def test_a_build_that_is_within_its_budgets_may_not_be_qualified(concluded, fields, qualified):
    session = concluded(OVERHEAD, fields=fields)
    assert (session.exit_code, session.qualified.startswith(qualified)) == (0, True)


def test_a_build_is_qualified_if_all_is_within_and_every_check_has_a_run(concluded):
    assert concluded(hpl=0.0).qualified == "yes"
    assert concluded(hpl=0.0, extra={"hypervisor_class": None}).qualified == "no (no hypervisor class)"
    session = concluded(hpl=0.0, unmeasured={"lj": ("vm: job 7 ended as TIMEOUT",)})
    assert (session.outcome, session.exit_code, session.qualified) == ("INVALID", 4, "no (invalid)")
    assert session.conclusion == (
        "Refused: 1 metric could not be judged (lj: vm: job 7 ended as TIMEOUT). "
        "Of the others: QEMU 9 is within the overhead budget: 2 metrics."
    )
    fast = {"request": Request(system="site", fast=True)}
    assert concluded(fields=fast).qualified == "no (over)"


@pytest.mark.parametrize(
    ("kind", "outcome", "without_runs"),
    [
        ("infrastructure", "BROKEN", "BROKEN"),
        ("failed", "WITHIN", "BROKEN"),
        ("refused", "WITHIN", "INVALID"),
        ("reference", "WITHIN", "INVALID"),
    ],
)
def test_what_failed_breaks_a_session_if_it_was_no_single_check(concluded, kind, outcome, without_runs):
    fields = {"failures": [made_failure(kind=kind, reason="no such file")]}
    session = concluded(hpl=0.0, fields=fields)
    assert session.outcome == outcome
    why = "Infrastructure failed, so nothing is concluded: case on vm: no such file."
    assert (session.conclusion == why) == (outcome == "BROKEN")
    session = session_of([], **fields)
    conclude(session, Judged(Admitted((), {"case": ("why",)}, ()), None))
    assert (session.outcome, session.message) == (without_runs, session.conclusion)


def test_a_session_that_preflight_refuses_measured_nothing():
    session = session_of([])
    assert session.hypervisor == "unknown hypervisor unknown"
    refuse(session)
    assert (session.exit_code, session.outcome) == (4, "INVALID")
    assert session.qualified == "no (refused by preflight)"
    assert session.conclusion.startswith("Refused before anything was measured: preflight says")


def test_a_session_has_all_that_was_judged(concluded):
    slow_runs = SlowRuns(virtual=9, found=True, text="9 of 20 virtual runs")
    outliers = (Outlier(host="h1", metric="", log=0.1),)
    session = concluded(
        OVERHEAD,
        extra={"slow_runs": slow_runs, "outliers": outliers},
        fields={"lost": [Loss(round=1, nodes={"vm1": "died", "vm2": "died"})]},
    )
    assert session.preflight == ["finding"]
    assert [canary.feature for canary in session.canaries] == ["write combining", "IOMMU large pages"]
    assert (session.slow_runs, session.outliers) == (slow_runs, list(outliers))
    assert (session.waivers, session.all_outcomes) == ([OVERHEAD.text(TODAY)], {"OVER": 1, "WITHIN": 1})
    assert (session.outcome, session.qualified) == ("OVER", "no (over)")
    assert session.conclusion == (
        "QEMU 9 is not within budget, since virtual runs are slow more often than native ones. "
        f"Slow runs: {slow_runs.text}. "
        "Set aside: host h1 is 10.5% slower than the others of its kind. "
        "2 nodes were lost and set aside: vm1, vm2."
    )
    session = concluded(OVERHEAD, fields={"lost": [Loss(round=1, nodes={"vm1": "died"})]})
    assert session.conclusion.endswith("accepted by waiver. 1 node was lost and set aside: vm1.")


def test_what_was_judged_is_said_beside_what_was_refused(concluded):
    session = concluded(refused=("why", "and why"))
    assert (session.outcome, session.exit_code, session.qualified) == ("INVALID", 4, "no (invalid)")
    assert session.conclusion == (
        "Refused: 1 metric could not be judged (dgemm here: why). "
        "Of the others: QEMU 9 is over the overhead budget on 1 of 1 metric."
    )


MANY = checks("hpl", "milc", "npb %kernel=cg", "wrf_ideal", "stream")


@pytest.mark.parametrize(
    ("asked", "known", "missing", "shown"),
    [
        (
            MANY,
            CASES,
            ["milc", "npb %kernel=cg", "wrf_ideal", "stream"],
            "milc, npb %kernel=cg, wrf_ideal, ...",
        ),
        # A name alone asks for all cases of that check and of no other.
        (ASKED, [*CASES, "hpl %size=2", "hpl %size=3"], ["hpl %size=2", "hpl %size=3"], "hpl"),
        (checks("hpl %size=1"), ["hpl %size=1", "hpl %size=12"], [], None),
        (ASKED, CASES, [], None),
        # The cases must be known.
        (ASKED, [], ["hpl"], "hpl"),
    ],
)
def test_fewer_checks_than_the_class_requires_qualify_nothing(concluded, asked, known, missing, shown):
    session = concluded(OVERHEAD, asked=asked, known=known)
    assert (session.exit_code, session.outcome, session.missing) == (0, "WITHIN", missing)
    judged = f"1 of the {len(asked.checks)} checks that class kvm asks for were judged: missing {shown}"
    assert session.qualified == (f"no ({judged})" if shown else "yes (1 accepted by waiver)")


@pytest.mark.parametrize(
    ("features", "qualified"),
    [
        ({"native": ["native"], "virtual": ["virtual"]}, "yes (1 accepted by waiver, without rdma)"),
        ({"native": ["native", "rdma"], "virtual": ["virtual"]}, "no (2 of the 3 checks"),
        ({"native": ["native"], "virtual": ["virtual", "rdma"]}, "no (2 of the 3 checks"),
        ({}, "no (2 of the 3 checks"),
    ],
)
def test_what_a_system_does_not_have_is_said_and_never_counts_as_passed(concluded, features, qualified):
    asked = CheckSet(scope="full", checks=(*ASKED.checks, RequiredCheck(check="rdma_latency", where="rdma")))
    session = concluded(OVERHEAD, asked=asked, **features)
    assert session.qualified.startswith(qualified)
    assert session.missing == (["rdma_latency"] if qualified.startswith("no") else [])


def test_the_features_of_the_stack_are_those_of_the_system(concluded):
    asked = CheckSet(scope="full", checks=(*ASKED.checks, RequiredCheck(check="db_pgbench", where="db")))
    stack = {"name": "test", "hash": "0", "programs": [{"name": "p", "version": "1", "features": ["db"]}]}
    session = concluded(OVERHEAD, asked=asked, fields={"stack": stack}, native=[], virtual=[])
    assert session.missing == ["db_pgbench"]
    stack["programs"][0].pop("features")
    asked = replace(asked, is_of_site=True)
    session = concluded(OVERHEAD, asked=asked, fields={"stack": stack}, native=[], virtual=[])
    assert session.qualified == ("yes (1 accepted by waiver, without db, by the site's own qualification)")


def test_a_class_without_a_set_of_checks_qualifies_nothing(concluded):
    assert concluded(OVERHEAD, asked=None).qualified == (
        "no (no file in references/qualifications/ says which checks class kvm asks for)"
    )


def test_what_is_over_is_said_rather_than_what_is_missing(concluded):
    session = concluded(asked=checks("milc"))
    assert (session.conclusion, session.qualified, session.missing) == (f"QEMU 9 is {OVER}", "no (over)", [])


@pytest.mark.parametrize(
    ("refused", "says"),
    [
        ({"lj": ("vm: job 7 ended as TIMEOUT", "more")}, "1 metric could not be judged (lj: vm: job 7 ended"),
        ({"lj": ("one",), "eam": ("two",)}, "2 metrics could not be judged (the first: lj: one)."),
    ],
)
def test_a_refusal_has_its_first_reason_since_it_is_also_sent_by_mail(refused, says):
    """It said that the reasons are above, where there was nothing above."""
    session = session_of([])
    conclude(session, Judged(Admitted((), refused, ()), None))
    assert session.exit_code == 4
    assert says in session.conclusion


def test_a_session_counts_if_something_was_run_or_preflight_refused_it():
    submitted = made_failure(job="7", kind="failed")
    refused_by_slurm = made_failure(kind="infrastructure")
    session = session_of([])
    assert session.is_empty
    assert session.model_copy(update={"failures": [refused_by_slurm]}).is_empty
    assert not session.model_copy(update={"failures": [submitted]}).is_empty
    assert not session.model_copy(update={"outcome": "INVALID"}).is_empty
    assert not session_of([made_run("native", 0)]).is_empty


@pytest.mark.parametrize(("kind", "stays"), [("refused", True), ("failed", False)])
def test_a_session_in_which_nothing_worked_names_why_and_how_it_goes_on(kind, stays):
    failures = [made_failure(kind=kind, case=f"{number}N", reason="no such file") for number in range(3)]
    session = session_of([], failures=failures, request=Request(system="site"))
    session.basis = Basis(runs="", looks=(4,), broken=("ReFrame gave up",))
    conclude(session, Judged(Admitted((), {}, ()), None))
    assert "concluded: ReFrame gave up; 0N and 2 more on vm: no such file. `virtqual" in session.message
    assert ("; refused checks stay refused." in session.message) == stays
