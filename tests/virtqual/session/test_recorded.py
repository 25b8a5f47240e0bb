"""Recorded sessions are judged as they were, but where the rule has changed, with the reason for it.

``tests/sessions/*.jsonl.gz`` are logs of real sessions: of the one-machine cluster with emulated VMs and with
VMs on emulated hosts, and of the stand-in site of class kvm.  All but those on emulated hosts were converted
once from the form in which they were kept then.  ``judged.json`` has what was concluded at that time, by that
code; and, where that is not the same, what is concluded ``now`` and ``why``.
"""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from virtqual.harness import catalogue
from virtqual.qualify import concluding, drawing
from virtqual.references import CheckSet, RequiredCheck, project_references
from virtqual.session.log import LOG, FactsWritten, Finished, Log
from virtqual.session.session import SessionDocument
from virtqual.verdict.rule import LOOKS

SESSIONS = Path(__file__).parents[2] / "sessions"
JUDGED = json.loads((SESSIONS / "judged.json").read_text("utf-8"))
#: The numbers of each verdict as they were before the classes of verdicts became one, but for lower bounds:
#: these are of all pairs, unless a verdict is OVER, since both bounds decide WITHIN.
NUMBERS = json.loads((SESSIONS / "numbers.json").read_text("utf-8"))


def _numbers(session):
    """Return the numbers of each verdict of a session by its series: estimates, budget, pairs."""
    keys = ("native", "virtual", "overhead", "change", "limit", "margin", "pairs", "next_pairs")
    verdicts = session.model_dump(mode="json")["verdicts"]
    return {f"{v['metric']}@{v['setting']}": {key: v[key] for key in keys} for v in verdicts}


def _assert_close(actual, expected, place):
    if isinstance(expected, dict):
        assert set(actual) == set(expected), place
        for key in expected:
            _assert_close(actual[key], expected[key], f"{place}.{key}")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-9, abs=1e-12), place
    else:
        assert actual == expected, place


@pytest.fixture
def recorded(tmp_path):
    """Return how to put a recorded session into a directory, and its log."""

    def put(name):
        directory = tmp_path / name
        directory.mkdir()
        (directory / LOG).write_bytes(gzip.decompress((SESSIONS / f"{name}.jsonl.gz").read_bytes()))
        return Log(directory)

    return put


@pytest.mark.parametrize("name", JUDGED)
def test_a_recorded_session_is_judged_as_it_was(recorded, name):
    was = JUDGED[name]
    assert ("now" in was) == bool(was.get("why"))
    expected = {**was, **was.get("now", {})}
    earlier = next((put for put, one in JUDGED.items() if one["session"] == was["against"]), None)
    log = recorded(name)
    basis = log.session().basis
    session = concluding.conclude_session(
        log, recorded(earlier).session() if earlier else None, looks=basis.looks if basis else LOOKS
    )
    found = [[v.series, v.gate, v.outcome.value, v.pairs] for v in session.verdicts]
    assert found == expected["verdicts"]
    assert (session.outcome, session.exit_code) == (expected["outcome"], expected["exit_code"])
    assert session.qualified == expected["qualified"]
    _assert_close(_numbers(session), NUMBERS[name], name)


def test_a_session_in_which_all_that_is_asked_for_was_judged_qualifies(recorded, monkeypatch):
    """Which cases there are is in the catalogue that the session's ReFrame has left."""
    log = recorded("kvm-within")
    events = list(log.events())
    log.path.unlink()
    for event in events:
        if isinstance(event, Finished):
            hosts = dict.fromkeys(event.run.nodes, "host")
            boot = f"boot {event.run.pair % 2}"
            identity = {
                node: facts.model_copy(update={"boot": boot}) for node, facts in event.run.identity.items()
            }
            event = Finished(run=event.run.model_copy(update={"hosts": hosts, "identity": identity}))
        if not isinstance(event, FactsWritten):
            Log(log.directory).append(event)
    asked = {"kvm": CheckSet(scope="quick", checks=(RequiredCheck(check="lammps"),))}
    references = replace(project_references(), qualifications=asked)
    monkeypatch.setattr(drawing, "project_references", lambda: references)
    cases = [run.check for run in log.session().runs]

    def concluded(*entries):
        every = [catalogue.Entry(name=name, description="d", tags=tags) for name, tags in entries]
        catalogue.write(every, log.directory / catalogue.FILE)
        return concluding.conclude_session(log, None)

    judged = ("lammps problem=lj", ("full", "quick"))
    assert set(cases) == {"lammps %problem=lj"}
    assert concluded(judged, ("lammps problem=rhodo", ("full",))).qualified == "yes"
    session = concluded(judged, ("lammps problem=chain", ("full", "quick")))
    assert (session.missing, session.outcome) == (["lammps %problem=chain"], "WITHIN")
    assert session.qualified == "no (0 of the 1 checks that class kvm asks for were judged: missing lammps)"


@pytest.mark.parametrize("name", JUDGED)
def test_judging_again_gives_the_same(recorded, name):
    """Judging is a function of the runs: what was concluded before is no part of it."""
    log = recorded(name)
    first = concluding.conclude_session(log, None)
    again = concluding.conclude_session(log, None)
    # The log has a second conclusion.
    assert again.model_dump(exclude={"log_digest"}) == first.model_dump(exclude={"log_digest"})
    document = SessionDocument.model_validate_json((log.directory / "session.json").read_text("utf-8"))
    assert document.model_dump() == again.model_dump(include=set(SessionDocument.model_fields))


def test_each_run_stands_in_the_log_once(recorded):
    log = recorded("emulated-baseline")
    session = concluding.conclude_session(log, None)
    text = log.path.read_text("utf-8")
    for run in session.runs:
        assert text.count(f'"job":"{run.job}"') == 1
