"""What people see: what they wrote themselves, unchanged, and no number that is not there."""

import math
from inspect import cleandoc
from io import StringIO

import pytest
from made_series import CHANGE, FIVE, KVM, PRIOR, TODAY, alone, judge_session, waiver
from typer.main import get_command

from made_runs import made_failure, session_of
from virtqual import cli
from virtqual.files.wording import Range
from virtqual.harness.progress import CaseEvent
from virtqual.report.console import verbatim
from virtqual.report.terminal import Terminal, fold_name, table_of
from virtqual.site.extras import HypervisorBuild
from virtqual.verdict import Case

BRACKETS = "accepted [ticket 7] until [/x] fixed"


@pytest.fixture
def shown():
    """Return a terminal of 80 columns, and what it has shown."""
    console = verbatim(width=80, file=StringIO())
    return Terminal(console), lambda: " ".join(console.file.getvalue().split())


def session(**more):
    hypervisor = HypervisorBuild(vendor="QEMU", build="9", accelerator="kvm", details={"options": BRACKETS})
    virtual = {"hypervisor": hypervisor.model_dump(), "guest": {"kernel": BRACKETS}, "placement": {}}
    stack = {"programs": [{"name": "lmp", "version": BRACKETS}]}
    return session_of([], identity={"virtual": virtual}, stack=stack, **more)


def test_what_people_wrote_is_shown_as_they_wrote_it(shown, metrics, make):
    terminal, text = shown
    terminal.begin(session(label=BRACKETS), [BRACKETS])
    assert text().count(BRACKETS) == 5
    terminal.round_begins(1, f"checks named {BRACKETS!r}", Range(300.0, 900.0))
    assert text().count(BRACKETS) == 6
    accepted = waiver(owner=BRACKETS, reason=BRACKETS)
    series = make(metrics["hpl"], [0.5] * 8, setting="[x] a")
    cases = [Case(series, FIVE, PRIOR)]
    verdict = judge_session(cases, hypervisor_class=KVM, waivers=[accepted], build="9", today=TODAY)
    said = session(conclusion=BRACKETS)
    said.verdicts, said.waivers = list(verdict.verdicts), [w.text(verdict.today) for w in verdict.waivers]
    terminal.end(said, f"/{BRACKETS}")
    # The verdict's message and the waiver, each with owner and reason; the conclusion; the directory.
    assert text().count(BRACKETS) == 12
    assert "hpl [x] a" in text()


def test_a_change_takes_one_line_of_the_table(shown, metrics, make):
    """Also where ratios, values and units are wide, as of a metric that was lost nearly whole."""
    terminal, _ = shown
    slow = make(metrics["lammps_rating"], [4.2] * 4, setting="rhodo on two nodes", native=129600.3)
    cases = [Case(slow, FIVE, PRIOR), Case(slow, CHANGE, PRIOR, baseline=slow)]
    terminal.console.print(table_of(judge_session(cases).verdicts))
    lines = terminal.console.file.getvalue().splitlines()
    assert lines[-1].split()[:2] == ["change", "0.0%"]
    assert max(map(len, lines)) <= 80


def test_a_change_that_cannot_be_judged_does_not_repeat_the_overhead(shown, metrics, make):
    terminal, _ = shown
    new, unknown = make(metrics["hpl"], [0.0] * 4), ("the earlier session did not measure it",)
    cases = [Case(new, FIVE, PRIOR), Case(new, CHANGE, PRIOR, refused=unknown)]
    terminal.console.print(table_of(judge_session(cases).verdicts))
    lines = terminal.console.file.getvalue().splitlines()
    assert lines[-1].split() == ["change", "-", "-", "INVALID", "4"]


@pytest.mark.parametrize(
    ("ratio", "says"), [(0.0289, "35x"), (0.52, "48%"), (1.05, "-5.0%"), (35.4, "0.03x")]
)
def test_the_table_says_slower_and_faster(shown, metrics, make, ratio, says):
    terminal, text = shown
    series = make(metrics["hpl"], [-math.log(ratio)] * 4)
    terminal.console.print(table_of([alone(series, FIVE, PRIOR)]))
    assert f" {says} (" in text()


def test_a_name_is_folded_between_its_words(metrics, make):
    """Without a setting, no comma or blank is left of it."""
    name = "time_of_a_step_with_another_name_and_more"
    metric = metrics["hpl"].model_copy(update={"name": name})
    (verdict,) = judge_session([Case(make(metric, [0.0123] * 4, setting=""), FIVE, PRIOR)]).verdicts
    console = verbatim(width=80, file=StringIO())
    console.print(table_of([verdict]))
    head, *lines = console.file.getvalue().splitlines()
    parts = [line[: head.index("native") - 1].rstrip() for line in lines]
    assert verdict.name == "".join(parts) == name
    assert len(parts) > 1
    assert all(part.endswith("_") for part in parts[:-1])


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (30, ["osu_latency two nodes at 1 B"]),
        (12, ["osu_latency", "two nodes at", "1 B"]),
        (8, ["osu_", "latency", "two", "nodes at", "1 B"]),
        (3, ["osu_", "latency", "two", "nodes", "at", "1 B"]),
    ],
)
def test_words_of_a_name_stay_whole_where_they_fit(width, lines):
    assert fold_name("osu_latency two nodes at 1 B", width) == lines


