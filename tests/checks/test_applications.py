"""Applications from input to verdict, on the stand-in site: generated and fetched inputs, fields, scaling."""

import hashlib
import os
import re
import shutil
import tarfile

import pytest
from ruamel.yaml import YAML
from site_runs import CHECKS, FAKE, OUTPUTS, copy_stand_in, make_program, make_stack, outcome, read_runs

from virtqual.stack import manifest

FULL = "--mode=full"
SMALL = {"FAKE_SCALE": "small"}
ONE_PAIR = {**SMALL, "VIRTQUAL_PAIRS": "0:0"}

NAMELIST = """ &time_control
 run_days                            = 5,
 run_hours                           = 0,
 run_minutes                         = 0,
 run_seconds                         = 0,
 history_interval                    = 360,  360,  360,
 restart                             = .false.,
 restart_interval                    = 3600,
 /
 &domains
 time_step                           = 600,
 time_step_fract_num                 = 0,
 /
"""


@pytest.fixture
def equipped(site):
    """A second stack on the site, with stand-ins for the applications."""
    stack = site.path / "site/stacks/apps"
    case = stack / "case"
    case.mkdir(parents=True)
    (case / "namelist.input").write_text(NAMELIST)
    outputs = ("namd.water.out", "wrf.em_b_wave.out", "milc.su3_rhmd_hisq.out")
    for name in (*outputs, "openfoam.out", "openfoam.probe.out"):
        shutil.copy(OUTPUTS / name, stack)
    for name in ("wrfout", "mpip"):
        shutil.copy(FAKE / name, stack)

    def program(feature, stand_in, version, **data):
        return make_program(copy_stand_in(site, "apps", stand_in, feature), feature, version, data=data)

    ideal = copy_stand_in(site, "apps", "wrf", "ideal.exe")
    utilities = {name: copy_stand_in(site, "apps", "icoFoam", name) for name in ("blockMesh", "decomposePar")}
    make_stack(
        site,
        "apps",
        program("namd", "namd2", "2.12"),
        program("milc", "milc", "7.8.1"),
        program("openfoam", "icoFoam", "1912.200626-1", **utilities),
        program("wrf-ideal", "wrf", "4.6.1", ideal=ideal, case=case, run=case),
        program("wrf-real", "wrf", "4.6.1", run=case),
    )
    return site


@pytest.fixture
def profiled(equipped):
    """The same with a profiler, which the stand-in for WRF looks for."""
    stack = equipped.path / "site/stacks/apps"
    (stack / "libmpiP.so").write_text("no library")
    profiler = make_program(stack / "libmpiP.so", "mpip", "3.5", features=("mpi-profile",))
    make_stack(equipped, "apps", *manifest.load(stack / "manifest.json").programs, profiler)
    return equipped


def curve(run) -> dict[float, float]:
    (result,) = run["results"]
    return dict(zip(result["points"], result["values"], strict=True))


def test_applications_run_from_inputs_that_need_no_download(equipped):
    done = equipped.reframe(
        FULL, "-n", r"^(namd_water|wrf_ideal).*%ranks=2\b|^milc", **SMALL, VIRTQUAL_PAIRS="0:1", code=0
    )
    assert "WITHIN namd_elapsed@water 10125 atoms" in done.stdout
    assert "WITHIN wrf_rating@em_b_wave 2 h" in done.stdout
    assert "WITHIN milc_rating@4x4x4x8" in done.stdout
    measured = {run["results"][0]["metric"]: run for run in read_runs(equipped)}
    assert measured["wrf_rating"]["results"][0]["values"] == [pytest.approx(86400 / 0.98104, rel=1e-3)]
    answers = {answer["name"]: answer["value"] for answer in measured["wrf_rating"]["answers"]}
    assert answers["RMS of U"] == pytest.approx(6 * answers["RMS of V"])
    assert len(measured["milc_rating"]["answers"]) == 2


def test_openfoam_is_timed_from_outside_and_its_flow_must_be_right(equipped):
    """The stand-in prints the times of the recorded run, however long it takes."""
    equipped.fault("slow.bare", "1.5")
    equipped.fault("slow.cloud", "1.5")
    line = (FULL, "-n", "^openfoam")
    done = equipped.reframe(*line, checks="openfoam.py", **SMALL, VIRTQUAL_PAIRS="0:1")
    results = [run["results"][0] for run in read_runs(equipped)]
    assert len(results) == 4, outcome(done)
    assert {result["metric"] for result in results} == {"openfoam_elapsed"}
    assert min(result["values"][0] for result in results) >= 1.49
    equipped.fault("fault.speed.cloud", "(-0.2021")
    done = equipped.reframe(*line, checks="openfoam.py", code=1, **ONE_PAIR)
    assert "the speed beside the centre is 0.202278 m/s, not 0.202232" in outcome(done), outcome(done)
    equipped.mend("fault.speed.cloud")
    equipped.fault("fault.clock", "3")
    done = equipped.reframe(*line, checks="openfoam.py", **ONE_PAIR)
    assert "it ran for 3 s by its clock, and 1." in outcome(done), outcome(done)


