"""What is asked of a cluster: questions of virtqual's own readers, and commands that Slurm refuses."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from virtqual.site import held, limits, partitions, slurm
from virtqual.site.extras import PartitionExtras
from virtqual.site.options import parse_options
from virtqual.site.systems import Partition

PARTITIONS = (
    *("native", "virtual", "split", "spec", "smp", "misc", "hidden", "limited", "reserved", "inactive"),
    *("closed", "staff", "whole", "empty", "nosuch", ""),
)
QUESTIONS = """
scontrol --version
scontrol ping
scontrol -o --all show node
scontrol -o --all show partition
scontrol -o show node
scontrol -o show partition
scontrol -o show partition hidden
scontrol show node c1
scontrol show partition limited
scontrol show config
scontrol --json show node c1
scontrol --json show partition limited
scontrol show topology
scontrol -o show licenses
scontrol -o --all show reservation
scontrol show nosuch
scontrol -o show node nosuch1
scontrol -o show partition nosuch
sinfo
sinfo --all
sinfo --long --Node --all
sinfo --noheader --Node --all --format=%N|%c|%X|%Y|%Z|%m|%T|%E|%R|%f|%C
squeue
sacct
sacct -P -j 1 -o jobid,state,exitcode,end,nodelist
sacctmgr --noheader --parsable2 show cluster
srun --mpi=list
sinfo -M beta
squeue -M all
srun -M beta hostname
"""
WITH_ACCOUNTS = """
scontrol -o --all show partition
scontrol show config
sacctmgr --noheader --parsable2 show cluster format=cluster,controlhost,controlport
sacctmgr --noheader --parsable2 show qos format=name,maxwall,grptres,maxtrespu,flags
sacctmgr --noheader --parsable2 show association where user=user format=cluster,account,user,qos,defaultqos
sacct
sinfo -M beta
sinfo -M nosuch
sinfo -M alpha,beta --noheader --Node --all --format=%N|%c|%X|%Y|%m|%T|%E
scontrol -M beta -o --all show node
scontrol -M beta -o --all show partition
scontrol -M nosuch -o show partition
squeue -M all
srun -M beta --immediate=2 hostname
"""
REFUSED_WITH_ACCOUNTS = {
    "accepted": "-p native -w n1 -A staff --time=1",
    "no-account": "-p native -A nosuch",
    "other-account": "-p native -A projects",
    "denied-account": "-p limited --mem=1000 -A students",
    "not-allowed-account": "-p staff -A students",
    "not-allowed-qos": "-p priority -A staff --qos=normal",
    "unknown-qos": "-p native -A staff --qos=nosuch",
    "max-nodes": "-p limited --mem=1000 -A staff --nodes=2",
    "max-time": "-p native -A staff --time=3-00:00:00",
    "max-memory": "-p limited -A staff --mem=64000",
    "closed": "-p closed -A staff",
    "capitals": "-p native -w n1 -A STAFF --time=1",
}
#: Options of jobs that Slurm refuses, or lets wait for ever.
REFUSED = {
    "strict-plain": "-p strict",
    "strict-memory": "-p strict -C native --mem=0",
    "strict-notice": "-p strict -C native -w n1 --time=1",
    "filtered-plain": "-p filtered",
    "filtered-notice": "-p filtered -C native -w n1 --time=1",
    "no-partition": "-p nosuch",
    "inactive": "-p inactive",
    "down": "-p closed",
    "max-nodes": "-p limited --mem=1000 --nodes=2",
    "max-cpus": "-p limited --mem=1000 --nodes=1 --ntasks=1 --cpus-per-task=32",
    "max-memory": "-p limited --nodes=1 --mem=64000",
    "denied-account": "-p limited --mem=1000 --time=1 -A students",
    "other-account": "-p staff -A guests",
    "wants-reservation": "-p reserved",
    "no-reservation": "-p native --reservation=nosuch",
    "other-reservation": "-p native --reservation=maint",
    "max-time": "-p native --time=3-00:00:00",
    "no-feature": "-p native -C nosuch",
    "other-feature": "-p virtual -C native",
    "no-licence": "-p native --licenses=nosuch",
    "many-licences": "-p native --licenses=host:2",
    "no-node": "-p native -w nosuch1",
    "other-node": "-p native -w v1",
    "reserved-cores": "-p spec -w c2 --ntasks=1 --cpus-per-task=64",
    "reserved-memory": "-p spec -w c1 --mem=256000",
    "memory-twice": "-p native --mem=0 --mem-per-cpu=100",
    "more-nodes-named": "-p native --nodes=1 -w n1,n2",
    "many-nodes": "-p native --nodes=3",
    "drained-node": "-p virtual -w v2 --time=1",
    "no-option": "-p native --nosuch=1",
    "no-qos": "-p native --qos=nosuch",
    "no-mpi": "-p native -w n1 --time=1 --mpi=nosuch",
}


def ask(recorder, question: Callable[[], object], label: str) -> object:
    """Ask a question of virtqual's readers, and show a refusal: the recording has what Slurm said."""
    try:
        answer = question()
    except Exception as error:  # a fault of a reader: the recording stays of use
        print(f"{recorder.cluster.version} {recorder.scene.name}: {label}: {type(error).__name__}: {error}")
        return None
    return answer


