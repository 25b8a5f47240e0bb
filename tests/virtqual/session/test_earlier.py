"""The earlier session that a build is held against: which one it is, and what makes it none."""

import stat
from datetime import UTC, date, datetime, timedelta
from unittest.mock import Mock

import pytest

from made_runs import alternating, keep, made_failure, session_of
from virtqual import paths
from virtqual.errors import RefusedError, UsageError
from virtqual.files.records import write_record
from virtqual.qualify import opening, requested
from virtqual.references import project_references
from virtqual.runs import Answer, Result
from virtqual.session import judge as judging
from virtqual.session import store, summary
from virtqual.session.judge import choose_min_pairs, judge
from virtqual.session.log import DOCUMENT, LOG, Log
from virtqual.session.session import Basis, Request
from virtqual.session.summary import CaseDurations, durations_of, find_for, find_good, find_recent
from virtqual.verdict import Outcome
from virtqual.verdict.rule import LOOKS, MIN_PAIRS_TO_QUALIFY
from virtqual.verdict.slow_runs import SlowRuns


def runs(pairs=4, energy=-5.0, metric="lammps_loop_time", **more):
    """Runs of one check without any overhead, in alternating order; `energy` is what the VM computes."""

    def results(side, pair):
        return (Result.scalar(metric, "lj", 4.0 + 0.001 * pair),)

    answers = {
        side: (Answer(name="energy", value=value, tolerance=1e-6),)
        for side, value in (("native", -5.0), ("virtual", energy))
    }
    return [
        run.model_copy(update={"answers": answers[run.side]}) for run in alternating(results, pairs, **more)
    ]


@pytest.fixture
def sessions(tmp_path):
    """Return a directory of sessions, and how to keep one there."""

    def kept(name, runs, system="site", **more):
        return keep(session_of(runs, name=name, system=system, **more), tmp_path).name

    return tmp_path, kept


def judged(now, hypervisor_class="kvm", **before):
    earlier = session_of(**before, identity={"native": {"partition": "metal"}, "virtual": {}})
    return judge(session_of(now, hypervisor_class), earlier=earlier).verdict


def test_a_session_without_runs_is_no_baseline(sessions):
    """Neither as if nothing had been asked, nor as if it were the first one."""
    directory, kept = sessions
    name = kept("20260101-000000-site", [], outcome="INVALID", conclusion="Refused before all.")
    with pytest.raises(UsageError, match=r"has no run \(Refused before all\.\)"):
        store.load_earlier(directory / name)


def test_the_last_good_session_is_one_that_can_be_compared_with(monkeypatch, tmp_path):
    """From before the VMs were placed otherwise it would be good for ever, and no session could begin."""
    old = session_of(runs(), name="old")

    def earlier(name, system):
        if name.endswith("new"):
            raise RefusedError("placed otherwise")
        # Its conclusion says WITHIN, its runs do not.
        return session_of([], name="edited", exit_code=0) if name.endswith("edited") else old

    names = ("new", "edited", "old")
    monkeypatch.setattr(opening, "find_good", lambda *_, **__: iter(tmp_path / name for name in names))
    monkeypatch.setattr(opening, "find_earlier", earlier)
    assert (
        opening._find_earlier_or_good(Request(system="site", against=opening.GOOD_NAME), Mock(), Mock(), "")
        is old
    )


@pytest.mark.parametrize(
    ("against", "gate", "has_earlier", "pairs"),
    [
        (opening.GOOD_NAME, "overhead", False, MIN_PAIRS_TO_QUALIFY),
        (opening.GOOD_NAME, "overhead", True, None),
        ("", "change", False, MIN_PAIRS_TO_QUALIFY),
        ("", "overhead", False, None),
    ],
)
def test_a_session_with_which_later_ones_are_compared_is_not_fast(
    monkeypatch, against, gate, has_earlier, pairs
):
    monkeypatch.setattr(opening, "choose_class", lambda *_: Mock(gate=gate))
    earlier = session_of(runs()) if has_earlier else None
    monkeypatch.setattr(opening, "_find_earlier_or_good", lambda *_: earlier)
    monkeypatch.setattr(requested, "list_checks", Mock())
    request = opening.settle(Request(system="site", against=against, fast=True), Mock(), None)[2]
    assert (request.pairs, request.fast) == (pairs, pairs is None)