def test_namd_runs_over_nodes_with_a_rank_on_each(equipped):
    # On small systems, and these, nodes share the machine's CPUs.
    done = equipped.reframe(
        FULL, "-n", "^namd_water_nodes", checks="namd.py", FAKE_NODES="2", **SMALL, VIRTQUAL_PAIRS="0:1"
    )
    assert "WITHIN namd_elapsed@water 10125 atoms, 2 ranks, 2 nodes" in outcome(done), outcome(done)
    measured = {run["side"]: run["nodes"] for run in read_runs(equipped)}
    assert measured == {"native": ["bare-1", "bare-2"], "virtual": ["cloud-1", "cloud-2"]}


def test_results_that_differ_between_the_sides_are_refused(equipped):
    """A virtual partition that computes another wind, or energy, is not slow or fast, it is wrong."""
    equipped.fault("fault.wind.cloud", "1.01")
    equipped.fault("fault.energy.cloud", "20.0")
    names = r"^(wrf_ideal|namd_water)(%.*ranks=2\b|_overhead%ranks=2\b)"
    done = equipped.reframe(FULL, "-n", names, **ONE_PAIR)
    assert done.returncode != 0
    for answer in ("RMS of U", "potential energy at step 0", "total energy at step 100"):
        assert f"not the same result: {answer} is" in outcome(done), outcome(done)
    assert "WITHIN" not in outcome(done)


def test_fields_that_no_atmosphere_can_have_are_refused(equipped):
    equipped.fault("fault.wind.bare", "30")
    done = equipped.reframe(
        FULL, "-n", r"^wrf_ideal%.*ranks=2\b|^wrf_ideal_overhead%ranks=2\b", checks="wrf.py", **ONE_PAIR
    )
    assert done.returncode != 0
    assert "no atmosphere (-200 to 200)" in outcome(done)


def test_strong_scaling_is_a_curve_and_says_its_share_of_communication(equipped):
    done = equipped.reframe(FULL, "-n", r"^(lammps|wrf_ideal)_scaling", **SMALL, VIRTQUAL_PAIRS="0:1", code=0)
    measured = {run["results"][0]["metric"]: run for run in read_runs(equipped)}
    processes = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= os.cpu_count()]
    lammps = measured["lammps_scaling"]
    assert [point for point in curve(lammps) if point in processes] == processes
    # The stand-in's loop takes 0.5 s however many processes there are, and 4.58 % of it are communication.
    assert curve(lammps)[1] == pytest.approx(172800, rel=0.02)
    assert lammps["communication"] == pytest.approx(0.0458)
    assert curve(measured["wrf_scaling"])[1] == pytest.approx(86400 / 0.98104, rel=1e-3)
    assert "4.6% of the time in communication (native)" in outcome(done)
    # WRF does not say, and this stack has no profiler.
    why = "no program with the feature 'mpi-profile' in the stack"
    assert measured["wrf_scaling"]["communication"] == {"not_observable": why}
    assert f"share of communication not observable ({why}) (native)" in outcome(done)


def test_copies_on_all_cores_are_added_if_they_ran_at_the_same_time(equipped):
    equipped.fault("slow.cloud", "1.2")
    line = (FULL, "-n", "^throughput(%|_overhead$)")
    done = equipped.reframe(*line, checks="throughput.py", **SMALL, FAKE_SECONDS="1")
    count = os.cpu_count()
    setting = f"LAMMPS lj, {count} cop{'ies' if count > 1 else 'y'}"
    # A busy machine starts copies late: UNDECIDED or INVALID.
    assert re.search(rf"(OVER|UNDECIDED|INVALID) throughput_rating@{setting}: ", outcome(done)), outcome(done)
    rates = {run["side"]: run["results"][0]["values"] for run in read_runs(equipped)}
    assert rates == {
        "native": [pytest.approx(172800 * count, rel=0.02)],
        "virtual": [pytest.approx(144000 * count, rel=0.02)],
    }
    equipped.fault("fault.long")
    done = equipped.reframe(*line, checks="throughput.py", **ONE_PAIR, FAKE_SECONDS="1")
    refused = re.search(r"the tasks ran at the same time for \d+% of the time, 80% are needed", outcome(done))
    assert count == 1 or refused, outcome(done)


