"""Tables of the results: the same for the pages in docs/ and for one page in the report's manner."""

from __future__ import annotations

import math
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments import Experiment
from logs import KeptLog
from scipy import stats

from virtqual.errors import UsageError
from virtqual.report.rendering import make_environment, render_page
from virtqual.verdict.notation import MAX_SHOWN

TEMPLATE = Path(__file__).parent / "tables.html.j2"
CONFIDENCE = 0.95
SAME_BUILD = "same build"
NO_FAULTS = {SAME_BUILD, "history of builds", "endurance"}
MAX_REASON_CHARS = 160
#: A session of so many pairs has two boots, and no metric is OVER before the third.
MAX_PAIRS_OF_TWO_BOOTS = 4
Line = Mapping[str, Any]


@dataclass
class Result:
    """The lines of one experiment; those of another definition or code are old."""

    experiment: Experiment
    lines: list[Line] = field(default_factory=list)
    old_lines: list[Line] = field(default_factory=list)
    #: How many sessions were stopped by hand, or by the machine, before they ended.
    stopped: int = 0

    @property
    def differing(self) -> list[Line]:
        """The lines that are not as expected, old ones with them."""
        return [line for line in [*self.old_lines, *self.lines] if not self.experiment.is_as_expected(line)]

    @property
    def is_as_expected_now(self) -> bool:
        """The last line is as expected."""
        return bool(self.lines) and self.experiment.is_as_expected(self.lines[-1])

    @property
    def done(self) -> int:
        """How many of the planned results there are; one that was run again counts once."""
        return len({line["number"] for line in self.lines})

    @property
    def has_changed_test(self) -> bool:
        """Its test is another one than when it was run; `ci/test` runs it all the same."""
        return bool(self.lines) and self.lines[-1].get("test") != self.experiment.digest_of_test()

    @property
    def longest(self) -> float | str:
        """The duration of the longest, s; empty if there is none."""
        return max((line["seconds"] for line in self.lines), default="")


@dataclass(frozen=True)
class Table:
    """A table with its heading and a paragraph before it; the keys of a row are the header."""

    title: str
    text: str
    entries: Sequence[Mapping[str, object]]

    @property
    def header(self) -> list[str]:
        """The headings of the columns."""
        return list(self.entries[0]) if self.entries else []

    @property
    def rows(self) -> list[list[str]]:
        """The cells."""
        return [[str(cell) for cell in entry.values()] for entry in self.entries]

    def __str__(self) -> str:
        rows = [self.header, ["---"] * len(self.header), *self.rows] if self.entries else []
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        return "\n".join([self.text, "", *lines]).strip()


def match_results(experiments: Sequence[Experiment], lines: Sequence[Line]) -> list[Result]:
    """Return the results of each experiment; raise `UsageError` if a line is of none."""
    results = {experiment.name: Result(experiment) for experiment in experiments}
    digests = {experiment.name: experiment.digest() for experiment in experiments}
    for number, line in enumerate(lines, 1):
        if (name := line["experiment"]) not in results:
            raise UsageError(f"line {number} of the results: experiments.yaml has no {name!r}")
        if line.get("is_stopped"):
            results[name].stopped += 1
            continue
        is_old = line["definition"] != digests[name]
        (results[name].old_lines if is_old else results[name].lines).append(line)
    return list(results.values())


def list_experiments(results: Sequence[Result]) -> str:
    """Return a line for each experiment: how many of its results there are, and how many differ."""
    rows = []
    for result in results:
        words = [f"{result.done} of {result.experiment.sessions}"]
        words += [f"{len(result.differing)} not as expected"] if result.differing else []
        words += [f"{len(result.old_lines)} old"] if result.old_lines else []
        words += [f"{result.stopped} stopped"] if result.stopped else []
        words += ["its test has changed since"] if result.has_changed_test else []
        rows.append(f"{result.experiment.group:<24} {result.experiment.name}: {', '.join(words)}")
    return "\n".join(rows)


