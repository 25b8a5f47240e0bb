import shutil

import pytest
from made_series import REFERENCES

from calling import call
from made_runs import alternating, keep, session_of
from virtqual.identity import Load, gather, readers
from virtqual.references import load_references, project_references
from virtqual.runs import Answer, Result
from virtqual.session.judge import policy
from virtqual.session.pairing import series_of
from virtqual.session.store import load
from virtqual.verdict.pairs import Series

EMPTY = readers.read(gather.NodeFiles({}, {}))
NODE = EMPTY.model_copy(update={"cpu": EMPTY.cpu.model_copy(update={"model": "Xeon"})})


CHECK = {"check": "Lammps %problem=lj", "identity": {"n1": NODE}, "stack": "registry", "stack_hash": "abc"}


def results(side, pair):
    return (Result.scalar("lammps_loop_time", "lj", (2.0 if side == "native" else 3.0) + 0.01 * pair),)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two sessions of four pairs, and the references of a site, which are empty."""
    references = tmp_path / "site/references"
    references.mkdir(parents=True)
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path / "site"))
    for day in (1, 2):
        session = session_of(
            alternating(results, **CHECK),
            name=f"s{day}",
            created=f"2026-01-0{day}T00:00:00+00:00",
            identity={"virtual": {"hypervisor": {"build": "9.2"}}},
        )
        keep(session, tmp_path / "state" / "sessions")
    return references


def test_the_diff_is_shown_and_nothing_is_written(place):
    result = call("propose", "s1", "s2", code=0)
    assert "+++ b/" in result.output
    assert "lammps_loop_time: [2.015, " in result.output
    assert "2 files proposed; --write writes them" in result.output
    assert not list((place / "systems").glob("site/*"))


@pytest.fixture
def site_metric(place):
    """Declare a metric in the site's references, which this process reads again."""
    metric = "{name: site_time, unit: s, better: lower, family: application, description: d}"
    (place / "metrics").mkdir()
    (place / "metrics/site.yaml").write_text(f"schema: virtqual-metrics/1\nmetrics: [{metric}]\n")
    for cached in (project_references, policy):
        cached.cache_clear()
    yield
    for cached in (project_references, policy):
        cached.cache_clear()


def test_a_time_of_a_metric_that_only_the_site_has_cannot_exceed_its_run(site_metric, tmp_path):
    """A run of 5 s whose program says that it took 30 s is refused, whichever catalogue has the metric."""
    sessions = tmp_path / "state/sessions"

    def results(side, pair):
        return (Result.scalar("site_time", "x", (30.0 if side == "native" else 3.0) + 0.01 * pair),)

    runs = alternating(results, **CHECK)
    keep(load(sessions / "s1").model_copy(update={"session": "s3", "runs": runs}), sessions)
    result = call("propose", "s3")
    assert "site_time@x: 0 native runs" in result.output
    assert "site_time: [" not in result.output


def test_what_was_shown_is_written_when_asked_for(place):
    call("propose", "s1", "s2", "--write", code=0)
    assert sorted(path.name for path in (place / "systems" / "site").iterdir()) == [
        "Lammps.yaml",
        "noise.yaml",
    ]
    references = load_references(REFERENCES, place)
    series = Series(references.metrics["lammps_loop_time"], "lj")
    assert "2 sessions, s1 to s2, build 9.2" in references.prior(series, "kvm", "site").source
    again = call("propose", "s1", "s2")
    assert "nothing to change" in again.output


def test_sessions_of_another_kernel_are_named_and_left_out_of_the_noise(place, tmp_path):
    sessions = tmp_path / "state/sessions"
    kernels = ["5.14.0-427.el9", "5.14.0-427.el9", "5.14.0-503.el9", "5.14.0-503.el9", "5.14.0-503.el9"]
    for number, release in enumerate(kernels, 1):
        kernel = NODE.kernel.model_copy(update={"release": release})
        node = NODE.model_copy(update={"kernel": kernel})
        session = load(sessions / "s1").model_copy(
            update={
                "session": f"k{number}",
                "created": f"2026-02-0{number}T00:00:00+00:00",
                "runs": alternating(results, **(CHECK | {"identity": {"n1": node}})),
            }
        )
        keep(session, sessions)
    names = [f"k{number}" for number in range(1, 6)]
    result = call("propose", *names, code=0)
    said = " ".join(result.output.replace("\n+", " ").split())
    change = "native kernel, virtual kernel: 5.14.0-427.el9 -> 5.14.0-503.el9"
    assert f"noise.yaml: left out: k1, k2, of another machine than k5 ({change})" in said
    assert "3 sessions, k3 to k5, build 9.2; left out: k1, k2 (another native kernel, virtual kernel)" in said
    result = call("propose", *names[:3], code=0)
    said = " ".join(result.output.split())
    assert "1 session left, 3 are the least that show how sessions vary" in said
    assert "+++ b/" in result.output
    assert "noise.yaml\n" not in result.output


