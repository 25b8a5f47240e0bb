"""Bringing a cluster up and down, and asking for its state."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vcluster import emulated, namespaces, rdma
from vcluster import state as st
from vcluster.command import read_output
from vcluster.directory import StateDirectory, read_log
from vcluster.errors import BootError, ClusterError, NodeError, OptionError
from vcluster.options import Options
from vcluster.plan import BootPlan
from vcluster.preparation import Report, prepare
from vcluster.processes import Process, kill, list_children, list_namespace_members, read_boot_id

# Slurm marks a node that has not answered lately with a star: `idle*` is not healthy.
HEALTHY_STATES = frozenset({"idle", "allocated", "mixed", "completing"})


@contextmanager
def lock(directory: StateDirectory) -> Iterator[None]:
    """Let a second ``up`` or ``down`` of the same state directory wait."""
    directory.make()
    with directory.lock_file.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def load_running(directory: StateDirectory) -> st.State:
    """Return the state of the cluster that runs, or raise `ClusterError`."""
    if directory.state_file.exists():
        state = st.load_state(directory.state_file)
        if state.status == "up" and state.is_running():
            return state
        if state.status == "starting" and state.is_running():
            raise ClusterError("the cluster is still booting.")
    raise ClusterError(f"no cluster is up in {directory.root}: run `vcluster up`.")


def up(directory: StateDirectory, options: Options, seconds: float, report: Report) -> tuple[st.State, bool]:
    """Bring the cluster up; return its state, and whether this call started it.

    All nodes must be idle after so many seconds. `report` gets one line for each step.
    """
    with lock(directory):
        try:
            state = load_running(directory)
        except ClusterError:
            pass
        else:
            if differences := state.options.differences(options):
                raise OptionError(
                    f"a cluster with other options is up ({'; '.join(differences)}): "
                    "run `vcluster down` first."
                )
            _, damage = inspect_nodes(state)
            if not damage:
                return state, False
            report(f"the running cluster is damaged ({damage}): starting it anew")
        clean(directory)
        state, plan = prepare(directory, options, seconds, report)
        return _launch(directory, state, plan, report), True


def _launch(directory: StateDirectory, state: st.State, plan: BootPlan, report: Report) -> st.State:
    directory.plan_file.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
    rootless = os.geteuid() != 0
    read_end, write_end = os.pipe()
    start = time.monotonic()
    supervisor = [sys.executable, "-m", "vcluster.supervisor", str(directory.plan_file), str(write_end)]
    with (directory.logs / "supervisor.log").open("ab") as log, os.fdopen(read_end, "rb") as progress:
        holder = subprocess.Popen(
            [*namespaces.unshare_command(rootless), *supervisor],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            start_new_session=True,
            cwd="/",
        )
        os.close(write_end)
        try:
            state = _save_processes(directory, state, holder, rootless)
            last_message = _follow(progress, report)
            if "up" not in last_message:
                raise BootError(_explain_failure(directory, last_message))
            state = _add_kvm_parameters(directory, state)
        except BaseException:
            # An interrupt, too, must not leave processes behind.
            holder.kill()
            holder.wait()
            clean(directory)
            raise
    state = state.model_copy(update={"status": "up", "boot_seconds": round(time.monotonic() - start, 2)})
    if plan.rdma_consoles:
        state, messages = rdma.add_devices(state, plan.rdma_consoles)
        for message in messages:
            report(message)
    state.save(directory.state_file)
    return state


def _add_kvm_parameters(directory: StateDirectory, state: st.State) -> st.State:
    """Return the state with the parameters that KVM has on emulated hosts."""
    hosts = [
        host.model_copy(update={"kvm": emulated.read_kvm_parameters(directory.logs, host.name)})
        if host.emulator
        else host
        for host in state.hosts
    ]
    return state.model_copy(update={"hosts": tuple(hosts)})


def _save_processes(
    directory: StateDirectory, state: st.State, holder: subprocess.Popen[bytes], rootless: bool
) -> st.State:
    """Save the processes as soon as they exist, so that ``down`` ends them if `up` is killed."""
    end = time.monotonic() + 10
    while not (children := list_children(holder.pid)):
        if holder.poll() is not None or time.monotonic() > end:
            raise BootError(_explain_failure(directory, {}))
        time.sleep(0.01)
    entry = Process.look_up(children[0])
    processes = st.Processes(
        holder=Process.look_up(holder.pid),
        entry=entry,
        namespaces=namespaces.read_namespaces(entry.pid),
        rootless=rootless,
    )
    state = state.model_copy(update={"processes": processes})
    state.save(directory.state_file)
    user = "--user --preserve-credentials" if rootless else ""
    directory.entry_file.write_text(f"{entry.pid} {entry.started} {user}\n", encoding="utf-8")
    return state


def _follow(progress: IO[bytes], report: Report) -> dict[str, Any]:
    """Report the supervisor's steps; return its last message."""
    message: dict[str, Any] = {}
    for line in progress:
        message = json.loads(line)
        if "step" not in message:
            break
        report(str(message["step"]))
    return message