def make_tables(results: Sequence[Result], kept: Sequence[KeptLog] = ()) -> dict[str, Table]:
    """Return all tables by the names that pages give to their places, in the order of the one page."""
    doses = _compare_with_power(results)
    return {
        "differed": _list_differing(results, doses),
        "same build": _count_errors(results),
        "margins": _list_margins(results),
        "doses": doses,
        "classes": _count_classes(results),
        "faults": _list_faults(results),
        "logs": _list_logs(results, kept),
    }


def _list_logs(results: Sequence[Result], kept: Sequence[KeptLog]) -> Table:
    lines = [line for result in results for line in (*result.old_lines, *result.lines) if line.get("session")]
    same = sum(log.is_as_recorded for log in kept)
    entries = [
        {
            "session": f"[{log.line['session']}](../benchmarks/lab/logs/{log.line['session']}.jsonl.gz)",
            "planted": log.line["experiment"],
            "recorded": f"{log.line['outcome']} ({log.line['exit_code']})",
            "judged again today": f"{log.outcome} ({log.exit_code})",
        }
        for log in kept
    ]
    text = (
        f"The logs of {len(kept)} of {len(lines)} sessions are kept. Judged again by today's code, {same} of "
        "them have the outcome that was recorded. The logs of the others were not kept, and nobody can judge "
        "them again."
    )
    return Table("Logs that can be judged again", text, entries)


def _list_differing(results: Sequence[Result], doses: Table) -> Table:
    rows = [
        {
            "planted": result.experiment.name,
            **_describe_expected(result.experiment),
            "got": _describe(line).rstrip(".") + "; as expected since" * result.is_as_expected_now,
            "when": f"{line['date']}, {line['commit'][:8]}" + ", old" * (line in result.old_lines),
            "noise": "steal {steal:.1%}, load {load:g}".format(**line["noise"]) if line["noise"] else "",
        }
        for result in results
        for line in result.differing
    ]
    faults = [result for result in results if result.experiment.group not in NO_FAULTS]
    by_session = [result for result in faults if result.experiment.kind == "session"]
    to_find = [result for result in by_session if result.experiment.exit_code == [1]]
    others = [result for result in by_session if result not in to_find]
    by_program = [result for result in results if result.experiment.kind != "session"]
    testable = [row for row in doses.entries if row["predicted"] not in ("", "0%", "100%")]
    contradicted = [row for row in doses.entries if row["predicted lies in it"] == "no"]
    text = (
        f"{_count_found(to_find)} Doses and other faults may have several answers: "
        f"{_count_differing(others)} of these sessions were not as expected, and {len(contradicted)} of "
        f"{len(doses.entries)} doses contradict their prediction, which for {len(testable)} of them is not 0 "
        f"or 100 %. Of the results of tests and programs, which were written to pass, "
        f"{_count_differing(by_program)} were not. A test that failed is run again: its later results "
        "stand in the file, too."
    )
    return Table("What differed from what was expected", text, rows)


def _count_differing(results: Sequence[Result]) -> str:
    done = sum(len(result.lines) + len(result.old_lines) for result in results)
    return f"{sum(len(result.differing) for result in results)} of {done}"


def _count_found(results: Sequence[Result]) -> str:
    """Return how the sessions ended that had to find a slowdown, in words; old ones count, too."""
    codes = Counter(line["exit_code"] for result in results for line in (*result.lines, *result.old_lines))
    words = {1: "found it", 0: "were WITHIN", 3: "were UNDECIDED", 4: "were refused"}
    ends = ", ".join(f"{codes[code]} {word}" for code, word in words.items() if codes[code])
    return f"{codes.total()} sessions had to find a slowdown: {ends}."


def _describe_expected(experiment: Experiment) -> dict[str, str]:
    return {"expected": experiment.answer, "exit code": " or ".join(map(str, experiment.exit_code))}


