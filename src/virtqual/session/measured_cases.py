"""From the series of a file to the cases that are judged, each session for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from virtqual.errors import UsageError
from virtqual.files.datafile import DataError, Problem
from virtqual.files.wording import suggest
from virtqual.references import Budget, BudgetError, Gate, NoReferenceError, Prior, References
from virtqual.references.metrics import Metric
from virtqual.session.measured import MAX_MISTAKES_SHOWN, FileSeries
from virtqual.session.pairing import DECLARED_NOISE, baseline_of, declared_noise
from virtqual.verdict import Case
from virtqual.verdict.pairs import PairingError, Series

#: The least noise that an earlier session is believed: values that repeat to the last digit have one, too.
LEAST_NOISE = 0.002

Sessions = Mapping[str, Sequence[FileSeries]]


@dataclass(frozen=True)
class Allowed:
    """What the series of a file are allowed.

    Attributes
    ----------
    references
        Metrics, budgets and noise.
    hypervisor_class
        The class of budgets; empty for none.
    budget, margin
        For metrics that the class does not cover: by which factor virtual may be worse than native (with 1.05
        a time may be 1.05x, a rate 0.95x), and how far above that an overhead may hide, as a fraction; None
        where nobody states them.
    """

    references: References
    hypervisor_class: str = ""
    budget: float | None = None
    margin: float | None = None

    def gates(self, *, against: bool) -> list[Gate]:
        """Return which verdicts a series gets, with an earlier session or without one: as in a session."""
        if self.hypervisor_class and self.references.hypervisor_class(self.hypervisor_class).gate == "change":
            return ["change"]
        return ["overhead", "change"] if against else ["overhead"]

    def stated(self, gate: Gate) -> Budget | None:
        """Return the stated budget; None where there is none."""
        return self._stated.get(gate)

    @cached_property
    def _stated(self) -> dict[Gate, Budget]:
        if self.budget is None or self.margin is None:
            return {}
        gates: tuple[Gate, Gate] = ("overhead", "change")
        return {
            gate: Budget.of(
                self.budget - 1,
                margin=self.margin,
                reason="stated on the command line",
                hypervisor_class=self.hypervisor_class,
                gate=gate,
            )
            for gate in gates
        }


def cases_of_file(file: str, sessions: Sessions, allowed: Allowed, against: str = "") -> list[list[Case]]:
    """Return the cases of each session of a file, in its order.

    Parameters
    ----------
    file
        Its name, for messages.
    sessions
        Series by session (`virtqual.session.measured.read_series`); their rows are forgotten.
    allowed
        What they are allowed.
    against
        The session that the others are held against; empty for none.

    Raises
    ------
    UsageError
        There is no such session, or what no harness can have measured.
    DataError
        With file and line: a metric without a budget, or with another unit or direction than the catalogue's.
    """
    if against and against not in sessions:
        raise UsageError(f"{file}: has no session {against!r} (--against): {suggest(against, sessions)}")
    maker = _Maker(file, allowed)
    made = {name: [maker.series(one) for one in series] for name, series in sessions.items()}
    before = {series.id: series for series in made.get(against, ())}
    cases = [
        [
            case
            for measured, one in zip(sessions[name], series, strict=True)
            for case in maker.cases(measured, one, None if name == against or not against else before)
        ]
        for name, series in made.items()
    ]
    if maker.problems:
        raise DataError(list(maker.problems.values())[:MAX_MISTAKES_SHOWN])
    return cases


class _Maker:
    """Makes series and cases, and collects what is wrong: once a metric."""

    def __init__(self, file: str, allowed: Allowed) -> None:
        self.problems: dict[tuple[str, str], Problem] = {}
        self._file = file
        self._allowed = allowed
        self._metrics: dict[tuple[str, str, str, bool], Metric] = {}

    def _problem(self, measured: FileSeries, column: str, message: str) -> None:
        self.problems.setdefault(
            (measured.metric, column), Problem(self._file, measured.line, column, message)
        )

    def series(self, measured: FileSeries) -> Series:
        """Pair up one series."""
        try:
            return measured.pair_runs(self._metric(measured))
        except PairingError as error:
            raise UsageError(f"{self._file}: session {measured.session}: {error}") from error

    def _metric(self, measured: FileSeries) -> Metric:
        """Return the catalogue's metric where it is that one, else one made of what the file says."""
        key = (measured.metric, measured.unit, measured.better, measured.curve)
        if key not in self._metrics:
            known = self._allowed.references.metrics.get(measured.metric)
            same = known is not None and not _differing(measured, known)
            # The catalogue's rules for names are not asked of other people's metrics.
            self._metrics[key] = known if known is not None and same else Metric.model_construct(
                name=measured.metric,
                unit=measured.unit,
                better=measured.better,
                family="measured",
                kind="curve" if measured.curve else "scalar",
                axis="size" if measured.curve else "",
                axis_unit="(size)" if measured.curve else "",
                judged=True,
                description="as a file states it",
            )  # fmt: skip
        return self._metrics[key]

    def cases(self, measured: FileSeries, series: Series, before: Mapping[str, Series] | None) -> list[Case]:
        """Return the cases of a series; `before` is the earlier session, None where there is none."""
        found = []
        for gate in self._allowed.gates(against=before is not None):
            budget = self._budget(measured, series, gate)
            if budget is None:
                continue
            baseline: Series | None = None
            refused: tuple[str, ...] = ()
            if gate == "change" and before is not None:
                earlier = before.get(series.id)
                baseline, refused = baseline_of(series, earlier)
                if earlier is not None and earlier.metric.unit != measured.unit:
                    self._problem(
                        measured,
                        "unit",
                        f"is {measured.unit!r}, and {earlier.metric.unit!r} in the session of --against: a "
                        "change needs one unit.",
                    )
            found.append(
                Case(series, budget, self._prior(series, baseline), baseline=baseline, refused=refused)
            )
        return found

    def _budget(self, measured: FileSeries, series: Series, gate: Gate) -> Budget | None:
        """Return the reviewed budget, or the stated one; None where there is none, which is told."""
        allowed = self._allowed
        catalogue, name = allowed.references.metrics, allowed.hypervisor_class
        known = catalogue.get(measured.metric) if name else None
        stated = allowed.stated(gate)
        if known is None:
            if stated is None:
                where = f"class {name!r} knows no such metric" if name else "nothing says what is allowed"
                known_are = f" ({suggest(measured.metric, catalogue).rstrip('.')})" if name else ""
                self._problem(measured, "metric", f"{measured.metric}: {where}{known_are}; {_TO_DO}")
            return stated
        try:
            budget = allowed.references.budget(known.name, name, measured.setting, gate=gate)
        except NoReferenceError as error:
            if stated is None:
                self._problem(measured, "metric", f"{error} Or {_TO_DO}")
            return stated
        for column, mine, theirs in _differing(measured, known):
            self._problem(
                measured,
                column,
                f"is {mine} for {known.name}, and {theirs} in references/metrics: convert the values, or "
                "give the metric another name.",
            )
        try:
            for point in series.points:
                budget.term(point)
        except BudgetError as error:
            self._problem(measured, "size", f"{measured.metric}: {error}")
        return budget

    def _prior(self, series: Series, baseline: Series | None) -> Prior:
        """Return the noise that reviewed files know, or what is taken for metrics that they do not."""
        if series.metric.family != "measured":
            try:
                return self._allowed.references.prior(series, self._allowed.hypervisor_class)
            except NoReferenceError:
                pass
        if baseline is None:
            return declared_noise("overhead")
        return _noise_of(baseline) if len(baseline.valid) >= 2 else DECLARED_NOISE


def _noise_of(earlier: Series) -> Prior:
    """Return the noise for a change, of which otherwise nothing is known: that of the earlier session.

    By the stated noise no number of pairs would ever tell that nothing has changed. The earlier session's own
    spread is no less independent of the present session; half of its degrees of freedom count, since its
    pairs are in the change as well.
    """
    spread = np.maximum(earlier.differences.std(axis=0, ddof=1), LEAST_NOISE)
    df = (len(earlier.valid) - 1) / 2
    source = "the spread of the session that the others are held against"
    return Prior(tuple(map(float, spread)), df, source, between=DECLARED_NOISE.between)


_TO_DO = "state it by --budget 1.05 --margin 0.03, or give the metric a budget under references/."


def _differing(measured: FileSeries, known: Metric) -> list[tuple[str, str, str]]:
    """Return column, what the file says and what the catalogue says, where these differ."""
    sizes = {True: "given", False: "empty"}
    return [
        (column, mine, theirs)
        for column, mine, theirs in (
            ("unit", measured.unit, known.unit),
            ("better", measured.better, known.better),
            ("size", sizes[measured.curve], sizes[known.kind == "curve"]),
        )
        if mine != theirs
    ]