def damage(place, name, change):
    """Change the runs of a stored session."""
    sessions = place.parents[1] / "state/sessions"
    session = load(sessions / name)
    session.runs = [change(run) for run in session.runs]
    shutil.rmtree(sessions / name)
    keep(session, sessions)


def test_runs_that_preflight_leaves_out_make_no_reference(place):
    busy = Load(seconds=5.0, steal=0.5, foreign=0.0, waiting=0.0, ballooned=0, swapped=0, memory_drift_mib=0)
    damage(place, "s2", lambda run: run.model_copy(update={"load": busy if run.pair else None}))
    result = call("propose", "s1", "s2")
    assert "lammps_loop_time@lj, runs: 5," in result.output


def test_a_check_that_was_refused_makes_no_reference(place):
    """What the virtual side computed is wrong: its speed is nobody's noise."""

    def wrong(run):
        answer = Answer(name="energy", value=-5.0 if run.side == "native" else -9.0, tolerance=1e-6)
        return run.model_copy(update={"answers": (answer,)})

    damage(place, "s2", wrong)
    result = call("propose", "s2", code=2)
    assert "session s2: nothing of Lammps %problem=lj is taken: not the same result: energy" in result.output


SYSTEM = """import runpy
system = runpy.run_path({example!r})["system"]
system["name"] = "site"
system["partitions"][1]["extras"]["nodes_of_hosts"] = {hosts!r}
for partition in system["partitions"]:
    partition["extras"]["nodes"] = 1
"""


@pytest.fixture
def surveyed(place):
    """Return how to write the system file: s1 and s2 ran natively on n1 and n2 in turn, in VMs on n2."""

    def on(changed):
        hosts = {"n1": "n1" if changed.pair % 2 else "n2"} if changed.side == "native" else {}
        return changed.model_copy(update={"hosts": hosts})

    for name in ("s1", "s2"):
        damage(place, name, on)

    def told(hosts):
        file = place.parent / "systems/site.py"
        file.parent.mkdir(exist_ok=True)
        example = str(REFERENCES.parent / "site.example/systems/_example.py")
        file.write_text(SYSTEM.format(example=example, hosts=hosts), encoding="utf-8")

    return told


def test_a_survey_of_hosts_is_proposed_and_judging_reads_it(place, surveyed):
    surveyed({"n2.example.org": ["vm1"]})
    assert "1 file proposed; --write writes them" in call("propose", "s1", "s2", "--hosts", code=0).output
    assert "proposed;" not in call("propose", "s1", "s2", "--hosts", "--write", code=0).output
    assert sorted(path.name for path in (place / "systems" / "site").iterdir()) == ["hosts.yaml"]
    references = load_references(REFERENCES, place)
    series = series_of(alternating(results, 1, **CHECK), references)["lammps_loop_time@lj"]
    assert 0.005 < references.host_bound(series, "site", ["n1"], ["n2"]) < 0.05


def test_a_survey_without_native_runs_on_both_groups_says_what_is_missing(place, surveyed):
    surveyed({"esx1": ["vm1"]})
    result = call("propose", "s1", "s2", "--hosts", code=2)
    said = " ".join(result.output.split())
    assert "by extras.nodes_of_hosts of the virtual partition: esx1" in said
    assert "native runs on n1, n2: it takes some on the hosts of either side" in said
    surveyed({})
    result = call("propose", "s1", "--hosts", code=2)
    assert "which hosts carry VMs is not known" in " ".join(result.output.split())
