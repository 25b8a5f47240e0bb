"""What a session says at its end."""

from datetime import date

import pytest
from made_series import judge_session

from made_runs import STACK, made_run
from virtqual.preflight.admit import Admitted
from virtqual.references import CheckSet, RequiredCheck
from virtqual.runs import Result
from virtqual.session import conclusion
from virtqual.session.judge import Judged
from virtqual.session.session import Session
from virtqual.verdict import Case, Prior
from virtqual.verdict.budget import Budget, HypervisorClass
from virtqual.verdict.waiver import Waiver

KVM = HypervisorClass(
    name="kvm", gate="overhead", qualifies=True, description="KVM", reason="a reason", accelerators=("kvm",)
)
PRIOR = Prior(sigma=0.02, df=20, source="A/A history")
DAY = date(2026, 6, 1)
RUNS = [
    made_run("native", 0, check=check, results=(Result.scalar(metric, "here", 1.0),))
    for check, metric in (("hpl %size=1", "hpl"), ("dgemm", "dgemm"))
]
#: What there is, and what the class asks for, where a test says nothing else.
CASES = ("hpl %size=1", "dgemm", "hplike %size=1")
ASKED = CheckSet(scope="full", checks=(RequiredCheck(check="hpl"), RequiredCheck(check="dgemm")))


@pytest.fixture
def concluded(metrics, make):
    """Return how to conclude a session whose HPL loses 39 %, and was as fast as native before."""

    def conclude(*waivers, against=None, asked=ASKED, known=CASES, **features):
        lost = make(metrics["hpl"], [0.5] * 8)
        cases = [Case(lost, Budget.build(0.05, margin=0.05), PRIOR)]
        cases.append(Case(make(metrics["dgemm"], [0.0] * 8), Budget.build(0.05, margin=0.05), PRIOR))
        if against:
            before = make(metrics["hpl"], [0.0] * 8)
            change = Budget.build(0.05, margin=0.05, gate="change")
            cases.append(Case(lost, change, PRIOR, baseline=before))
        verdict = judge_session(cases, hypervisor_class=KVM, waivers=waivers, build="9", today=DAY)
        session = Session(
            session="s",
            created="2026-06-01T00:00:00+00:00",
            system="x",
            hypervisor_class="kvm",
            identity={"native": {}, "virtual": {"hypervisor": {"vendor": "QEMU", "build": "9"}}},
            stack=STACK,
            against=against,
            runs=RUNS,
        )
        for side, has in features.items():
            session.identity[side]["features"] = has
        judged = Judged(Admitted((), {}, ()), (), verdict)
        conclusion.conclude(session, judged, check_set=asked, cases=known)
        return session

    return conclude


def waiver(gate, up_to=0.5):
    return Waiver(
        metric="hpl",
        setting=None,
        gate=gate,
        up_to=up_to,
        hypervisor_class="kvm",
        build="9",
        owner="ops",
        reason="known",
        expires=DAY,
    )


def test_what_a_waiver_accepts_is_not_called_within(concluded):
    session = concluded(waiver("overhead"))
    assert session.conclusion == (
        "QEMU 9 is within the overhead budget, except 1 of 2 metrics accepted by waiver."
    )
    assert (session.exit_code, session.qualified) == (0, "yes (1 accepted by waiver)")


def test_a_waiver_of_the_overhead_accepts_no_change(concluded):
    session = concluded(waiver("overhead"), against="e")
    assert session.conclusion == "QEMU 9 is over the allowed change since session e on 1 of 2 metrics."
    assert (session.exit_code, session.qualified) == (1, "no (over)")
    session = concluded(waiver("overhead"), waiver("change"), against="e")
    assert session.exit_code == 0
    assert "since session e, except 2 of 3 verdicts accepted by waiver." in session.conclusion


def test_a_waiver_that_accepts_less_changes_nothing(concluded):
    session = concluded(waiver("overhead", 0.92))
    assert session.conclusion == "QEMU 9 is over the overhead budget on 1 of 2 metrics."
    assert (session.exit_code, session.qualified) == (1, "no (over)")


ACCEPTED = waiver("overhead")


def test_less_than_the_class_asks_for_is_an_answer_about_those_checks(concluded):
    asked = CheckSet(
        scope="full",
        checks=tuple(
            RequiredCheck(check=name) for name in ("hpl", "milc", "npb %kernel=cg", "wrf_ideal", "stream")
        ),
    )
    session = concluded(ACCEPTED, asked=asked)
    assert (session.exit_code, session.outcome) == (0, "WITHIN")
    assert session.qualified == (
        "no (1 of the 5 checks that class kvm asks for were judged: "
        "missing milc, npb %kernel=cg, wrf_ideal, ...)"
    )
    assert session.missing == ["milc", "npb %kernel=cg", "wrf_ideal", "stream"]


def test_a_name_alone_asks_for_all_cases_of_that_check_and_of_no_other(concluded):
    assert concluded(ACCEPTED).missing == []
    session = concluded(ACCEPTED, known=[*CASES, "hpl %size=2", "hpl %size=3"])
    assert session.qualified == "no (1 of the 2 checks that class kvm asks for were judged: missing hpl)"
    assert session.missing == ["hpl %size=2", "hpl %size=3"]
    one = CheckSet(scope="full", checks=(RequiredCheck(check="hpl %size=1"),))
    assert concluded(ACCEPTED, asked=one, known=["hpl %size=1", "hpl %size=12"]).missing == []


def test_which_cases_there_are_must_be_known(concluded):
    assert concluded(ACCEPTED, known=[]).missing == ["hpl"]


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
    session = concluded(ACCEPTED, asked=asked, **features)
    assert session.qualified.startswith(qualified)
    assert session.missing == (["rdma_latency"] if qualified.startswith("no") else [])


def test_a_class_for_which_no_file_says_what_it_asks_for_qualifies_nothing(concluded):
    session = concluded(ACCEPTED, asked=None)
    assert session.qualified == (
        "no (no file in references/qualifications/ says which checks class kvm asks for)"
    )


def test_what_is_over_is_said_rather_than_what_is_missing(concluded):
    session = concluded(asked=CheckSet(scope="full", checks=(RequiredCheck(check="milc"),)))
    assert (session.qualified, session.missing) == ("no (over)", [])


@pytest.mark.parametrize(
    ("refused", "says"),
    [
        ({"lj": ("vm: job 7 ended as TIMEOUT", "more")}, "1 metric could not be judged (lj: vm: job 7 ended"),
        ({"lj": ("one",), "eam": ("two",)}, "2 metrics could not be judged (the first: lj: one)."),
    ],
)
def test_a_refusal_has_its_first_reason_since_it_is_also_sent_by_mail(refused, says):
    """It said that the reasons are above, where there was nothing above."""
    session = Session(
        session="s",
        created="2026-06-01T00:00:00+00:00",
        system="x",
        hypervisor_class="kvm",
        identity={"native": {}, "virtual": {}},
        stack=STACK,
    )
    conclusion.conclude(session, Judged(Admitted((), refused, ()), (), None))
    assert session.exit_code == 4
    assert says in session.conclusion
