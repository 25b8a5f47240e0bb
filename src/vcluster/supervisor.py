"""First process of the cluster's namespaces: starts everything, watches it, and takes it along when it ends.

Run by ``vcluster up`` as ``python -m vcluster.supervisor PLAN PROGRESS``; PROGRESS is the descriptor of a
pipe that takes one JSON object a line: ``{"step": ...}`` while booting, then ``{"up": seconds}`` or
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
from vcluster.command import run, text
from vcluster.errors import BootError, ClusterError, NodeError
from vcluster.plan import BootPlan, WatchedProgram
from vcluster.requirements import SEARCH, program
from vcluster.slurm_conf import CONF, MUNGE_SOCKET, RUN, SPOOL, munge_options
from vcluster.topology import HEAD

CONTROLLER_PORT = 6817
RESTARTS = 5
# A VM that has printed nothing after this share of the time that booting may take is started again.
SILENCE = 0.25
# How long nodes may take to say what became of their RDMA device once all nodes are idle.
RDMA_SECONDS = 10.0
SHIM = Path(__file__).parent / "shim"


class Supervisor:
    """Starts and watches the programs of a cluster.

    Parameters
    ----------
    plan : BootPlan
        The programs and nodes to start.
    progress : int
        Descriptor that tells how far it is; when nobody reads it any more while the cluster boots, the
        cluster ends.
    """

    def __init__(self, plan: BootPlan, progress: int) -> None:
        self.plan = plan
        self.progress = progress
        self.running: dict[int, WatchedProgram] = {}
        self.lost: dict[str, str] = {}
        self._restarts = 0
        self._keep: list[subprocess.Popen[bytes]] = []
        self._unpinned: dict[int, WatchedProgram] = {}
        # Nodes that are booted anew, each with what Slurm knew of its last boot.
        self._returning: dict[str, str] = {}
        self._asked_anew = False
        self._heard = False
        self._crashed: set[str] = set()
        self._began = time.monotonic()
        self._environment = {**os.environ, "SLURM_CONF": str(CONF), "SPOOL": str(SPOOL), "PATH": SEARCH}
        if plan.preload is not None:
            self._environment["LD_PRELOAD"] = str(plan.preload)
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self._wake_read, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.signal(signal.SIGUSR1, self._ask_anew)

    def _ask_anew(self, *_: object) -> None:
        self._asked_anew = True

    def tell(self, **message: object) -> None:
        """Report to whoever started the cluster, and to the log."""
        print(f"{time.monotonic() - self._began:7.2f} s  {json.dumps(message)}", flush=True)
        if self.progress >= 0:
            try:
                os.write(self.progress, json.dumps(message).encode() + b"\n")
            except BrokenPipeError:
                raise BootError("whoever started this cluster is gone") from None

    def boot(self) -> None:
        """Start everything and wait until all nodes are idle.

        Raises
        ------
        BootError
            If a part does not start, or not in time.
        """
        private_mounts(self.plan)
        network.build(self.plan.namespaced, self.plan.machine_nodes)
        for machine in self.plan.machines:
            self._start_machine(machine)
        what = "emulated hosts" if self.plan.emulated else "VMs"
        self.tell(step=f"network made, {what} started")
        self.start(WatchedProgram(name="munged", command=("munged", *munge_options())))
        self.wait_for("munged", MUNGE_SOCKET.exists)
        self.start(WatchedProgram(name="slurmctld", command=("slurmctld", "-D", "-i", "-f", str(CONF))))
        self.wait_for("slurmctld", _controller_listens)
        for node in self.plan.namespaced:
            cpus = " ".join(map(str, node.cpus))
            enter = ("nsenter", f"--net=/run/netns/{node.name}", "unshare", "--mount", "--uts", "--")
            script = ("bash", str(SHIM / "native-node"), node.name, cpus)
            self.start(WatchedProgram(name=node.name, command=enter + script, nodes=(node.name,)))
        self.tell(step="Slurm started")
        self.wait_for("nodes", self._all_idle, pause=0.2)
        if self.plan.rdma_consoles:
            # A node without RDMA is still a node; `state.json` keeps what each has said, if anything.
            patience = time.monotonic() + RDMA_SECONDS
            self.wait_for("RDMA", lambda: self._has_rdma_answers() or time.monotonic() > patience)
        self.tell(up=round(time.monotonic() - self._began, 2))
        os.close(self.progress)
        self.progress = -1

    def start(self, watched: WatchedProgram) -> int:
        """Start a program with a log of its own; return its process id."""
        with (self.plan.logs / f"{watched.name}.out").open("ab") as log:
            started = subprocess.Popen(
                watched.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self._keep.append(started)
        self.running[started.pid] = watched
        return started.pid

    def _start_machine(self, machine: WatchedProgram) -> None:
        self._unpinned[self.start(machine)] = machine

    def wait_for(self, goal: str, condition: Callable[[], object], pause: float = 0.05) -> None:
        """Wait until the condition holds, while nothing dies and somebody waits for the cluster."""
        poll = select.poll()
        poll.register(self.progress, 0)
        while not condition():
            self.watch(pause)
            if self.plan.emulated:
                self._hear_of_vms()
            if self.lost:
                raise BootError("; ".join(why + self._last_words(name) for name, why in self.lost.items()))
            if poll.poll(0):
                raise BootError("whoever started this cluster is gone")
            took = time.monotonic() - self._began
            if not self._heard and took > SILENCE * self.plan.boot_seconds:
                self._heard = True
                self._start_silent_machines_again()
            if took > self.plan.boot_seconds:
                raise BootError(f"{goal} not ready within {self.plan.boot_seconds:g} s{self._laggards()}")

    def watch(self, seconds: float) -> None:
        """Wait for children that end, this long at most, and deal with them."""
        for pid, machine in list(self._unpinned.items()):
            try:
                if not self.plan.pin or qemu.pin(pid, machine.cpus):
                    qemu.prefer(pid)
                    del self._unpinned[pid]
            except OSError:
                continue
        if self._asked_anew:
            self._asked_anew = False
            self.boot_vms_anew()
        if self._returning:
            self._welcome()
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
            ended = self.running.pop(pid, None)
            self._unpinned.pop(pid, None)
            if ended is not None:
                self._mourn(ended, os.waitstatus_to_exitcode(status))

    def _hear_of_vms(self) -> None:
        """Note the VMs of emulated hosts that have ended: their hosts say so on their consoles."""
        for host in self.plan.machines:
            console = self.plan.logs / f"{host.name}.console"
            said = console.read_text(errors="replace", encoding="utf-8") if console.exists() else ""
            if ended := re.search(r"VM (\S+) (?:died|ended) \(.*?\)", said):
                self.lost[ended[1]] = ended[0]

    def _start_silent_machines_again(self) -> None:
        """Start anew, once, what has not said a word: an emulated CPU may hang in the guest's first steps."""
        for machine in self.plan.machines:
            console = self.plan.logs / f"{machine.name}.console"
            if console.exists() and console.stat().st_size > 0:
                continue
            self._start_again(machine)
            silent = f"{SILENCE * self.plan.boot_seconds:.0f} s"
            self.tell(step=f"{machine.name} said nothing for {silent}: started again")

    def _start_again(self, machine: WatchedProgram) -> None:
        """End a machine, which is no loss to be reported, and start it anew."""
        # It may have died, and be gone.
        for pid in [pid for pid, one in self.running.items() if one == machine]:
            del self.running[pid]
            self._unpinned.pop(pid, None)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.lost.pop(machine.name, None)
        self._start_machine(machine)

    def _mourn(self, ended: WatchedProgram, code: int) -> None:
        how = f"died (signal {-code})" if code < 0 else f"ended (exit code {code})"
        why = f"{self._label(ended)} {how}"
        crashed = code < 0 and ended in self.plan.machines
        if crashed and self.progress >= 0 and ended.name not in self._crashed:
            # QEMU 7.2 crashes in one of some hundred boots as an emulated CPU starts; nothing ran on it yet.
            self._crashed.add(ended.name)
            self._start_machine(ended)
            self.tell(step=f"{why} while it booted: started again, once")
            return
        self.lost[ended.name] = why
        if self.progress >= 0:
            return
        self.tell(lost=why)
        if ended in self.plan.machines and self.plan.emulated:
            # A site's watchdog would do the same; the VM on this host comes back with it.
            del self.lost[ended.name]
            self._expect_anew(ended.nodes)
            self._take_down(ended.nodes, f"{why}, is started again")
            self._start_machine(ended)
            self.tell(restarted=ended.name)
        elif ended.nodes:
            # At once: by itself Slurm would wait for SlurmdTimeout, and the jobs with it.
            self._take_down(ended.nodes, why)
        elif self._restarts < RESTARTS:
            # The head's daemons keep what they know on disk: jobs survive their controller.
            self._restarts += 1
            del self.lost[ended.name]
            self.tell(restarted=ended.name)
            self.start(ended)

    def _label(self, ended: WatchedProgram) -> str:
        if ended in self.plan.machines:
            return f"{'host' if self.plan.emulated else 'VM'} {ended.name}"
        return f"{ended.name}'s slurmd" if ended.nodes else ended.name

    def _take_down(self, nodes: Iterable[str], why: str) -> None:
        self.ask("scontrol", "update", f"nodename={','.join(nodes)}", "state=down", f"reason={why}")

    def _expect_anew(self, nodes: Iterable[str]) -> None:
        """Have nodes that are booted anew used again when each has said so; until then they are down."""
        self._returning |= {node: self._boot_time(node) for node in nodes}

    def _boot_time(self, node: str) -> str:
        found = re.search(r"BootTime=(\S+)", self.ask("scontrol", "show", "node", node))
        return found[1] if found else ""

    def _welcome(self) -> None:
        """Use the nodes again that have booted anew.

        Not before: Slurm takes a node that it was told to resume for idle, and starts jobs on it.
        """
        for node, before in list(self._returning.items()):
            if self._boot_time(node) not in ("", "None", before):
                del self._returning[node]
                self.ask("scontrol", "update", f"nodename={node}", "state=resume")
                self.tell(back=node)

    def boot_vms_anew(self) -> None:
        """End all VMs, whose nodes were taken down, and start each anew with the memory of a new process."""
        self._expect_anew(node.name for node in self.plan.virtual)
        if self.plan.emulated:
            for machine in self.plan.machines:
                # Of a host that is started again the VM is, too.
                with contextlib.suppress(NodeError):
                    emulated.command(self.plan.logs, machine.name, emulated.BOOT_VM_ANEW)
        else:
            for machine in self.plan.machines:
                self._start_again(machine)

    def ask(self, *command: str) -> str:
        """Run a Slurm command; return its output, or nothing if it fails."""
        try:
            return text(command, environment=self._environment)
        except ClusterError as error:
            print(error, flush=True)
            return ""

    def _states(self) -> dict[str, str]:
        lines = self.ask("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def _all_idle(self) -> bool:
        states = self._states()
        idle = {name for name, state in states.items() if state == "idle"}
        return idle == {node.name for node in self.plan.nodes} and not self._unpinned

    def _has_rdma_answers(self) -> bool:
        return all(rdma.answer(console) for console in self.plan.rdma_consoles.values())

    def _last_words(self, name: str) -> str:
        text = (self.plan.logs / f"{name}.out").read_text(errors="replace", encoding="utf-8").strip()
        return f": {text.splitlines()[-1][-300:]}" if text else ""

    def _laggards(self) -> str:
        late = [f"{name} {state}" for name, state in self._states().items() if state != "idle"]
        return f" ({', '.join(late)}); see {self.plan.logs}" if late else ""


def _controller_listens() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", CONTROLLER_PORT)) == 0


def private_mounts(plan: BootPlan) -> None:
    """Give the namespaces what differs from the host: name, /run, /dev/shm, /etc/hosts, the name of PMIx."""
    socket.sethostname(HEAD)
    _mount("-t", "tmpfs", "-o", "mode=755", "run", "/run")
    _mount("-t", "tmpfs", "-o", "mode=1777", "shm", "/dev/shm")
    shutil.copytree(plan.etc, RUN)
    (RUN / "munge").chmod(0o700)
    SPOOL.mkdir()
    # Over 9p a mounted file can come out as the file below: the guests bring their own.
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
    supervisor = Supervisor(
        BootPlan.model_validate_json(Path(plan_file).read_text(encoding="utf-8")), int(progress)
    )
    os.set_inheritable(int(progress), False)
    try:
        supervisor.boot()
    except (ClusterError, OSError, subprocess.SubprocessError) as error:
        try:
            supervisor.tell(failed=str(error))
        except ClusterError:
            print(error, flush=True)
        return 1
    while True:
        supervisor.watch(60)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
