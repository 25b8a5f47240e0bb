"""Sessions of alternating runs with stated results, for reports."""

from made_runs import made_run, session_of
from virtqual.runs import Declared, Result
from virtqual.session.conclusion import conclude
from virtqual.session.judge import judge

DECLARED = Declared(unit="s", better="lower", budget=1.05, margin=0.1)


def make_runs(results, pairs=4):
    """Return runs of alternating sides; `results` gives a run's by side and number of the pair."""
    order = [
        (n, side) for n in range(pairs) for side in (("native", "virtual"), ("virtual", "native"))[n % 2]
    ]
    return [
        made_run(side, n, job=str(i), start=10.0 * i, end=10.0 * i + 5, seconds=4.5, results=results(side, n))
        for i, (n, side) in enumerate(order)
    ]


def slow_by(times, setting="y"):
    """Return results of one metric whose virtual values are so many times the native ones."""

    def results(side, number):
        value = (times if side == "virtual" else 1) * (1 + 0.001 * number)
        return (Result.scalar("x", setting, value, declared=DECLARED),)

    return results


def make_session(results, pairs=4, **more):
    """Return a concluded session."""
    session = session_of(make_runs(results, pairs), created="2026-01-01T00:00:00+00:00", **more)
    conclude(session, judge(session))
    return session


def make_broken_session(runs=()):
    """Return a session that ended without an answer."""
    session = session_of(list(runs), created="2026-01-01T00:00:00+00:00")
    conclude(session, judge(session), broken=["no node answered"])
    return session


def session_slow_by(times, **more):
    """Return a concluded session of one metric; see `slow_by`."""
    return make_session(slow_by(times), **more)
