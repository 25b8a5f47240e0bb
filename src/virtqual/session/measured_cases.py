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

    def make_all(self, sessions: Mapping[str, Sequence[FileSeries]], against: str = "") -> list[list[Case]]:
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
            name: [(file_series, self._pair_runs(file_series)) for file_series in all_series]
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

    def _add_problem(self, series: FileSeries, column: str, message: str) -> None:
        problem = Problem(self.file, series.line, column, message)
        self._problems.setdefault((series.metric, column), problem)

    def _pair_runs(self, file_series: FileSeries) -> Series:
        """Return a series of the file as pairs."""
        metric = self.references.metrics.get(file_series.metric)
        if metric is None or _list_differences(file_series, metric):
            metric = _make_metric(file_series)
        return file_series.pair_runs(metric)

    def _make_cases(
        self, session: Sequence[tuple[FileSeries, Series]], earlier: Mapping[str, Series] | None
    ) -> list[Case]:
        """Return the cases of a session, compared with the series of an earlier one if it is given."""
        name = self.hypervisor_class
        class_gate: Gate = self.references.hypervisor_class(name).gate if name else "overhead"
        gates = list_gates(class_gate, has_earlier=earlier is not None)
        cases = []
        for file_series, series in session:
            for gate in gates:
                if budget := self._find_budget(file_series, series, gate):
                    cases.append(self._make_case(file_series, series, budget, earlier))
        return cases

    def _make_case(
        self, file_series: FileSeries, series: Series, budget: Budget, earlier: Mapping[str, Series] | None
    ) -> Case:
        if budget.gate == "overhead" or earlier is None:
            return Case(series, budget, self._find_prior(series, None))
        earlier_series = earlier.get(series.id)
        baseline, mismatch = baseline_of(series, earlier_series)
        if earlier_series:
            for column in ("unit", "better"):
                value, earlier_value = getattr(file_series, column), getattr(earlier_series.metric, column)
                if value != earlier_value:
                    message = f"is {value!r}, and {earlier_value!r} in the session of --against"
                    self._add_problem(file_series, column, f"{message}: a change needs one {column}.")
        return Case(series, budget, self._find_prior(series, baseline), baseline, mismatch)

    def _find_budget(self, file_series: FileSeries, series: Series, gate: Gate) -> Budget | None:
        """Return the reviewed budget, or the stated one; note a problem and return None if there is none."""
        references, class_name = self.references, self.hypervisor_class
        stated, name = self.stated.get(gate), file_series.metric
        metric = references.metrics.get(name) if class_name else None
        if metric is None:
            if stated is None:
                reason = "nothing says what is allowed"
                if class_name:
                    reason = f"class {class_name!r} knows no such metric"
                    if similar := suggest_similar(name, references.metrics):
                        reason += f" ({similar})"
                self._add_problem(file_series, "metric", f"{name}: {reason}; {_STATE_BUDGET}")
            return stated
        try:
            budget = references.budget(Series(metric, file_series.setting), class_name, gate=gate)
        except NoReferenceError as error:
            if stated is None:
                self._add_problem(file_series, "metric", f"{error} Or {_STATE_BUDGET}")
            return stated
        for column, value, catalogue_value in _list_differences(file_series, metric):
            message = f"is {value} for {name}, and {catalogue_value} in references/metrics: "
            advice = "convert the values, or give the metric another name."
            self._add_problem(file_series, column, message + advice)
        try:
            for point in series.points:
                budget.term(point)
        except BudgetError as error:
            self._add_problem(file_series, "size", f"{name}: {error}")
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


def _make_metric(series: FileSeries) -> Metric:
    """Return a metric as the file states it; the catalogue's rules for names do not hold for it."""
    return Metric.model_construct(
        name=series.metric,
        unit=series.unit,
        better=series.better,
        family="measured",
        kind="curve" if series.curve else "scalar",
        axis="size" if series.curve else "",
        axis_unit="(size)" if series.curve else "",
        description="as a file states it",
    )


def _list_differences(series: FileSeries, metric: Metric) -> list[tuple[str, str, str]]:
    """Return column, value in the file and value in the catalogue of each difference."""
    sizes = {True: "given", False: "empty"}
    values = (
        ("unit", series.unit, metric.unit),
        ("better", series.better, metric.better),
        ("size", sizes[series.curve], sizes[metric.kind == "curve"]),
    )
    return [difference for difference in values if difference[1] != difference[2]]