def predict(words: str) -> list[str]:
    """Return why jobs with these options would never run, as `virtqual system check` says it."""
    options = parse_options(words.split())
    partition = partitions.read_partition(options.get("--partition", ""))
    demand = limits.Demand(options, nodes=int(options.get("--nodes", 1)))
    return [
        *limits.find_obstacles(partition, options),
        *limits.find_wrong_selection(partition, options),
        *(sentence for _, sentence in limits.find_exceeded_limits(partition, demand)),
    ]


def record_idle(recorder) -> None:
    """Ask about a cluster on which nothing runs."""
    recorder.run("slurmd", "-C", user=0)
    for line in QUESTIONS.strip().splitlines():
        recorder.run(*line.split())
    for name in PARTITIONS:
        ask(recorder, lambda name=name: slurm.list_node_states(name), f"states of {name}")
        ask(recorder, lambda name=name: partitions.read_partition(name), f"partition {name}")
    for question in (
        partitions.list_partitions,
        slurm.list_licenses,
        slurm.has_accounting,
        slurm.check_scheduler,
    ):
        ask(recorder, question, question.__name__)
    for names in ("n[1-2],lost[1-2],node05", "vm[08-11]", "rack[1-2]n[1-2]"):
        ask(recorder, lambda names=names: slurm.expand_nodes(names), names)
    for words in REFUSED.values():
        ask(recorder, lambda words=words: predict(words), words)


def record_refused(recorder) -> None:
    """Submit jobs that Slurm refuses, at once or by letting them wait."""
    for name, options in REFUSED.items():
        job = f"--job-name=virtqual-{name}"
        recorder.run("sbatch", *options.split(), job, "--output=/dev/null", "--wrap=true")
        # What it would let wait has ended after some seconds.
        recorder.run("srun", *options.split(), job, "--immediate=2", "hostname")
    # Slurm sets the reasons when it has looked at the queue.
    time.sleep(4)
    recorder.run("squeue")
    rows = recorder.run("squeue", "--all", "--noheader", "--format=%i|%j|%T|%r|%P|%D").stdout.splitlines()
    for name in sorted(row.split("|")[1] for row in rows):
        ask(recorder, lambda name=name: slurm.list_pending_reasons(name), name)
    recorder.cluster.run("scancel", "--user=user")
    wait_until_idle(recorder)


def wait_until_idle(recorder) -> None:
    """Wait until no job is left."""
    for _ in range(60):
        if not recorder.cluster.run("squeue", "--all", "-h").stdout:
            return
        time.sleep(0.5)


def wait_for(recorder, *question: str, until: str) -> None:
    """Wait until a command prints a line of this text."""
    for _ in range(60):
        if until in recorder.cluster.run(*question).stdout.splitlines():
            return
        time.sleep(0.5)


def partition(name: str, *access: str) -> Partition:
    """Return a partition of a system file with these options of a session's jobs."""
    extras = PartitionExtras.model_construct(session_access=(f"--partition={name}", *access))
    return Partition.model_construct(name=name, access=extras.session_access, extras=extras)


def hold(recorder, *sides: tuple[str, str, str]) -> tuple[str, float]:
    """Submit a session's job for partitions with an option and a node each; return its id and the time."""
    submitted = time.time()
    stated = [(partition(name, "--time=10", option), [node]) for name, option, node in sides]
    return slurm.allocate(stated, "versions"), submitted


