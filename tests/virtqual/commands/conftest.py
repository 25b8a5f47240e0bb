"""Stored sessions for commands that read them."""

import pytest

from made_runs import DECLARED, alternating, keep, session_of
from virtqual.runs import Result
from virtqual.session.conclusion import conclude
from virtqual.session.judge import judge


@pytest.fixture
def nights(tmp_path, monkeypatch):
    """Return how to add a night whose virtual runs take so many times as long, more or less by `noise`."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path))
    (tmp_path / "sessions").mkdir()

    def add(day, times, noise=0.0, **more):
        def results(side, pair):
            # Of so few digits that a value may come twice.
            virtual = round(times * (1 + noise * (pair % 3 - 1)), 3)
            value = virtual if side == "virtual" else 1 + pair % 2 / 1000
            return (Result.scalar("x", "y", value, declared=DECLARED),)

        name = f"2026{day:%m%d}-220000-site"
        created = f"{day:%Y-%m-%d}T22:00:00+00:00"
        session = session_of(alternating(results, 12), name=name, created=created, **more)
        conclude(session, judge(session))
        return keep(session, tmp_path / "sessions")

    return add
