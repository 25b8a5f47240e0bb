"""Stored sessions for commands that read them."""

import pytest

from made_runs import keep, made_run, session_of
from virtqual.runs import Declared, Result
from virtqual.session.conclusion import conclude
from virtqual.session.judge import judge

DECLARED = Declared(unit="s", better="lower", budget=1.05, margin=0.1)


@pytest.fixture
def nights(tmp_path, monkeypatch):
    """Return how to add a night whose virtual runs take so many times as long, more or less by `noise`."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path))
    (tmp_path / "sessions").mkdir()

    def add(day, times, noise=0.0, **more):
        runs = []
        for n in range(12):
            for side in (("native", "virtual"), ("virtual", "native"))[n % 2]:
                start = 10.0 * len(runs)
                # Of so few digits that a value may come twice.
                value = round(times * (1 + noise * (n % 3 - 1)), 3) if side == "virtual" else 1 + n % 2 / 1000
                results = (Result.scalar("x", "y", value, declared=DECLARED),)
                runs.append(made_run(side, n, job=f"{n}{side}", start=start, end=start + 5, results=results))
        name = f"2026{day:%m%d}-220000-site"
        found = session_of(runs, name=name, created=f"{day:%Y-%m-%d}T22:00:00+00:00", **more)
        conclude(found, judge(found))
        return keep(found, tmp_path / "sessions")

    return add
