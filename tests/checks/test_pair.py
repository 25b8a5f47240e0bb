"""A server and a client that meet, whoever of them starts first."""

import os
import subprocess
from importlib import resources

import pytest

from made_programs import write_program

PROGRAM = """#!/bin/bash
# Like ib_send_lat: a server without, a client with, a name at the end.
size=$1; [ "$size" = -s ] && { shift; size=$1; }
echo "header of ${2:-server}"
if [ -z "$2" ]; then
    sleep 0.6; touch listening.$size
    until [ -f met.$size ]; do sleep 0.1; done; exit
fi
[ -f listening.$size ] || { echo "Couldn't connect to $2:18515" >&2; exit 1; }
touch met.$size; echo "table of $2, $size"
"""


def start(directory, rank, sizes):
    return subprocess.Popen(
        [str(resources.files("virtqual.job") / "pair.sh"), sizes, "./program"],
        cwd=directory,
        env={**os.environ, "SLURM_PROCID": str(rank)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("sizes", "tables"), [("all", ["-a"]), ("2,64,8388608", ["2", "64", "8388608"])])
def test_the_client_waits_for_the_server_and_keeps_its_last_attempt_only(tmp_path, sizes, tables):
    write_program(tmp_path / "program", PROGRAM)
    client = start(tmp_path, 1, sizes)
    server = start(tmp_path, 0, sizes)
    (tmp_path / "virtqual.task.0").write_text("0 node7 0-3\n")
    assert client.wait(20) == 0
    assert server.wait(20) == 0
    heads = ["" if size == "-a" else f"size {size}\n" for size in tables]
    shown = "".join(
        f"{head}header of node7\ntable of node7, {size}\n" for head, size in zip(heads, tables, strict=True)
    )
    assert (tmp_path / "client.out").read_text() == shown
