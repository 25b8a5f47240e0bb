"""The verdicts of a session as JUnit XML, which CI systems read.

WITHIN passes, OVER and UNDECIDED fail (the failure's type is the outcome), INVALID is an error, BASELINE is
skipped with its reason.
"""

from __future__ import annotations

from xml.etree import ElementTree

from virtqual.files.wording import printable
from virtqual.session.session import OPEN_OUTCOMES, Session
from virtqual.verdict import Outcome, Verdict

FILE = "junit.xml"


def content_of(session: Session) -> bytes:
    """Return the content of a session's ``junit.xml``."""
    return bytes(ElementTree.tostring(suite(session), encoding="utf-8", xml_declaration=True))


def suite(session: Session) -> ElementTree.Element:
    """Return the test suite of a session: one case for each verdict, and for each check without any."""
    root = ElementTree.Element("testsuite", name=f"virtqual {printable(session.session)}")
    for verdict in session.verdicts:
        _add_verdict(root, verdict)
    judged = {verdict.series for verdict in session.verdicts}
    measured = {run.check for run in session.runs for result in run.results if result.series in judged}
    for check, reasons in session.refused.items():
        if check not in measured:
            case = ElementTree.SubElement(root, "testcase", classname=printable(check), name="verdict")
            _add_result(case, "error", Outcome.INVALID, "; ".join(reasons))
    if session.slow_runs and session.slow_runs.found:
        case = ElementTree.SubElement(root, "testcase", classname="session", name="slow runs")
        _add_result(case, "failure", Outcome.OVER, session.slow_runs.text)
    if session.slow_runs and session.slow_runs.more_runs:
        case = ElementTree.SubElement(root, "testcase", classname="session", name="lost runs")
        _add_result(case, "failure", Outcome.UNDECIDED, session.slow_runs.lost_text)
    # A session that ends without a verdict must not look like a good one.
    if session.outcome in OPEN_OUTCOMES or (session.exit_code and not len(root)):
        case = ElementTree.SubElement(root, "testcase", classname="session", name=session.outcome.lower())
        ElementTree.SubElement(case, "error", type=session.outcome, message=printable(session.message))
    names = {"testcase": "tests", "failure": "failures", "error": "errors", "skipped": "skipped"}
    for tag, name in names.items():
        root.set(name, str(len(list(root.iter(tag)))))
    return root


def _add_verdict(root: ElementTree.Element, verdict: Verdict) -> None:
    name = f"{verdict.gate} of {verdict.setting}"
    case = ElementTree.SubElement(root, "testcase", classname=printable(verdict.metric), name=printable(name))
    if verdict.passes:
        return
    if verdict.outcome is Outcome.BASELINE:
        ElementTree.SubElement(case, "skipped", message=printable(verdict.message))
    else:
        tag = "error" if verdict.outcome is Outcome.INVALID else "failure"
        _add_result(case, tag, verdict.outcome, verdict.message)


def _add_result(case: ElementTree.Element, tag: str, outcome: Outcome, message: str) -> None:
    first_line = printable(message.partition("\n")[0])
    ElementTree.SubElement(case, tag, type=outcome.value, message=first_line).text = printable(message)
