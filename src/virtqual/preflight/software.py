"""Did all runs of a check load the same software, read the same inputs, and compute the same?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from virtqual.runs import Run
from virtqual.stack import loaded


def other_software(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield the checks whose nodes did not all load the same software, with every difference."""
    for check, own in group_by_check(runs):
        # The native runs first: what is compared with them is the virtual side.
        sides = [(run.side, run.software) for run in sorted(own, key=lambda run: run.side)]
        for difference in loaded.compare_all(sides):
            yield check, f"not the same software: {difference}"


def other_inputs(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield the checks of which not all runs had the same downloaded inputs, by checksum."""
    for check, own in group_by_check(runs):
        for name in sorted({name for run in own for name in run.inputs}):
            sums = sorted({run.inputs.get(name, "none") for run in own})
            if len(sums) > 1:
                yield check, f"not the same input: {name} has the SHA-256 {' and '.join(sums)}"


def other_answers(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield the checks whose runs did not all compute the same, with the first difference of every answer.

    A fast wrong answer is no speed: every run is compared with the check's first native one.
    """
    for check, own in group_by_check(runs):
        first, *other_runs = sorted(own, key=lambda run: run.side)
        reasons: dict[str, str] = {}
        for run in other_runs:
            had = {answer.name: answer for answer in run.answers}
            for name in sorted({answer.name for answer in first.answers} ^ had.keys()):
                reasons.setdefault(name, f"{name} is not said by every run")
            for answer in first.answers:
                other = had.get(answer.name, answer)
                if not answer.agrees(other):
                    reasons.setdefault(
                        answer.name,
                        f"{answer.name} is {answer.value:.9g} in {first.side} pair {first.pair} and "
                        f"{other.value:.9g} in {run.side} pair {run.pair}, {answer.tolerance:g} is allowed",
                    )
        for reason in reasons.values():
            yield check, f"not the same result: {reason}"


def group_by_check(runs: Iterable[Run]) -> Iterable[tuple[str, list[Run]]]:
    """Return each check with its runs."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.check].append(run)
    return groups.items()