def test_only_a_build_that_is_qualified_takes_the_pairs_of_a_qualification():
    qualifies, reports = Mock(qualifies=True), Mock(qualifies=False)
    assert choose_min_pairs(qualifies) == MIN_PAIRS_TO_QUALIFY
    assert {choose_min_pairs(qualifies, fast=True), choose_min_pairs(reports)} == {LOOKS[0]}


def test_pairs_of_unknown_noise_take_four_before_a_metric_is_within():
    assert choose_min_pairs(None) == MIN_PAIRS_TO_QUALIFY


@pytest.mark.parametrize("hypervisor_class", ["kvm", "emulated"])
def test_what_the_earlier_session_did_not_measure_has_no_change(hypervisor_class):
    verdict = judged(runs(), hypervisor_class, runs=runs(metric="lammps_rating", check="other")).verdicts[-1]
    assert (verdict.gate, verdict.outcome) == ("change", Outcome.INVALID)
    assert "the earlier session did not measure it" in verdict.reasons


def test_a_metric_of_the_earlier_session_that_is_no_more_is_left_alone():
    before = [*runs(18), *runs(metric="gone", check="other")]
    assert judged(runs(18), runs=before).outcome is Outcome.WITHIN


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / LOG).write_bytes(b'{"label": "\xdcberlast"}')
    with pytest.raises(UsageError, match=r"log\.jsonl: no session \(its first line is missing\)"):
        store.load(tmp_path)


def test_last_is_the_newest_of_the_system_that_measured_something(sessions):
    directory, kept = sessions
    kept("20260101-000000-site", runs())
    taken = kept("20260102-000000-site", runs(), outcome="INTERRUPTED")
    assert find_for("20260102", directory, "site").name == taken
    kept("20260103-000000-site", [], outcome="INVALID")
    kept("20260104-000000-my-site", runs(), system="my-site")
    assert find_for("last", directory, "site").name == taken
    for day, outcome in enumerate(("BROKEN", "INTERRUPTED"), 5):
        # All its runs may have failed: it may go on.
        name = kept(f"2026010{day}-000000-site", [], outcome=outcome)
        assert find_for("last", directory, "site").name == name
    with pytest.raises(UsageError, match=r"no session of system 'new' .* has a run"):
        find_for("last", directory, "new")


def test_last_to_compare_with_measured_all_that_is_asked_for(sessions):
    """After the sweep that the tutorial takes first, it is the session before it."""
    directory, kept = sessions
    asked = {
        "full": {"full": True},
        "quick": {},
        "-n lj": {"names": ("lj",)},
        "sweep": {"tags": ("sweep",)},
        "plain": None,
    }
    for day, (name, fields) in enumerate(asked.items(), 1):
        request = None if fields is None else Request(system="site", **fields)
        asked[name] = kept(f"2026010{day}-000000-site", runs(), request=request)
    for fields, name in (
        ({}, "quick"),
        ({"full": True}, "full"),
        ({"names": ("lj",)}, "-n lj"),
        ({"tags": ("sweep",)}, "sweep"),
        ({"tags": ("memory",)}, "quick"),
        ({"tags": ("sweep",), "full": True}, "full"),
    ):
        found = find_for("last", directory, "site", Request(system="site", **fields))
        assert (fields, found.name) == (fields, asked[name])
    kept("20260101-000000-new", runs(), system="new", request=Request(system="new", tags=("sweep",)))
    with pytest.raises(UsageError, match=r"was asked for all of these checks: there is no 'last'; name"):
        find_for("last", directory, "new", Request(system="new"))


def test_a_session_is_found_by_its_id_or_its_beginning_or_a_path(sessions, tmp_path, monkeypatch):
    directory, kept = sessions
    with pytest.raises(store.NoSessionError, match="there is no session yet below"):
        store.find("last", directory)
    with pytest.raises(UsageError, match=r"no session begins with '2026' .*: there is none yet"):
        store.find("2026", directory)
    first = kept("20260101-000000-site", runs())
    for name in ("20260101-000000-site2", "20260102-000000-site", "29990101-000000-site"):
        kept(name, runs(), outcome="BROKEN")
    for name in (first, str(directory / first), str(directory / first / LOG)):
        assert store.find(name, directory) == directory / first
    # A directory of that name does not hide the session.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last").mkdir(exist_ok=True)
    # That of the future has a wrong clock.
    for name in ("20260102", "last"):
        assert store.find(name, directory).name == "20260102-000000-site"
    with pytest.raises(UsageError, match=r"several sessions begin with '20260101' .*: the latest are 2026"):
        store.find("20260101", directory)
    assert [log.directory.name for log in store.unconcluded(directory)] == [first]