def test_a_profiler_says_the_share_of_communication_and_touches_no_number(profiled):
    """Natively it does; in the VMs it fails, which costs the share and nothing else."""
    profiled.fault("fault.profiler.cloud")
    done = profiled.reframe(
        FULL, "-n", "^wrf_ideal_scaling", checks="wrf.py", code=0, **SMALL, VIRTQUAL_PAIRS="0:1"
    )
    assert "25.0% of the time in communication (native)" in outcome(done)
    why = "mpiP output: 0 reports in profile-short, exit code 7"
    assert f"share of communication not observable ({why}) (virtual)" in outcome(done)
    measured = {(run["side"], run["pair"]): run for run in read_runs(profiled)}
    assert measured["native", 0]["communication"] == pytest.approx(0.25)
    assert measured["virtual", 0]["communication"] == {"not_observable": why}
    # As without it: its runs come after the one that is timed, in the first pair alone.
    assert [curve(run)[1] for run in measured.values()] == [pytest.approx(86400 / 0.98104, rel=1e-3)] * 4
    assert measured["native", 1]["communication"] is None
    jobs = (profiled.path / "slurm/reframe").glob("*/*/testsite/*/apps/wrf_ideal_scaling_*/rfm_job.sh")
    parts = [job.read_text().partition("\nvirtqual_note end\n") for job in jobs]
    assert [sum(text.count("LD_PRELOAD=") for text in part) for part in zip(*parts, strict=True)] == [0, 0, 4]


def test_a_size_that_needs_a_download_runs_once_it_is_there_and_never_when_it_changed(equipped):
    """The study's WRF case: not run with its reason, run, refused."""
    references, web = equipped.path / "site/references/inputs", equipped.path / "conus.tar.gz"
    references.mkdir()
    room = equipped.path / "conus"
    room.mkdir()
    (room / "namelist.input").write_text(NAMELIST)
    (room / "wrfinput_d01").write_text("input")
    with tarfile.open(web, "w:gz") as archive:
        archive.add(room, "conus")
    entry = {"name": "wrf-conus12km", "description": "made up", "url": web.as_uri(), "checksum_from": "us"}
    entry["sha256"] = hashlib.sha256(web.read_bytes()).hexdigest()
    with (references / "own.yaml").open("w") as file:
        inputs = [entry, {**entry, "name": "namd-stmv"}]
        YAML().dump({"schema": "virtqual-inputs/1", "inputs": inputs}, file)
    listed = equipped.run("reframe", *CHECKS, "-L", FAKE_NODES="4")
    lacks = "the input {0} is not here: virtqual inputs fetch {0}: .*{1}"
    assert re.search(lacks.format("wrf-conus12km", r"wrf_conus12km\b"), listed.stdout), listed.stdout
    assert re.search(r"^  .*: .*\bnamd_stmv\b", listed.stdout, re.MULTILINE)
    # The study's 4, 8 and 16 processes, divided among its 2 and 4 VMs, as far as a node has cores.
    cases = sum(count <= os.cpu_count() for count in (2, 4, 8, 1, 2, 4))
    nodes = rf"namd_stmv_nodes \({cases} cases\)"
    assert re.search(lacks.format("namd-stmv", nodes), listed.stdout), listed.stdout
    listed = equipped.run("reframe", *CHECKS, "-L", FULL, **SMALL)
    assert re.search(r"for partitions of scale 'standard'.*: .*wrf_conus12km\b", listed.stdout)
    # The stand-in's recorded run is of two hours in steps of ten minutes: its own check says so, below.
    equipped.virtqual("inputs", "fetch", "wrf-conus12km", code=0)
    done = equipped.reframe("-n", r"^wrf_conus12km%|^wrf_conus12km_overhead$", FULL, checks="wrf.py")
    assert "asked for 3" in outcome(done)
    kept = equipped.path / "site/inputs/wrf-conus12km/conus/wrfinput_d01"
    kept.chmod(0o644)
    kept.write_text("other")
    done = equipped.reframe("-n", r"^wrf_conus12km%|^wrf_conus12km_overhead$", FULL, checks="wrf.py", code=1)
    assert "the input wrf-conus12km has changed: conus/wrfinput_d01 has another checksum" in outcome(done)
