"""Between two rounds the site creates its VMs anew: other boots, warm-ups, and a command that may fail."""

import json
import shutil
from itertools import groupby
from pathlib import Path

import pytest
from test_qualify import QUALIFIED

from made_programs import write_program
from virtqual import paths
from virtqual.preflight.policy import load_policy
from virtqual.references import project_references
from virtqual.session.judge import admitted_of
from virtqual.session.pairing import series_of
from virtqual.verdict.places import places_of

ON = ("qualify", "--system", "testsite", "-n", "lj")
# Gathers what the node is with the boot that a test states, as a VM that was created anew has another one.
GREP = """#!/bin/bash
/usr/bin/grep "$@" | sed "s|^\\(/proc/sys/kernel/random/boot_id\\):.*|\\1:$(cat "$FAKE_SLURM/boot")|"
"""
COMMAND = """#!/bin/bash
echo "making $(($(wc -l < "$FAKE_SLURM/made") + 1))"
echo again >> "$FAKE_SLURM/made"
echo "boot-$(wc -l < "$FAKE_SLURM/made")" > "$FAKE_SLURM/boot"
[ ! -e "$FAKE_SLURM/fault.recreate" ] || { echo "no room on esx01" >&2; exit 3; }
"""
AWAY = """
echo booting > "$FAKE_SLURM/down.cloud"
(sleep 12; rm "$FAKE_SLURM/down.cloud") > /dev/null 2>&1 &
"""


@pytest.fixture
def recreated(site):
    """Return a site whose VMs are created anew, and the environment that says how."""
    site.stand_in("grep", GREP, "cloud")
    command = write_program(site.path / "recreate", COMMAND)
    site.fault("boot", "boot-0")
    site.fault("made")
    return site, {"FAKE_EXTRAS_cloud": json.dumps({"recreate_vms": [str(command), "--all"]})}


def test_each_round_has_a_boot_of_its_own_which_the_judge_sees(recreated, monkeypatch):
    site, extras = recreated
    site.fault("slow.cloud", "1.5")
    site.virtqual(*ON, code=1, **extras)
    log = site.log()
    session = log.session()
    assert [(one.first, one.last, one.recreated is None) for one in session.rounds] == [
        (0, 1, True),
        (2, 3, False),
        (4, 7, False),
    ]
    # What was made anew is as cold as in the first round.
    order = site.submitted()
    assert order[:2] == order[6:8] == order[12:14] == ["warm-up-N", "warm-up-V"]
    assert order[8:12] == ["2N", "2V", "3N", "3V"]
    assert (log.directory / "round-2.recreate.log").read_text() == "making 1\n"
    boots = {
        run.pair // 2: node.boot
        for run in session.runs
        if run.side == "virtual"
        for node in run.identity.values()
    }
    assert boots == {0: "boot-0", 1: "boot-1", 2: "boot-2", 3: "boot-2"}
    # By the same rules as the session: what else the machine of the tests does refuses no run.
    of_site = Path(site.env["VIRTQUAL_SITE"], "references/preflight.yaml")
    rules = load_policy(paths.references() / "preflight.yaml", project_references(), of_site)
    monkeypatch.setattr("virtqual.session.judge.policy", lambda: rules)
    (series,) = series_of(admitted_of(session).runs, project_references()).values()
    assert [len(list(run)) for _, run in groupby(places_of(series.valid).boot)] == [2, 2, 4]


def test_four_pairs_have_two_boots_and_qualify_a_build_if_all_checks_were_judged(recreated):
    site, extras = recreated
    site.virtqual(*ON, code=0, **extras)
    assert (site.path / "slurm/made").read_text() == "again\n"
    found = site.session()
    # LAMMPS has other cases, and other programs were not run at all.
    assert "no (0 of the 13 checks that class kvm asks for were judged: missing " in found["qualified"]
    assert "lammps %problem=rhodo" in found["missing"]
    assert "lammps %problem=lj" not in found["missing"]
    shutil.rmtree(site.path / "state/sessions")
    site.add_reference("qualifications/own.yaml", QUALIFIED)
    site.virtqual(*ON, code=0, **extras)
    assert site.session()["qualified"] == "yes (by the site's own qualification)"


def test_a_command_that_fails_is_named_with_its_last_line(recreated):
    site, extras = recreated
    site.fault("slow.cloud", "1.5")
    site.fault("fault.recreate")
    site.virtqual(*ON, code=5, **extras)
    session = site.log().session()
    # Not as it is printed: the path of the command may be folded there.
    assert "recreate --all ended with exit code 3: no room on esx01" in session.conclusion
    assert session.outcome == "BROKEN"
    assert len(session.runs) == 4


def test_a_node_that_is_booting_is_waited_for_and_is_not_lost(recreated):
    """A VM that is made anew is down for a while: the watch must not call that a loss."""
    site, extras = recreated
    site.fault("slow.cloud", "1.5")
    command = site.path / "recreate"
    command.write_text(COMMAND + AWAY)
    site.virtqual(*ON, code=1, **extras)
    assert site.log().session().rounds[1].recreated > 11


def test_a_command_that_is_not_there_is_said_before_anything_runs(site):
    extras = {"FAKE_EXTRAS_cloud": json.dumps({"recreate_vms": ["no-such-command"]})}
    done = site.virtqual(*ON, code=2, **extras)
    assert "extras.recreate_vms: 'no-such-command' is no program" in site.words(done)
    assert not (site.path / "state/sessions").exists()