def note(recorder, **facts: object) -> None:
    """Keep what the test has to know beside the recordings."""
    (recorder.scene / "facts.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def look_at_jobs(recorder, job: str) -> list[str]:
    """Ask everything that a session asks about its job, and return the job's components."""
    components = ask(recorder, lambda: slurm.list_components(job), "components") or [job]
    ask(recorder, lambda: slurm.read_job_states(components), "states")
    ask(recorder, lambda: slurm.list_waiting_jobs(components), "waiting")
    for component in components:
        ask(recorder, lambda component=component: slurm.list_job_nodes(component), "nodes")
        recorder.run("scontrol", "-o", "show", "job", component)
    recorder.run("scontrol", "show", "job", job)
    recorder.run("squeue")
    return components


def record_waiting(recorder) -> None:
    """Ask about a session's job that waits."""
    job, submitted = hold(recorder, ("native", "--begin=now+600", "n1"), ("virtual", "--begin=now+600", "v1"))
    time.sleep(1)
    components = look_at_jobs(recorder, job)
    ended = ask(recorder, lambda: slurm.cancel_jobs({job: submitted}), "cancel")
    note(recorder, job=job, components=components, submitted=submitted, cancelled=ended)


def record_running(recorder, sides: tuple[str, str]) -> None:
    """Ask about a session's job that runs, and about its steps."""
    job, submitted = hold(recorder, (sides[0], "--nodelist=n1", "n1"), (sides[1], "--nodelist=v1", "v1"))
    for number in (0, 1):
        wait_for(recorder, "squeue", "--all", "-h", "-o", "%i %T", until=f"{job}+{number} RUNNING")
    components = look_at_jobs(recorder, job)
    steps = [
        held.list_step_options(dict(zip(sides, components, strict=False)), partition(side)) for side in sides
    ]
    for options in steps:
        recorder.run("srun", *options, "--overlap", "--nodes=1", "--ntasks=2", "hostname")
    recorder.run("srun", *steps[1], "--overlap", "--nodes=1", "--ntasks=1", "sh", "-c", "exit 3")
    recorder.run("srun", *steps[1], "--overlap", "--ntasks=1", "echo", "labelled", SLURM_LABELIO="1")
    slow = recorder.cluster.open(
        "srun", *steps[0], "--overlap", "--ntasks=1", "--job-name=slow", "sleep", "300"
    )
    wait_for(recorder, "squeue", "--all", "--steps", "-h", "-o", "%j", until="slow")
    recorder.run("squeue", "--steps")
    ask(recorder, lambda: slurm.send_heartbeat(job), "heartbeat")
    steps_ended = ask(recorder, lambda: slurm.end_steps(job, "slow"), "end steps")
    _, text = slow.communicate(timeout=60)
    ended = ask(recorder, lambda: slurm.cancel_jobs({job: submitted}), "cancel")
    note(
        recorder,
        job=job,
        components=components,
        submitted=submitted,
        cancelled=ended,
        steps=steps_ended,
        killed=text,
        code=slow.returncode,
    )
    wait_until_idle(recorder)


def record_ended(recorder) -> None:
    """Ask about jobs that have ended, or that Slurm does not know."""
    others = json.loads((recorder.folder / "running/facts.json").read_text(encoding="utf-8"))["components"]
    submitted = time.time()
    done = recorder.run(
        "sbatch", "--parsable", "-p", "native", "-w", "n1", "--time=1", "-o", "/dev/null", "--wrap=exit 3"
    )
    job = done.stdout.split()[-1]
    wait_for(recorder, "squeue", "-h", "-t", "all", f"--jobs={job}", "-o", "%T", until="FAILED")
    seen = time.time()
    ask(recorder, lambda: slurm.read_job_span(job, submitted, seen), "span")
    ask(recorder, lambda: slurm.read_job_span("99999", submitted, seen), "unknown span")
    for jobs in ([job], [job, *others], ["99999"], ["99998", "99999"], [job, "99999"]):
        ask(recorder, lambda jobs=jobs: slurm.read_job_states(jobs), f"states of {jobs}")
    ask(recorder, lambda: slurm.list_components("99999"), "unknown components")
    ask(recorder, lambda: slurm.cancel_jobs({job: submitted}), "cancel an ended job")
    recorder.run("scancel", job)
    recorder.run("scancel", "99999")
    recorder.run("sacct", "-P", "-j", job, "-o", "jobid,state,exitcode,end,nodelist")
    note(recorder, job=job, others=others, submitted=submitted, seen=seen)


def record_accounts(recorder) -> None:
    """Ask a cluster with accounts, and another cluster by its name."""
    for line in WITH_ACCOUNTS.strip().splitlines():
        recorder.run(*line.split())
    for question in (slurm.has_accounting, partitions.list_partitions):
        ask(recorder, question, question.__name__)
    for name in ("priority", "limited", "native"):
        ask(recorder, lambda name=name: partitions.read_partition(name), f"partition {name}")
    for words in REFUSED_WITH_ACCOUNTS.values():
        ask(recorder, lambda words=words: predict(words), words)
    for name, options in REFUSED_WITH_ACCOUNTS.items():
        recorder.run(
            "sbatch", *options.split(), f"--job-name=virtqual-{name}", "--output=/dev/null", "--wrap=true"
        )
        recorder.run("srun", *options.split(), f"--job-name=virtqual-{name}", "--immediate=2", "hostname")
    recorder.cluster.run("scancel", "--user=user")
    wait_until_idle(recorder)


def record_features(recorder) -> None:
    """Ask which nodes options select."""
    nodes = partitions.read_partition("split").sizes
    for options in (
        *({"--constraint": text} for text in ("native", "virtual", "hdr&native", "native|virtual")),
        {"--reservation": "course"},
        {"--reservation": "nosuch"},
    ):
        ask(recorder, lambda options=options: partitions.filter_nodes(options, nodes), str(options))


def record_other_cluster(recorder) -> None:
    """Ask about a cluster by its name, as `choose_cluster` does."""
    os.environ["SLURM_CLUSTERS"] = "beta"
    ask(recorder, partitions.list_partitions, "partitions")
    for name in ("remote", "", "native"):
        ask(recorder, lambda name=name: partitions.read_partition(name), f"partition {name}")
        ask(recorder, lambda name=name: slurm.list_node_states(name), f"states {name}")
    ask(recorder, slurm.has_accounting, "accounting")
    ask(recorder, lambda: slurm.list_pending_reasons("wrap"), "reasons")
    ask(recorder, lambda: slurm.read_job_states(["1"]), "job states")
    ask(recorder, lambda: slurm.read_job_states(["99999"]), "job states")
    ask(recorder, lambda: slurm.cancel_jobs({"99999": 0.0}), "cancel")
    del os.environ["SLURM_CLUSTERS"]


def record_accounted_job(recorder) -> None:
    """Ask the database about a job that failed."""
    submitted = time.time()
    options = ["-A", "staff", "-p", "native", "-w", "n1", "--time=1", "-o", "/dev/null"]
    done = recorder.run("sbatch", "--parsable", *options, "--wrap=srun true; exit 3")
    job = done.stdout.split()[-1]
    wait_for(recorder, "squeue", "-h", "-t", "all", f"--jobs={job}", "-o", "%T", until="FAILED")
    fields = "jobid,state,exitcode,end,nodelist"
    wait_for(recorder, "sacct", "-nPX", "-j", job, "-o", "state", until="FAILED")
    recorder.run("sacct", "-P", "-j", job, "-o", fields)
    recorder.run("sacct", "-P", "-j", "99999", "-o", fields)
    recorder.run("sbatch", "--parsable", "-M", "beta", "-A", "staff", "--time=1", "--wrap=true")
    recorder.run("squeue", "-M", "beta")
    recorder.run("squeue", "-M", "alpha,beta", "--noheader", "--format=%A|%T|%r")
    note(recorder, job=job, submitted=submitted)


def record(recorder) -> None:
    """Record all scenes, or those of the variable `SCENES`."""
    os.getuid = os.getgid = lambda: recorder.cluster.user
    os.getgroups = list
    os.environ["LOGNAME"] = "user"
    scenes = {
        "idle": record_idle,
        "features": record_features,
        "refused": record_refused,
        "waiting": record_waiting,
        "running": lambda recorder: record_running(recorder, ("native", "virtual")),
        "running-hidden": lambda recorder: record_running(recorder, ("split", "hidden")),
        "ended": record_ended,
        "accounts": record_accounts,
        "accounts-job": record_accounted_job,
        "other-cluster": record_other_cluster,
    }
    wanted = os.environ.get("SCENES", " ".join(scenes)).split()
    for name, scene in scenes.items():
        if name == "accounts" and "accounts" in wanted:
            recorder.cluster.keep_accounts()
        if name in wanted:
            with recorder.at(name):
                scene(recorder)
