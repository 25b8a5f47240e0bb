"""Records the example sessions that the package ships: ``python tests/record_examples.py [NAME]...``.

With ``--conclude`` the recorded runs are judged again by today's code, and nothing is run.

They are sessions of `virtqual qualify` and ReFrame on the tests' stand-ins for Slurm, LAMMPS, STREAM and OSU,
which make up their times: 1.5 % slower, 17 % slower, and VMs whose clock is slow to read.  The load of the
machine is that of an idle one: preflight would refuse what other work disturbs.  A session
of a cluster may replace one: it is the log, compressed (``src/virtqual/data/examples/NAME.jsonl.gz``).
"""

import gzip
import shutil
import sys
import tempfile
from pathlib import Path

from conftest import FAKE, Site, build_site
from virtqual import paths
from virtqual.qualify.checking import check_session, judge_again
from virtqual.session.log import LOG, Log
from virtqual.session.packed import SUFFIX, unpack
from virtqual.session.store import load
from virtqual.stack.manifest import Manifest, Program

LABEL = "example of stand-ins: times and load are made up"
#: How often a session is recorded on a machine that is busy.
MAX_ATTEMPTS = 8
#: LAMMPS, STREAM on one core and messages within a node.
NAMES = r"^lammps|^stream.*%threads=1\b|^osu_node.*%benchmark=latency$"


def plant_nothing(site: Site) -> None:
    site.fault("slow.cloud", "1.015")


def plant_slowdown(site: Site) -> None:
    site.fault("slow.cloud", "1.17")


def plant_slow_clock(site: Site) -> None:
    show(site, "clocksource0/current_clocksource", "acpi_pm", "cloud")


def show(site: Site, file: str, content: str, *partitions: str) -> None:
    """Let nodes show another content of a file, which is read by `grep`."""
    edit = f"s|{file}:.*|{file}:{content}|; s|cmdline:.*|cmdline:quiet|"
    text = f"#!/bin/sh\n/usr/bin/env PATH=/usr/bin:/bin grep \"$@\" | sed '{edit}'\n"
    site.stand_in("grep", text, *partitions)


EXAMPLES = {
    "within": (plant_nothing, 0),
    "over": (plant_slowdown, 1),
    "refused": (plant_slow_clock, 4),
}


def add_stack(site: Site) -> None:
    """Set up a stack with the stand-ins of three programs."""
    stack = site.path / "site/stacks/example"
    stack.mkdir()
    shutil.copytree(site.path / "site/stacks/fake/bench", stack / "bench")
    lammps, stream, osu = (
        Path(shutil.copy(FAKE / stand_in, stack / name))
        for stand_in, name in (("lmp", "lmp"), ("stream", "stream"), ("osu", "osu_latency"))
    )
    fields = {"origin": "the tests"}
    programs = (
        Program.from_files(
            lammps,
            name="lammps",
            version="1",
            features=("lammps",),
            data={"bench": stack / "bench"},
            **fields,
        ),
        Program.from_files(stream, name="stream", version="5.10", features=("stream",), **fields),
        Program.from_files(
            osu, name="osu", version="7.4", features=("osu",), data={"osu_latency": osu}, **fields
        ),
    )
    Manifest(name="example", programs=programs).write(stack)


def record(name: str) -> bytes:
    """Run the session of an example, and return its log."""
    plant, exit_code = EXAMPLES[name]
    with tempfile.TemporaryDirectory() as place:
        site = build_site(Path(place))
        add_stack(site)
        # The command line is that of the machine on which the examples are recorded.
        show(site, "/proc/cmdline", "quiet")
        plant(site)
        done = site.qualify(
            "--label", LABEL, "--stack", "example", "-n", NAMES, code=exit_code, FAKE_NODES="1"
        )
        print(done.stdout)
        return (site.directory() / LOG).read_bytes()


def find_problems(name: str) -> list[str]:
    """Return what `virtqual check` finds: the stand-in site measures on a busy machine, too."""
    return check_session(unpack(paths.examples() / f"{name}{SUFFIX}")).doubts


def conclude(name: str) -> bytes:
    """Return the log of a recorded example with the conclusion that its runs come to now."""
    recorded = unpack(paths.examples() / f"{name}{SUFFIX}")
    session = judge_again(load(recorded), recorded)
    with tempfile.TemporaryDirectory() as place:
        log = Log(Path(place))
        lines = (recorded / LOG).read_bytes().splitlines(keepends=True)
        log.path.write_bytes(b"".join(line for line in lines if b'"event":"concluded"' not in line))
        log.conclude(session)
        return log.path.read_bytes()


if __name__ == "__main__":
    if sys.argv[1:] == ["--conclude"]:
        for name in EXAMPLES:
            content = gzip.compress(conclude(name), mtime=0)
            (paths.examples() / f"{name}{SUFFIX}").write_bytes(content)
        sys.exit()
    for name in sys.argv[1:] or EXAMPLES:
        for _ in range(MAX_ATTEMPTS):
            (paths.examples() / f"{name}{SUFFIX}").write_bytes(gzip.compress(record(name), mtime=0))
            unpack.cache_clear()
            if not (problems := find_problems(name)):
                break
            print(*problems, sep="\n")
        else:
            sys.exit(f"{name}: record it again on a machine that does nothing else")
