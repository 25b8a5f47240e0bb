"""JUnit, session.json and the exit code say the same, for every outcome and for every way to end."""

import json
from xml.etree import ElementTree

import pytest

from made_runs import keep, made_run, session_of
from virtqual.qualify import concluding
from virtqual.report import junit
from virtqual.runs import Declared, Result
from virtqual.session.log import Failed, Log
from virtqual.session.session import Failure

DECLARED = Declared(unit="s", better="lower", budget=1.05, margin=0.2)


def runs(times, pairs=18, **more):
    """Runs in alternating order; `times` is the virtual side's, over the native side's 2 s."""
    sides = ("native", "virtual"), ("virtual", "native")
    order = [(n, side) for n in range(pairs) for side in sides[n % 2]]
    return [
        made_run(
            side,
            n,
            job=str(i),
            start=10.0 * i,
            end=10.0 * i + 5,
            seconds=4.5,
            results=(Result.scalar("x", "y", 2.0 * (times if side == "virtual" else 1), declared=DECLARED),),
            **more,
        )
        for i, (n, side) in enumerate(order)
    ]


def failure(kind):
    return Failure(
        check="case", case="case %sample=0V", pair=0, side="virtual", partition="p", kind=kind, reason="r"
    )


# Outcome, how it comes about, exit code, what JUnit counts: tests, failures, errors, skipped.
CASES = {
    "WITHIN": ({"runs": runs(1.0)}, {}, 0, (1, 0, 0, 0)),
    "OVER": ({"runs": runs(1.5)}, {}, 1, (1, 1, 0, 0)),
    "UNDECIDED": ({"runs": runs(1.2, 2)}, {}, 3, (1, 1, 0, 0)),
    "INVALID": ({"runs": runs(1.0), "failures": [failure("refused")]}, {}, 4, (1, 0, 1, 0)),
    "BASELINE": ({"runs": runs(1.0), "hypervisor_class": "emulated"}, {}, 0, (1, 0, 0, 1)),
    "BROKEN": ({"runs": runs(1.0), "failures": [failure("infrastructure")]}, {}, 5, (2, 0, 2, 0)),
    "INTERRUPTED": ({"runs": runs(1.0, 4)}, {"interrupted": True}, 130, None),
    "nothing measured": ({"runs": []}, {}, 5, (1, 0, 1, 0)),
    "all refused": ({"runs": [], "failures": [failure("refused")]}, {}, 4, (1, 0, 1, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_they_agree(tmp_path, name):
    made, ended, code, counts = CASES[name]
    directory = keep(session_of(**{"hypervisor_class": "kvm", **made}), tmp_path)
    session = concluding.conclude_session(Log(directory), None, **ended)
    document = json.loads((directory / "session.json").read_text("utf-8"))
    suite = ElementTree.parse(directory / junit.FILE).getroot()
    assert session.exit_code == document["exit_code"] == code
    if name in ("WITHIN", "OVER", "UNDECIDED", "INVALID", "BASELINE", "BROKEN", "INTERRUPTED"):
        assert document["outcome"] == name
    counted = tuple(int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped"))
    if counts:
        assert counted == counts
    # No failure and no error exactly where the exit code is 0.
    assert (counted[1] + counted[2] == 0) == (code == 0)
    for verdict in document["verdicts"]:
        (case,) = [one for one in suite if one.get("classname") == verdict["metric"]]
        tags = {"WITHIN": [], "OVER": ["failure"], "UNDECIDED": ["failure"], "INVALID": ["error"]}
        assert [child.tag for child in case] == tags.get(verdict["outcome"], ["skipped"])
        if verdict["outcome"] in ("OVER", "UNDECIDED", "INVALID"):
            assert case[0].get("type") == verdict["outcome"]


def test_hostile_text_stays_text(tmp_path):
    bad = "]]><x a='\x1b\x00'>\ud800"
    log = Log(keep(session_of([], "kvm"), tmp_path))
    log.append(Failed(failure=failure("refused").model_copy(update={"reason": bad[:-1], "check": "<b>&"})))
    concluding.conclude_session(log, None)
    (case,) = ElementTree.parse(log.directory / junit.FILE).getroot()
    assert case.get("classname") == "<b>&"
    assert "]]><x a='\ufffd\ufffd'>" in case[0].text
