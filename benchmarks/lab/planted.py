"""Faults on the one-machine cluster: each acts while a session measures, until its event is set."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vcluster import cluster, emulated
from vcluster.directory import StateDirectory
from virtqual.errors import InfrastructureError

# A guest is stopped and continued once in this time.
STOP_PERIOD_S = 0.05
SQUEUE_INTERVAL_S = 0.3
NEW_VMS_INTERVAL_S = 5.0
# The bandwidth of a cgroup is given out anew after this time.
CPU_PERIOD_US = 100_000
Fault = Callable[[threading.Event], None]


@contextmanager
def run_fault(fault: Fault) -> Iterator[None]:
    """Let a fault act; raise its error in the end, so that no session counts whose fault was not there."""
    ended, errors = threading.Event(), []

    def act() -> None:
        try:
            fault(ended)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[0]


def run_on_all_hosts(line: str) -> None:
    directory = StateDirectory.default()
    for host in cluster.load_running(directory).hosts:
        code, output = emulated.run_on_host(directory.logs, host.name, line)
        if code:
            raise InfrastructureError(f"{host.name}: {line!r} ended with {code}: {output.strip()}")


def plant_on_hosts(begin: str, end: str) -> Fault:
    def fault(ended: threading.Event) -> None:
        run_on_all_hosts(begin)
        ended.wait()
        run_on_all_hosts(end)

    return fault


def list_virtual_runs() -> list[str]:
    """Return the ids of the steps in VMs that are runs: the session's job holds its nodes all the time."""
    return list_runs("--partition=virtual")


def list_runs(*options: str) -> list[str]:
    """Return the ids of the steps that are runs of any side."""
    return list_steps("rfm_", *options)


def list_virtual_programs() -> list[str]:
    """Return the ids of the steps in VMs by which the job scripts of runs start their programs."""
    return list_steps(r"\d+\.\d+-\d+$", "--partition=virtual")


def list_steps(name: str, *options: str) -> list[str]:
    """Return the ids of the steps whose names match a pattern from their beginnings on."""
    line = ["squeue", "--steps", "--noheader", *options, "--format=%i %j"]
    output = subprocess.run(line, capture_output=True, text=True, check=False).stdout
    rows = (row.split() for row in output.splitlines())
    return [row[0] for row in rows if len(row) == 2 and re.match(name, row[1])]


def stop_guests(share: float) -> Fault:
    """Stop the guests for a share of their time, on the hosts themselves."""
    # One process for all steps: a process for each would take CPU time from native runs.
    halt, go = share * STOP_PERIOD_S, (1 - share) * STOP_PERIOD_S
    loop = (
        'while (-e "stopping") { open F, "vm.pid"; $p = <F> || 0; close F; '
        f"kill STOP, $p if $p > 1; select undef, undef, undef, {halt}; "
        f"kill CONT, $p if $p > 1; select undef, undef, undef, {go} }}"
    )
    return plant_on_hosts(
        f"cd /run/vcluster; touch stopping; perl -e '{loop}' > /dev/null 2>&1 &",
        "rm -f /run/vcluster/stopping",
    )


def stall_guests(seconds: float, interval: float) -> Fault:
    """Stop the guests for some seconds, once in each `interval`."""
    signal = "kill -{} $(cat vm.pid)"
    loop = (
        f"while [ -e stalling ]; do sleep {interval - seconds}; {signal.format('STOP')}; "
        f"sleep {seconds}; {signal.format('CONT')}; done"
    )
    return plant_on_hosts(
        f"cd /run/vcluster; touch stalling; ({loop}) > /dev/null 2>&1 &",
        "rm -f /run/vcluster/stalling",
    )


def stop_guests_in_some_runs(period: int, share: float) -> Fault:
    """Stop the guests for a share of their time during one of `period` runs."""

    def fault(ended: threading.Event) -> None:
        runs: list[str] = []
        while not ended.wait(SQUEUE_INTERVAL_S):
            new_runs = [run for run in list_virtual_runs() if run not in runs]
            runs += new_runs
            if new_runs and len(runs) % period == 0:
                with run_fault(stop_guests(share)):
                    while runs[-1] in list_virtual_runs() and not ended.wait(SQUEUE_INTERVAL_S):
                        pass

    return fault


def limit_vcpus(share: float) -> Fault:
    """Take a share of their CPU time from the threads that are the guests' CPUs, by ``cpu.max``."""
    quota = round((1 - share) * CPU_PERIOD_US)
    group, threads = "/sys/fs/cgroup/lab", "/sys/fs/cgroup/lab/vcpus/cgroup.threads"
    prepare = (
        "[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 none /sys/fs/cgroup; "
        f"mkdir -p {group}/vcpus; echo +cpu > /sys/fs/cgroup/cgroup.subtree_control; "
    )
    move = (
        f"read -r vm < /run/vcluster/vm.pid; echo $vm > {group}/cgroup.procs; "
        f"echo threaded > {group}/vcpus/cgroup.type; echo +cpu > {group}/cgroup.subtree_control; "
        f"echo {quota} {CPU_PERIOD_US} > {group}/vcpus/cpu.max; "
        'for task in /proc/$vm/task/*; do read -r name < $task/comm; case "$name" in "CPU "*/KVM) '
        f"echo ${{task##*/}} > {threads};; esac; done; "
    )

    def fault(ended: threading.Event) -> None:
        run_on_all_hosts(f"set -e; {prepare}{move}grep -q . {threads}")
        # VMs that are created anew have threads of their own.
        while not ended.wait(NEW_VMS_INTERVAL_S):
            run_on_all_hosts(f"if [ -e /run/vcluster/vm.pid ] && ! grep -q . {threads}; then {move}fi; true")
        run_on_all_hosts(f"echo max > {group}/vcpus/cpu.max")

    return fault


