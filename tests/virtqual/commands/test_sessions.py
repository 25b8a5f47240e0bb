"""`virtqual show`, `list` and `compare`: sessions that have ended, again and side by side."""

import math
import re

import pytest

from calling import call as run
from made_runs import alternating, keep, session_of
from virtqual import paths
from virtqual.qualify.concluding import conclude_session
from virtqual.report.comparison import compare, differing
from virtqual.runs import Result
from virtqual.session.log import Log
from virtqual.verdict import Outcome

# Triad of the OpenStack study (claims D01 to D04), native with node interleaving off as 100.
STUDY = {"BM-1": 100.0, "VM-1": 74.0, "BM-2": 82.23, "VM-2": 81.0}


def runs(native, virtual, pairs=4):
    def results(side, pair):
        # No run gives the last digit of another.
        value = (native if side == "native" else virtual) * (1 + 1e-6 * pair)
        return (Result.scalar("memory_triad", "2 threads", value),)

    return alternating(results, pairs)


def session(name, measured, **more):
    hypervisor = {"vendor": "KVM", "build": "6.1", "accelerator": "kvm", "machine": "q35", "details": {}}
    placement = more.pop("placement", {})
    virtual = {"hypervisor": hypervisor, "guest": {}, "placement": placement}
    stack = {"name": "spack", "hash": "abc", "programs": []}
    return session_of(measured, name=name, identity={"virtual": virtual}, stack=stack, **more)


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    off = session(
        "20260101-000000-s", runs(STUDY["BM-1"], STUDY["VM-1"]), placement={"node_interleaving": False}
    )
    on = session(
        "20260102-000000-s",
        runs(STUDY["BM-2"], STUDY["VM-2"]),
        placement={"node_interleaving": True},
        label="[bold]on[/bold]",
    )
    for made in (off, on):
        conclude_session(Log(keep(made, paths.sessions())), None)
    return off, on


def test_the_studys_four_configurations_come_out_of_two_sessions(two):
    off, on = compare(two)
    assert math.exp(-off.overhead) == pytest.approx(0.74)
    assert math.exp(-on.overhead) == pytest.approx(0.985, abs=1e-3)
    assert math.exp(-on.virtual) == pytest.approx(0.81)
    assert math.exp(-on.native) == pytest.approx(0.8223)
    facts = dict(differing([*two, two[0]]))
    assert facts["placement node interleaving"] == [("A, C", "no"), ("B", "yes")]


def test_what_does_not_count_is_not_compared(two):
    off, on = two
    on = on.model_copy(update={"runs": [run.refusing(("disturbed",)) for run in on.runs]})
    assert [row.session for row in compare([off, on])] == [0]
    native = off.model_copy(update={"runs": [run for run in off.runs if run.side == "native"]})
    assert compare([native]) == []


def test_an_invalid_verdict_is_neither_the_best_nor_the_worst(two):
    sessions = [Log(paths.sessions() / session.session).session() for session in two]
    assert [row.mark for row in compare(sessions)] == ["worst", "best"]
    sessions[1].verdicts[0].outcome = Outcome.INVALID
    assert [row.mark for row in compare(sessions)] == ["", ""]


def test_the_command_shows_them_side_by_side(two):
    done = run("compare", "20260101", "20260102", code=0)
    assert re.search(r"A +26% \(\d+ to \d+%\) +5\+3% +0.0% +26% +worst", done.output)
    assert re.search(r"B +1.5% \(-[\d.]+ to [\d.]+%\) +5\+3% +18% +19% +best", done.output)
    assert re.search(r"^A +20260101\S+ +OVER +KVM", done.output, re.MULTILINE)
    assert re.search(r"placement node interleaving +A: no\s+B: yes", done.output)
    assert "[bold]on[/bold]" in done.output
    assert max(map(len, done.output.splitlines())) <= 80
    run("compare", "20260101", code=2)


def test_what_the_first_session_did_not_measure_is_held_against_nothing(two):
    alone = two[0].model_copy(update={"session": "20260103-000000-s"})
    alone.runs = [
        run.model_copy(update={"results": (run.results[0].model_copy(update={"setting": "1 thread"}),)})
        for run in alone.runs
    ]
    conclude_session(Log(keep(alone, paths.sessions())), None)
    done = run("compare", "20260103", "20260101")
    assert re.search(r"1 thread +A +26% \(.+\) +5\+3% +0.0% +26%", done.output), done.output
    assert re.search(r"2 threads +B +26% \(.+\) +5\+3% +- +-", done.output), done.output


