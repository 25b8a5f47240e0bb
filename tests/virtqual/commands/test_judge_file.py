"""`virtqual judge`: pairs of any harness in a file, judged by the code that judges sessions."""

import csv
import dataclasses
import datetime
import io
import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calling import call
from virtqual.files.datafile import DataError
from virtqual.references import project_references
from virtqual.session import measured
from virtqual.session.measured import COLUMNS, read_series
from virtqual.session.measured_cases import MIN_EARLIER_NOISE, CaseMaker
from virtqual.session.pairing import DECLARED_NOISE
from virtqual.verdict import Verdict
from virtqual.verdict.budget import Budget, BudgetReason, Term
from virtqual.verdict.noise import Prior

STATED = ("--budget", "5%", "--margin", "3%")
#: Most tables here name no hosts.
ON_ONE_HOST = (*STATED, "--same-host")
SERIES_KEYS = {"schema", "kind", "session", *Verdict.model_fields} - {"labels"}
SESSION_KEYS = {"schema", "kind", "session", "outcome", "qualified", "slow_runs", "reasons"}
SLOW_KEYS = {
    *("virtual", "virtual_runs", "virtual_lost", "native", "native_runs", "native_lost", "boots", "factor"),
    *("found", "text", "more_runs", "lost_text", "lost"),
}


def rows(virtual=1.0, pairs=8, *, noise=0.004, sizes=("",), seed=1, alternate=True, timed=True, **more):
    """Return rows of one series, as a harness that takes turns would write them."""
    rng = np.random.default_rng(seed)
    made, clock = [], 1e9
    for pair in range(pairs):
        for side in ("native", "virtual") if pair % 2 == 0 or not alternate else ("virtual", "native"):
            level = (virtual(pair) if callable(virtual) else virtual) if side == "virtual" else 1.0
            for size in sizes:
                value = float(level * np.exp(rng.normal(0, noise)) * (float(size or 1) ** 0.5))
                row = {
                    "session": "s", "metric": "elapsed", "setting": "small", "size": size, "unit": "s",
                    "better": "lower", "pair": pair, "side": side, "value": f"{value:.6g}",
                    "start": clock if timed else "", "end": clock + 5 if timed else "",
                    "node": "", "host": "", "boot": "",
                }  # fmt: skip
                made.append(row | more)
            clock += 10
    return made


def text_of(table, columns=COLUMNS, end="\n"):
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator=end)
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


@pytest.fixture
def judge(tmp_path):
    """Return what judges a table (or a text), and returns exit code and output."""

    def judged(table, *options, name="pairs.csv", code=None):
        file = tmp_path / name
        if isinstance(table, bytes):
            file.write_bytes(table)
        else:
            file.write_text(table if isinstance(table, str) else text_of(table), encoding="utf-8")
        done = call("judge", file, *options, code=code)
        assert "an error that virtqual does not know" not in done.output
        return done

    return judged


def lines(done):
    """Return the JSON lines of series, and those of sessions."""
    series, sessions = [], []
    for line in map(json.loads, done.stdout.splitlines()):
        assert line["schema"] == "virtqual-verdict/3"
        if line["kind"] == "series":
            assert line.keys() == SERIES_KEYS
            series.append(line)
            continue
        assert line.keys() == SESSION_KEYS
        assert line["qualified"] is False
        assert line["slow_runs"].keys() == SLOW_KEYS
        sessions.append(line)
    return series, sessions


def only(done):
    (series,), _ = lines(done)
    return series


@pytest.mark.parametrize(
    ("virtual", "code", "outcome"), [(1.0, 0, "WITHIN"), (1.3, 1, "OVER"), (1 / 1.5, 4, "INVALID")]
)
@pytest.mark.parametrize("sizes", [("",), ("1", "16", "256")])
def test_scalars_and_curves_are_judged(judge, virtual, code, outcome, sizes):
    done = judge(rows(virtual, 12, sizes=sizes), *ON_ONE_HOST, "--json")
    series = only(done)
    assert (done.exit_code, series["outcome"], series["gate"]) == (code, outcome, "overhead")
    overhead = series["overhead"]
    assert overhead["low"] < virtual < overhead["high"]
    assert overhead["ratio"] == pytest.approx(virtual, rel=0.01)
    if outcome == "OVER":
        (finding,) = series["findings"]
        assert (finding["low"], finding["high"]) == ((None, None) if sizes == ("",) else (1, 256))
    if outcome == "INVALID":
        assert "too good to be true" in series["reasons"][0]


def test_a_rate_is_worse_where_it_is_lower(judge):
    done = judge(rows(0.8, metric="rate", unit="MB/s", better="higher"), *ON_ONE_HOST, "--json")
    assert only(done)["outcome"] == "OVER"


