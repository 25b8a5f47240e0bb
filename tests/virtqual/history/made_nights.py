"""Sessions in short that nobody ran, a night each."""

from datetime import UTC, datetime, timedelta

from virtqual.session.summary import Summary, VerdictSummary
from virtqual.verdict import Outcome

FIRST = datetime(2026, 1, 1, 22, tzinfo=UTC)
CODES = {"BASELINE": 0, "WITHIN": 0, "OVER": 1, "UNDECIDED": 3, "INVALID": 4, "BROKEN": 5}


def night(number, outcomes, **more):
    """A session in the night of a number; `outcomes` by metric."""
    verdicts = tuple(
        VerdictSummary(
            metric=name,
            setting="s",
            gate="overhead",
            outcome=Outcome(one),
            passes=one == "WITHIN",
            ratio=1.1,
            better="lower",
            native=1.0,
            virtual=1.1,
            overhead=0.1,
            spread=0.02,
            pairs=4,
        )
        for name, one in outcomes.items()
    )
    worst = max([*outcomes.values(), more.get("outcome", "WITHIN")], key=CODES.get)
    fields = {
        "session": f"night-{number}",
        "label": "",
        "created": FIRST + timedelta(days=number),
        "system": "site",
        "hypervisor_class": "kvm",
        "hypervisor": "QEMU 9",
        "full": False,
        "complete": True,
        "runs": 8,
        "outcome": worst,
        "exit_code": CODES[worst],
        "conclusion": f"it is {worst}",
        "facts": {},
        "verdicts": verdicts,
    }
    return Summary(**{**fields, **more})
