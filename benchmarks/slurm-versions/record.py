"""Start a cluster of an unpacked release, and record what its Slurm prints.

record.sh calls this in namespaces.

All daemons are children of process 1 of a PID namespace, and end with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

import recorded_commands as recorded  # noqa: E402

USER = 1000
#: As slurm.py asks: times are numbers.
NUMERIC = {"SLURM_TIME_FORMAT": "%s"}
COMMAND_TIMEOUT_S = 120
KERNEL = "5.14.0-503.11.1.el9_5.x86_64"
COMMANDS = ("sinfo", "squeue", "scontrol", "sbatch", "srun", "scancel", "sacct", "sacctmgr", "slurmd")
#: Nodes with a daemon, by host name; the others do not answer.
HOSTS = ("n1", "n2", "v1", "v2", "c1", "c2", "big1", "ip-10-0-0-5", "plain1", "drained1", "down1")
#: Munge's folders and key belong to root.
MUNGE = """chown -R root:root /etc/munge /run/munge /var/lib/munge /var/log/munge
[ -s /etc/munge/munge.key ] || head -c 1024 /dev/urandom > /etc/munge/munge.key
chmod 700 /etc/munge
chmod 600 /etc/munge/munge.key
chmod 755 /run/munge
"""
DATABASE = """rm -rf /var/lib/mysql /var/spool/slurmctld/*
mkdir -p /var/lib/mysql /run/mysqld
ln -sfn mysqld /run/mariadbd
"""
#: What the database knows.
ACCOUNTS = (
    "cluster alpha,beta",
    "qos high MaxWall=00:30:00",
    "qos small GrpTRES=node=1 MaxTRESPerUser=cpu=32 Flags=DenyOnLimit",
    "account staff,students,projects Cluster=alpha,beta",
    "user user Account=staff,students DefaultAccount=students Cluster=alpha",
    "user user Account=staff Cluster=beta",
    "user root Account=staff Cluster=alpha",
)


class Cluster:
    """A cluster in an unpacked release."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.user = USER
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def read_version(self) -> str:
        return re.findall(r"\d+\.\d+", self.run("slurmctld", "-V", user=0).stdout)[0]

    def chroot(self, words: Sequence[str], user: int) -> list[str]:
        return [
            "chroot",
            f"--userspec={user}:{user}",
            str(self.root),
            "sh",
            "-c",
            'cd /tmp; exec "$@"',
            "sh",
            *words,
        ]

    def environment(self, **env: str) -> dict[str, str]:
        """Return an environment with nothing of this process's own but Slurm's variables."""
        known = {key: value for key, value in os.environ.items() if key.startswith(("SLURM_", "SQUEUE_"))}
        known |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C", "TZ": "UTC"}  # noqa: S108
        return known | {"PWD": "/tmp"} | env  # noqa: S108

    def open(self, *words: str, user: int = USER, **env: str) -> subprocess.Popen[str]:
        """Start a command in the release."""
        return subprocess.Popen(
            self.chroot(words, user),
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )

    def run(self, *words: str, user: int = USER, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the release."""
        process = self.open(*words, user=user, **env)
        stdout, stderr = process.communicate(timeout=COMMAND_TIMEOUT_S)
        return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)

    def prepare(self) -> None:
        """Write the configuration, and mount what daemons need."""
        etc = self.root / "etc/slurm"
        shutil.copytree(HERE / "etc", etc, dirs_exist_ok=True)
        self.version = self.read_version()
        newer = self.version >= "23.11"
        (etc / "cgroup.conf").write_text("CgroupPlugin=disabled\n" if newer else "", encoding="utf-8")
        for folder in ("var/spool/slurmctld", "var/spool/slurmctld-beta", "run/munge", "run/mysqld"):
            shutil.rmtree(self.root / folder, ignore_errors=True)
            (self.root / folder).mkdir(parents=True)
        for spool in (self.root / "var/spool").glob("slurmd-*"):
            shutil.rmtree(spool)
        users = self.root / "etc/passwd"
        if "\nuser:" not in users.read_text("utf-8"):
            with users.open("a", encoding="utf-8") as file:
                file.write(f"user:x:{USER}:{USER}:user:/tmp:/bin/sh\n")
            with (self.root / "etc/group").open("a", encoding="utf-8") as file:
                file.write(f"user:x:{USER}:\n")
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost head\n", encoding="utf-8")
        for words in (
            ("mount", "--make-rprivate", "/"),
            ("mount", "-t", "proc", "proc", str(self.root / "proc")),
            ("mount", "--rbind", "/dev", str(self.root / "dev")),
            ("mount", "--rbind", "/sys", str(self.root / "sys")),
            ("ip", "link", "set", "lo", "up"),
            # slurmctld listens only if there is an address besides loopback.
            ("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"),
            ("ip", "address", "add", "10.0.0.1/24", "dev", "eth0"),
            ("ip", "link", "set", "eth0", "up"),
            ("ip", "link", "set", "eth1", "up"),
            ("hostname", "head"),
        ):
            subprocess.run(words, check=True)

    def start(self, name: str, *words: str, host: str | None = None) -> None:
        """Start a daemon, on a host of a name of its own."""
        command = self.chroot(words, 0)
        if host:
            command = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', host, *command]
        log = (self.root / f"var/log/{name}.out").open("wb")
        self.daemons[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_all(self) -> None:
        """Start munged and the cluster."""
        self.run("sh", "-c", MUNGE, user=0)
        self.start("munged", "munged", "--foreground", "--force", "--num-threads=2")
        self.wait("munged", lambda: self.run("munge", "-n").returncode == 0)
        self.start_slurm()

    def start_slurm(self) -> None:
        """Start slurmctld, and slurmd for each host."""
        self.start("slurmctld", "slurmctld", "-D", "-c")
        self.wait("slurmctld", lambda: self.run("scontrol", "ping").returncode == 0)
        for host in HOSTS:
            self.start(f"slurmd.{host}", "slurmd", "-D", host=host)
        self.wait("slurmd", lambda: self.count_idle() >= len(HOSTS))

    def keep_accounts(self) -> None:
        """Start the cluster again, with a database of accounts and a second cluster."""
        for name, daemon in list(self.daemons.items()):
            if name.startswith("slurm"):
                daemon.terminate()
                daemon.wait()
                del self.daemons[name]
        plain, added = ((HERE / "etc" / name).read_text("utf-8") for name in ("slurm.conf", "accounts.conf"))
        plain = plain.replace("AccountingStorageType=accounting_storage/none\n", "")
        (self.root / "etc/slurm/slurm.conf").write_text(plain + added, encoding="utf-8")
        self.start_database()
        for line in ACCOUNTS:
            done = self.run("sacctmgr", "--immediate", "add", *line.split(), user=0)
            if done.returncode:
                raise SystemExit(f"sacctmgr add {line}: {done.stdout}{done.stderr}")
        self.start("slurmctld-beta", "env", "SLURM_CONF=/etc/slurm/beta.conf", "slurmctld", "-D", "-c")
        self.start_slurm()
        self.wait("beta", lambda: self.run("sinfo", "-M", "beta").returncode == 0)

    def start_database(self) -> None:
        """Start MariaDB and slurmdbd."""
        (self.root / "etc/slurm/slurmdbd.conf").chmod(0o600)
        self.run("sh", "-c", DATABASE, user=0)
        options = ["--no-defaults", "--user=root", "--datadir=/var/lib/mysql"]
        sql = b"create database mysql;\nuse mysql;\n"
        for part in ("", "_data"):
            (tables,) = (self.root / "usr/share").glob(f"m*/m*_system_tables{part}.sql")
            sql += tables.read_bytes()
        command = self.chroot(["mariadbd", *options, "--bootstrap"], 0)
        subprocess.run(command, input=sql, check=True, capture_output=True)
        small = ["--skip-networking", "--innodb-buffer-pool-size=16M"]
        self.start("mariadbd", "mariadbd", *options, "--socket=/run/mysqld/mysqld.sock", *small)
        self.wait("mariadbd", lambda: (self.root / "run/mysqld/mysqld.sock").exists())
        library = next(iter(self.root.glob("opt/bookworm/usr/lib/*/libmariadb.so.3")), None)
        preload = [f"LD_PRELOAD=/{library.relative_to(self.root)}"] if library else []
        self.start("slurmdbd", "env", *preload, "slurmdbd", "-D")
        self.wait("slurmdbd", lambda: self.run("sacctmgr", "-n", "show", "qos", user=0).stdout.strip())

    def count_idle(self) -> int:
        nodes = self.run("sinfo", "--noheader", "--Node", "-a", "-o", "%N %T").stdout
        return sum(state == "idle" for _, state in {tuple(line.split()) for line in nodes.splitlines()})

    def wait(self, what: str, ready, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not ready():
            dead = [name for name, daemon in self.daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > end:
                print(self.run("sinfo", "-aN", "-o", "%N %T %E").stdout)
                raise SystemExit(f"{dead or what} did not come up in {seconds} s: see {self.root}/var/log")
            time.sleep(0.3)


class Recorder:
    """Records commands in the folders of scenes; PATH has recorders of Slurm's commands."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.scene = folder
        self.bin = cluster.root / "opt/recorder"
        self.bin.mkdir(parents=True, exist_ok=True)
        for name in COMMANDS:
            path = self.bin / name
            words = shlex.join([sys.executable, str(HERE / "record.py"), "--command", name])
            path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
            path.chmod(0o755)
        os.environ |= {"PATH": f"{self.bin}:{os.environ['PATH']}", "RECORD_ROOT": str(cluster.root)}

    @contextlib.contextmanager
    def at(self, scene: str) -> Iterator[None]:
        self.scene = self.folder / scene
        shutil.rmtree(self.scene, ignore_errors=True)
        self.scene.mkdir(parents=True)
        os.environ["RECORD_SCENE"] = str(self.scene)
        yield

    def run(self, *words: str, user: int = USER, **env: str) -> recorded.Recording:
        done = self.cluster.run(*words, user=user, **NUMERIC, **env)
        return keep(self.scene, words, env, done)


def keep(
    scene: Path, words: Sequence[str], env: Mapping[str, str], done: subprocess.CompletedProcess[str]
) -> recorded.Recording:
    """Write what a command printed; the kernel is that of this machine, and has no place there."""
    stdout, stderr = (text.replace(os.uname().release, KERNEL) for text in (done.stdout, done.stderr))
    recording = recorded.Recording(recorded.name_command(words, env), stdout, stderr, done.returncode)
    recorded.write(scene, recording)
    return recording


def run_recorded(words: Sequence[str]) -> int:
    """Run a command of Slurm for a program, and record it."""
    done = Cluster(Path(os.environ["RECORD_ROOT"])).run(*words)
    keep(Path(os.environ["RECORD_SCENE"]), words, os.environ, done)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def main() -> int:
    if sys.argv[1] == "--command":
        return run_recorded(sys.argv[2:])
    import scenes

    root, corpus = map(Path, sys.argv[1:])
    cluster = Cluster(root)
    cluster.prepare()
    cluster.start_all()
    folder = corpus / cluster.version
    recorder = Recorder(cluster, folder)
    for node, state, reason in (
        ("drained1", "DRAIN", "DIMM 3 | replaced on Friday"),
        ("down1", "DOWN", "no fan"),
        ("v2", "DRAIN", "kernel=5.14 State=bad"),
    ):
        cluster.run("scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}", user=0)
    for words in (
        "ReservationName=maint StartTime=2030-01-01T00:00:00 Duration=60 Users=root Nodes=n1 Flags=MAINT",
        "ReservationName=course StartTime=now Duration=600 Users=user Nodes=n2",
    ):
        done = cluster.run("scontrol", "create", "reservation", *words.split(), user=0)
        print(done.stdout, done.stderr)
    scenes.record(recorder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