def test_json_lines_and_shuffled_rows_say_the_same(judge):
    table = rows(1.02, 12, sizes=("1", "16")) + rows(1.2, 12, seed=2, setting="large", metric="other")
    expected = judge(table, *ON_ONE_HOST, "--json").stdout
    empty = [{k: v for k, v in row.items() if v != ""} for row in table]
    numbers = [row | {"value": float(row["value"]), "boot": None} for row in empty]
    said = "\n" + "\n\n".join(json.dumps(row) for row in numbers) + "\n"
    assert judge(said, *ON_ONE_HOST, "--json", name="pairs.jsonl").stdout == expected
    mixed = random.Random(1).sample(table, len(table))
    by_name = {line["setting"]: line for line in lines(judge(mixed, *ON_ONE_HOST, "--json"))[0]}
    for line in map(json.loads, expected.splitlines()[:-1]):
        assert by_name[line["setting"]] == line


@pytest.mark.parametrize(("end", "comma"), [("\r\n", ","), ("\r", ", ")])
def test_bom_carriage_returns_blank_lines_quotes_and_another_order_are_fine(tmp_path, end, comma):
    table, file = rows(setting='two,"big" nodes'), tmp_path / "pairs.csv"
    text = text_of(table, list(reversed(COLUMNS)), end).replace(end, 2 * end, 3).replace(",", comma)
    file.write_bytes(f"\ufeff{text}".encode())
    ((series,),) = read_series(file).values()
    assert (series.setting, len(series.runs)) == (f'two{comma}"big" nodes', 16)


def test_a_pipe_is_read_and_the_progress_is_reported(monkeypatch):
    monkeypatch.setattr(measured, "PROGRESS_ROWS", 3)
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        pipe.write(text_of(rows(pairs=4)))
        pipe.close()
        counts = []
        ((series,),) = read_series(Path(f"/dev/fd/{reading}"), counts.append).values()
    assert (len(series.runs), counts) == (8, [3, 6])


def test_a_series_of_one_run_has_no_pair(judge):
    series = only(judge(rows(sizes=("1", "2"))[:2], *ON_ONE_HOST, "--json", code=3))
    assert (series["outcome"], series["pairs"]) == ("UNDECIDED", 0)


def test_a_value_may_equal_its_limit(tmp_path):
    table, file = rows(pairs=1), tmp_path / "pairs.csv"
    for row, value in zip(table, (measured.MIN_AMOUNT, measured.MAX_AMOUNT), strict=True):
        row["value"] = value
    file.write_text(text_of(table), "utf-8")
    ((series,),) = read_series(file).values()
    assert [run.values for run in series.runs.values()] == [{None: 1e-100}, {None: 1e100}]


def test_each_session_is_judged_for_itself_in_the_order_of_the_file(judge):
    table = rows(1.3, session="b") + rows(session="a")
    done = judge(table, *ON_ONE_HOST, "--json")
    series, sessions = lines(done)
    assert [line["session"] for line in sessions] == ["b", "a"]
    assert [line["outcome"] for line in sessions] == ["OVER", "WITHIN"]
    assert [line["outcome"] for line in series] == ["OVER", "WITHIN"]
    assert done.exit_code == 1
    undecided = rows(session="c", pairs=2)
    judge(undecided + rows(), *ON_ONE_HOST, code=3)
    one_side_first = rows(session="d", alternate=False, pairs=18)
    judge(table + undecided + one_side_first, *ON_ONE_HOST, code=4)


def test_the_table_says_what_the_lines_say(judge):
    done = judge(rows(1.3, sizes=("16", "256")) + rows(setting="[b]x[/b]", metric="scalar"), *ON_ONE_HOST)
    assert "OVER elapsed@small: virtual is 29.9% slower" in " ".join(done.stdout.split())
    assert "[b]x[/b]" in done.stdout
    assert "OVER; as you state: one host" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("changed", "code", "outcome", "says"),
    [
        ({"alternate": False, "pairs": 18}, 4, "INVALID", "not alternated: native ran first"),
        ({"timed": False}, 3, "UNDECIDED", "no start and end times"),
    ],
)
def test_what_is_not_alternated_gets_the_estimate_and_no_answer(judge, changed, code, outcome, says):
    done = judge(rows(1.1, **changed), *ON_ONE_HOST, "--json")
    series = only(done)
    assert (done.exit_code, series["outcome"]) == (code, outcome)
    assert any(says in reason for reason in series["reasons"])
    assert series["overhead"]["ratio"] == pytest.approx(1.1, rel=0.01)