def _describe(line: Line) -> str:
    if "cases" in line:
        return f"{line['failed']} of {line['cases']} cases failed"
    over = [name for name, metric in line.get("metrics", {}).items() if metric["outcome"] == "OVER"]
    words = [f"exit code {line['exit_code']}", f"OVER: {', '.join(over)}" if over else ""]
    why = textwrap.shorten(line.get("why", ""), MAX_REASON_CHARS, placeholder=" …")
    return "; ".join(filter(None, [*words, why]))


def _count_classes(results: Sequence[Result]) -> Table:
    """Return the number of experiments and results of each class."""
    rows = []
    for group in dict.fromkeys(result.experiment.group for result in results):
        own = [result for result in results if result.experiment.group == group]
        run_by_kind = {}
        for kind in ("session", "test", "program"):
            of_kind = [result for result in own if result.experiment.kind == kind]
            run = sum(bool(result.lines) for result in of_kind)
            run_by_kind[f"by {kind}s"] = f"{run} of {len(of_kind)}" if of_kind else ""
        rows.append(
            {
                "class": group,
                **run_by_kind,
                # Some are run more often than planned.
                "results": f"{sum(min(result.done, result.experiment.sessions) for result in own)} of "
                f"{sum(result.experiment.sessions for result in own)}",
                "not as expected": _count_differing(own),
                "old": sum(len(result.old_lines) for result in own),
                "stopped": sum(result.stopped for result in own),
                "the slowest took, s": max((result.longest for result in own if result.lines), default=""),
            }
        )
    text = (
        "How many experiments were run: by sessions on the one-machine cluster with real guests, by tests "
        "with stand-ins or files, and by programs; and how many results there are of those that are planned. "
        "Not as expected: of all results, with old ones and those beyond the plan. "
        "A result is old if its experiment, or what plants the fault, has changed since. "
        "Sessions that were stopped before their end are counted since 2026-11-27."
    )
    return Table("Experiments by class", text, rows)


def bound_rate(count: int, total: int) -> float:
    """Return the exact upper 95 % bound of a rate, by Clopper and Pearson."""
    return 1.0 if count == total else float(stats.beta.ppf(CONFIDENCE, count + 1, total - count))


def _describe_rate(events: Iterable[bool]) -> str:
    listed = list(events)
    return f"{sum(listed)} (at most {bound_rate(sum(listed), len(listed)):.0%})"


def _count_errors(results: Sequence[Result]) -> Table:
    """Return how often sessions of the same build were wrong."""
    rows = []
    same_build = [result for result in results if _is_same_build(result.experiment) and result.lines]
    for result in same_build:
        lines, metrics = result.lines, [m for line in result.lines for m in line["metrics"].values()]
        are_wrong = [_is_over(line) for line in lines]
        over = sum(metric["outcome"] == "OVER" for metric in metrics)
        pairs = Counter(metric["pairs"] for metric in metrics)
        minutes = [line["seconds"] / 60 for line in lines]
        middle = statistics.median(minutes)
        load = [line["noise"]["load"] for line in lines if line["noise"]]
        has_bound = not _has_few_pairs(result.experiment)
        rows.append(
            {
                "sessions of": result.experiment.name,
                "number": len(lines),
                "days": len({line["date"] for line in lines}),
                "kernels": len({str(line["machine"]) for line in lines}),
                "WITHIN": sum(line.get("outcome") == "WITHIN" for line in lines),
                "OVER": _describe_rate(are_wrong) if has_bound else sum(are_wrong),
                "metrics OVER": f"{over} of {len(metrics)}",
                "metrics WITHIN": f"{sum(metric['outcome'] == 'WITHIN' for metric in metrics)}",
                "pairs a metric took": ", ".join(f"{count} after {n}" for n, count in sorted(pairs.items())),
                "minutes, median (range)": f"{middle:.1f} ({_format_range(minutes, '.0f')})",
                "load": _format_range(load, ".0f") if load else "not recorded",
                "ended by the cluster": sum(len(line.get("ended_by_the_cluster", ())) for line in lines),
            }
        )
    return Table("The same build, live", _describe_errors(same_build) if rows else "Not run yet.", rows)