def _explain_failure(directory: StateDirectory, last_message: dict[str, Any]) -> str:
    """Return why a boot failed, by the supervisor's last message or log, and by the guests' consoles."""
    reason = str(last_message.get("failed", ""))
    if not reason:
        lines = read_log(directory.logs / "supervisor.log").strip().splitlines()
        reason = lines[-1] if lines else "the namespaces could not be made"
    for console in sorted(directory.logs.glob("*.console")):
        for line in read_log(console).splitlines():
            if "vcluster: FAILED" in line:
                reason += f"; {console.stem} says: {line.partition('FAILED: ')[2]}"
    return f"the cluster did not start: {reason} (logs: {directory.logs})"


def boot_vms_anew(directory: StateDirectory, seconds: float) -> None:
    """End all VMs of the running cluster and start each anew; return when all nodes are idle."""
    with lock(directory):
        state = load_running(directory)
        assert state.processes is not None
        # The nodes are down first, so that Slurm starts no job on them.
        nodes = f"nodename={','.join(state.partitions.virtual.nodes)}"
        update = ["scontrol", "update", nodes, "state=down", "reason=VMs are booted anew"]
        _run_on_head(state, update, seconds=30)
        os.kill(state.processes.entry.pid, signal.SIGUSR1)
        end = time.monotonic() + seconds
        while damage := inspect_nodes(state)[1]:
            if time.monotonic() > end:
                raise BootError(
                    f"not all VMs are back within {seconds:g} s: {damage} (logs: {directory.logs})"
                )
            time.sleep(0.5)


def down(directory: StateDirectory) -> bool:
    """Take the cluster down; return False if no cluster was up."""
    if not directory.root.exists():
        return False
    with lock(directory):
        return clean(directory)


def clean(directory: StateDirectory) -> bool:
    """End all processes of a cluster, after a crash too; return False if none ran."""
    try:
        state = st.load_state(directory.state_file)
        processes = state.processes
    except ClusterError:
        # Another version may have started the cluster: its entry file is of the same form.
        state, processes = None, _read_entry_file(directory.entry_file)
    directory.entry_file.unlink(missing_ok=True)
    directory.remove_secrets()
    if processes is None:
        return False
    killed = [process.kill() for process in (processes.entry, processes.holder)]
    for process in (processes.entry, processes.holder):
        process.wait(20)
    # Commands that entered from outside hold the namespaces, and with them the interfaces.
    if processes.entry.boot == read_boot_id():
        members = list_namespace_members(frozenset(processes.namespaces), directory.root)
        killed += [kill(pid) for pid in members]
    if state:
        state.model_copy(update={"status": "down", "processes": None}).save(directory.state_file)
    return any(killed)


def _read_entry_file(path: Path) -> st.Processes | None:
    """Return the processes of the cluster that an entry file names, or None if it has ended."""
    try:
        pid, started, *user = path.read_text(encoding="utf-8").split()
        entry = Process.look_up(int(pid))
        names = namespaces.read_namespaces(entry.pid)
    except (OSError, ValueError):
        return None
    if entry.started != int(started):
        return None
    # The holder ends with the first process of its namespaces.
    return st.Processes(holder=entry, entry=entry, namespaces=names, rootless=bool(user))


def inspect_nodes(state: st.State) -> tuple[dict[str, tuple[str, str]], str]:
    """Return the state and reason that Slurm has of each node, and a text of all damage, empty for none."""
    sinfo = ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]
    try:
        output = _run_on_head(state, sinfo, seconds=15)
    except NodeError as error:
        reason = f"slurmctld does not answer: {error}"
        return dict.fromkeys(state.partitions.nodes, ("unknown", reason)), reason
    nodes = dict.fromkeys(state.partitions.nodes, ("unknown", "Slurm does not list it"))
    for line in output.splitlines():
        name, node_state, reason = line.split("|", 2)
        nodes[name] = (node_state, "" if reason == "none" else reason)
    damage = [
        f"{name} {node_state}: {reason}" if reason else f"{name} {node_state}"
        for name, (node_state, reason) in nodes.items()
        if node_state not in HEALTHY_STATES
    ]
    return nodes, "; ".join(damage)


def _run_on_head(state: st.State, command: list[str], *, seconds: float) -> str:
    """Run a Slurm command on the head of the cluster; return its output, or raise `NodeError`."""
    assert state.processes is not None
    line = namespaces.enter_command(state.processes, command, Path("/"))
    environment = namespaces.head_environment()
    return read_output(line, NodeError, name=command[0], environment=environment, seconds=seconds)