def test_slow_runs_keep_a_session_from_being_within(judge):
    """A fifth of the virtual runs takes twice as long: each series is short of convicting by its mean."""
    table = []
    for number in range(12):
        draw = random.Random(number)
        slow = {pair for pair in range(18) if draw.random() < 0.2}
        table += rows(
            lambda pair, slow=slow: 2.0 if pair in slow else 1.0, 18, seed=number, setting=str(number),
            node=f"n{number}",
        )  # fmt: skip
    done = judge(table, *ON_ONE_HOST, "--json")
    _, (session,) = lines(done)
    assert session["outcome"] != "WITHIN"
    assert done.exit_code in (1, 4)
    assert session["slow_runs"]["virtual"] > 20 * max(session["slow_runs"]["native"], 1)
    assert session["slow_runs"]["factor"] == pytest.approx(2, rel=0.05)


def test_against_an_earlier_session_overhead_and_change_are_judged(judge):
    table = rows(1.01, 18, session="old") + rows(1.01, 18, seed=2, session="same")
    table += rows(1.12, 18, seed=3, session="new") + rows(setting="large", session="new")
    series, _ = lines(judge(table, *ON_ONE_HOST, "--json", "--against", "old"))
    outcomes = {(line["session"], line["setting"], line["gate"]): line["outcome"] for line in series}
    assert outcomes == {
        ("old", "small", "overhead"): "WITHIN",
        ("same", "small", "overhead"): "WITHIN",
        ("same", "small", "change"): "WITHIN",
        ("new", "small", "overhead"): "OVER",
        ("new", "small", "change"): "OVER",
        ("new", "large", "overhead"): "WITHIN",
        ("new", "large", "change"): "INVALID",
    }
    assert "the earlier session did not measure it" in series[-1]["reasons"]
    done = judge(table, *ON_ONE_HOST, "--against", "odl", code=2)
    assert "has no session 'odl' (--against): did you mean old?" in done.output
    judge(table, *ON_ONE_HOST, "--against", "", code=2)
    for column, value, earlier in (("unit", "ms", "s"), ("better", "higher", "lower")):
        other = rows(1.01, session="old") + rows(session="new", **{column: value})
        done = judge(other, *ON_ONE_HOST, "--against", "old", code=2)
        says = f"pairs.csv:18: {column}: is {value!r}, and {earlier!r} in the session of --against: a change "
        assert f"{says}needs one {column}." in done.output


@pytest.mark.parametrize("boot", ["b", ""])
def test_a_native_node_is_its_own_host_and_has_no_boot(tmp_path, boot):
    file = tmp_path / "pairs.csv"
    file.write_text(text_of(rows(pairs=1, node="n", boot=boot)), "utf-8")
    ((series,),) = read_series(file).values()
    samples = [run.make_sample() for run in series.runs.values()]
    assert [(sample.side, sample.node, sample.host, sample.boot) for sample in samples] == [
        ("native", "n", "n", ""),
        ("virtual", "n", "", boot),
    ]


BY = {"reason": BudgetReason(policy="p")}


@pytest.fixture
def find_cases(tmp_path):
    """Return what makes the cases of a table, of the sessions ``old`` and ``new``."""

    def find(*tables, hypervisor_class="", against="old", is_stated=True, **references):
        (tmp_path / "pairs.csv").write_text(text_of([row for table in tables for row in table]), "utf-8")
        stated = {gate: Budget.build(0.05, margin=0.03, gate=gate) for gate in ("overhead", "change")}
        references = dataclasses.replace(project_references(), **references)
        maker = CaseMaker("pairs.csv", references, hypervisor_class, stated if is_stated else {})
        return maker.make_all(read_series(tmp_path / "pairs.csv"), against)

    return find


def test_the_noise_of_a_change_is_the_spread_of_the_earlier_session(find_cases):
    (old,), (overhead, change) = find_cases(rows(session="old"), rows(session="new", seed=2))
    assert old.prior == overhead.prior == DECLARED_NOISE["overhead"]
    assert change.baseline is old.series
    assert change.prior.sigma == (pytest.approx(old.series.differences.std(ddof=1)),)
    assert (change.prior.df, change.prior.between) == (3.5, DECLARED_NOISE["change"].between)
    _, (_, change) = find_cases(rows(session="old", noise=0), rows(session="new"))
    assert change.prior.sigma == (MIN_EARLIER_NOISE,)
    for pairs, df in ((1, DECLARED_NOISE["change"].df), (2, 0.5)):
        _, (_, change) = find_cases(rows(session="old", pairs=pairs), rows(session="new"))
        assert change.prior.df == df


TRIAD = {"metric": "memory_triad", "setting": "2 threads", "unit": "MB/s", "better": "higher"}


def test_a_metric_that_the_catalogue_knows_has_the_budget_and_noise_of_its_class(find_cases):
    references, of_class = project_references(), Prior(sigma=0.007, df=20, source="s", metric="memory_triad")
    target = {"metric": "memory_triad", "setting": "2 threads", "margin": 0.01, **BY}
    budgets = {"overhead": 0.07, "change": 0.02}
    (old,), new = find_cases(
        *(rows(session=session, **TRIAD) for session in ("old", "new")),
        hypervisor_class="kvm",
        terms={("kvm", gate): [Term(relative=relative, **target)] for gate, relative in budgets.items()},
        priors={(None, "kvm"): [of_class], **references.priors},
    )
    for case, gate in ((old, "overhead"), (new[0], "overhead"), (new[1], "change")):
        assert (case.budget.gate, case.budget.terms[0].relative) == (gate, budgets[gate])
        assert case.prior is of_class
        assert case.series.metric is references.metrics["memory_triad"]


