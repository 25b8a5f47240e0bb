"""JUnit, session.json and the exit code agree, for every outcome and for every way to end."""

import json
from xml.etree import ElementTree

import pytest
from made_reports import slow_by

from made_runs import alternating, keep, made_failure, session_of
from virtqual.qualify import concluding
from virtqual.report import junit
from virtqual.session.log import Failed, Log


def runs(times, pairs=18):
    return alternating(slow_by(times), pairs)


# Outcome, how it comes about, exit code, what JUnit counts: tests, failures, errors, skipped.
CASES = {
    "WITHIN": ({"runs": runs(1.0)}, {}, 0, (1, 0, 0, 0)),
    "OVER": ({"runs": runs(1.5)}, {}, 1, (1, 1, 0, 0)),
    "UNDECIDED": ({"runs": runs(1.2, 2)}, {}, 3, (1, 1, 0, 0)),
    "INVALID": ({"runs": runs(1.0), "failures": [made_failure()]}, {}, 4, (1, 0, 1, 0)),
    "BASELINE": ({"runs": runs(1.0), "hypervisor_class": "emulated"}, {}, 0, (1, 0, 0, 1)),
    "BROKEN": ({"runs": runs(1.0), "failures": [made_failure(kind="infrastructure")]}, {}, 5, (2, 0, 2, 0)),
    "INTERRUPTED": ({"runs": runs(1.0, 4)}, {"interrupted": True}, 130, None),
    "nothing measured": ({"runs": []}, {}, 5, (1, 0, 1, 0)),
    "all refused": ({"runs": [], "failures": [made_failure()]}, {}, 4, (1, 0, 1, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_they_agree(tmp_path, name):
    made, ended, code, counts = CASES[name]
    directory = keep(session_of(**{"hypervisor_class": "kvm", **made}), tmp_path)
    session = concluding.conclude_session(Log(directory), None, **ended)
    document = json.loads((directory / "session.json").read_text("utf-8"))
    suite = ElementTree.parse(directory / junit.FILE).getroot()
    assert session.exit_code == document["exit_code"] == code
    if name.isupper():
        assert document["outcome"] == name
    counted = tuple(int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped"))
    if counts:
        assert counted == counts
    # No failure and no error exactly where the exit code is 0.
    assert (counted[1] + counted[2] == 0) == (code == 0)
    for verdict in document["verdicts"]:
        (case,) = [case for case in suite if case.get("classname") == verdict["metric"]]
        tags = {"WITHIN": [], "OVER": ["failure"], "UNDECIDED": ["failure"], "INVALID": ["error"]}
        assert [child.tag for child in case] == tags.get(verdict["outcome"], ["skipped"])
        if verdict["outcome"] in ("OVER", "UNDECIDED", "INVALID"):
            assert case[0].get("type") == verdict["outcome"]


def test_hostile_text_stays_text(tmp_path):
    bad = "]]><x a='\x1b\x00'>\ud800"
    log = Log(keep(session_of([], "kvm"), tmp_path))
    log.append(Failed(failure=made_failure(reason=bad[:-1], check="<b>&")))
    concluding.conclude_session(log, None)
    (case,) = ElementTree.parse(log.directory / junit.FILE).getroot()
    assert case.get("classname") == "<b>&"
    assert "]]><x a='\ufffd\ufffd'>" in case[0].text
