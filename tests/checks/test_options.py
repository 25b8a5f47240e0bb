"""ReFrame's own options do what its users expect of them, or say in a sentence why they cannot."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from site_runs import CHECKS, PLAIN_CHECK, outcome

from made_runs import keep, made_run, session_of
from virtqual.errors import InfrastructureError
from virtqual.qualify.concluding import conclude_failed
from virtqual.session.log import Log

LJ = ("-n", "lammps.*lj")
# Two pairs show as much as the default of four.
PAIRS = {"VIRTQUAL_PAIRS": "0:1"}
SAMPLES = ("warm-up-N", "warm-up-V", "0N", "0V", "1V", "1N")


def listed(site, *options: str, **env: str) -> str:
    done = site.run("reframe", *CHECKS, *options, code=0, **PAIRS, **env)
    return done.stdout


def dry_run(site, *options: str, **env: str) -> list[str]:
    """Return the job scripts of a dry run, which submits nothing."""
    text = listed(site, *LJ, "--dry-run", *options, **env)
    assert f"Ran {len(SAMPLES) + 1}/{len(SAMPLES) + 1}" in text
    assert all(f"%sample={sample} " in text for sample in SAMPLES)
    assert not (site.path / "slurm/last").exists(), "a job was submitted"
    files = (site.path / "slurm/reframe").glob("*/testsite/*/fake/lammps_[0-9a-f]*/rfm_job.sh")
    scripts = [file.read_text(encoding="utf-8") for file in files]
    assert len(scripts) == len(SAMPLES)
    return scripts


@pytest.mark.parametrize(
    ("option", "partition", "limit"),
    [
        ((), "", "2:0:0"),
        (("-S", "time_limit=5m"), "", "0:5:0"),
        ((), "30m", "0:30:0"),
        (("-S", "lammps.time_limit=5m"), "30m", "0:5:0"),
    ],
)
def test_the_time_limit_is_the_users_then_the_partitions_then_ours(site, option, partition, limit):
    """No variable of the shell reaches a job, and its steps have the job's variables."""
    for text in dry_run(site, *option, FAKE_TIME_LIMIT=partition, MV2_ENABLE_AFFINITY="0"):
        assert re.search(r"--time=(\S+)", text)[1] == limit
        (names,) = re.findall("^#SBATCH --export=(.*)", text, re.MULTILINE)
        assert "PATH" in names.split(",")
        assert "MV2" not in names
        assert "export SLURM_EXPORT_ENV=ALL\n" in text.partition("srun ")[0]


def test_a_case_that_is_known_is_given_three_times_what_it_took(site):
    runs = [
        made_run(side, 0, check="lammps %problem=lj", end=took)
        for side, took in (("native", 0.1), ("virtual", 400))
    ]
    earlier = session_of(runs, name="20260101-000000-testsite", system="testsite", stack={"name": "fake"})
    log = Log(keep(earlier, site.path / "state/sessions"))
    conclude_failed(log, InfrastructureError("over"))
    for text in dry_run(site, FAKE_TIME_LIMIT="90m"):
        assert re.search(r"--time=(\S+)", text)[1] == "0:20:0"


@pytest.mark.parametrize("option", ["-N1", "-N 1", "--nodes=1"])
def test_a_number_of_nodes_that_the_user_states_is_kept(site, option):
    for text in dry_run(site, "-J", f"#SBATCH {option}"):
        assert re.findall("^#SBATCH (--nodes.*|-N.*)", text, re.MULTILINE) == [option]


@pytest.mark.parametrize(
    ("option", "memory"), [("exclusive", ["--mem=0"]), ("mem-per-cpu=1G", ["--mem-per-cpu=1G"])]
)
def test_job_options_reach_both_sides_which_ask_for_whole_nodes_and_no_more(site, option, memory):
    more = ("-J", "reservation=x", "-J", "#SBATCH --account=me", "-J", "export=ALL")
    for text in dry_run(site, "-J", option, *more):
        assert re.findall("^#SBATCH --export=(.*)", text, re.MULTILINE) == ["ALL"]
        assert "export SLURM_EXPORT_ENV=ALL\n" in text
        assert "#SBATCH --reservation=x\n" in text
        assert "#SBATCH --account=me\n" in text
        assert re.findall("^#SBATCH (--mem.*)", text, re.MULTILINE) == memory
        assert re.findall("^#SBATCH (--nodes.*|-N.*)", text, re.MULTILINE) == ["--nodes=1"]


