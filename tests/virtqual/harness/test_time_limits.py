"""The time limit of a run, by the runs of its case in earlier sessions."""

import pytest

from made_runs import keep, made_failure, made_run, session_of
from virtqual.harness import limits


@pytest.fixture
def sessions(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    limits._find_longest_runs.cache_clear()
    yield tmp_path / "sessions"
    limits._find_longest_runs.cache_clear()


def session(name, seconds, **more):
    runs = [made_run("native", 0, end=0.1), made_run("virtual", 0, end=seconds)]
    fields = {"stack": {"name": "s"}, "outcome": "WITHIN", **more}
    return session_of(runs, name=name, **fields)


def limit(case="case", system="site", stack="s"):
    limits._find_longest_runs.cache_clear()
    return limits.choose_time_limit(case, system, stack, 7200)


def test_three_times_the_longest_within_what_the_site_allows(sessions):
    assert limit() == 7200
    keep(session("20260101", 0.3), sessions)
    assert limit() == 600
    keep(session("20260102", 400.0), sessions)
    assert limit() == 1200
    keep(session("20260103", 4000.0), sessions)
    assert limit() == 7200
    assert limits.choose_time_limit("case", "site", "s", 300) == 300


def test_runs_of_another_case_system_or_stack_do_not_count(sessions):
    keep(session("20260101", 0.3), sessions)
    assert [limit(case="x"), limit(system="x"), limit(stack="x")] == [7200] * 3


def test_a_case_that_has_reached_its_limit_is_given_all_that_the_site_allows(sessions):
    failure = made_failure(kind="failed", state="TIMEOUT")
    keep(session("20260101", 0.3, failures=[failure]), sessions)
    assert limit() == 7200