def _describe_errors(same_build: Sequence[Result]) -> str:
    """Return the rates of false OVER over all sessions of the same build, in words."""
    few, others = [], []
    for result in same_build:
        (few if _has_few_pairs(result.experiment) else others).extend(result.lines)
    with_looks = [
        line
        for line in others
        if any(metric["pairs"] > MAX_PAIRS_OF_TWO_BOOTS for metric in line["metrics"].values())
    ]
    machines = {"{cpu}, {cores} cores, Linux {kernel}".format(**line["machine"]) for line in (*few, *others)}
    return (
        "The build and the options of the sessions of a row are the same; the machines, and virtqual's "
        f"budgets and rules, are those of their day. {_describe_rate(map(_is_over, others))} of "
        f"{len(others)} sessions without a limit of pairs were OVER. No metric can be OVER before three "
        f"boots, which {len(with_looks)} of them had: {_describe_rate(map(_is_over, with_looks))} of these. "
        f"{len(few)} more sessions had {MAX_PAIRS_OF_TWO_BOOTS} pairs at most: only slow runs could make "
        f"these OVER, and made {sum(map(_is_over, few))} of them so; they have no bound. The bound is exact "
        "and one-sided at 95 % (Clopper and Pearson); to bound the rate at 1 % takes 299 sessions without a "
        "false OVER. The metrics of a session are not independent, and have no bound. Load is that of the "
        "machine in the last five minutes of a session. Machines are told apart by their kernels, and two "
        f"may be one before and after an update: {'; '.join(sorted(machines))}."
    )


def _is_over(line: Line) -> bool:
    """Return whether a session was OVER, or a metric of it."""
    return "OVER" in (line.get("outcome"), *(metric["outcome"] for metric in line["metrics"].values()))


def _has_few_pairs(experiment: Experiment) -> bool:
    """Return whether its sessions end before a metric can be OVER."""
    return f"--max-pairs {MAX_PAIRS_OF_TWO_BOOTS}" in " ".join(experiment.qualify)


def _is_same_build(experiment: Experiment) -> bool:
    """Return whether nothing was planted, on emulated hosts; VMs under plain emulation have no budget."""
    return experiment.group == SAME_BUILD and "here" not in experiment.up