def test_a_job_that_gets_no_variables_hands_its_own_on_to_its_steps(site):
    """With --export=NONE Slurm gives steps nothing, unless the job says otherwise."""
    for text in dry_run(site, FAKE_ACCESS="--export=NONE"):
        assert re.findall("^#SBATCH --export=(.*)", text, re.MULTILINE) == ["NONE"]
        assert "export SLURM_EXPORT_ENV=ALL\n" in text


def test_options_that_the_site_refuses_are_not_added(site):
    omitted = json.dumps({"omitted_options": ["--mem", "--no-requeue", "--export"]})
    for text in dry_run(site, FAKE_EXTRAS_bare=omitted, FAKE_EXTRAS_cloud=omitted):
        assert not re.search("^#SBATCH --(mem|no-requeue|export)", text, re.MULTILINE)


def test_a_run_on_one_node_asks_for_the_first_of_several_that_access_names(site):
    """sbatch refuses a list of more nodes than are asked for."""
    for text in dry_run(site, FAKE_ACCESS="--nodelist=n1,n2"):
        assert re.findall("^#SBATCH --nodelist=(.*)", text, re.MULTILINE) == ["n1,n2", "n1"]
    for text in dry_run(site, FAKE_ACCESS="--nodelist=n1,n2 --exclude=n1"):
        assert re.findall("^#SBATCH --nodelist=(.*)", text, re.MULTILINE) == ["n1,n2", "n2"]


def test_a_case_that_takes_another_number_of_nodes_than_the_user_names_is_skipped(site):
    assert "-J names 2 nodes, and this case takes 1" in listed(site, *LJ, "--dry-run", "-J", "nodelist=n1,n2")
    assert dry_run(site, "-J", "nodelist=n1")


def list_without_traces(site, *options: str) -> str:
    """Return a list, which writes nothing."""
    before = set(site.path.rglob("*"))
    text = listed(site, *options)
    assert set(site.path.rglob("*")) == before
    return text


def test_the_detailed_list_is_a_catalogue_whose_hashes_select(site):
    text = list_without_traces(site, "-L")
    entry = text[text.index("- lammps problem=lj") :].splitlines()[:4]
    assert entry[1].startswith("    LAMMPS")
    assert "quick" in entry[2]
    assert entry[3] == "    asks for: +lammps"
    # One entry a check, not one a sample; the list names checks for which this stack has no program.
    assert "sample=" not in text
    assert re.search(r"^  no program in the stack for: .*linpack \(hpcc\)", text, re.MULTILINE)
    assert re.search(r"^  only with --full .*: .*lammps \(3 of 4 cases\)", text, re.MULTILINE)
    (line,) = re.findall(r"- lammps problem=lj\n(?:    .*\n)*?    hashes: (.*)\n", text)
    hashes = dict(reversed(pair.split(" ")) for pair in line.split(", "))
    assert hashes.keys() == {*SAMPLES, "verdict"}
    # A verdict brings its samples along, and a sample those before it in the order.
    for case, count in {"verdict": 7, "1N": 6, "0V": 4, "warm-up-N": 1}.items():
        concrete = listed(site, "-LC", "-n", hashes[case])
        assert f"Concretized {count} test case(s)" in concrete
        assert hashes[case] in concrete


def test_the_scope_is_a_variable_and_a_mode(site):
    for option in (("-S", "scope=full"), ("--mode=full",)):
        text = listed(site, "-L", *option)
        assert "- lammps problem=rhodo\n" in text
        assert "only with --full" not in text
    done = site.lammps("-S", "scope=ful", code=1)
    assert "-S scope=ful: expected quick or full" in outcome(done)


def test_names_tags_and_environments_select(site):
    assert "quick" in list_without_traces(site, "--list-tags")
    text = list_without_traces(site, "-l", "-n", "lammps.*lj", "-t", "app", "-t", "quick", "-p", "fake")
    assert re.findall("^- (.*)", text, re.MULTILINE) == ["lammps problem=lj"]
    assert "\n0 checks" in listed(site, "-l", "-t", "memory")
    assert "and the stacks fake (" in listed(site, "-l", "-p", "gnu")
    done = site.lammps("-p", "gnu", code=1)
    assert "has the partitions bare, cloud and the stacks fake" in outcome(done)


def test_verdicts_are_left_out_by_their_tag_and_nothing_else_is(site):
    text = listed(site, "-LC", *LJ, "--exclude-tag", "verdict")
    assert f"Concretized {len(SAMPLES)} test case(s)" in text
    assert "lammps_overhead" not in text


