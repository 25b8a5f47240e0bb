"""A session that was copied into the state directory is judged again before it is believed."""

import json
import shutil
from unittest.mock import Mock

import pytest
from test_check import PASS, by_other_code, edit_conclusion, put, run

from made_runs import keep, session_of
from virtqual import paths
from virtqual.errors import RefusedError
from virtqual.qualify import checking, concluding, opening
from virtqual.session.log import Log, Released
from virtqual.session.store import load
from virtqual.session.summary import file_of
from virtqual.session.verified import FILE, read_digests
from virtqual.verdict.slow_runs import SlowRuns


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The sessions of another installation."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "vendor"))
    return paths.make(paths.sessions())


@pytest.fixture
def judged(monkeypatch):
    """The names of the sessions that were judged again."""
    names = []
    draw = checking.draw_conclusion
    monkeypatch.setattr(
        checking,
        "draw_conclusion",
        lambda session, *more: names.append(session.session) or draw(session, *more),
    )
    return names


def copy_all(tmp_path, monkeypatch):
    """Unpack the sessions of the other installation, with all files beside them, into the own ones."""
    sessions = tmp_path / "vendor/sessions"
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    shutil.copytree(sessions, paths.make(paths.state()) / "sessions", dirs_exist_ok=True)
    return [paths.sessions() / name for name in sorted(path.name for path in sessions.glob("2*"))]


def edit(directory):
    """Let a session that is OVER pass by another version; its summary says the same."""
    edit_conclusion(directory, by_other_code(**PASS, verdicts=[]))
    (directory / "report.html").unlink()
    (directory / "junit.xml").unlink()


def test_a_copied_pass_that_its_runs_do_not_give_is_left_out_by_every_command(
    elsewhere, tmp_path, monkeypatch
):
    put(elsewhere, "kvm-within")
    edit(put(elsewhere, "kvm-slower-against"))
    (_, directory) = copy_all(tmp_path, monkeypatch)
    says = "recorded WITHIN (exit code 0), its runs say OVER (1)"
    for code, *command in ((0, "list"), (4, "status"), (0, "history"), (0, "show"), (4, "check")):
        done = run(*command)
        assert (done[0], says in done[1]) == (code, True), done
    assert f"{directory.name} INVALID" in run("list")[1]
    assert run("list")[1].replace(says, "").count("WITHIN") == 1
    # It stays so.
    assert says in run("list")[1]
    done = run("propose", directory.name)
    assert (done[0], f"nothing is taken from it: {directory.name}: {says}" in done[1]) == (4, True)


def test_a_copied_pass_that_its_runs_do_not_give_is_no_baseline(elsewhere, tmp_path, monkeypatch, judged):
    put(elsewhere, "kvm-within")
    edit(put(elsewhere, "kvm-over"))
    over, within = copy_all(tmp_path, monkeypatch)
    system = Mock()
    system.name = load(within).system
    monkeypatch.setattr(opening.placement, "find_differences", lambda *_: [])
    with pytest.raises(
        RefusedError, match=f"session {over.name} cannot be compared with: .* its runs say OVER"
    ):
        opening.find_earlier(over.name, system)
    for _ in range(2):
        assert opening.find_earlier(within.name, system) == load(within)
    assert judged == [over.name, within.name]


def test_a_copied_session_is_judged_again_once_and_an_own_one_never(elsewhere, tmp_path, monkeypatch, judged):
    directory = put(elsewhere, "kvm-within")
    assert "WITHIN" in run("list")[1]
    # The end of a job, as it comes after the conclusion.
    Log(directory).append(Released(job="7"))
    assert "WITHIN" in run("list")[1]
    assert judged == []
    (directory,) = copy_all(tmp_path, monkeypatch)
    for command in ("list", "status", "show", "history"):
        assert run(command)[0] == 0
    assert judged == [directory.name]
    assert read_digests() == {load(directory).log_digest}
    # A state directory that lost its file, or has another user's, is no fault.
    (paths.state() / FILE).unlink()
    assert (run("status")[0], len(judged)) == (0, 2)


def test_a_copied_summary_is_not_read(elsewhere, tmp_path, monkeypatch):
    """Even if it is of the same size and time, as an archive restores them."""
    directory = put(elsewhere, "kvm-over")
    run("list")
    summary = json.loads(file_of(directory).read_text("utf-8"))
    file_of(directory).write_text(
        json.dumps(summary | {"outcome": "WITHIN", "exit_code": 0}), encoding="utf-8"
    )
    assert "WITHIN" in run("list")[1]
    copy_all(tmp_path, monkeypatch)
    assert "OVER" in run("list")[1]


def test_a_copied_pass_without_its_earlier_session_is_left_out(elsewhere, tmp_path, monkeypatch):
    put(elsewhere, "kvm-within")
    later = put(elsewhere, "kvm-same-against")
    assert load(later).passes
    earlier = shutil.move(elsewhere / load(later).against, tmp_path)
    copy_all(tmp_path, monkeypatch)
    code, output = run("list")
    assert (code, "which is not here or is damaged, are not judged again" in output) == (0, True)
    assert f"{later.name} INVALID" in output
    # Once it is here, `virtqual check` judges the changes.
    shutil.move(earlier, paths.sessions())
    assert run("check", later.name)[0] == 0
    assert "INVALID" not in run("list")[1]


def test_slow_runs_of_a_copied_session_count_if_its_runs_say_them(elsewhere, tmp_path, monkeypatch):
    """Slow native runs would acquit a hypervisor."""
    directory = put(elsewhere, "kvm-within")
    edit_conclusion(directory, {"slow_runs": SlowRuns(native=9, native_runs=9, virtual_runs=9)})
    copy_all(tmp_path, monkeypatch)
    head = load(paths.sessions() / directory.name)
    now = head.model_copy(update={"created": "2099-01-01T00:00:00+00:00"})
    assert concluding.add_slow_runs(concluding.find_earlier_sessions(now)).native == 0


def test_what_is_not_concluded_claims_nothing(elsewhere, tmp_path, monkeypatch, judged):
    keep(session_of([], name="20260101-000000-site"), elsewhere)
    copy_all(tmp_path, monkeypatch)
    assert "UNFINISHED" in run("list")[1]
    assert judged == []