def test_sizes_of_another_curve_are_held_against_nothing():
    def curve(*sizes):
        made = []
        for measured in runs(1.0, 1.1):
            value = measured.results[0].values[0]
            result = Result.curve("mpi_latency", "two nodes", dict.fromkeys(sizes, value))
            made.append(measured.model_copy(update={"results": (result,)}))
        return session("s", made)

    first, second = compare([curve(1.0, 2.0), curve(1024.0, 2048.0)])
    assert (first.native, second.native, second.virtual) == (pytest.approx(0.0), None, None)
    assert second.overhead == pytest.approx(math.log(1.1))


def test_a_value_of_zero_is_not_compared(two):
    odd = two[1].model_copy(update={"session": "z"})
    odd.runs = [
        run.model_copy(update={"results": (run.results[0].model_copy(update={"values": (0.0,)}),)})
        for run in odd.runs
    ]
    assert [row.session for row in compare([two[0], odd])] == [0]


@pytest.mark.parametrize(
    "command", [("compare", "20260101", "20260102"), ("report", "20260101"), ("history",)]
)
def test_a_file_that_cannot_be_written_is_named(two, tmp_path, command):
    done = run(*command, "-o", str(tmp_path / "nowhere" / "x.html"), code=2)
    assert "x.html: No such file or directory" in " ".join(done.output.split())


def test_no_command_writes_through_a_link_that_came_with_a_session(two, tmp_path):
    """It may lead to a file of the reader, such as the keys that may log in."""
    target = tmp_path / "authorized_keys"
    target.write_text("mine", encoding="utf-8")
    names = [f"{name}{ending}" for name in ("report.html", "summary.json") for ending in ("", ".part")]
    for directory in paths.sessions().glob("2*"):
        for name in names:
            (directory / name).unlink(missing_ok=True)
            (directory / name).symlink_to(target)
    for command in (("report", "20260101"), ("list",), ("status",), ("history",), ("check",)):
        run(*command)
    assert target.read_text("utf-8") == "mine"
    assert "memory_triad" in (paths.sessions() / "20260101-000000-s/report.html").read_text("utf-8")


def test_a_session_is_shown_again_as_it_was_concluded(two):
    done = run("show", "20260102", code=0)
    assert re.search(r"memory_triad 2 +82\.23 +81 MB/s +1.5% \(.+\) +5\+3%", done.output)
    assert "qualified: " in done.output
    assert run("show").output == done.output
    run("show", "2027", code=2)


def test_sessions_are_listed_and_what_cannot_be_read_is_said(two):
    old = paths.sessions() / "20250101-000000-s"
    old.mkdir()
    (old / "session.json").write_text('{"schema": "virtqual-session/1"}', "utf-8")
    done = run("list")
    lines = done.output.splitlines()
    assert done.exit_code == 0
    assert [line.split()[0] for line in lines[1:3]] == ["20260102-000000-s", "20260101-000000-s"]
    assert "it has a session.json and no log.jsonl" in " ".join(done.output.split())


def test_no_session_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    for command in ("list", "show", "status", "history", "report"):
        done = run(command)
        assert (done.exit_code, "there is no session yet below" in done.output) == (5, True), done.output
    run("show", "2026", code=2)


def test_a_name_that_nothing_has_is_named_with_similar_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    for command, code, says in (
        (("status", "--system", "vclustr"), 2, "there is no system 'vclustr': did you mean vcluster?"),
        (("history", "--system", "vclustr"), 2, "did you mean vcluster?"),
        (("history", "--class", "kmv"), 2, "there is no class 'kmv': did you mean kvm?"),
        (("status", "--system", "vcluster"), 5, "there is no session of system 'vcluster' yet"),
        (("history", "--class", "kvm"), 5, "there is no session of class 'kvm' yet"),
    ):
        done = run(*command)
        assert (done.exit_code, says in " ".join(done.output.split())) == (code, True), done.output


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("qualify", "--system", "example", "--pairs", "four"), "'four' is no whole number"),
        (("qualify", "--system", "example", "--pairs", "1"), "'1' is less than 2"),
        (("qualify", "example", "--plan"), "a system is named by --system example"),
        (("qualify", "--system", "vclustr"), "there is no system 'vclustr': did you mean vcluster?"),
        (("setup", "--stack", "spak"), "(there are: none); did you mean spack?"),
        (("setup", "--stack", "spack"), "ci/build-stack sets it up"),
    ],
)
def test_a_mistake_on_the_command_line_is_told_in_plain_words(tmp_path, monkeypatch, command, says):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    done = run(*command)
    # Typer draws a frame around its own messages.
    assert (done.exit_code, says in " ".join(done.output.replace("│", " ").split())) == (2, True), done.output


def test_a_state_directory_that_is_a_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "state").touch()
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    for command in ("list", "show", "status"):
        done = run(command)
        assert (done.exit_code, "is no directory" in done.output) == (2, True), done.output
