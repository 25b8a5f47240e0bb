"""Other people's sites: what `virtqual system init` writes, and what `check` says to it.

tests/fakeslurm/replay answers as their Slurm and their nodes do, by a directory of tests/outputs/sites.
"""

import json
import os
import re
from pathlib import Path

import pytest

from virtqual.site import systems

ROOT = Path(__file__).parents[3]
SITES = ROOT / "tests/outputs/sites"
COMMANDS = ("sinfo", "scontrol", "srun", "squeue", "sbatch", "scancel", "sacct", "sacctmgr")
PEOPLE_KNOW = {
    "vendor": "KVM",
    "build": "8.2.0",
    "accelerator": "kvm",
    "hypervisor_class": "kvm",
}


@pytest.fixture
def at(site, tmp_path):
    """Return how to be at another site, which is the `site` with the answers of another Slurm."""
    commands = tmp_path / "replay"
    commands.mkdir()
    for name in COMMANDS:
        (commands / name).symlink_to(ROOT / "tests/fakeslurm/replay")
    site.env["PATH"] = f"{commands}:{site.env['PATH']}"

    def arrive(name):
        site.env["FAKE_SITE"] = str(SITES / name)
        return site

    return arrive


def initialise(site, *options, native="standard", virtual="virt", code=0):
    """Call `virtqual system init`, and return what it printed, as one line."""
    named = [f"--{side}={name}" for side, name in (("native", native), ("virtual", virtual)) if name]
    return site.words(site.virtqual("system", "init", "mysite", *named, *options, code=code))


def complete(site, **changes):
    """Put in what only people know, and return the system that the file defines."""
    file = site.path / "site/systems/mysite.py"
    text = file.read_text("utf-8")
    for key, value in {**PEOPLE_KNOW, **changes}.items():
        text = re.sub(rf'"{key}": "TODO: [^"]*"', f'"{key}": {json.dumps(value)}', text)
    text = re.sub(r'"nodes_of_hosts": "TODO: [^"]*"', '"nodes_of_hosts": {}', text)
    file.write_text(text, "utf-8")
    return systems.read(file).load()


def check(site, *options, code=0):
    """Call `virtqual system check`, and return what it printed, as one line."""
    return site.words(site.virtqual("system", "check", "mysite", *options, code=code))


def test_a_usual_site(at):
    site = at("baseline")
    initialise(site)
    system = complete(site)
    assert (system.native_extras.nodes, system.virtual_extras.nodes) == (8, 8)
    assert dict(system.partition("native").processor) == {
        **{"arch": os.uname().machine, "num_cpus": 128, "num_cpus_per_core": 1, "num_sockets": 2}
    }
    assert system.native_extras.memory_mib == 230400
    assert "Slurm agrees with it, and so do the nodes" in check(site, "--on-nodes")
