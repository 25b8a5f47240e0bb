"""First process of the cluster's namespaces: starts the programs, watches them, and ends them when it ends.

``vcluster up`` runs it as ``python -m vcluster.supervisor PLAN PROGRESS``. PROGRESS is the descriptor of a
pipe that takes one JSON object a line: ``{"step": ...}`` during the boot, then ``{"up": seconds}`` or
``{"failed": ...}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from vcluster import emulated, network, qemu, rdma
from vcluster.command import read_output, run
from vcluster.directory import read_log
from vcluster.errors import BootError, ClusterError, NodeError
from vcluster.plan import BootPlan, WatchedProgram
from vcluster.requirements import SEARCH_PATH, program
from vcluster.slurm_conf import CONF, MUNGE_SOCKET, RUN, SPOOL, munge_options
from vcluster.topology import HEAD

CONTROLLER_PORT = 6817
MAX_DAEMON_RESTARTS = 5
# A machine that has printed nothing after this share of the boot's time is started again.
SILENT_SHARE = 0.25
# How long nodes may take to report their RDMA device after all nodes are idle.
RDMA_WAIT_S = 10.0
SHIM = Path(__file__).parent / "shim"


class Supervisor:
    """Starts and watches the programs of a cluster.

    `progress` takes messages to ``vcluster up``; if its reader is gone during the boot, the cluster ends.
    """

    def __init__(self, plan: BootPlan, progress: int) -> None:
        self.plan = plan
        self.progress: int | None = progress
        self.running: dict[int, WatchedProgram] = {}
        # Why a program that ended is not running, by its name.
        self.lost: dict[str, str] = {}
        # A Popen that is deleted has its child reaped by the next: the exit status would be lost.
        self._popens: list[subprocess.Popen[bytes]] = []
        self._unpinned: dict[int, WatchedProgram] = {}
        # Nodes that are booted anew, each with Slurm's time of its last boot.
        self._returning: dict[str, str] = {}
        self._daemon_restarts = 0
        self._crashed: set[str] = set()
        self._silence_checked = False
        self._boots_vms_anew = False
        self._start = time.monotonic()
        self._environment = {**os.environ, "SLURM_CONF": str(CONF), "SPOOL": str(SPOOL), "PATH": SEARCH_PATH}
        if plan.preload is not None:
            self._environment["LD_PRELOAD"] = str(plan.preload)
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self._wake_read, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.signal(signal.SIGUSR1, self._request_new_vms)

    def _request_new_vms(self, *_: object) -> None:
        self._boots_vms_anew = True

    def report(self, **message: object) -> None:
        """Write a message to the log, and during the boot to ``vcluster up``."""
        print(f"{time.monotonic() - self._start:7.2f} s  {json.dumps(message)}", flush=True)
        if self.progress is not None:
            try:
                os.write(self.progress, json.dumps(message).encode() + b"\n")
            except BrokenPipeError:
                raise BootError("the command that started this cluster is gone") from None

    def boot(self) -> None:
        """Start all programs and wait until all nodes are idle."""
        make_private_mounts(self.plan)
        network.make_network(self.plan.namespace_nodes, self.plan.machine_nodes)
        for machine in self.plan.machines:
            self._start_machine(machine)
        machines = "emulated hosts" if self.plan.emulated else "VMs"
        self.report(step=f"network made, {machines} started")
        self.start(WatchedProgram(name="munged", command=("munged", *munge_options())))
        self.wait_for("munged", MUNGE_SOCKET.exists)
        self.start(WatchedProgram(name="slurmctld", command=("slurmctld", "-D", "-i", "-f", str(CONF))))
        self.wait_for("slurmctld", _is_controller_listening)
        for node in self.plan.namespace_nodes:
            cpus = " ".join(map(str, node.cpus))
            enter = ("nsenter", f"--net=/run/netns/{node.name}", "unshare", "--mount", "--uts", "--")
            script = ("bash", str(SHIM / "native-node"), node.name, cpus)
            self.start(WatchedProgram(name=node.name, command=enter + script, nodes=(node.name,)))
        self.report(step="Slurm started")
        self.wait_for("nodes", self._are_all_idle, pause=0.2)
        # A node without RDMA is still a node.
        end = time.monotonic() + RDMA_WAIT_S
        consoles = self.plan.rdma_consoles.values()
        self.wait_for("RDMA", lambda: all(map(rdma.read_answer, consoles)) or time.monotonic() > end)
        self.report(up=round(time.monotonic() - self._start, 2))
        assert self.progress is not None
        os.close(self.progress)
        self.progress = None

    def start(self, watched: WatchedProgram) -> int:
        """Start a program with a log of its own; return its process id."""
        with (self.plan.logs / f"{watched.name}.out").open("ab") as log:
            popen = subprocess.Popen(
                watched.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self._popens.append(popen)
        self.running[popen.pid] = watched
        return popen.pid

    def _start_machine(self, machine: WatchedProgram) -> None:
        self._unpinned[self.start(machine)] = machine

    def wait_for(self, goal: str, condition: Callable[[], object], pause: float = 0.05) -> None:
        """Wait for a condition during the boot; raise `BootError` if a program ends or time is over."""
        assert self.progress is not None
        poll = select.poll()
        poll.register(self.progress, 0)
        while not condition():
            self.watch(pause)
            if self.plan.emulated:
                self._note_lost_vms()
            if self.lost:
                raise BootError(
                    "; ".join(reason + self._last_line(name) for name, reason in self.lost.items())
                )
            if poll.poll(0):
                raise BootError("the command that started this cluster is gone")
            elapsed = time.monotonic() - self._start
            if not self._silence_checked and elapsed > SILENT_SHARE * self.plan.boot_seconds:
                self._silence_checked = True
                self._restart_silent_machines()
            if elapsed > self.plan.boot_seconds:
                states = self._read_states().items()
                late = ", ".join(f"{name} {state}" for name, state in states if state != "idle")
                details = f" ({late}); see {self.plan.logs}" if late else ""
                raise BootError(f"{goal} not ready within {self.plan.boot_seconds:g} s{details}")

    def watch(self, seconds: float) -> None:
        """Wait for children that end, and handle them; return after so many seconds at most."""
        for pid, machine in list(self._unpinned.items()):
            # A process that ends meanwhile is handled below.
            with contextlib.suppress(OSError):
                if not self.plan.pin or qemu.pin(pid, machine.cpus):
                    qemu.raise_priority(pid)
                    del self._unpinned[pid]
        if self._boots_vms_anew:
            self._boots_vms_anew = False
            self.boot_vms_anew()
        if self._returning:
            self._resume_booted_nodes()
            seconds = min(seconds, 1.0)
        select.select([self._wake_read], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 512)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._unpinned.pop(pid, None)
            if ended := self.running.pop(pid, None):
                self._handle_end(ended, os.waitstatus_to_exitcode(status))

    def _note_lost_vms(self) -> None:
        """Note the VMs of emulated hosts that have ended; their hosts print it on their consoles."""
        for host in self.plan.machines:
            console = read_log(self.plan.logs / f"{host.name}.console")
            if match := re.search(r"VM (\S+) (?:died|ended) \(.*?\)", console):
                self.lost[match[1]] = match[0]

    def _restart_silent_machines(self) -> None:
        """Start machines that printed nothing anew: an emulated CPU may hang in the guest's first steps."""
        for machine in self.plan.machines:
            if not read_log(self.plan.logs / f"{machine.name}.console"):
                self._restart(machine)
                seconds = SILENT_SHARE * self.plan.boot_seconds
                self.report(step=f"{machine.name} said nothing for {seconds:.0f} s: started again")

    def _restart(self, machine: WatchedProgram) -> None:
        """End a machine, which does not count as lost, and start it anew."""
        # A machine that has died has no process.
        for pid in [pid for pid, watched in self.running.items() if watched == machine]:
            del self.running[pid]
            self._unpinned.pop(pid, None)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.lost.pop(machine.name, None)
        self._start_machine(machine)

    def _handle_end(self, ended: WatchedProgram, code: int) -> None:
        """Report a program that has ended, and start it again if that helps."""
        is_machine, is_booting = ended in self.plan.machines, self.progress is not None
        if is_machine:
            label = f"{'host' if self.plan.emulated else 'VM'} {ended.name}"
        else:
            label = f"{ended.name}'s slurmd" if ended.nodes else ended.name
        reason = f"{label} died (signal {-code})" if code < 0 else f"{label} ended (exit code {code})"
        if is_booting and is_machine and code < 0 and ended.name not in self._crashed:
            # QEMU 7.2 crashes in one of several hundred boots as an emulated CPU starts; no job runs yet.
            self._crashed.add(ended.name)
            self._start_machine(ended)
            self.report(step=f"{reason} while it booted: started again, once")
            return
        if is_booting:
            self.lost[ended.name] = reason
            return
        self.report(lost=reason)
        if is_machine and self.plan.emulated:
            # A site's watchdog would do the same; the VM on this host comes back with it.
            self._expect_boot(ended.nodes)
            self._take_down(ended.nodes, f"{reason}, is started again")
            self._start_machine(ended)
            self.report(restarted=ended.name)
        elif ended.nodes:
            # Slurm itself would wait for SlurmdTimeout, and the jobs with it.
            self._take_down(ended.nodes, reason)
        elif self._daemon_restarts < MAX_DAEMON_RESTARTS:
            # The head's daemons keep their state on disk: jobs survive their controller.
            self._daemon_restarts += 1
            self.report(restarted=ended.name)
            self.start(ended)

    def _take_down(self, nodes: Iterable[str], reason: str) -> None:
        self.run_slurm("scontrol", "update", f"nodename={','.join(nodes)}", "state=down", f"reason={reason}")

    def _expect_boot(self, nodes: Iterable[str]) -> None:
        """Note nodes that are booted anew; they stay down until each has booted."""
        self._returning |= {node: self._read_boot_time(node) for node in nodes}

    def _read_boot_time(self, node: str) -> str:
        match = re.search(r"BootTime=(\S+)", self.run_slurm("scontrol", "show", "node", node))
        return match[1] if match else ""

    def _resume_booted_nodes(self) -> None:
        """Resume the nodes that have booted anew: Slurm starts jobs on a node as soon as it is resumed."""
        for node, last_boot in list(self._returning.items()):
            if self._read_boot_time(node) not in ("", "None", last_boot):
                del self._returning[node]
                self.run_slurm("scontrol", "update", f"nodename={node}", "state=resume")
                self.report(back=node)

    def boot_vms_anew(self) -> None:
        """End all VMs, whose nodes are down, and start each anew with the memory of a new process."""
        self._expect_boot(node.name for node in self.plan.virtual)
        for machine in self.plan.machines:
            if self.plan.emulated:
                # A host that is lost boots its VM anew when it is started again.
                with contextlib.suppress(NodeError):
                    emulated.run_on_host(self.plan.logs, machine.name, emulated.BOOT_VM_ANEW)
            else:
                self._restart(machine)

    def run_slurm(self, *command: str) -> str:
        """Run a Slurm command; return its output, or nothing if it fails."""
        try:
            return read_output(command, environment=self._environment)
        except ClusterError as error:
            print(error, flush=True)
            return ""

    def _read_states(self) -> dict[str, str]:
        lines = self.run_slurm("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def _are_all_idle(self) -> bool:
        return self._read_states() == {node.name: "idle" for node in self.plan.nodes} and not self._unpinned

    def _last_line(self, name: str) -> str:
        log = read_log(self.plan.logs / f"{name}.out").strip()
        return f": {log.splitlines()[-1][-300:]}" if log else ""


def _is_controller_listening() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", CONTROLLER_PORT)) == 0


def make_private_mounts(plan: BootPlan) -> None:
    """Give the namespaces their own host name, /run, /dev/shm, /etc/hosts, and PMIx's name."""
    socket.sethostname(HEAD)
    _mount("-t", "tmpfs", "-o", "mode=755", "run", "/run")
    _mount("-t", "tmpfs", "-o", "mode=1777", "shm", "/dev/shm")
    shutil.copytree(plan.etc, RUN)
    (RUN / "munge").chmod(0o700)
    SPOOL.mkdir()
    # Guests copy their own: over 9p a file under a mount can have the inode of the mounted file.
    _mount("--bind", str(RUN / "hosts"), "/etc/hosts")
    if plan.pmix is not None:
        link_pmix(plan.pmix)


def link_pmix(folder: Path) -> None:
    """Show a ``libpmix.so`` in a folder that has only ``libpmix.so.N``, in this namespace alone."""
    names = sorted(path.name for path in folder.glob("libpmix.so*"))
    if "libpmix.so" in names or not names:
        return
    layers = RUN / "pmix"
    for name in ("upper", "work"):
        (layers / name).mkdir(parents=True)
    (layers / "upper/libpmix.so").symlink_to(names[0])
    options = f"lowerdir={folder},upperdir={layers}/upper,workdir={layers}/work"
    _mount("-t", "overlay", "-o", options, "overlay", str(folder))


def _mount(*arguments: str) -> None:
    run([program("mount"), *arguments], BootError)


def main(plan_file: str, progress: str) -> int:
    """Boot the cluster and watch it for as long as it runs."""
    plan = BootPlan.model_validate_json(Path(plan_file).read_text(encoding="utf-8"))
    supervisor = Supervisor(plan, int(progress))
    os.set_inheritable(int(progress), False)
    try:
        supervisor.boot()
    except (ClusterError, OSError, subprocess.SubprocessError) as error:
        try:
            supervisor.report(failed=str(error))
        except ClusterError:
            print(error, flush=True)
        return 1
    while True:
        supervisor.watch(60)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
