"""`ci/qualify` with stand-ins for what it starts: what it starts, in which order, and what stops it."""

import os
import shutil
import subprocess

import pytest

from made_programs import write_program
from virtqual import paths

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "$STARTED"
case "$(basename "$0") $*" in $FAILS) exit 2 ;; esac
"""
CHECK = "virtqual qualify --only-check --system vcluster"


@pytest.fixture
def qualify(tmp_path):
    """Return how to run it with options while what matches a pattern fails, and what it started."""
    shutil.copytree(paths.root() / "ci", tmp_path / "ci")
    for name in ("ci/setup", "ci/venv", ".venv/bin/virtqual", ".venv/bin/vcluster"):
        write_program(tmp_path / name, STAND_IN)

    def run(*options, fails="nothing", up=""):
        started = tmp_path / "started"
        started.write_text("", encoding="utf-8")
        env = {**os.environ, "STARTED": str(started), "FAILS": fails, "VCLUSTER_UP": up}
        env["VIRTQUAL_SITE"] = str(tmp_path / "site")
        done = subprocess.run([tmp_path / "ci/qualify", *options], env=env, capture_output=True, text=True)
        return done, started.read_text(encoding="utf-8").splitlines()

    return run


def test_help_installs_and_boots_nothing(qualify):
    done, started = qualify("--against", "last", "--help")
    assert (done.returncode, started) == (0, ["virtqual qualify --help"])
    assert done.stdout.startswith("ci/qualify: ")
    assert "set -euo" not in done.stdout


def test_options_that_make_no_sense_install_and_boot_nothing(qualify):
    done, started = qualify("--agianst", "last", fails="*--only-check*")
    assert (done.returncode, started) == (2, ["venv ", f"{CHECK} --agianst last"])
    assert qualify("--system", "mysit", fails="*--only-check*")[0].returncode == 2


def test_a_cluster_that_is_down_is_brought_up_and_taken_down(qualify):
    done, started = qualify(fails="vcluster status", up="--vms 3")
    assert done.returncode == 0
    ours = ["vcluster status", "vcluster up --vms 3", "virtqual qualify --system vcluster", "vcluster down"]
    assert started == ["venv ", CHECK, "setup --stack ", *ours]


def test_a_cluster_that_is_up_is_left_up_and_used_if_it_is_the_one_that_was_named(qualify):
    done, started = qualify(fails="virtqual qualify --system*")
    assert (done.returncode, started[3:]) == (2, ["vcluster status", "virtqual qualify --system vcluster"])
    done, started = qualify(fails="vcluster up*", up="--qemu other")
    assert (done.returncode, started[3:]) == (2, ["vcluster status", "vcluster up --qemu other"])


def test_another_system_brings_up_no_cluster(qualify):
    _, started = qualify("--system=mysite", "--pairs", "6")
    options = "--system=mysite --pairs 6"
    assert started == [
        "venv ",
        f"virtqual qualify --only-check {options}",
        "setup --no-cluster --stack ",
        f"virtqual qualify {options}",
    ]


def test_a_stack_that_is_set_up_spares_a_list_of_the_checks(qualify, tmp_path):
    (tmp_path / "site/stacks/spack").mkdir(parents=True)
    (tmp_path / "site/stacks/spack/manifest.json").touch()
    _, started = qualify("--system", "mysite")
    assert started == ["venv ", "setup --no-cluster --stack ", "virtqual qualify --system mysite"]