def case(kind, check, side=None, pair=None, **more):
    place = {"ended": 0, "total": 32, **more}
    return CaseEvent(kind=kind, check=check, partition="virt", side=side, pair=pair, **place)


def test_progress_says_pair_side_and_case_and_how_long_the_rest_takes(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("virtqual.report.terminal.time.monotonic", lambda: clock[0])
    console = verbatim(width=80, file=StringIO(), force_terminal=True, color_system=None)
    terminal = Terminal(console)
    terminal.round_begins(1, "every check: pairs 0 to 3", Range(300.0, 900.0))
    clock[0] = 120.0
    assert terminal._describe_rest() == "~3 to 13 min left"
    terminal._progress.stop()
    terminal.round_begins(1, "every check: pairs 0 to 3", Range(354.0, 354.0))
    assert terminal._progress.tasks[0].fields["left"] == "~5 min 54 s left"
    terminal._progress.stop()

    def line():
        console.file.seek(0)
        console.file.truncate()
        console.print(terminal._progress.get_renderable())
        return console.file.getvalue().rstrip()

    nodes = ("vm1", "vm2", "vm3", "vm4")
    terminal.event(case("run", "cache_triad %threads=1", "native", 3, warm_up=True, nodes=nodes))
    assert line().endswith("warm-up native cache_triad threads=1 on vm1 and 3 more")
    clock[0] = 200
    terminal.event(case("ok", "cache_triad %threads=1", "native", 1, ended=30))
    terminal.event(case("run", f"memory_bandwidth %threads=all %{'long' * 20}=1", "virtual", 1, ended=30))
    assert "30/32 ~5 s left" in line()
    assert "pair 1 virtual memory_bandwidth threads=all" in line()
    assert max(map(len, line().splitlines())) <= 80
    terminal.round_ends()


def test_without_a_terminal_each_run_is_a_line(shown):
    terminal, text = shown
    terminal.round_begins(1, "every check: 4 pairs on each of 8 nodes", Range(300.0, 900.0))
    failed = {"ended": 3, "nodes": ("vm2",), "reason": "job exited with exit code 1"}
    terminal.event(case("fail", "cache_triad %threads=1", "virtual", 1, **failed))
    terminal.event(case("ok", "site_check", ended=4))
    assert "(about 5 to 15 min)" in text()
    assert "3/32 0 s fail pair 1 virtual cache_triad threads=1 on vm2: job exited with exit code 1" in text()
    assert "4/32 0 s ok site_check on virt" in text()


def test_what_was_not_run_is_told(shown):
    terminal, text = shown
    terminal.end(session(not_run=["needs 2 VMs: stream_vms, namd_vms"]), "/x")
    assert "Not run here: needs 2 VMs: stream_vms, namd_vms" in text()


def test_failures_that_differ_only_in_numbers_are_told_once(shown):
    terminal, text = shown
    failures = [made_failure(case=f"{number}N", reason=f"job{number}: no such file") for number in range(3)]
    terminal.end(session(failures=[*failures, made_failure(reason="wrong energy")]), "/x")
    assert "failed: 0N and 2 more on vm: job0: no such file failed: case on vm: wrong energy" in text()


def test_a_curve_has_a_row_of_what_decides_and_one_of_its_mean(shown, metrics, make):
    terminal, text = shown
    sizes = (1.0, 2.0, 4.0)
    series = make(metrics["osu_latency"], [[0.9, 0.9, 0.0]] * 8, points=sizes)
    verdict = alone(series, FIVE, PRIOR)
    terminal.verdicts([verdict], None)
    finding = verdict.findings[0].judged.brief_text("lower")
    assert f"osu_latency here, 10 24.6 us {finding} 5+5% OVER 4 of 8 from 1 to 2 B" in text()
    assert f"mean of 3 sizes {verdict.overhead.brief_text('lower')} 5+5% Percent" in text()
    assert "A curve's row is the size nearest to its limit, or the range that is over." in text()
    assert "Pairs: those that decided, of those that were run." in text()


def test_help_is_folded_between_words_in_80_columns():
    """A paragraph after the first keeps its lines: one that is too long would be broken twice."""
    group = get_command(cli.app)
    commands = [group.get_command(None, name) for name in group.list_commands(None)]
    for command in [*commands, *group.get_command(None, "stack").commands.values()]:
        _, *paragraphs = cleandoc(command.help or "").split("\n\n")
        assert max((len(line) for one in paragraphs for line in one.splitlines()), default=0) <= 78, (
            command.name
        )


def test_names_are_above_numbers_that_leave_no_room(shown, metrics, make):
    """Wide intervals squeezed the names into five characters, one syllable a line."""
    terminal, _ = shown
    metric = metrics["hpl"].model_copy(update={"unit": "10^6 particle steps/s, all"})
    wild = make(metric, [4.1, 0.9, 3.3, 5.2], setting="1 rank, N=640", native=0.0012345)
    terminal.console.print(table_of([alone(wild, FIVE, PRIOR)]))
    lines = [line.rstrip() for line in terminal.console.file.getvalue().splitlines()]
    assert lines[0] == "metric"
    assert "hpl 1 rank, N=640" in lines
    assert lines[1].split()[0] == "native"
