"""`virtqual pair` over a real ssh, to servers of this user on the loopback interface."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from calling import call
from planted_commands import ALLOWED, METRIC

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
HOSTS = ("bm1", "vm1")


def find_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start_server(directory, host):
    """Start a server with a host name of its own if this user is root, and return it with its port."""
    port, key = find_port(), directory / f"{host}.key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    options = {
        "ListenAddress": "127.0.0.1",
        "AuthorizedKeysFile": directory / "user.key.pub",
        "UsePAM": "no",
        "StrictModes": "no",
        "PidFile": "none",
        "PermitRootLogin": "yes",
    }
    words = [SSHD, "-D", "-f", "/dev/null", "-p", str(port), "-h", str(key)]
    words += [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
        words = ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh", *words]
    with (directory / f"{host}.log").open("wb") as log:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log, start_new_session=True), port


@pytest.fixture
def ssh(plant, tmp_path, monkeypatch):
    """Return the command that logs in to a host, such as `ssh -F config bm1`."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("OpenSSH's server and client are not installed")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "user.key"], check=True)
    servers, config = [], ""
    try:
        for host in HOSTS:
            server, port = start_server(tmp_path, host)
            servers.append(server)
            config += (
                f"Host {host}\nHostName 127.0.0.1\nPort {port}\nUser {pwd.getpwuid(os.getuid()).pw_name}\n"
            )
        config += f"Host *\nIdentityFile {tmp_path}/user.key\nIdentitiesOnly yes\nLogLevel ERROR\n"
        config += f"StrictHostKeyChecking no\nUserKnownHostsFile {tmp_path}/known\nBatchMode yes\n"
        (tmp_path / "config").write_text(config)
        login = f"ssh -F {tmp_path}/config"
        for host in HOSTS:
            wait_for_login(f"{login} {host} true")
        yield login
    finally:
        for server in servers:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


def wait_for_login(command):
    deadline = time.monotonic() + 20
    while (done := subprocess.run(command.split(), stdin=subprocess.DEVNULL, capture_output=True)).returncode:
        if time.monotonic() > deadline:
            pytest.skip(f"this user cannot log in here: {done.stderr.decode().strip()}")
        time.sleep(0.2)


def test_two_hosts_over_ssh(ssh, plant, tmp_path):
    commands = []
    for host, name in zip(HOSTS, "ab", strict=True):
        plant(name, 100, 100.1, 99.9, 100.2, 100)
        commands.append(f"{ssh} {host} 'cd {tmp_path} && ./program {name}'")
    notes = [f"{ssh} {host}" for host in HOSTS]
    done = call("pair", *commands, *METRIC, *ALLOWED, "--note", *notes, "--csv", "it.csv", code=0)
    # Both have the kernel of this machine.
    assert "Both sides are one machine" in done.stdout
    if os.geteuid() == 0:
        assert "under the names bm1 and vm1" in " ".join(done.stdout.split())


def test_a_program_that_hangs_on_the_other_side_is_lost(ssh, plant, tmp_path):
    plant("a", 100, 100.1)
    plant("b", 100, 100.1, "pause", 100)
    a, b = (
        f"{ssh} {host} 'cd {tmp_path} && timeout 20 ./program {name}'"
        for host, name in zip(HOSTS, "ab", strict=True)
    )
    done = call("pair", a, b, *METRIC, *ALLOWED, "--csv", "it.csv", "--timeout", 3, "--max-runs", 3, code=3)
    assert "no end after 3 s" in done.stdout
    assert "lost runs" in done.stdout.lower()