def test_a_session_of_today_is_the_last_one_even_if_the_clock_of_its_node_is_ahead(sessions):
    directory, kept = sessions
    kept("20260101-000000-site", runs())
    ahead = datetime.now(UTC) + timedelta(hours=20)
    name = kept(f"{ahead:%Y%m%d-%H%M%S}-site", runs(), created=ahead.isoformat())
    kept("29990101-000000-site", runs(), created="2999-01-01T00:00:00+00:00")
    assert store.find("last", directory).name == name
    found = dict(summary.summaries(directory))
    assert found[directory / name].session == name
    said = str(found[directory / "29990101-000000-site"])
    assert said.endswith("it began on 2999-01-01, in the future: a clock was wrong")


def test_a_summary_is_neither_read_nor_written_through_a_link(sessions, tmp_path_factory):
    directory, kept = sessions
    name = kept("20260101-000000-site", runs(), outcome="WITHIN")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "summary.json"
    short = summary.summary(directory / name).model_copy(update={"outcome": "OVER"})
    write_record(short, elsewhere)
    before = elsewhere.read_text(encoding="utf-8")
    file = summary.file_of(directory / name)
    assert stat.S_IMODE(file.parent.stat().st_mode) == paths.directory_mode()
    file.unlink()
    file.symlink_to(elsewhere)
    assert summary.read_summary(directory / name) is None
    assert summary.summary(directory / name).outcome == "WITHIN"
    assert elsewhere.read_text(encoding="utf-8") == before


def test_a_session_is_read_where_its_summary_cannot_be_written(sessions, monkeypatch):
    directory, kept = sessions
    name = kept("20260101-000000-site", runs(), outcome="WITHIN")
    monkeypatch.setattr(summary, "write_record", Mock(side_effect=PermissionError))
    assert summary.summary(directory / name).outcome == "WITHIN"


def test_a_session_that_cannot_be_read_is_named_and_the_others_are_listed(sessions, monkeypatch):
    directory, kept = sessions
    names = [kept(f"2026010{day}-000000-site", runs()) for day in (1, 2, 3)]
    errors = {names[0]: KeyError("pair"), names[1]: ValueError("no number")}

    def read(path):
        if error := errors.get(path.name):
            raise error
        return real(path)

    real = summary.summary
    monkeypatch.setattr(summary, "summary", read)
    found = {path.name: str(session) for path, session in summary.summaries(directory)}
    assert found[names[0]] == f"{directory / names[0]}: KeyError: 'pair'"
    assert found[names[1]] == f"{directory / names[1]}: no number"
    assert set(found) == set(names)


def test_a_session_is_good_if_its_whole_scope_was_judged_and_passed(sessions):
    directory, kept = sessions
    verdicts = {
        energy: list(judge(session_of(runs(18, energy=energy))).verdict.verdicts) for energy in (-5.0, -9.0)
    }
    request = Request(system="site")
    whole = {"verdicts": verdicts[-5.0], "exit_code": 0, "outcome": "WITHIN", "request": request}
    names = [f"2026010{day}-000000-site" for day in (1, 2)]
    for name in names:
        kept(name, runs(), **whole)
    for day, change in enumerate(
        (
            {"verdicts": verdicts[-9.0]},
            {"verdicts": []},
            {"exit_code": 3},
            {"request": None},
            {"request": request.model_copy(update={"fast": True})},
            {"request": request.model_copy(update={"names": ("lj",)})},
            {"request": request.model_copy(update={"tags": ("memory",)})},
            {"refused": {"lj": ("why",)}},
            {"basis": Basis(runs="", looks=(4,), too_large=("lj",))},
            {"system": "elsewhere"},
            {"hypervisor_class": "esxi"},
            {"request": request.model_copy(update={"full": True})},
        ),
        10,
    ):
        kept(f"202601{day}-000000-site", runs(), **{**whole, **change})
    good = [path.name for path in find_good(directory, "site", "kvm", full=False)]
    assert good == names[::-1]
    assert [path.name for path in find_good(directory, "site", "kvm", full=True)] == ["20260121-000000-site"]
    assert list(find_good(directory, "site", "kvm", "another stack", full=True)) == []


