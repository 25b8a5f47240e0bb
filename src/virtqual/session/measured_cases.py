"""The cases of a file of pairs; each session of the file is judged by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from virtqual.errors import UsageError
from virtqual.files.datafile import DataError, Problem
from virtqual.files.wording import suggest, suggest_similar
from virtqual.references import NoReferenceError, References
from virtqual.session.measured import MAX_MISTAKES_SHOWN, FileSeries
from virtqual.session.pairing import DECLARED_NOISE, baseline_of, list_gates
from virtqual.verdict import Case
from virtqual.verdict.budget import Budget, BudgetError, Gate
from virtqual.verdict.metric import Metric
from virtqual.verdict.noise import Prior
from virtqual.verdict.pairs import Series

#: Values that repeat to the last digit have noise, too.
MIN_EARLIER_NOISE = 0.002
_STATE_BUDGET = "state it by --budget 5% --margin 3%, or give the metric a budget under references/."


@dataclass
class CaseMaker:
    """Makes the cases of a file of pairs; a mistake of a metric is noted once."""

    file: str
    references: References
    #: Its budgets and noise count for the metrics that it knows; empty for no class.
    hypervisor_class: str
    #: The budgets of all other metrics by gate; empty if none was stated.
    stated: Mapping[Gate, Budget]
    _problems: dict[tuple[str, str], Problem] = field(default_factory=dict, init=False)

    def make_all(self, sessions: Mapping[str, Sequence[FileSeries]], against: str) -> list[list[Case]]:
        """Return the cases of each session, in the order of the file.

        Parameters
        ----------
        sessions
            Series by session (`virtqual.session.measured.read_series`); their rows are forgotten.
        against
            The session with which the others are compared; empty if there is none.

        Raises
        ------
        UsageError
            There is no such session.
        DataError
            A metric has no budget, or another unit or direction than in the catalogue or in that session;
            with file and line.
        """
        if against and against not in sessions:
            names = suggest(against, sessions)
            raise UsageError(f"{self.file}: has no session {against!r} (--against): {names}")
        paired = {
            name: [(series.line, self._pair_runs(series)) for series in all_series if not series.not_in_turns]
            for name, all_series in sessions.items()
        }
        earlier = {series.id: series for _, series in paired[against]} if against else None
        cases = [
            self._make_cases(all_series, None if name == against else earlier)
            for name, all_series in paired.items()
        ]
        if self._problems:
            raise DataError(list(self._problems.values())[:MAX_MISTAKES_SHOWN])
        return cases

    def find_stated_budget(self, series: FileSeries) -> Budget | None:
        """Return the stated budget of a series that gets an estimate; None if there is none."""
        return self.stated.get("overhead")

    def _add_problem(self, line: int, metric: Metric, column: str, message: str) -> None:
        problem = Problem(self.file, line, column, message)
        self._problems.setdefault((metric.name, column), problem)

    def _pair_runs(self, series: FileSeries) -> Series:
        """Return a series of the file as pairs, of the catalogue's metric if the file states the same."""
        metric = self.references.metrics.get(series.metric.name)
        if metric is None or _list_differences(series.metric, metric):
            metric = series.metric
        return series.pair_runs(metric)

    def _make_cases(
        self, all_series: Sequence[tuple[int, Series]], earlier: Mapping[str, Series] | None
    ) -> list[Case]:
        """Return the cases of a session, compared with the series of an earlier one if it is given.

        Each series has the line where it begins; those of a file of outputs may begin in the same line.
        """
        name = self.hypervisor_class
        class_gate: Gate = self.references.hypervisor_class(name).gate if name else "overhead"
        gates = list_gates(class_gate, has_earlier=earlier is not None)
        cases = []
        for line, series in all_series:
            for gate in gates:
                if budget := self._find_budget(line, series, gate):
                    cases.append(self._make_case(line, series, budget, earlier))
        return cases

    def _make_case(
        self, line: int, series: Series, budget: Budget, earlier: Mapping[str, Series] | None
    ) -> Case:
        if budget.gate == "overhead" or earlier is None:
            return Case(series, budget, self._find_prior(series, None))
        earlier_series = earlier.get(series.id)
        baseline, mismatch = baseline_of(series, earlier_series)
        if earlier_series:
            for column in ("unit", "better"):
                value, earlier_value = (getattr(s.metric, column) for s in (series, earlier_series))
                if value != earlier_value:
                    message = f"is {value!r}, and {earlier_value!r} in the session of --against"
                    self._add_problem(line, series.metric, column, f"{message}: a change needs one {column}.")
        return Case(series, budget, self._find_prior(series, baseline), baseline, mismatch)

    def _find_budget(self, line: int, series: Series, gate: Gate) -> Budget | None:
        """Return the reviewed budget, or the stated one; note a problem and return None if there is none."""
        references, class_name = self.references, self.hypervisor_class
        stated, name = self.stated.get(gate), series.metric.name
        metric = references.metrics.get(name) if class_name else None
        if metric is None:
            if stated is None:
                reason = "nothing says what is allowed"
                if class_name:
                    reason = f"class {class_name!r} knows no such metric"
                    if similar := suggest_similar(name, references.metrics):
                        reason += f" ({similar})"
                self._add_problem(line, series.metric, "metric", f"{name}: {reason}; {_STATE_BUDGET}")
            return stated
        try:
            budget = references.budget(Series(metric, series.setting), class_name, gate=gate)
        except NoReferenceError as error:
            if stated is None:
                self._add_problem(line, metric, "metric", f"{error} Or {_STATE_BUDGET}")
            return stated
        for column, value, catalogue_value in _list_differences(series.metric, metric):
            message = f"is {value} for {name}, and {catalogue_value} in references/metrics: "
            advice = "convert the values, or give the metric another name."
            self._add_problem(line, metric, column, message + advice)
        largest = metric.judged_up_to
        if largest is not None and series.points and series.points[-1] > largest:
            message = f"{name}: sizes above {largest:g} are shown in sessions and not judged: leave them out."
            self._add_problem(line, metric, "size", message)
        try:
            for point in series.points:
                budget.term(point)
        except BudgetError as error:
            self._add_problem(line, metric, "size", f"{name}: {error}")
        return budget

    def _find_prior(self, series: Series, baseline: Series | None) -> Prior:
        """Return the reviewed noise; if there is none, that of the earlier session or the declared one."""
        if series.metric.family != "measured":
            try:
                return self.references.prior(series, self.hypervisor_class)
            except NoReferenceError:
                pass
        if baseline is None:
            return DECLARED_NOISE["overhead"]
        if len(baseline.valid) < 2:
            return DECLARED_NOISE["change"]
        # By the declared noise no number of pairs shows that nothing has changed. The spread of the earlier
        # session is as independent of this one. Half of its degrees of freedom count, since its pairs are
        # in the change as well.
        spread = np.maximum(baseline.differences.std(axis=0, ddof=1), MIN_EARLIER_NOISE)
        df = (len(baseline.valid) - 1) / 2
        source = "the spread of the session that the others are held against"
        return Prior(
            sigma=tuple(map(float, spread)), df=df, source=source, between=DECLARED_NOISE["change"].between
        )


def _list_differences(stated: Metric, metric: Metric) -> list[tuple[str, str, str]]:
    """Return column, value in the file and value in the catalogue of each difference."""
    sizes = {"curve": "given", "scalar": "empty"}
    values = (
        ("unit", stated.unit, metric.unit),
        ("better", stated.better, metric.better),
        ("size", sizes[stated.kind], sizes[metric.kind]),
    )
    return [difference for difference in values if difference[1] != difference[2]]
