"""Read the catalogue of metrics, ``references/metrics/*.yaml``, which a site extends by a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import DataError, DataModel, Problem, find_yaml_files, parse
from virtqual.verdict.metric import Metric, Metrics


class _MetricsFile(DataModel):
    schema_: Annotated[Literal["virtqual-metrics/1"], Field(alias="schema")]
    metrics: list[Metric]


def load_metrics(directory: Path) -> Metrics:
    """Read every metric file of a directory.

    Raises
    ------
    DataError
        With file, line and key of every mistake: a wrong value, a metric declared twice, no metric at all.
    """
    problems: list[Problem] = []
    places: dict[str, str] = {}
    metrics: list[Metric] = []
    for path in find_yaml_files(directory):
        try:
            document = parse(path)
            entries = document.read(_MetricsFile).metrics
        except DataError as error:
            problems.extend(error.problems)
            continue
        for index, metric in enumerate(entries):
            key = ("metrics", index, "name")
            if metric.name in places:
                message = f"{metric.name!r} is declared already at {places[metric.name]}."
                problems.append(document.problem(key, message))
            places.setdefault(metric.name, document.where(key))
            metrics.append(metric)
    if not metrics and not problems:
        problems.append(Problem(str(directory), 1, "", "holds no metric file (*.yaml)."))
    if problems:
        raise DataError(problems)
    return Metrics(metrics)