def test_the_durations_of_runs_are_those_of_recent_sessions(sessions, monkeypatch):
    _, kept = sessions
    late = runs()
    late[-1] = late[-1].model_copy(update={"end": late[-1].end + 4})
    failures = [made_failure(check=state, state=state, kind="failed") for state in ("TIMEOUT", "NODE_FAIL")]
    assert durations_of(session_of(late, failures=failures)) == {
        "case": CaseDurations(medians={"native": 5.0, "virtual": 5.0}, longest=9.0),
        "TIMEOUT": CaseDurations(medians={}, longest=None),
    }
    timed_out = session_of(late, failures=[made_failure(state="TIMEOUT", kind="failed")])
    assert durations_of(timed_out)["case"].longest is None
    monkeypatch.setattr(paths, "sessions", lambda: sessions[0])
    monkeypatch.setattr(summary, "MAX_RECENT_SESSIONS", 2)
    other = {"stack": {"name": "other", "hash": "1", "programs": []}}
    ended = {"outcome": "WITHIN", "slow_runs": SlowRuns(virtual=3)}
    names = [kept(f"2026010{day}-000000-site", runs(), **ended) for day in (1, 2, 3)]
    names.append(kept("20260104-000000-site", runs(), **other))
    kept("20260105-000000-new", runs(), system="new")
    assert [recent.session for recent in find_recent("site")] == [names[3], names[2]]
    latest, earlier = find_recent("site", "test")
    assert (latest.session, earlier.session) == (names[2], names[1])
    assert latest.durations["case"].longest == 5.0
    assert (latest.slow_runs, latest.stack_hash) == (ended["slow_runs"], "0")
    assert latest.metrics == {"case": (("lammps_loop_time", "lj"),)}
    assert latest.log == Log(sessions[0] / names[2]).state()


def test_a_session_of_another_version_is_refused_and_left_aside(sessions):
    directory, kept = sessions
    old = directory / "20260601-000000-site"
    old.mkdir()
    (old / DOCUMENT).write_text('{\n "schema": "virtqual-session/1",\n "session": "x"}', encoding="utf-8")
    says = r"no session: it has a session\.json and no log\.jsonl"
    with pytest.raises(UsageError, match=says):
        store.load(old)
    name = kept("20260101-000000-site", runs())
    assert find_for("last", directory, "site").name == name


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ({"runs": runs(energy=-9.0)}, "earlier session: not the same result: energy is -5 in native"),
        (
            {"runs": runs(), "failures": [made_failure(side="native", kind="reference", reason="slow")]},
            "earlier session: native misses its absolute reference (slow)",
        ),
    ],
)
def test_what_the_earlier_session_refused_is_no_baseline(before, says):
    """Its change is refused, and nothing is said of the overhead now."""
    overhead, change = judged(runs(), **before).verdicts
    assert overhead.outcome is not Outcome.INVALID
    assert change.outcome is Outcome.INVALID
    assert says in change.message


def test_the_rule_is_told_all_that_the_session_says(monkeypatch):
    told = {}

    def cases_of(*_, **more):
        told.update(more)
        return []

    def judge_sessions(sessions, **more):
        told.update(more)
        return ["the verdict"]

    monkeypatch.setattr(judging, "cases_of", cases_of)
    monkeypatch.setattr(judging, "judge_sessions", judge_sessions)
    session = session_of(runs(), request=Request(system="site", fast=True))
    how = {"looks": (4,), "share": 3, "slow_before": Mock(), "today": date(2026, 1, 2)}
    assert judge(session, **how).verdict == "the verdict"
    references = project_references()
    assert told == {
        **how,
        "system": "site",
        "earlier": None,
        "interrupted": {},
        "hypervisor_class": references.hypervisor_class("kvm"),
        "waivers": references.waivers,
        "build": session.build,
        "min_pairs": LOOKS[0],
        "recreates_vms": session.recreates_vms,
        "lost": [],
    }
    assert judge(session_of([])).verdict is None
    judge(session_of(runs()))
    assert told["min_pairs"] == MIN_PAIRS_TO_QUALIFY