def test_the_noise_of_a_metric_is_not_that_of_another_unit(find_cases):
    known = Prior(sigma=0.007, df=20, source="s", metric="memory_triad")
    for unit, prior in (("MB/s", known), ("GB/s", DECLARED_NOISE["overhead"])):
        table = rows(session="old", **{**TRIAD, "unit": unit})
        ((case,),) = find_cases(table, priors={(None, None): [known]})
        assert case.prior is prior


def test_a_metric_without_a_budget_of_its_class_takes_the_stated_one(find_cases):
    table = rows(session="old", **TRIAD)
    ((case,),) = find_cases(table, hypervisor_class="kvm", terms={})
    assert (case.budget.terms[0].relative, case.gate) == (0.05, "overhead")
    says = "pairs.csv:2: metric: .* no overhead budget for memory_triad.* Or state it by --budget 5%"
    with pytest.raises(DataError, match=says):
        find_cases(table, hypervisor_class="kvm", terms={}, is_stated=False)
    small = Term(metric="mpi_latency", sizes={"from": 1, "to": 8}, relative=0.05, margin=0.03, **BY)
    curve = rows(session="old", metric="mpi_latency", unit="us", sizes=("8", "16"))
    with pytest.raises(DataError, match=r"pairs.csv:2: size: mpi_latency: no budget covers size 16\."):
        find_cases(curve, hypervisor_class="kvm", terms={("kvm", "overhead"): [small]})
    with pytest.raises(
        DataError, match="size: is given for memory_triad, and empty in references/metrics: c"
    ):
        find_cases([row | {"size": 1} for row in table], hypervisor_class="kvm")


def test_sizes_that_sessions_only_show_are_refused(find_cases):
    curve = rows(session="old", metric="db_p99", unit="ms", sizes=("25", "50", "75"))
    says = r"pairs.csv:2: size: db_p99: sizes above 50 are shown in sessions and not judged: leave them out\."
    with pytest.raises(DataError, match=says):
        find_cases(curve, hypervisor_class="kvm")
    assert find_cases([row for row in curve if float(row["size"]) <= 50], hypervisor_class="kvm")


@pytest.mark.parametrize(
    ("sizes", "kind", "axis", "axis_unit"),
    [(("",), "scalar", "", ""), (("1", "2"), "curve", "size", "")],
)
def test_a_metric_of_the_file_alone_is_what_the_file_states(find_cases, sizes, kind, axis, axis_unit):
    ((case,),) = find_cases(rows(session="old", sizes=sizes))
    assert dict(case.series.metric) == {
        "name": "elapsed",
        "unit": "s",
        "better": "lower",
        "family": "measured",
        "kind": kind,
        "axis": axis,
        "axis_unit": axis_unit,
        "judged_up_to": None,
        "description": "as a file states it",
    }


def test_a_class_whose_gate_is_the_change_records_a_baseline(judge):
    table = rows(90.0, metric="lammps_loop_time", session="old")
    done = judge(table, "--class", "emulated", "--json")
    assert (done.exit_code, only(done)["outcome"], only(done)["gate"]) == (0, "BASELINE", "change")
    table += rows(90.0, seed=2, metric="lammps_loop_time", session="new")
    series, _ = lines(judge(table, "--class", "emulated", "--json", "--against", "old"))
    assert [line["gate"] for line in series] == ["change", "change"]


def test_reviewed_budgets_come_before_stated_ones(judge):
    known = rows(1.02, 18, metric="namd_elapsed", noise=0.001)
    other = rows(1.06, 18, metric="mine", noise=0.001)
    tight = ("--budget", "0%", "--margin", "0.01")
    series, _ = lines(judge(known + other, "--class", "kvm", *tight, "--json", "--same-host"))
    assert [line["outcome"] for line in series] == ["WITHIN", "OVER"]
    done = judge(known + other, "--class", "kvm", code=2)
    assert "pairs.csv:38: metric: mine: class 'kvm' knows no such metric" in done.output
    assert "state it by --budget 5% --margin 3%" in done.output
    assert "known are" not in done.output
    assert "(did you mean namd_elapsed" in judge(rows(metric="namd_elapsd"), "--class", "kvm").output
    for separator in (";", "\t"):
        shown = lines(judge(text_of(other).replace(",", separator), *ON_ONE_HOST, "--json"))[0]
        assert [line["outcome"] for line in shown] == ["OVER"]
    assert "pairs.csv:2: metric: namd_elapsed: nothing says what is allowed" in judge(known).output
    done = judge(rows(metric="namd_elapsed", unit="ms", better="higher"), "--class", "kvm")
    assert "pairs.csv:2: unit: is ms for namd_elapsed, and s in references/metrics" in done.output
    assert "pairs.csv:2: better: is higher for namd_elapsed, and lower" in done.output


