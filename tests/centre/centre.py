"""A centre on one machine: a real Slurm over many nodes of 64 cores, which are namespaces.

    python tests/centre/centre.py SHAPE.yaml DIRECTORY [COMMAND ...]

makes the centre, runs a command on its login node (a shell where none is given), and takes the centre down
again.  Slurm and ReFrame are real, the programs are stand-ins that sleep (``stand_ins.py``).  What a node
shows of its 64 cores is stated in `_shown` and, where a file cannot state it, in ``shows.c``; no gate knows
of it.  Its accounting (slurmdbd over MariaDB) knows accounts and QOS; it has no figures of jobs' resources,
since no node gathers any.  Needs root, a C compiler, and Debian's packages: see `PROGRAMS`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from vcluster import network
from vcluster.topology import HEAD_ADDRESS, MAC, Node

HERE = Path(__file__).resolve().parent
RUN = Path("/run/centre")
#: What a centre needs of this machine, by the Debian package that has it.
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "munged": "munge",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
}
#: Where that has the tables that every database needs.
SQL = Path("/usr/share/mysql")
#: Who may compute on the partitions that are compared, as its accounting and its partitions have it.
ACCOUNT, QOS = "performance", "qualification"
#: Seconds in which Slurm has all nodes idle.
PATIENCE = 90
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Shape:
    """What a centre has, as its file says."""

    nodes: dict[str, int]
    cores: int
    sockets: int
    memory_mib: int
    truth: dict[str, object]

    @classmethod
    def read(cls, file: Path) -> Shape:
        return cls(**yaml.safe_load(file.read_text(encoding="utf-8")))

    def names(self, kind: str) -> list[str]:
        return [f"{NAMES[kind]}{k}" for k in range(1, self.nodes[kind] + 1)]

    def machines(self) -> list[Node]:
        """Return all nodes with their addresses; each group has a network part of its own."""
        return [
            Node(name=name, address=f"10.77.{group}.{k}", mac=f"{MAC}:{group:02x}:{k:02x}", cpus=(0,))
            for group, kind in enumerate(NAMES, 1)
            for k, name in enumerate(self.names(kind), 1)
        ]


NAMES = {"native": "bare", "virtual": "vm", "gpu": "gpu"}


def _shown(shape: Shape, kind: str) -> dict[str, str]:
    """Return the files by which a node of a kind says what it is."""
    cores, each = shape.cores, shape.cores // shape.sockets
    spans = [f"{s * each}-{(s + 1) * each - 1}" for s in range(shape.sockets)]
    flags = "fpu sse2 avx avx2 avx512f constant_tsc" + " hypervisor" * (kind == "virtual")
    files = {
        "/proc/cpuinfo": "".join(
            f"processor\t: {cpu}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
            f"model name\t: AMD EPYC 9354\nstepping\t: 1\nmicrocode\t: 0xa101148\n"
            f"physical id\t: {cpu // each}\ncore id\t\t: {cpu % each}\ncpu cores\t: {each}\n"
            f"flags\t\t: {flags}\n\n"
            for cpu in range(cores)
        ),
        "/proc/meminfo": f"MemTotal:       {shape.memory_mib * 1024} kB\nSwapTotal:             0 kB\n",
        "/proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        "/sys/devices/system/cpu/online": f"0-{cores - 1}\n",
        "/sys/devices/system/cpu/smt/active": "0\n",
        "/sys/devices/system/cpu/smt/control": "off\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet\n",
        "/sys/devices/virtual/dmi/id/sys_vendor": "QEMU\n" if kind == "virtual" else "Rehearsed\n",
        "/sys/devices/virtual/dmi/id/product_name": "Standard PC\n" if kind == "virtual" else "R2\n",
        "/sys/hypervisor/type": "",
    }
    for cpu in range(cores):
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        files[f"{topology}/physical_package_id"] = f"{cpu // each}\n"
        files[f"{topology}/thread_siblings_list"] = f"{cpu}\n"
    for index, (level, what, size) in enumerate(
        [(1, "Data", "32K"), (2, "Unified", "1024K"), (3, "Unified", "32M")]
    ):
        cache = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        files |= {f"{cache}/level": f"{level}\n", f"{cache}/type": f"{what}\n", f"{cache}/size": f"{size}\n"}
        files[f"{cache}/shared_cpu_list"] = f"{spans[0] if level == 3 else 0}\n"
    for node, span in enumerate(spans):
        near = " ".join("10" if other == node else "32" for other in range(shape.sockets))
        files |= {
            f"/sys/devices/system/node/node{node}/cpulist": f"{span}\n",
            f"/sys/devices/system/node/node{node}/distance": f"{near}\n",
        }
    return files


#: Where whole directories are replaced: what stands there of this machine would be seen, too.
REPLACED = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/devices/virtual/dmi/id")


def _slurm_conf(shape: Shape) -> str:
    each = shape.cores // shape.sockets
    lines = [
        "ClusterName=centre",
        f"SlurmctldHost=login({HEAD_ADDRESS})",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        "MpiDefault=none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SlurmdParameters=config_overrides",
        # Jobs of two partitions begin by backfill alone: more often than the usual 30 s.
        "SchedulerParameters=bf_interval=5",
        "MailProg=/bin/true",
        "MinJobAge=300",
        "KillWait=5",
        "SlurmdTimeout=30",
        "ReturnToService=2",
        "TreeWidth=64",
        f"SlurmdSpoolDir={RUN}/spool",
        f"StateSaveLocation={RUN}/state",
        f"SlurmctldPidFile={RUN}/slurmctld.pid",
        f"SlurmdPidFile={RUN}/spool/slurmd.pid",
        f"SlurmctldLogFile={RUN}/log/slurmctld.log",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=login",
        "AccountingStorageEnforce=associations,limits,qos",
        "EnforcePartLimits=ALL",
    ]
    for machine in shape.machines():
        gpu = machine.name.startswith(NAMES["gpu"])
        size = (1, 8) if gpu else (shape.sockets, each)
        lines.append(
            f"NodeName={machine.name} NodeAddr={machine.address} Sockets={size[0]} CoresPerSocket={size[1]} "
            f"ThreadsPerCore=1 RealMemory={shape.memory_mib} State=UNKNOWN"
        )
    for kind in NAMES:
        who = f" AllowAccounts={ACCOUNT} AllowQos={QOS}" * (kind != "gpu")
        nodes = ",".join(shape.names(kind))
        lines.append(f"PartitionName={NAMES[kind]} Nodes={nodes} MaxTime=1-00:00:00 State=UP{who}")
    return "\n".join(lines) + "\n"


def _slurmdbd_conf() -> str:
    lines = [
        "DbdHost=login",
        "SlurmUser=root",
        "AuthType=auth/munge",
        "StorageType=accounting_storage/mysql",
        "StorageUser=root",
        f"LogFile={RUN}/log/slurmdbd.log",
        f"PidFile={RUN}/slurmdbd.pid",
    ]
    return "\n".join(lines) + "\n"


class Centre:
    """A centre, taken down when the block ends."""

    def __init__(self, shape: Shape, directory: Path) -> None:
        self.shape, self.directory = shape, directory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Centre:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log").mkdir(exist_ok=True)
        _build(self.shape, self.directory)
        ready, told = os.pipe()
        spaces = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL"]
        line = [*spaces, "--mount-proc", sys.executable, str(Path(__file__).resolve()), "--inside"]
        with (self.directory / "log/centre.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*line, str(self.directory), str(told)],
                pass_fds=[told],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, sys.path)))},
            )
        os.close(told)
        # `unshare` keeps its end of the pipe open: there is one message, and no end.
        said = os.read(ready, 4096).decode()
        os.close(ready)
        if not said.startswith("up"):
            log = (self.directory / "log/centre.log").read_text(encoding="utf-8", errors="replace")
            self.__exit__()
            raise RuntimeError(f"the centre did not come up: {said}\n{log[-3000:]}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @contextmanager
    def showing(self, name: str, kind: str, shape: Shape) -> Iterator[None]:
        """Have a node show the CPUs and NUMA nodes of another shape, for as long as the block lasts."""
        room = self.directory / "etc" / name
        _write_shown(shape, kind, room)
        (slurmd,) = self.run("pgrep", "-f", f"slurmd -D -N {name}$").stdout.split()
        inside = ["nsenter", f"--target={slurmd}", "--mount", "--"]
        places = [place for place in REPLACED if "cpu" in place or "node" in place]
        for place in places:
            assert self.run(*inside, "mount", "--bind", f"{room}{place}", place).returncode == 0
        try:
            yield
        finally:
            for place in places:
                self.run(*inside, "umount", "--lazy", place)

    @property
    def _first(self) -> int:
        """The first process of the namespaces, by this machine's numbers."""
        assert self._process is not None
        return child_of(self._process.pid)

    def enter(self, *command: str) -> list[str]:
        """Return the command line that runs a command on the login node."""
        spaces = ["--mount", "--net", "--uts", "--ipc", "--pid"]
        return ["nsenter", f"--target={self._first}", *spaces, "--", *command]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a user on the login node."""
        return {**os.environ, "PATH": SBIN, "SLURM_CONF": str(RUN / "etc/slurm.conf"), **more}

    def run(self, *command: str, seconds: float = 600, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node to its end."""
        return subprocess.run(
            self.enter(*command),
            env=self.environment(**env),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


def child_of(pid: int) -> int:
    """Return the only process that one has started."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return int(child)


def _build(shape: Shape, directory: Path) -> None:
    """Write all that the nodes find, before there are any."""
    etc = directory / "etc"
    shutil.rmtree(etc, ignore_errors=True)
    etc.mkdir()
    (etc / "slurm.conf").write_text(_slurm_conf(shape), encoding="utf-8")
    (etc / "slurmdbd.conf").touch(mode=0o600)
    (etc / "slurmdbd.conf").write_text(_slurmdbd_conf(), encoding="utf-8")
    (etc / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
    hosts = [f"{HEAD_ADDRESS} login", "127.0.0.1 localhost"]
    hosts += [f"{machine.address} {machine.name}" for machine in shape.machines()]
    (etc / "hosts").write_text("\n".join(hosts) + "\n", encoding="utf-8")
    key = etc / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    for kind in NAMES:
        _write_shown(shape, kind, etc / kind)
    (etc / "shape.yaml").write_text(yaml.safe_dump(shape.__dict__), encoding="utf-8")
    library = ["cc", "-O2", "-fPIC", "-shared", "-o", str(etc / "shows.so"), str(HERE / "shows.c"), "-ldl"]
    subprocess.run(library, check=True)


def _write_shown(shape: Shape, kind: str, room: Path) -> None:
    for path, text in _shown(shape, kind).items():
        file = room / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _inside(directory: Path, told: int) -> None:
    """Make the centre in the namespaces that this process is the first of, and wait for its end."""
    # Of Slurm the machine's own: the one-machine cluster has commands of the same names.
    os.environ["PATH"] = SBIN
    shape = Shape.read(directory / "etc/shape.yaml")
    subprocess.run(["hostname", "login"], check=True)
    # The nodes see what is mounted on the login node later, as they would see a file system that all share.
    _mount("--make-rshared", "/")
    _mount("-t", "tmpfs", "-o", "mode=755", "run", "/run")
    shutil.copytree(directory / "etc", RUN / "etc", ignore=shutil.ignore_patterns(*NAMES))
    for name in ("munge", "state", "spool", "log"):
        (RUN / name).mkdir(mode=0o700)
    Path("/run/munge").mkdir(mode=0o755)
    for name in ("upper", "work"):
        (RUN / name).mkdir()
    # What is written there is seen here alone.
    _mount("-t", "overlay", "-o", f"lowerdir=/etc,upperdir={RUN}/upper,workdir={RUN}/work", "overlay", "/etc")
    shutil.copy(RUN / "etc/hosts", "/etc/hosts")
    Path("/etc/ld.so.preload").touch()
    network.make_network(tuple(shape.machines()), ())
    os.environ["SLURM_CONF"] = str(RUN / "etc/slurm.conf")
    logs = directory / "log"
    _start(
        logs,
        "munged",
        *["munged", "--foreground", "--force", f"--key-file={RUN}/etc/munge.key"],
        *[f"--{what}-file={RUN}/munge/{what}" for what in ("pid", "log", "seed")],
    )
    _until(Path("/run/munge/munge.socket.2").exists, "munged")
    _account(logs)
    _start(logs, "slurmctld", "slurmctld", "-D", "-i")
    for kind in NAMES:
        for name in shape.names(kind):
            node = [sys.executable, str(Path(__file__).resolve()), "--node", str(directory), kind, name]
            spaces = ["unshare", "--mount", "--propagation=slave", "--uts"]
            _start(logs, name, "nsenter", f"--net=/run/netns/{name}", *spaces, "--", *node)
    every = len(shape.machines())
    _until(lambda: _states().count("idle") == every, "nodes", lambda: " ".join(_states()))
    os.write(told, b"up")
    os.close(told)
    # The first process of its namespace is the parent of every orphan.
    while True:
        os.wait()


def _account(logs: Path) -> None:
    """Start the accounting, with one user who has two accounts: that of the partitions is not the default."""
    socket, data = Path("/run/mysqld/mysqld.sock"), RUN / "mariadb"
    socket.parent.mkdir()
    options = ["--no-defaults", "--user=root", f"--datadir={data}"]
    # What `mariadb-install-db` does, of which a part is in another, larger package.
    tables = [SQL / f"mysql_system_tables{part}.sql" for part in ("", "_data")]
    made = "create database mysql;\nuse mysql;\n" + "".join(file.read_text("utf-8") for file in tables)
    data.mkdir()
    subprocess.run(["mariadbd", *options, "--bootstrap"], input=made, text=True, check=True)
    small = ["--skip-networking", f"--socket={socket}", "--innodb-buffer-pool-size=16M"]
    _start(logs, "mariadbd", "mariadbd", *options, *small)
    _until(socket.exists, "mariadbd")
    _start(logs, "slurmdbd", "slurmdbd", "-D")

    def sacctmgr(*words: str) -> bool:
        return subprocess.run(["sacctmgr", "--immediate", "add", *words], check=False).returncode == 0

    _until(lambda: sacctmgr("cluster", "centre"), "slurmdbd")
    for line in (
        ("qos", QOS, "MaxWall=12:00:00"),
        ("account", f"teaching,{ACCOUNT}", "Cluster=centre"),
        ("user", "root", f"Account=teaching,{ACCOUNT}", "DefaultAccount=teaching", f"QOS=normal,{QOS}"),
    ):
        if not sacctmgr(*line):
            raise SystemExit(f"sacctmgr refused: {' '.join(line)}")


def _start(logs: Path, name: str, *command: str) -> None:
    with (logs / f"{name}.out").open("ab") as log:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def _states() -> list[str]:
    line = ["sinfo", "--noheader", "--Node", "--format=%T"]
    return subprocess.run(line, capture_output=True, text=True, check=False).stdout.split()


def _until(true, what: str, seen=lambda: "") -> None:
    until = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > until:
            raise SystemExit(f"{what} not ready after {PATIENCE} s: {seen()}")
        time.sleep(0.2)


def _node(directory: Path, kind: str, name: str) -> None:
    """Become a node's slurmd, in a view of the machine that is the node's."""
    subprocess.run(["hostname", name], check=True)
    _mount("-t", "sysfs", "sysfs", "/sys")
    shape = Shape.read(RUN / "etc/shape.yaml")
    shows = directory / "etc" / kind
    for place in REPLACED:
        if Path(place).is_dir():
            _mount("--bind", shows / place.lstrip("/"), place)
    for path in _shown(shape, kind):
        if not path.startswith(REPLACED) and Path(path).exists():
            _mount("--bind", shows / path.lstrip("/"), path)
    # A view of its own of what all nodes have under one name.
    own = RUN / "nodes" / name
    (own / "spool").mkdir(parents=True)
    (own / "boot_id").write_text(f"{hash_of(name)}\n", encoding="utf-8")
    (own / "ld.so.preload").write_text(f"{RUN}/etc/shows.so\n", encoding="utf-8")
    (own / "cpus").write_text(f"{shape.cores}\n", encoding="utf-8")
    (own / "node").write_text(f"{kind} {name}\n", encoding="utf-8")
    _mount("--bind", own / "boot_id", "/proc/sys/kernel/random/boot_id")
    _mount("--bind", own / "spool", RUN / "spool")
    for what in ("cpus", "node"):
        (RUN / what).touch()
        _mount("--bind", own / what, RUN / what)
    _mount("-t", "tmpfs", "-o", "mode=1777", "shm", "/dev/shm")
    _mount("--bind", own / "ld.so.preload", "/etc/ld.so.preload")
    os.execvp("slurmd", ["slurmd", "-D", "-N", name])


def hash_of(name: str) -> str:
    """Return a boot's id, one for each node."""
    import uuid

    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def main(arguments: list[str]) -> int:
    match arguments:
        case ["--inside", directory, told]:
            try:
                _inside(Path(directory), int(told))
            except BaseException as error:
                os.write(int(told), repr(error).encode())
                raise
        case ["--node", directory, kind, name]:
            _node(Path(directory), kind, name)
        case [shape, directory, *command]:
            with Centre(Shape.read(Path(shape)), Path(directory).resolve()) as centre:
                line = centre.enter(*(command or [os.environ.get("SHELL", "/bin/sh")]))
                return subprocess.run(line, env=centre.environment(), check=False).returncode
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
