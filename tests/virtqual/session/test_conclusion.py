"""What a session says at its end."""

from datetime import date

import pytest

from virtqual.admission.admit import Admitted
from virtqual.references import Budget, HypervisorClass, Waiver
from virtqual.session import conclusion
from virtqual.session.judge import Judged
from virtqual.session.session import Session
from virtqual.verdict import Case, Prior, judge_session

KVM = HypervisorClass("kvm", "overhead", True, "KVM", "a reason")
PRIOR = Prior(0.02, 20, "A/A history")
DAY = date(2026, 6, 1)


@pytest.fixture
def concluded(metrics, make):
    """Return how to conclude a session whose HPL loses 39 %, and was as fast as native before."""

    def conclude(*waivers, against=None):
        lost = make(metrics["hpl"], [0.5] * 6)
        cases = [Case(lost, Budget.of(0.05, margin=0.05), PRIOR)]
        cases.append(Case(make(metrics["dgemm"], [0.0] * 2), Budget.of(0.05, margin=0.05), PRIOR))
        if against:
            before = make(metrics["hpl"], [0.0] * 6)
            change = Budget.of(0.05, margin=0.05, gate="change")
            cases.append(Case(lost, change, PRIOR, baseline=before))
        verdict = judge_session(cases, hypervisor_class=KVM, waivers=waivers, build="9", today=DAY)
        session = Session(
            session="s",
            created="2026-06-01",
            system="x",
            hypervisor_class="kvm",
            identity={"virtual": {"hypervisor": {"vendor": "QEMU", "build": "9"}}},
            stack={},
            against=against,
        )
        judged = Judged(Admitted((), {}, ()), (), verdict)
        conclusion.conclude(session, judged, qualifies=True)
        return session

    return conclude


def waiver(gate, up_to=0.5):
    return Waiver("hpl", None, gate, up_to, "kvm", "9", "ops", "known", DAY)


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