@pytest.mark.parametrize(
    "option",
    [
        ("--repeat", "2"),
        ("--distribute",),
        ("-P", "num_tasks=1,2"),
        ("--reruns", "1"),
        ("--max-retries", "1"),
        ("--duration", "1m"),
        ("--skip-sanity-check",),
        ("--skip-performance-check",),
    ],
    ids=" ".join,
)
def test_what_pairs_cannot_be_combined_with_is_refused_before_anything_runs(site, option):
    done = site.lammps(*option, code=1)
    sentence = re.search(r"ERROR: (.*) cannot be used with paired samples", outcome(done))
    assert sentence, outcome(done)
    assert option[0] in sentence[1]
    assert not (site.path / "slurm/last").exists(), "a job was submitted"


@pytest.mark.parametrize("option", ["--skip-system-check", "--skip-prgenv-check"])
def test_no_sample_runs_on_the_other_side(site, option):
    done = site.lammps(option, code=1)
    assert "would run samples of a side on the other" in outcome(done)
    assert not (site.path / "slurm/last").exists(), "a job was submitted"


def test_a_scheduler_that_learns_no_exit_code_is_refused_before_anything_runs(site):
    """Only sessions hold the nodes on which runs are steps."""
    env = {"FAKE_SCHEDULER": "squeue"}
    for name in ("bare", "cloud"):
        env[f"FAKE_EXTRAS_{name}"] = json.dumps({"session_access": [f"--partition={name}"]})
    for options, more in (((), {}), (("--exclude-tag=verdict",), {"VIRTQUAL_PIPELINE": "1"})):
        done = site.lammps(*options, code=1, **env, **more)
        assert "'testsite:bare': 'squeue' learns no exit code of a job" in outcome(done)
        assert not (site.path / "slurm/last").exists(), "a job was submitted"
    assert "lammps" in listed(site, "-l", *LJ, **env)


def test_tests_that_are_not_paired_may_be_repeated_and_are_listed(site):
    (site.path / "checks").mkdir()
    (site.path / "checks/plain.py").write_text(PLAIN_CHECK, encoding="utf-8")
    line = ("reframe", "-c", str(site.path / "checks"), "--system", "testsite")
    done = site.run(*line, "-r", "--repeat", "2", code=0)
    assert "Ran 2/2" in done.stdout
    assert "- plain\n    plain\n    not paired, so not judged\n" in site.run(*line, "-l").stdout


def test_the_jobs_of_a_generated_pipeline_measure_one_after_the_other_and_judge(site):
    """ReFrame wants the stage directories kept; the system is the runner's."""
    file = site.path / "pipeline.yml"
    listed(site, *LJ, "--mode=full", "--ci-generate", str(file))
    entries = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    jobs = {name: job for name, job in entries.items() if isinstance(job, dict) and "script" in job}
    *samples, verdict = jobs
    assert verdict.startswith("lammps_overhead")
    assert [jobs[name]["needs"] for name in samples] == [[], *([name] for name in samples[:-1])]
    assert sorted(jobs[verdict]["needs"]) == sorted(samples)
    assert len({jobs[name]["stage"] for name in jobs}) == len(SAMPLES) + 1
    assert all("--mode=full" in job["script"][0] for job in jobs.values())
    env = {
        **site.env,
        **PAIRS,
        "RFM_SYSTEM": "testsite",
        "RFM_KEEP_STAGE_FILES": "1",
        "CI_COMMIT_SHORT_SHA": "0",
        # As often as half of the time limit allows, of a program that says that it takes 50 ms.
        "FAKE_FACTORS": "0.1",
        "FAKE_RUN_SECONDS": "60",
        "FAKE_TIME_LIMIT": "5s",
    }
    for name, job in jobs.items():
        assert job["variables"] == {"VIRTQUAL_PIPELINE": "1"}
        done = subprocess.run(
            ["sh", "-c", job["script"][0]],
            env={**env, **job["variables"]},
            cwd=site.path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, outcome(done)
        assert "Ran 1/1" in done.stdout
        assert Path(site.path / f"{name}-report.json").is_file()
    # The last one was the verdict, on the samples of the jobs before it.
    assert "WITHIN lammps_loop_time@lj" in done.stdout
    # The warm-ups were jobs by themselves, and all runs repeat their program as these have decided.
    (number,) = {run["repetitions"] for run in site.session()["runs"]}
    assert number > 1
