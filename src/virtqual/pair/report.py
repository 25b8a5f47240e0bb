"""What is said of two commands that were measured: facts of both sides, and what cannot be told apart."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime

from virtqual.errors import INTERRUPTED
from virtqual.pair.measure import Measurement
from virtqual.pair.metrics import WALL_TIME
from virtqual.pair.notes import FACTS, describe_fact, list_changes, list_differences
from virtqual.pair.plan import Plan
from virtqual.report.judged import JudgedFile
from virtqual.verdict.labels import REFERENCE_AND_CANDIDATE, Labels
from virtqual.verdict.notation import format_percent
from virtqual.verdict.pairs import SIDES, Side

#: Shorter runs are mostly the start of the shell, of ssh or of srun.
SHORT_RUN_S = 0.1
#: Longer commands are cut in the title of a report.
MAX_COMMAND_CHARS = 40


def list_caveats(measurement: Measurement) -> list[str]:
    """Return what the measurement cannot tell apart."""
    plan, notes = measurement.plan, measurement.notes
    caveats = []
    if not notes:
        caveats.append(
            "The two commands were judged as they were run. Machine, hypervisor, placement and software may "
            "all be part of the difference, and pair cannot tell them apart."
        )
    else:
        caveats.append(_describe_differences(measurement))
        caveats += plan.list_other_prefixes()
        caveats += list_changes(plan.names, notes)
    if plan.measures_time:
        caveats.append(
            "The wall time is that of the whole command, with the start of its shell and of ssh or srun."
        )
        if (median := _find_median_s(measurement)) and median < SHORT_RUN_S:
            caveats.append(
                f"A run takes {1000 * median:.3g} ms, so that these starts may be most of it: let it do more "
                "work, or take a time that the program prints."
            )
    return caveats


def _describe_differences(measurement: Measurement) -> str:
    notes, names = measurement.notes[0], measurement.plan.names
    reference, candidate = notes
    rows = [text for text, *_ in list_differences(notes)]
    head = "The sides differ in"
    if reference.boot and reference.boot == candidate.boot:
        head = "Both sides are one machine (same boot)"
        if reference.node != candidate.node:
            rows.remove(FACTS["node"])
            head += f", under the names {reference.node} and {candidate.node}"
        head += ". They differ in" if rows else "."
    elif not rows:
        head = f"The notes of {names[0]} and {names[1]} are equal."
    if not rows:
        return f"{head} Placement may still differ, which pair cannot tell."
    listed = ", ".join(rows[:-1]) + " and " * (len(rows) > 1) + rows[-1]
    which = "which of these" if len(rows) > 1 else "whether this"
    return (
        f"{head} {listed}. The two commands were judged as they were run: pair cannot tell {which}, or "
        "placement, makes the difference."
    )


def _find_median_s(measurement: Measurement) -> float:
    """Return the median wall time of the faster side; 0 if there is none."""
    series = measurement.answer.series[0] if measurement.answer else None
    if series is None or series.metric.name != WALL_TIME.metric or not series.valid:
        return 0.0
    return float(min(series.medians[side][0] for side in SIDES))


def list_facts(measurement: Measurement) -> Mapping[Side, Mapping[str, str]]:
    """Return the facts of each side by name."""
    facts: dict[Side, dict[str, str]] = {}
    for index, side in enumerate(SIDES):
        facts[side] = {"command": measurement.plan.commands[index]}
        if measurement.notes:
            note = measurement.notes[0][index]
            facts[side] |= {text: value for key, text in FACTS.items() if (value := describe_fact(note, key))}
    return facts


def write_command(measurement: Measurement) -> str:
    """Return the command line that measures the same again."""
    plan = measurement.plan
    words = ["virtqual", "pair", *plan.commands]
    for metric in plan.metrics:
        words += ["--metric", metric.write(), "--unit", metric.unit, "--better", metric.better]
    for reader in plan.readers:
        words += ["--reader", reader]
    words += ["--budget", format_percent(plan.budget), "--margin", format_percent(plan.margin)]
    if plan.names != REFERENCE_AND_CANDIDATE:
        words += ["--names", *plan.names]
    for prepare in dict.fromkeys(plan.prepare):
        words += ["--prepare", prepare]
    words += ["--warmup", str(plan.warmup)] if plan.warmup != 1 else []
    words += ["--ignore-failure"] if plan.ignore_failure else []
    words += ["--note", *plan.note] if plan.note else []
    return shlex.join(words)


def describe(measurement: Measurement, exit_code: int | None = None) -> JudgedFile:
    """Return what is written as a report; the exit code is that of a measurement that was ended early."""
    plan, answer, table = measurement.plan, measurement.answer, measurement.table
    assert answer is not None  # or there is nothing to report
    labels = Labels(*plan.names)
    ended = (
        "" if exit_code is None else "Interrupted. " if exit_code == INTERRUPTED else "An error ended it. "
    )
    return JudgedFile(
        title=_make_title(plan),
        judged=[(table.session, answer.verdict)],
        labels=labels,
        series={table.session: {one.id: one for one in answer.series}},
        facts=list_facts(measurement),
        about={"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "pairs": str(table.file)},
        caveats=list_caveats(measurement),
        next_step=f"{ended}{describe_next(measurement)}",
        exit_code=exit_code,
        again=write_command(measurement),
    )


def _make_title(plan: Plan) -> str:
    """Return what is compared: the words for the sides, or without them the commands."""
    words = plan.names
    if words == REFERENCE_AND_CANDIDATE:
        words = (_shorten(plan.commands[0]), _shorten(plan.commands[1]))
    return f"{words[1]} against {words[0]}"


def _shorten(command: str) -> str:
    """Return a command that fits into a title."""
    text = " ".join(command.split())
    return text if len(text) <= MAX_COMMAND_CHARS else f"{text[: MAX_COMMAND_CHARS - 4]} ..."


def describe_next(measurement: Measurement) -> str:
    """Return how the measurement goes on; empty if it is complete."""
    answer, file = measurement.answer, shlex.quote(str(measurement.table.file))
    # --max-runs may have ended it before the rule did.
    if answer is None or answer.order or answer.verdict.needs:
        return f"To go on: virtqual pair --resume {file}"
    if more := answer.verdict.slow_runs.more_runs:
        runs = answer.verdict.slow_runs.virtual_runs + more
        return (
            f"{more} more runs of {measurement.plan.names[1]} without a loss decide. To go on: "
            f"virtqual pair --resume {file} --min-runs {runs}"
        )
    return ""
