"""Sessions of alternating runs with stated results, for reports."""

from made_runs import DECLARED, alternating, session_of
from virtqual.runs import Result
from virtqual.session.conclusion import conclude
from virtqual.session.judge import judge
from virtqual.session.session import Basis


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
