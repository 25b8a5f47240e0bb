"""Preflight in the main job: refused before anything is measured, or by what the runs saw."""

import json
from pathlib import Path

from virtqual.stack import manifest

ON = ("qualify", "--system", "testsite", "-n", "lj")
# A stand-in for `grep` on one partition: its node is another one.
OTHER = "#!/bin/sh\n{when}\n/usr/bin/env PATH=/usr/bin:/bin grep \"$@\" | sed '{edit}'\n"
# A locale that knows no umlaut.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def other_node(site, edit, when=""):
    """Make the virtual partition's nodes look different."""
    site.stand_in("grep", OTHER.format(edit=edit, when=when), "cloud")


def test_partitions_that_may_not_be_compared_are_refused_at_once(site):
    other_node(site, "s|clocksource0/current_clocksource:.*|clocksource0/current_clocksource:acpi_pm|")
    done = site.virtqual(*ON, "--label", "Überlast", code=4, **ASCII)
    assert "refused clock-source" in done.stdout
    assert "before anything was measured" in done.stdout
    found = site.session()
    assert (found["outcome"], found["exit_code"], found["runs"]) == ("INVALID", 4, [])
    assert found["label"] == "Überlast"
    refused = [one for one in found["preflight"] if one["action"] == "refuse"]
    assert [one["item"] for one in refused] == ["clock-source"]
    assert found["probed"]["virtual"]["kernel"]["clock_source"] == "acpi_pm"
    site.virtqual("preflight", "last", code=4)


def test_a_stack_that_the_processors_cannot_run_is_refused_before_its_first_run(site):
    (file,) = site.path.glob("*/stacks/fake/manifest.json")
    stack = manifest.load(file)
    target = manifest.ProcessorTarget(name="x86_64_v9", features=("avx9",))
    programs = tuple(program.model_copy(update={"target": target}) for program in stack.programs)
    stack.model_copy(update={"programs": programs}).write(file.parent)
    done = site.virtqual(*ON)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "refused stack-target" in done.stdout
    assert "cannot run the stack's programs for x86_64_v9: it lacks avx9" in site.words(done)
    assert site.session()["runs"] == []
    assert site.virtqual("preflight", "--system", "testsite").returncode == 4


def test_what_only_a_run_sees_refuses_too(site):
    # Only in a job, which has a job id.
    when = '[ "$SLURM_JOB_ID" ] || exec /usr/bin/env PATH=/usr/bin:/bin grep "$@"'
    other_node(site, "s|stepping.*|stepping\t: 99|", when)
    # A session may itself be a job, as at night; what it starts is outside of that one.
    done = site.virtqual(*ON, SLURM_JOB_ID="7")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "INVALID lammps_loop_time@lj" in done.stdout
    found = site.session()
    assert found["runs"]
    (cpu,) = (one for one in found["preflight"] if one["item"] == "cpu-model")
    assert (cpu["action"], cpu["protects"]) == ("refuse", ["D16"])


def test_a_vm_that_the_first_pairs_refuse_ends_the_session_by_its_name(site):
    when = (
        '[ "$(cat /proc/sys/kernel/hostname)" = cloud-2 ] || exec /usr/bin/env PATH=/usr/bin:/bin grep "$@"'
    )
    other_node(site, "s|stepping.*|stepping\t: 99|", when)
    site.fault("nodes", "2")
    site.fault("waits", "16")  # the last run would not end
    hosts = json.dumps({"nodes_of_hosts": {"host-1": ["cloud-1"], "host-2": ["cloud-2"]}})
    done = site.virtqual(*ON, FAKE_NODES="2", FAKE_EXTRAS_cloud=hosts, code=4)
    said = site.words(done)
    assert "none of its runs may be judged: preflight: cpu-model: bare-2 with cloud-2: the CPU is " in said
    found = site.session()
    assert (found["outcome"], found["failures"]) == ("INVALID", [])
    assert "preflight: cpu-model: bare-2 with cloud-2" in found["conclusion"]
    # Four pairs of each VM were asked for. What ended before counts.
    assert 4 <= len(found["runs"]) < 16
    site.virtqual("check", code=0)


# What tells a slow host from a slow guest where neither changes its role.
SURVEY = """schema: virtqual-hosts/1
made_of: {{sessions: [a], date: today, cpu: any, stack: fake}}
hosts:
  - {{family: application, native: [{here}], virtual: [esx1], bound: 0.005, source: the tests}}
"""


def test_every_run_carries_what_its_nodes_were(site):
    here = Path("/proc/sys/kernel/hostname").read_text(encoding="utf-8").strip()
    table = json.dumps({"nodes_of_hosts": {"esx1.cluster.example": [here]}})
    own = here.partition(".")[0]
    site.add_reference("systems/testsite/hosts.yaml", SURVEY.format(here=own))
    site.virtqual(*ON, FAKE_EXTRAS_cloud=table, code=0)
    found = site.session()
    for run in found["runs"]:
        assert run["hosts"] == dict.fromkeys(run["nodes"], own if run["side"] == "native" else "esx1")
        (identity,) = run["identity"].values()
        assert identity["schema"] == "virtqual-identity/1"
        assert run["load"]["seconds"] > 0
        said = identity["host"].get("build")
        assert said == ("6.1.0" if run["side"] == "virtual" else None)
