import pytest

from virtqual.files.datafile import DataError
from virtqual.references.load import project_metrics, project_references
from virtqual.references.metrics import load_metrics
from virtqual.verdict.metric import Metric, UnknownMetricError

GOOD = """\
schema: virtqual-metrics/1
metrics:
  - {name: speed, unit: m/s, better: higher, family: motion, description: how fast}
"""


def write(directory, text, name="site.yaml"):
    (directory / name).write_text(text)
    return directory


def test_a_site_adds_metrics_by_adding_a_file(tmp_path):
    metrics = load_metrics(write(tmp_path, GOOD))
    assert metrics["speed"].unit == "m/s"
    assert metrics["speed"].kind == "scalar"
    assert metrics.families == {"motion"}


def test_the_metrics_of_a_site_stand_beside_the_projects(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path))
    own = tmp_path / "references" / "metrics"
    own.mkdir(parents=True)
    write(own, GOOD)
    for metrics in (project_metrics.__wrapped__(), project_references.__wrapped__().metrics):
        assert {"speed", "hpl"} <= metrics.keys()


def test_no_metric_within_the_caches_is_called_stream(metrics):
    cache = [metric for metric in metrics.values() if metric.family == "cache"]
    assert cache
    assert not [metric.name for metric in cache if "stream" in metric.description.lower()]


def test_an_unknown_metric_names_near_matches(metrics):
    with pytest.raises(UnknownMetricError, match=r"'mpi_latancy': did you mean mpi_latency"):
        metrics["mpi_latancy"]


@pytest.mark.parametrize(
    ("change", "line", "key", "message"),
    [
        (("better: higher", "better: up"), 3, "metrics[0].better", "'lower' or 'higher'"),
        (("unit: m/s, ", ""), 3, "metrics[0].unit", "is missing"),
        (("family: motion", "family: motion, colour: red"), 3, "metrics[0].colour", "is not a key"),
        (("name: speed", "name: Top Speed"), 3, "metrics[0].name", "is not of the form"),
        (("description", "kind: curve, description"), 3, "metrics[0]", "a curve needs `axis`"),
        (("description", "kind: curve, axis: size, description"), 3, "metrics[0]", "a curve needs `axis`"),
        (("description", "axis: size, description"), 3, "metrics[0]", "a scalar has no axis"),
        (("description", "axis_unit: B, description"), 3, "metrics[0]", "a scalar has no axis"),
        (("description", "judged_up_to: 8, description"), 3, "metrics[0]", "a scalar has no axis"),
        (("metrics/1", "metrics/9"), 1, "schema", "virtqual-metrics/1"),
        (("unit: m/s", "unit: m/s, unit: km/h"), 3, "", "a key may stand only once"),
        (("metrics:", "metrics: ["), 3, "", "is not YAML"),
    ],
)
def test_errors_name_file_line_and_key(tmp_path, change, line, key, message):
    with pytest.raises(DataError) as error:
        load_metrics(write(tmp_path, GOOD.replace(*change)))
    problem = error.value.problems[0]
    assert problem.file.endswith("site.yaml")
    assert (problem.line, problem.key) == (line, key)
    assert message in problem.message
    assert f"site.yaml:{line}:" in str(error.value)


def test_a_metric_declared_twice_names_both_places(tmp_path):
    write(tmp_path, GOOD, "a.yaml")
    with pytest.raises(
        DataError, match=r"b.yaml:3: metrics\[0\].name: 'speed' is declared already at .*a.yaml:3"
    ):
        load_metrics(write(tmp_path, GOOD, "b.yaml"))


def test_a_directory_without_metrics_is_an_error(tmp_path):
    with pytest.raises(DataError, match=rf"^{tmp_path}: holds no metric file \(\*\.yaml\)\.$"):
        load_metrics(tmp_path)
    with pytest.raises(DataError, match="is not a directory"):
        load_metrics(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no keys at its top"):
        load_metrics(write(tmp_path, "- 1\n"))


def test_a_metric_is_a_value_that_cannot_be_changed(metrics):
    assert Metric(**metrics["hpl"].model_dump()) == metrics["hpl"]
    with pytest.raises(ValueError, match="frozen"):
        metrics["hpl"].unit = "horses"