def test_exchanged_hosts_are_told_apart(judge):
    """Host a is 16 % slower than b whatever runs on it, and the guest costs nothing."""
    table = rows(pairs=16)
    for row in table:
        is_virtual = row["side"] == "virtual"
        host = "ab"[(row["pair"] + is_virtual) % 2]
        row["value"] = float(row["value"]) * (1.16 if host == "a" else 1.0)
        row |= {"node": f"vm-{host}", "host": host} if is_virtual else {"node": host}
    series = only(judge(table, *STATED, "--json"))
    assert series["outcome"] == "WITHIN"
    assert series["hosts"]["a"] / series["hosts"]["b"] == pytest.approx(1.16, abs=0.01)


def rotated(rounds=4, k=8, slow=1.0):
    rng, table = np.random.default_rng(4), []
    row = rows(pairs=1)[0]
    for turn, place, side in itertools.product(range(rounds), range(k), ("native", "virtual")):
        is_first = (side == "native") == (turn % 2 == 0)
        node = (place + turn) % k if side == "virtual" else place
        level = slow if side == "virtual" and node == 3 else 1.0
        start = 1e6 + turn * 100 + (0 if is_first else 50)
        table.append(
            row
            | {
                "pair": turn * k + place, "side": side, "value": level * float(np.exp(rng.normal(0, 0.004))),
                "start": start, "end": start + 40, "node": f"{side}-{node}", "host": f"{side}-{node}",
            }
        )  # fmt: skip
    return table


def test_rounds_over_many_hosts_at_one_time_are_judged(judge):
    series = only(judge(rotated(), *STATED, "--json"))
    assert (series["outcome"], series["pairs"]) == ("WITHIN", 32)
    assert len(series["hosts"]) == 16
    series = only(judge(rotated(slow=1.16), *STATED, "--json"))
    others = [factor for name, factor in series["hosts"].items() if name.startswith("virtual-")]
    assert series["hosts"]["virtual-3"] / np.median(others) == pytest.approx(1.16, abs=0.01)


def test_on_other_or_unknown_hosts_there_is_an_estimate_and_no_verdict(judge):
    def on(native, virtual, level=1.0, **more):
        return [row | more | {"host": native if row["side"] == "native" else virtual} for row in rows(level)]

    for level in (1.0, 1.3):
        done = judge(on("a", "b", level), *STATED, "--json")
        series = only(done)
        assert (done.exit_code, series["outcome"], series["findings"]) == (3, "UNDECIDED", [])
        assert series["overhead"]["ratio"] == pytest.approx(level, rel=0.01)
        assert series["reasons"][0].startswith("no verdict on the build: native ran on a and virtual on b")
        done = judge(on("", "", level, node="n"), *STATED, "--json")
        assert (done.exit_code, only(done)["outcome"]) == (3, "UNDECIDED")
        assert "--same-host" in only(done)["reasons"][0]
    assert only(judge(on("", "", node="n"), *ON_ONE_HOST, "--json"))["outcome"] == "WITHIN"
    assert only(judge(on("", "", 1.3), *ON_ONE_HOST, "--json"))["outcome"] == "OVER"
    assert only(judge(on("a", "a"), *STATED, "--json"))["outcome"] == "WITHIN"
    done = judge(on("a", "b"), *ON_ONE_HOST, code=2)
    assert "--same-host: the file names the hosts a (native) and b (virtual)" in done.output


def test_to_hide_the_hosts_does_not_help(judge):
    """The same values, with hosts in fixed roles and without hosts: neither passes."""
    shown = [row | {"host": row["side"]} for row in rows()]
    hidden = rows()
    assert {only(judge(table, *STATED, "--json"))["outcome"] for table in (shown, hidden)} == {"UNDECIDED"}


def test_all_native_then_all_virtual_is_not_in_turns(judge):
    table = sorted(rows(1.1, timed=False), key=lambda row: row["side"])
    for index, row in enumerate(table):
        row |= {"start": 1e9 + 10 * index, "end": 1e9 + 10 * index + 5}
    done = judge(table, *ON_ONE_HOST, "--json")
    series = only(done)
    assert (done.exit_code, series["outcome"], series["pairs"]) == (3, "UNDECIDED", 0)
    assert "not in turns: all native runs came before all virtual runs" in " ".join(series["reasons"])
    assert "lies between" not in done.stdout


