"""A server and a client that meet, whoever of them starts first."""

import os
import subprocess
from importlib import resources

PROGRAM = """#!/bin/bash
# Like ib_send_lat: a server without, a client with, a name at the end.
echo "header of ${1:-server}"
if [ -z "$1" ]; then
    sleep 1.2; touch listening
    until [ -f met ]; do sleep 0.1; done; exit
fi
[ -f listening ] || { echo "Couldn't connect to $1:18515" >&2; exit 1; }
touch met; echo "table of $1"
"""


def start(directory, rank):
    return subprocess.Popen(
        [str(resources.files("virtqual.job") / "pair.sh"), "./program"],
        cwd=directory,
        env={**os.environ, "SLURM_PROCID": str(rank)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_client_waits_for_the_server_and_keeps_its_last_attempt_only(tmp_path):
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    client = start(tmp_path, 1)
    server = start(tmp_path, 0)
    (tmp_path / "virtqual.task.0").write_text("0 node7 0-3\n")
    assert client.wait(20) == 0
    assert server.wait(20) == 0
    assert (tmp_path / "client.out").read_text() == "header of node7\ntable of node7\n"
