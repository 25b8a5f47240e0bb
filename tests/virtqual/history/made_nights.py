"""Sessions in short that nobody ran, a night each."""

import math
from datetime import UTC, datetime, timedelta

from virtqual.session.summary import Summary
from virtqual.verdict import Interval, Outcome, Verdict

FIRST = datetime(2026, 1, 1, 22, tzinfo=UTC)
CODES = {"BASELINE": 0, "WITHIN": 0, "OVER": 1, "UNDECIDED": 3, "INVALID": 4, "BROKEN": 5}


def made_verdict(metric, log, outcome="WITHIN", native=1.0, setting="s"):
    """A verdict on an overhead without bounds, from four pairs."""
    return Verdict(
        metric=metric,
        setting=setting,
        gate="overhead",
        outcome=Outcome(outcome),
        unit="s",
        better="lower",
        native=native,
        virtual=native * math.exp(log),
        overhead=Interval.build(log, -math.inf, math.inf, "lower"),
        budget="at most 5% slower",
        spread=0.02,
        pairs=4,
    )


def night(number, outcomes, **more):
    """A session in the night of a number; `outcomes` by metric."""
    verdicts = tuple(made_verdict(name, math.log(1.1), outcome) for name, outcome in outcomes.items())
    worst = max([*outcomes.values(), more.get("outcome", "WITHIN")], key=CODES.get)
    fields = {
        "session": f"night-{number}",
        "label": "",
        "created": FIRST + timedelta(days=number),
        "system": "site",
        "hypervisor_class": "kvm",
        "hypervisor": "QEMU 9",
        "complete": True,
        "runs": 8,
        "outcome": worst,
        "exit_code": CODES[worst],
        "conclusion": f"it is {worst}",
        "facts": {},
        "verdicts": verdicts,
    }
    return Summary(**{**fields, **more})