def test_rows_without_times_are_pairs_if_it_is_stated(judge):
    series = only(judge(rows(1.3, timed=False), *ON_ONE_HOST, "--paired", "--json"))
    assert (series["outcome"], series["pairs"]) == ("OVER", 4)


@pytest.mark.parametrize("form", ["ms", "iso", "zone"])
def test_times_in_milliseconds_and_dates_are_those_in_seconds(judge, form):
    def convert(seconds):
        date = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        return {"ms": f"{seconds * 1000:.0f}", "iso": f"{date:%Y-%m-%dT%H:%M:%S}", "zone": date.isoformat()}[
            form
        ]

    table = rows(1.3)
    expected = judge(table, *ON_ONE_HOST, "--json").stdout
    converted = [row | {key: convert(row[key]) for key in ("start", "end")} for row in table]
    assert judge(converted, *ON_ONE_HOST, "--json").stdout == expected


def test_sides_may_be_called_reference_and_candidate(judge):
    words = {"native": "reference", "virtual": "candidate"}
    done = judge([row | {"side": words[row["side"]]} for row in rows(1.3)], *ON_ONE_HOST)
    assert "OVER elapsed@small: candidate is 30.0% slower" in " ".join(done.stdout.split())
    assert "virtual" not in done.stdout


def test_a_sole_session_is_not_held_against_itself(judge):
    done = judge(rows(), *ON_ONE_HOST, "--against", "s", code=2)
    assert "has no session but 's' (--against): nothing is compared with it" in done.output


def test_values_that_are_all_equal_are_as_fine_as_their_last_digit(judge):
    def judge_equal(value, *options):
        return judge([row | {"value": value} for row in rows()], *ON_ONE_HOST, *options)

    series = only(judge_equal("0.39", "--json"))
    assert (series["outcome"], series["overhead"]["ratio"]) == ("INVALID", 1.0)
    assert "it shows steps of 0.01 s, 2.6% of 0.39 s" in series["reasons"][0]
    done = judge_equal("0.3917", "--json")
    (note,) = only(done)["reasons"]
    assert (done.exit_code, only(done)["outcome"]) == (0, "WITHIN")
    assert note.startswith("native and virtual both show 0.3917 s in all 8 pairs: a limit")
    assert note in " ".join(judge_equal("0.3917").output.split())


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_a_value_that_is_none_makes_its_pair_invalid(judge, value):
    table = rows()
    table[4]["value"] = value
    series = only(judge(table, *ON_ONE_HOST, "--json"))
    assert series["pairs"] == 7
    (reason,) = [reason for reason in series["reasons"] if "left out" in reason]
    assert "pair 2 left out: native run reported" in reason
    shown = " ".join(judge(table, *ON_ONE_HOST).output.split())
    assert (series["outcome"], reason in shown) == ("WITHIN", True)


def test_lost_virtual_runs_leave_a_session_undecided_though_each_metric_is_within(judge):
    table = rows()
    (index,) = [n for n, row in enumerate(table) if (row["pair"], row["side"]) == (2, "virtual")]
    table[index]["value"] = "nan"
    done = judge(table, *ON_ONE_HOST)
    shown = " ".join(done.output.split())
    assert (done.exit_code, "1 of 8 virtual runs was lost, and no native one" in shown) == (3, True)
    assert "Lost runs: 1 virtual run, 0 native runs" in shown


def change(row, **fields):
    table = rows(sizes=("1", "2"), pairs=2) if "size" in fields else rows(pairs=2)
    table[row] |= fields
    return table