def limit_disks(requests: int) -> Fault:
    """Let the guests' disks answer so many reads and as many writes a second, by ``io.max``."""
    group = "/sys/fs/cgroup/lab"
    move = f"cat vm.pid > {group}/cgroup.procs"
    prepare = (
        "[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 none /sys/fs/cgroup; "
        f"mkdir -p {group}; echo +io > /sys/fs/cgroup/cgroup.subtree_control; "
        f"read -r disk < /sys/block/vdb/dev; echo $disk riops={requests} wiops={requests} > {group}/io.max; "
    )
    # VMs that are created anew are processes of their own.
    loop = f"while [ -e limiting ]; do {move} || true; sleep {NEW_VMS_INTERVAL_S}; done"
    return plant_on_hosts(
        f"set -e; {prepare}cd /run/vcluster; touch limiting; {move}; ({loop}) > /dev/null 2>&1 &",
        "rm -f /run/vcluster/limiting; cat /run/vcluster/vm.pid > /sys/fs/cgroup/cgroup.procs",
    )


def limit_reads(native: int, virtual: int) -> Fault:
    """Let the disks of nodes and of guests answer so many reads a second: two limits hardly vary."""
    move = "cat vm.pid > /sys/fs/cgroup/virtual/cgroup.procs"
    # VMs that are created anew are processes of their own.
    loop = f"while [ -e limiting ]; do {move} || true; sleep {NEW_VMS_INTERVAL_S}; done"
    limits = "".join(
        f"mkdir -p {side}; read -r disk < /sys/block/{disk}/dev; echo $disk riops={reads} > {side}/io.max; "
        for side, disk, reads in (("native", "vda", native), ("virtual", "vdb", virtual))
    )
    return plant_on_hosts(
        "set -e; [ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 none /sys/fs/cgroup; "
        # Runs inherit the group of the slurmd that starts them.
        f"cd /sys/fs/cgroup; echo +io > cgroup.subtree_control; {limits}pidof slurmd > native/cgroup.procs; "
        f"cd /run/vcluster; touch limiting; {move}; ({loop}) > /dev/null 2>&1 &",
        "rm -f /run/vcluster/limiting; pidof slurmd > /sys/fs/cgroup/cgroup.procs; "
        "cat /run/vcluster/vm.pid > /sys/fs/cgroup/cgroup.procs",
    )


def refuse_huge_pages() -> Fault:
    """Let the hosts, which are the native side too, give no transparent huge pages."""
    file = "/sys/kernel/mm/transparent_hugepage/enabled"
    return plant_on_hosts(f"echo never > {file}", f"echo always > {file}")


def shape_network(rule: str) -> Fault:
    """Let netem act on what is sent to the guests; a host's timer has steps of 4 ms."""
    # The shell of a host would take busybox' tc, which knows no netem.
    port = ". /run/vcluster/host.env; /usr/sbin/tc qdisc"
    return plant_on_hosts(
        f"{port} add dev $VM root netem {rule}",
        f"{port} del dev $VM root",
    )


def crash_some_programs(period: int) -> Fault:
    """Let the program of one of `period` virtual runs crash; native runs are left alone."""

    def fault(ended: threading.Event) -> None:
        runs: list[str] = []
        is_due, victim = False, ""
        while not ended.wait(SQUEUE_INTERVAL_S):
            new_runs = [run for run in list_virtual_runs() if run not in runs]
            runs += new_runs
            is_due |= bool(new_runs) and len(runs) % period == period // 2
            if not is_due:
                continue
            # scancel fails while a step is being started, and also if it has had to try again.
            steps = list_virtual_programs()
            if victim and victim not in steps:
                is_due, victim = False, ""
            elif steps:
                victim = victim or steps[0]
                subprocess.run(["scancel", f"--signal={signal.SIGSEGV:d}", victim], check=False)

    return fault


def load_half_of_the_runs(period: int) -> Fault:
    """Compute on one CPU of this machine during the first half of each `period` runs, of either side."""

    def fault(ended: threading.Event) -> None:
        runs: list[str] = []
        load: subprocess.Popen[bytes] | None = None
        while not ended.wait(SQUEUE_INTERVAL_S):
            runs += [run for run in list_runs() if run not in runs]
            is_loaded = len(runs) > 0 and (len(runs) - 1) % period < period // 2
            if is_loaded and load is None:
                load = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            elif load is not None and not is_loaded:
                load = _end(load)
        if load is not None:
            _end(load)

    return fault


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def load_guest_cpus() -> Fault:
    """Compute on the CPUs of the guests while they run jobs, as another guest pinned there does."""
    busy = "taskset -c $cpu sh -c 'while [ -e /run/vcluster/busy ]; do :; done'"
    start = (
        f"touch /run/vcluster/busy; for cpu in $(seq 0 $(($(nproc) - 1))); do {busy} > /dev/null 2>&1 & done"
    )
    end = "rm -f /run/vcluster/busy"

    def fault(ended: threading.Event) -> None:
        is_loaded = False
        while not ended.wait(SQUEUE_INTERVAL_S):
            if bool(list_virtual_runs()) != is_loaded:
                is_loaded = not is_loaded
                run_on_all_hosts(start if is_loaded else end)
        run_on_all_hosts(end)

    return fault
