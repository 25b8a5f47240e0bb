"""What `--note` records of both sides, and what follows from it."""

import csv
import json
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from calling import call
from planted_commands import ALLOWED, METRIC, write_program
from virtqual.pair.notes import (
    Note,
    describe_fact,
    find_hosts,
    join_notes,
    list_changes,
    list_differences,
    parse_notes,
)

SCRIPT = files("virtqual.pair").joinpath("notes.sh").read_text("utf-8")
BARE = Note(node="bm1", boot="b1", virtualisation="none", kernel="Linux 6.1", cpus="64")
GUEST = Note(node="vm1", boot="b2", virtualisation="kvm", kernel="Linux 6.1", cpus="32")
#: Says what a guest would say, and then runs what it got.
SSH = """#!/bin/sh
host=$1; shift
case "$*" in
    'sh -s') cat > "script.$host"; printf '%s\\n' 'begin=virtqual-note' "node=$host" "boot=boot-of-$host" \\
        'kernel=Linux 6.1' "virt=$(cat "virt.$host")" 'end=virtqual-note' ;;
    *) exec sh -c "$*" ;;
esac
"""


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_runs_in_any_shell(shell):
    done = subprocess.run([shell, "-s"], input=SCRIPT, capture_output=True, encoding="utf-8", check=True)
    assert done.stderr == ""
    (note,) = parse_notes(done.stdout)
    assert note.node == Path("/proc/sys/kernel/hostname").read_text("utf-8").strip()
    assert note.boot == Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    assert int(note.cpus) >= 1
    assert int(note.memory_mib) >= 1


def said(**facts):
    lines = [f"{key}={value}" for key, value in facts.items()]
    return "\n".join(["banner of the login node", "begin=virtqual-note", *lines, "end=virtqual-note", ""])


@pytest.mark.parametrize(
    ("facts", "virtualisation"),
    [
        ({"virt": "kvm", "hypervisor_flag": "yes"}, "kvm"),
        ({"virt": "none", "hypervisor_flag": "no"}, "none"),
        # No systemd, as in Alpine.
        ({"hypervisor_flag": "no"}, "none"),
        ({"hypervisor_flag": "yes"}, "a hypervisor (the CPU's flag)"),
        # Arm has no such flag.
        ({}, ""),
        # A hypervisor that hides its name, but not the flag.
        ({"virt": "none", "hypervisor_flag": "yes"}, "a hypervisor (the CPU's flag)"),
    ],
)
def test_virtualisation_is_recognised(facts, virtualisation):
    (note,) = parse_notes(said(node="a", **facts))
    assert note.virtualisation == virtualisation


def test_a_note_that_was_cut_off_is_not_taken():
    assert parse_notes("begin=virtqual-note\nnode=a\n") == []
    assert parse_notes("") == []


def test_several_tasks_are_one_note():
    notes = parse_notes(said(node="n1", boot="b", cpus="4") + said(node="n2", boot="c", cpus="4"))
    assert join_notes(notes).node == "n1+n2"
    assert join_notes(notes).cpus == "4"


def test_differences_are_listed_and_boots_are_short():
    rows = {name: values for name, *values in list_differences((BARE, GUEST))}
    assert rows["virtualisation"] == ["none", "kvm"]
    assert rows["CPUs"] == ["64", "32"]
    assert "kernel" not in rows
    assert describe_fact(Note(boot="a7c00321-a01c-4b7c"), "boot") == "a7c00321"


def test_the_host_is_stated_only_if_it_is_known():
    assert find_hosts((BARE, GUEST)) == ("bm1", "")
    assert find_hosts((BARE, BARE.model_copy(update={"node": "bm2", "boot": "b3"}))) == ("bm1", "bm2")
    container = BARE.model_copy(update={"node": "container", "container": "docker"})
    assert find_hosts((BARE, container)) == ("bm1", "bm1"), "one boot is one kernel"
    assert find_hosts((GUEST, GUEST.model_copy(update={"boot": "b3"}))) == ("", "")