MISSPELT = text_of(rows()).replace("boot", "boto", 1).replace("unit", "units", 1)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (change(1, side="guest"), "pairs.csv:3: side: is 'guest': write native or virtual"),
        (change(1, value="fast"), "pairs.csv:3: value: is 'fast': write a number"),
        (change(1, value=""), "pairs.csv:3: value: is empty: write a number"),
        (change(1, value="1_0"), "pairs.csv:3: value: is '1_0'"),
        (change(1, pair="-1"), "pairs.csv:3: pair: is '-1': write a whole number from 0"),
        (change(1, pair="1.5"), "pairs.csv:3: pair: is '1.5'"),
        (change(1, start="noon"), "pairs.csv:3: start: is 'noon': write seconds"),
        (change(1, end="inf"), "pairs.csv:3: end: is 'inf': write seconds"),
        (change(1, better="less"), "pairs.csv:3: better: is 'less': write lower"),
        (change(1, better="higher"), "csv:3: better: is 'higher', and 'lower' in line 2: a series has one"),
        (change(1, unit="ms"), "pairs.csv:3: unit: is 'ms', and 's' in line 2: a series has one unit"),
        (change(1, session=""), "pairs.csv:3: session: is empty"),
        (change(1, metric="a@b"), "pairs.csv:3: metric: is 'a@b': write a name without @"),
        (change(1, size="-2"), "pairs.csv:3: size: is '-2': write a number from 0"),
        (change(1, size=""), "pairs.csv:3: size: elapsed has no size here and one in line 2"),
        (
            rows(pairs=1) + rows(pairs=1, setting="large", sizes=("1",)),
            "pairs.csv:4: size: elapsed has a size here and none in line 2",
        ),
        (
            change(1, size="3"),
            "csv:4: size: the virtual run of pair 0 has the sizes 1, 2; the native run of pair 0 in line 2",
        ),
        (change(1, size="1"), "csv:3: size: the native run of pair 0 has a value at size 1 already"),
        (
            change(1, node="other", size="2"),
            "pairs.csv:3: node: is 'other', and empty in line 2: the rows of one run (the native run of pair",
        ),
        (change(1, start="7", size="2"), "pairs.csv:3: start: is 7.0, and 1000000000.0 in line 2: the rows"),
        (rows(pairs=1) * 2, "pairs.csv:4: pair: the native run of pair 0 has a value already, in line 2"),
        (MISSPELT, "pairs.csv:1: boto: is not a column of this file: did you mean boot"),
        (MISSPELT, "pairs.csv:1: units: is not a column of this file: did you mean unit"),
        ("a,b,c\n1,2,3\n", "pairs.csv: has the columns a, b, c: virtqual reads a table with one column "
        "for each"),
        (text_of(rows()).replace("host", "node", 1), "pairs.csv:1: node: appears twice"),
        (text_of(rows()) + "s,elapsed\n", "pairs.csv:18: has 2 fields, the header 14"),
        (text_of(rows()) + '"s', "pairs.csv:18: is not CSV"),
        (text_of([]), "pairs.csv:1: has a header and no row"),
        ("", "pairs.csv: is empty: write a column for each side"),
        (b"\x7fELF\xff\xfe", "no table of pairs (not UTF-8"),
        (b"\x7fELF\x00", "no table of pairs (a binary file"),
        ('{"session": "s"}\n[1]\n{"x"', "pairs.csv:1: metric: is missing: add this key"),
        ('{"session": "s"}\n[1]\n{"x"', "pairs.csv:2: is not a JSON object"),
        ('{"session": "s"}\n[1]\n{"x"', "pairs.csv:3: is not JSON: Expecting ':' delimiter."),
        (f'{{"value": {"1" * 5000}}}', "pairs.csv:1: is not JSON: a number or nesting is too large."),
        ('{"value": ' * 100_000, "pairs.csv:1: is not JSON: a number or nesting is too large."),
        ('{"sesion": "s", "pair": true}', "pairs.csv:1: sesion: is not a key of a row: did you mean session"),
        ('{"sesion": "s", "pair": true}', "pairs.csv:1: pair: is True: write a whole number"),
        (change(1, value="1e-308"), "pairs.csv:3: value: is '1e-308': write a number from 1e-100 to 1e+100"),
        (change(1, value="-2e200"), "pairs.csv:3: value: is '-2e200': write a number from 1e-100 to 1e+100"),
        (change(1, start="2026-13-45"), "pairs.csv:3: start: is '2026-13-45': write seconds or milliseconds"),
        ('{}\n{"pair": 1, "session": "a", "session": "b"}', "pairs.csv:2: session: appears twice in this"),
        ('{}\n{"session": {"a": 1, "a": 2}}', "pairs.csv:2: a: appears twice in this line"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_file_line_and_column(judge, table, says):
    done = judge(table, *ON_ONE_HOST)
    assert done.exit_code == 2, done.output
    assert says in done.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a," * 1_000_000 + "\n1,2", "pairs.csv: has the columns a, a, a, a, a, a, a, a, ...: virtqual"),
        ("a,b,c\n1,2,3", "pairs.csv: has the columns a, b, c: virtqual reads"),
        (
            f"{{{','.join(f'{key!r}: 1' for key in map(str, range(200_000)))}}}".replace("'", '"'),
            "is JSON (0, 1, 2, 3, 4, 5, ...) of a program that virtqual does not know",
        ),
        (change(1, value="x" * 100_000), f"pairs.csv:3: value: is '{'x' * 300}"),
        (change(1, session="x" * 100_000, unit=""), "pairs.csv:3: unit: is empty"),
    ],
    ids=["columns", "other columns", "keys", "a value", "a name"],
)
def test_a_file_of_another_kind_is_refused_in_seconds_and_a_few_lines(judge, text, says):
    began = time.monotonic()
    done = judge(text, *ON_ONE_HOST)
    assert time.monotonic() - began < 60
    assert done.exit_code == 2
    assert says in done.output
    assert done.output.count("pairs.csv:") == 1
    assert len(done.output) < 1000


