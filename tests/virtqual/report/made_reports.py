"""Sessions of alternating runs with stated results, for reports."""

import gzip
import json
from pathlib import Path

from made_runs import DECLARED, alternating, session_of
from virtqual.preflight.finding import Finding
from virtqual.qualify import concluding
from virtqual.runs import Result
from virtqual.session.conclusion import conclude, refuse
from virtqual.session.judge import judge
from virtqual.session.log import LOG, Log
from virtqual.session.session import Basis
from virtqual.verdict.rule import LOOKS

SESSIONS = Path(__file__).parents[2] / "sessions"


def slow_by(times, setting="y"):
    """Return results of one metric whose virtual values are so many times the native ones."""

    def results(side, number):
        value = (times if side == "virtual" else 1) * (1 + 0.001 * number)
        return (Result.scalar("x", setting, value, declared=DECLARED),)

    return results


def make_session(results, pairs=4, **more):
    """Return a concluded session."""
    session = session_of(alternating(results, pairs), **more)
    conclude(session, judge(session))
    return session


def make_broken_session(runs=()):
    """Return a session that ended without an answer."""
    session = session_of(list(runs))
    session.basis = Basis(runs="", looks=(4,), broken=("no node answered",))
    conclude(session, judge(session))
    return session


def session_slow_by(times, **more):
    """Return a concluded session of one metric; see `slow_by`."""
    return make_session(slow_by(times), **more)


def judge_recorded(name, directory, **ended):
    """Return a session of ``tests/sessions``, concluded again in a directory; see `conclude_session`."""
    judged = json.loads((SESSIONS / "judged.json").read_text("utf-8"))
    earlier = next((put for put, one in judged.items() if one["session"] == judged[name]["against"]), None)
    logs = []
    for one in (name, earlier):
        if one:
            (directory / one).mkdir()
            (directory / one / LOG).write_bytes(gzip.decompress((SESSIONS / f"{one}.jsonl.gz").read_bytes()))
            logs.append(Log(directory / one))
    basis = logs[0].session().basis
    before = logs[1].session() if earlier else None
    return concluding.conclude_session(logs[0], before, looks=basis.looks if basis else LOOKS, **ended)


def make_refused_session():
    """Return a session that preflight refuses before anything is measured."""
    session = session_of([], "kvm")
    reason = "the CPU is AMD EPYC 9654 natively and QEMU Virtual CPU in the VM"
    finding = {"item": "cpu-model", "action": "refuse", "reason": reason, "remedy": "pass the CPU through"}
    session.preflight = [Finding(**finding, protects=("D16",))]
    refuse(session)
    return session
