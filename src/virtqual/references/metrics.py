"""Read the catalogue of metrics, ``references/metrics/*.yaml``, which a site extends by a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import DataModel, Problem
from virtqual.files.datareader import DataReader
from virtqual.verdict.metric import Metric, Metrics


class _MetricsFile(DataModel):
    schema_: Annotated[Literal["virtqual-metrics/1"], Field(alias="schema")]
    metrics: list[Metric]


def load_metrics(directory: Path, site: Path | None = None) -> Metrics:
    """Read every metric file of a directory, and of the site's, which may not exist.

    Raises
    ------
    DataError
        With file, line and key of every mistake: a wrong value, a metric declared twice, no metric at all.
    """
    reader = DataReader()
    metrics: list[Metric] = []
    files = reader.find_files(directory)
    if site is not None:
        files += reader.find_files(site, optional=True)
    for file in reader.read(files, _MetricsFile):
        for index, metric in enumerate(file.content.metrics):
            message = f"{metric.name!r} is declared already at"
            file.is_first(("metrics", index, "name"), metric.name, message)
            metrics.append(metric)
    if not metrics and not reader.problems:
        reader.problems.append(Problem(str(directory), None, "", "holds no metric file (*.yaml)."))
    reader.raise_problems()
    return Metrics(metrics)