def test_more_sessions_than_a_file_may_have_are_refused_before_any_is_judged(judge):
    table = [
        row | {"session": f"s{n}"} for n in range(measured.MAX_SESSIONS + 1) for row in rows(pairs=1)[:1]
    ]
    done = judge(table, *ON_ONE_HOST, code=2)
    assert "pairs.csv:10002: session: is one of more than 10000 sessions: split the file" in done.output


def test_of_many_mistakes_the_first_are_told_and_the_others_counted(judge):
    done = judge([row | {"side": "x"} for row in rows(pairs=20)], *ON_ONE_HOST)
    assert done.output.count("is 'x'") == 1
    assert "39 more mistakes like these" in done.output
    done = judge([row | {"side": f"x{n}"} for n, row in enumerate(rows(pairs=20))], *ON_ONE_HOST)
    assert done.output.count("is 'x") == 20
    assert "20 more mistakes like these" in done.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--budget", "1.05"), "belong together"),
        (("--budget", "5", "--margin", "0.03"), "5 is not a budget or margin: write a percentage"),
        (("--budget", "1", "--margin", "3%"), "1 is not a budget or margin: write a percentage"),
        (("--budget", "1.05", "--margin", "3"), "3 is not a budget or margin: write a percentage"),
        (("--budget", "nan", "--margin", "0.03"), "nan is not a budget or margin"),
        (("--class", "kvn"), "unknown class 'kvn': did you mean kvm"),
    ],
)
def test_a_wrong_option_is_told(judge, options, says):
    done = judge(rows(), *options, code=2)
    assert says in done.output


def test_a_directory_and_a_file_that_is_not_there_are_refused(tmp_path):
    for file in (tmp_path, tmp_path / "none.csv"):
        done = call("judge", file, *ON_ONE_HOST, code=2)
        assert "no table of pairs (" in done.output


def test_the_page_shows_what_the_command_prints(monkeypatch):
    """The example of docs/judge-your-own.md, which a shell loop measured."""
    docs = Path(__file__).parents[3] / "docs"
    monkeypatch.setenv("COLUMNS", "80")
    done = call("judge", docs / "judge-your-own.csv", *STATED)
    page = (docs / "judge-your-own.md").read_text("utf-8")
    assert "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip() in page
    assert f"exit\ncode is {done.exit_code}" in page
    for key in (*COLUMNS, *SERIES_KEYS, *SESSION_KEYS, *SLOW_KEYS):
        assert f"`{key}`" in page


def test_a_reader_of_the_lines_may_stop_early(tmp_path):
    file = tmp_path / "pairs.csv"
    table = [row for number in range(300) for row in rows(1.3, 4, setting=f"{number}" * 100)]
    file.write_text(text_of(table), encoding="utf-8")
    virtqual = Path(sys.executable).with_name("virtqual")
    command = [virtqual, "judge", str(file), *ON_ONE_HOST, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
        json.loads(done.stdout.readline())
        done.stdout.close()
        assert done.stderr.read() == ""
    assert done.returncode in (1, 3)


_words = st.sampled_from(["a", "b", "", "x@y", "nän"])
_numbers = st.sampled_from(["1", "2", "0", "1e308", "1e-320", "-1", "nan", "inf", "", "x", "3.5", "1_0"])
_row = st.fixed_dictionaries(
    dict.fromkeys(("session", "metric", "setting", "unit", "node", "host", "boot"), _words)
    | dict.fromkeys(("size", "pair", "value", "start", "end"), _numbers)
    | {"better": st.sampled_from(["lower", "higher", "x"])}
    | {"side": st.sampled_from(["native", "virtual", "x"])}
)  # fmt: skip
_sane = st.fixed_dictionaries(
    {
        "session": st.just("s"), "metric": st.just("m"), "setting": st.sampled_from("ab"),
        "size": st.just(""), "unit": st.just("s"), "better": st.just("higher"), "pair": st.integers(0, 6),
        "side": st.sampled_from(["native", "virtual"]), "start": st.sampled_from(["", 0, 10, 20, 1e7]),
        "value": st.floats(allow_nan=True, allow_infinity=True), "end": st.sampled_from(["", 5, 15, 25]),
        "node": st.sampled_from(["", "n"]), "host": st.sampled_from(["", "h", "g+h"]), "boot": st.just(""),
    }
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(_row, max_size=4)
    | st.lists(_sane, max_size=24, unique_by=lambda row: (row["setting"], row["pair"], row["side"])),
    st.booleans(),
)
def test_no_table_ends_in_a_traceback(judge, table, as_json):
    done = judge(table, *ON_ONE_HOST, *(["--json"] if as_json else []))
    assert done.exit_code in (0, 1, 2, 3, 4)
    if as_json and done.exit_code != 2:
        lines(done)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=80) | st.text(alphabet='{}[]":,\n\r0aé', max_size=40))
def test_no_text_ends_in_a_traceback(judge, text):
    judge(text.encode("utf-8", "surrogatepass"), *ON_ONE_HOST, code=2)