def test_changes_while_it_was_measured_are_said():
    booted = GUEST.model_copy(update={"boot": "b9"})
    assert list_changes(("a", "b"), [(BARE, GUEST), (BARE, GUEST)]) == []
    assert list_changes(("a", "b"), [(BARE, GUEST), (BARE, booted)]) == [
        "b changed while it was measured: boot b2, then b9."
    ]


@pytest.fixture
def ssh(plant, tmp_path, monkeypatch):
    """A stub of ssh, two hosts, and commands with planted values."""
    write_program(tmp_path / "ssh", SSH)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "virt.bm1").write_text("none")
    (tmp_path / "virt.vm1").write_text("kvm")
    a, b = plant("a", 100, 100.1, 99.9, 100.2, 100), plant("b", 100, 99.9, 100.1, 100.2, 100)
    return f"ssh bm1 {a}", f"ssh vm1 {b}", *METRIC, *ALLOWED, "--csv", "it.csv"


def test_notes_go_to_the_table_the_plan_and_the_report(ssh, tmp_path):
    done = call("pair", *ssh, "--note", "ssh bm1", "ssh vm1", "-o", "it.md", code=0)
    assert (tmp_path / "script.bm1").read_text("utf-8") == SCRIPT
    assert "virtualisation" in done.stdout
    assert "The sides differ in host name, boot and virtualisation." in done.stdout
    rows = list(csv.DictReader((tmp_path / "it.csv").read_text().splitlines()))
    assert {(row["side"], row["node"], row["host"]) for row in rows} == {
        ("reference", "bm1", "bm1"),
        ("candidate", "vm1", ""),
    }
    notes = json.loads((tmp_path / "it.json").read_text())["notes"]
    assert len(notes) == 2, "at the beginning and at the end"
    assert "kvm" in (tmp_path / "it.md").read_text()


def test_pair_judges_different_machines_and_judge_does_not_pass_them(ssh, tmp_path):
    (tmp_path / "virt.vm1").write_text("none")
    call("pair", *ssh, "--note", "ssh bm1", "ssh vm1", code=0)
    assert call("judge", "it.csv", *ALLOWED).exit_code in (3, 4), "judge asks about the build"


def test_a_prefix_that_does_not_work_is_named(ssh, tmp_path):
    done = call("pair", *ssh, "--note", "./nowhere", "ssh vm1", code=5)
    assert "--note './nowhere'" in done.stderr
    assert "not found" in done.stderr
    assert not [*tmp_path.glob("it.*")]


def test_without_notes_the_causes_are_named(ssh):
    done = call("pair", *ssh, code=0)
    assert "Machine, hypervisor, placement and software" in " ".join(done.stdout.split())
    assert "--note" in done.stderr, "said before anything is measured"
    assert "--note" not in done.stdout


def test_a_note_of_another_machine_is_noticed(ssh):
    done = call("pair", *ssh, "--note", "ssh bm1", "ssh bm1", "-o", "it.md", code=0)
    warning = "The notes of candidate were asked for by 'ssh bm1', which is not in its command"
    assert warning in done.stderr
    assert warning in " ".join(done.stdout.split())
    assert "The notes of reference were" not in done.stderr
    assert "which is not in its command" in Path("it.md").read_text("utf-8")


def test_one_machine_under_two_names_is_said_to_be_one(ssh, tmp_path):
    write_program(tmp_path / "ssh", SSH.replace("boot-of-$host", "boot"))
    done = call("pair", *ssh, "--note", "ssh bm1", "ssh vm1", code=0)
    text = " ".join(done.stdout.split())
    assert "Both sides are one machine (same boot), under the names bm1 and vm1. They differ in virt" in text
    assert "pair cannot tell whether this, or placement, makes the difference" in text
    (tmp_path / "virt.vm1").write_text("none")
    done = call("pair", *ssh[:-1], "same.csv", "--note", "ssh bm1", "ssh vm1", code=0)
    text = " ".join(done.stdout.split())
    assert "under the names bm1 and vm1. Placement may still differ" in text