def _group_metrics(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Return the metrics of sessions by series, without those that were refused or had no valid pair."""
    metrics: dict[str, list[Line]] = {}
    for line in lines:
        for series, metric in line["metrics"].items():
            if metric["over_from"] is not None:
                metrics.setdefault(series, []).append(metric)
    return metrics


def _find_metric(lines: Iterable[Line], name: str) -> list[Line]:
    """Return a metric of sessions, in all of its settings."""
    metrics = _group_metrics(lines).items()
    return [metric for series, group in metrics if series.split("@")[0] == name for metric in group]


def _format_range(values: Iterable[float], form: str = ".3g") -> str:
    """Return the lowest and the highest value; one number if they look alike."""
    ordered = sorted(values)
    ends = (
        f"{value:{form}}" if value <= MAX_SHOWN else f"over {MAX_SHOWN}"
        for value in (ordered[0], ordered[-1])
    )
    return " to ".join(dict.fromkeys(ends))


def _list_margins(results: Sequence[Result]) -> Table:
    """Return how slow VMs of the same build are, how far from OVER, and how much its sessions differ."""
    same_build = [r for r in results if _is_same_build(r.experiment) and not r.experiment.fault]
    by_series = _group_metrics(line for result in same_build for line in result.lines)
    with_looks = _group_metrics(
        line for result in same_build if not _has_few_pairs(result.experiment) for line in result.lines
    )
    rows = []
    for series, metrics in sorted(by_series.items()):
        logs, over_from, spreads, pairs = (
            [metric[key] for metric in metrics] for key in ("log", "over_from", "sd_of_a_pair", "pairs")
        )
        errors = [spread**2 / count for spread, count in zip(spreads, pairs, strict=True)]
        between = max(statistics.variance(logs) - statistics.fmean(errors), 0) if len(logs) > 1 else math.nan
        rows.append(
            {
                "metric": series.replace("@", ", "),
                "sessions": len(metrics),
                **_describe_last(metrics),
                "times as slow": _format_range(map(math.exp, logs)),
                "WITHIN below": _describe_within(metrics),
                "OVER from": _format_range(map(math.exp, over_from)) if series in with_looks else "",
                "pairs": _format_range(pairs, "d"),
                "SD of a pair": f"{statistics.median(spreads):.1%}",
                "SD between sessions": "" if math.isnan(between) else f"{math.sqrt(between):.1%}",
            }
        )
    text = (
        "How slow VMs were, and how slow they may be. WITHIN needs an interval below budget and margin; "
        "the column has that of the last session that recorded it, of a curve the smallest over its sizes. "
        "OVER needs one above the budget, of pairs of three boots: a session of such noise would need an "
        "estimate above OVER from (none if its sessions end after four pairs). A curve can be OVER by a part "
        "of it, at a smaller mean. Less is better if the unit is a time. Values and the seconds of a run "
        "(native, virtual) are those of the last session, the SD of a pair is the median. The budgets are "
        "those of emulated hosts, and most metrics are far below them: these sessions do not test the 1 % of "
        "false alarms that is promised at the budget itself. SD between sessions is what remains of their "
        "differences without the noise of their pairs."
    )
    return Table("How far the same build is from OVER", text if rows else "Not run yet.", rows)


def _describe_within(metrics: Sequence[Line]) -> str:
    """Return the largest overhead that was WITHIN in the last session that noted it."""
    noted = [metric["within_below"] for metric in metrics if metric.get("within_below") is not None]
    return _format_range([math.exp(noted[-1])]) if noted else "not recorded"


def _describe_last(metrics: Sequence[Line]) -> dict[str, str]:
    """Return the values of the last session that noted them."""
    last = next((metric for metric in reversed(metrics) if metric.get("native")), None)
    if last is None:
        return dict.fromkeys(("native", "virtual", "unit", "s a run"), "")
    native, virtual = (f"{last[side]:.4g}" for side in ("native", "virtual"))
    seconds = ", ".join(f"{seconds:.3g}" for seconds in last["seconds_a_run"] if seconds is not None)
    return {"native": native, "virtual": virtual, "unit": last["unit"], "s a run": seconds}


def _predict_rate(metrics: Sequence[Line], planted: float | None) -> dict[str, str]:
    """Return how often sessions of a dose were OVER, and the rate that their own noise predicts."""
    names = ("times as slow", "OVER", "95 % interval", "predicted", "predicted lies in it")
    if not metrics:
        return dict.fromkeys(names, "")
    measured = statistics.fmean(metric["log"] for metric in metrics)
    effect = measured if planted is None else planted
    over = sum(metric["outcome"] == "OVER" for metric in metrics)
    interval = stats.binomtest(over, len(metrics)).proportion_ci(CONFIDENCE, method="exact")
    errors = [metric["sd_of_a_pair"] / math.sqrt(metric["pairs"]) for metric in metrics]
    beyond = [(effect - m["over_from"]) / error for m, error in zip(metrics, errors, strict=True)]
    power = float(stats.norm.cdf(beyond).mean())
    cells = (
        f"{math.exp(measured):.3g}",
        f"{over} of {len(metrics)}",
        f"{interval.low:.0%} to {interval.high:.0%}",
        f"{power:.0%}",
        "yes" if interval.low <= power <= interval.high else "no",
    )
    return dict(zip(names, cells, strict=True))


def _expect_slowdown(experiment: Experiment, results: Sequence[Result]) -> float | None:
    """Return how slow a metric should be without a share of its CPU time, log units; None for other doses."""
    if experiment.fault[:1] != ["limit_vcpus"]:
        return None
    same_build = (line for r in results if r.experiment.name == SAME_BUILD for line in r.lines)
    logs = [metric["log"] for metric in _find_metric(same_build, str(experiment.dose))]
    return statistics.fmean(logs) - math.log(1 - float(experiment.fault[1])) if logs else None


def _compare_with_power(results: Sequence[Result]) -> Table:
    """Return how often each dose was found, beside the power that the sessions' own noise predicts."""
    rows = []
    for result in results:
        dose = result.experiment.dose
        judged = _find_metric(result.lines, dose) if dose else []
        row = {"dose": result.experiment.name, "metric": dose, "sessions": len(result.lines)}
        planted = _expect_slowdown(result.experiment, results)
        row |= {"judged": len(judged), "planted": "" if planted is None else f"{math.exp(planted):.3g}"}
        row |= _predict_rate(judged, planted)
        if result.lines and dose:
            rows.append(row)
    text = (
        "Planted: the mean of the same build, divided by the share of CPU time that is left. The "
        "predicted rate is the mean over the judged sessions of P(x > OVER from). x is normal with the "
        "planted overhead (the sessions' mean if none is given) and the standard error of a session's "
        "own pairs; a prediction from the sessions' own mean can hardly fail. OVER from is that of the "
        "decision at which a session ended. The interval is two-sided "
        "(Clopper and Pearson): one or two sessions contradict little. A session that is not judged was "
        "refused, or had no valid pair."
    )
    return Table("Dose and response", text if rows else "Not run yet.", rows)


def _list_faults(results: Sequence[Result]) -> Table:
    """Return every fault: what was expected, and what came out."""
    faults = [r for r in results if r.experiment.group not in NO_FAULTS and not r.experiment.dose]
    rows = []
    for result in faults:
        experiment = result.experiment
        lines = [*result.old_lines, *result.lines]
        if result.differing or (result.lines and experiment.kind == "session"):
            got = f"as expected in {len(lines) - len(result.differing)} of {len(lines)}"
        elif lines:
            got = "as expected" if result.lines else "old"
        else:
            got = "no result"
        rows.append(
            {
                "class": experiment.group,
                "planted": experiment.name,
                **_describe_expected(experiment),
                "got": got,
                "seconds": result.longest,
                "by": f"`{experiment.test or ' '.join(experiment.command) or 'a session'}`",
            }
        )
    run = Counter(row["got"] not in ("old", "no result") for row in rows)[True]
    kinds = Counter(result.experiment.kind for result in faults)
    text = (
        f"{len(rows)} faults: {kinds['session']} by sessions with real guests, {kinds['test']} by tests, "
        f"{kinds['program']} by programs. {run} of them were run."
    )
    return Table("Faults", text, rows)


def fill_page(text: str, tables: Mapping[str, Table], name: str) -> str:
    """Return a page whose marked places have the tables."""

    def fill(match: re.Match[str]) -> str:
        if match["table"] not in tables:
            raise UsageError(f"{name}: there is no table {match['table']!r}; there are {', '.join(tables)}")
        return f"{match['begin']}\n\n{tables[match['table']]}\n\n{match['end']}"

    places = r"(?P<begin><!-- ci/evidence: (?P<table>[a-z ]+) -->).*?(?P<end><!-- end of (?P=table) -->)"
    return re.sub(places, fill, text, flags=re.DOTALL)


def render_html(tables: Mapping[str, Table]) -> str:
    """Return all tables as one page of HTML."""
    template = make_environment().from_string(TEMPLATE.read_text(encoding="utf-8"))
    answer = tables["differed"].text.partition(". ")[0] + "."
    title = "What was tried, and what came of it"
    return render_page(template, title, answer=answer, tables=list(tables.values()))
