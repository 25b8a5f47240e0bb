"""What a request names is looked at before a node is asked for, by every command that asks for nodes."""

import shutil

import pytest

from virtqual import paths

ON = ("--system", "testsite")
#: By command: what it is called with, so that it would measure.
COMMANDS = {
    "qualify": ("virtqual", "qualify", *ON, "-n", "lj"),
    "sweep": ("virtqual", "sweep", *ON),
    "preflight": ("virtqual", "preflight", *ON),
    "reframe": ("reframe", "-r", *ON, "-n", "lammps.*lj"),
}


def refused(site, *command, **env):
    """Return what a command printed that ended with exit code 2 (ReFrame: 1) and asked Slurm for nothing."""
    done = site.run(*command, **env)
    assert done.returncode == (1 if command[0] == "reframe" else 2), site.words(done)
    assert not (site.path / "slurm/last").exists(), "a job was submitted"
    assert not list((site.path / "state").glob("sessions/2*"))
    return site.words(done)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("qualify", "-t", "memroy"), "no check has a tag that matches 'memroy': did you mean memory?"),
        (("qualify", "-t", "memroy", "--plan"), "did you mean memory?"),
        (("qualify", "-t", "memroy", "--only-check"), "did you mean memory?"),
        (("qualify", "-n", "lj", "-n", "lamps"), "matches 'lamps': did you mean lammps"),
        (("qualify", "-n", "stream%"), "cannot run here: no program in the stack for: stream (2 cases)"),
        (("sweep", "--stack", "fak"), "no stack 'fak': did you mean fake?"),
        (("sweep", "-n", "strem"), "no check has a name that matches 'strem': did you mean stream"),
    ],
)
def test_names_and_tags(site, command, says):
    name, *options = command
    assert says in refused(site, "virtqual", name, *ON, *options)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_notices(site, command):
    (site.path / "site/notify.yaml").write_text("schema: virtqual-notify/1\nchanels: {}\n")
    assert "notify.yaml:2: chanels: is not a key" in refused(site, *command)


@pytest.mark.parametrize("command", [COMMANDS["qualify"], COMMANDS["reframe"]], ids=["qualify", "reframe"])
def test_the_list_of_the_class(site, command):
    right = (paths.references() / "qualifications/hpc.yaml").read_text("utf-8")
    line = right[: right.index("{check: hpl}")].count("\n") + 1
    for written, says in (
        ("check: osu_nodess", "].check: unknown check 'osu_nodess': did you mean osu_node"),
        ('check: "lammps %problm=lj"', "lammps has no parameter 'problm': did you mean problem?"),
        ('check: "lammps %problem=lk"', "lammps has no case with problem=lk: did you mean lj?"),
        ("check: hpl, where: rdam", "].where: unknown feature 'rdam': did you mean rdma"),
    ):
        site.add_reference("qualifications/hpc.yaml", right.replace("check: hpl}", f"{written}}}"))
        assert f"hpc.yaml:{line}: " in (said := refused(site, *command))
        assert says in said


def test_a_number_of_the_system_is_no_mistake_in_the_list(site):
    text = (paths.references() / "qualifications/hpc.yaml").read_text("utf-8")
    text = text.replace("check: hpl}", 'check: "stream %threads=4096"}')
    site.add_reference("qualifications/hpc.yaml", text)
    site.run(*COMMANDS["qualify"], "--only-check", code=0)


def test_names_come_before_the_stack(site):
    shutil.rmtree(site.path / "site/stacks")
    assert "did you mean stream" in refused(site, "virtqual", "sweep", *ON, "-n", "strem")
    done = site.run(*COMMANDS["qualify"])
    assert (done.returncode, "no stack is set up" in site.words(done)) == (5, True)


def test_the_stack(site):
    assert "no stack 'fak': did you mean fake?" in refused(site, *COMMANDS["qualify"], "--stack", "fak")


def test_a_system_that_is_not_there_yet(site):
    on = ("virtqual", "qualify", "--system", "vcluster", "--only-check")
    assert "did you mean memory?" in refused(site, *on, "-t", "memroy")
    assert "did you mean stream" in refused(site, *on, "-n", "strem")
    site.run(*on, "-t", "memory", "-n", "threads=64", code=0)


def test_reframe_names_what_is_near(site):
    done = site.run("reframe", "-l", *ON, "-t", "memroy")
    assert "no check has a tag that matches 'memroy': did you mean memory?" in site.words(done)
    assert "did you mean memory?" in refused(site, "reframe", "-r", *ON, "-t", "memroy")
