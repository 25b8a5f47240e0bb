"""What `reframe -L` and a session say there is, and what cannot run here."""

import json


def test_the_list_reads_like_a_catalogue(site):
    done = site.run("reframe", "-c", f"{site.env['VIRTQUAL_ROOT']}/checks", "-L", "--system", "testsite")
    assert done.returncode == 0, done.stdout + done.stderr
    entry = done.stdout[done.stdout.index("- lammps problem=lj") :].splitlines()[:4]
    assert entry[1].startswith("    LAMMPS")
    assert "quick" in entry[2]
    assert entry[3] == "    asks for: +lammps"
    # One entry a check, not one a sample; and what this stack has no program for is named.
    assert "sample" not in done.stdout
    assert "  linpack: no program with the feature 'hpcc' in the stack" in done.stdout


def test_a_session_says_what_was_not_run(site):
    done = site.virtqual("qualify", "--system", "testsite")
    (file,) = (site.path / "state/sessions").glob("*/session.json")
    session = json.loads(file.read_text())
    assert "linpack: no program with the feature 'hpcc' in the stack" in session["not_run"]
    assert "lammps_scaling: in the full scope only (--full, or VIRTQUAL_SCOPE=full)" in session["not_run"]
    assert not [line for line in session["not_run"] if line.startswith(("lammps:", "lammps ("))]
    assert "Not run here:" in done.stdout
