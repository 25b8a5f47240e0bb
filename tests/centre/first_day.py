"""The rehearsed centre's system file: written by virtqual, and completed by a person who knows the hosts."""

import re
import sys
from pathlib import Path

import centre as rehearsed

ROOT = Path(__file__).resolve().parents[2]
#: What no node shows: the key, and what the person writes in place of the sentence.
PEOPLE_KNOW = {
    "vendor": '"KVM"',
    "build": '"8.2.0"',
    "accelerator": '"kvm"',
    "hypervisor_class": '"kvm"',
    # One VM on each of as many hosts that are no nodes.
    "nodes_of_hosts": '{{f"host{{k}}": [f"vm{{k}}"] for k in range(1, {vms} + 1)}}',
}


def write_system_file(centre, shape):
    """Write the system file below the centre's directory, without an editor but for what only people know."""
    site = centre.directory / "site"
    site.mkdir()
    env = {
        "PATH": f"{Path(sys.executable).parent}:{rehearsed.SBIN}",
        "PYTHONPATH": str(ROOT / "src"),
        "VIRTQUAL_ROOT": str(ROOT),
        "VIRTQUAL_SITE": str(site),
        # The directory for staging is below it.
        "VIRTQUAL_STATE": str(centre.directory),
        "COLUMNS": "80",
    }
    options = ("--native", "bare", "--virtual", "vm", "--account", rehearsed.ACCOUNT, "--qos", rehearsed.QOS)
    done = centre.run("virtqual", "system", "init", "centre", *options, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    file = site / "systems/centre.py"
    text = file.read_text("utf-8")
    for key, value in PEOPLE_KNOW.items():
        value = value.format(vms=shape.nodes["virtual"])
        text, count = re.subn(rf'"{key}": "TODO: [^"]*"', lambda _, v=value, k=key: f'"{k}": {v}', text)
        assert count == 1, text
    assert "TODO" not in text
    file.write_text(text, "utf-8")
    done = centre.run("virtqual", "system", "check", "centre", "--on-nodes", **env)
    assert done.returncode == 0, done.stdout + done.stderr
