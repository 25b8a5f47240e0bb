"""`virtqual qualify --plan`: what would run, how long, and at what cost, before anything does."""

import json

from test_rotation import ON_THREE, ON_TWO


def planned(site, *options, **env):
    done = site.virtqual("qualify", "--system", "testsite", "-n", "lj", "--plan", *options, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def test_what_was_never_run_has_no_duration_and_nothing_is_written(site):
    said = planned(site)
    assert "1 cases, 10 runs in the first round with its warm-ups: 10 jobs, one a run." in said
    assert "How long it takes is not known: none of these cases was ever run here." in said
    assert "stream" in said.partition("Not run here:")[2]
    assert not (site.path / "state/sessions").exists()
    assert not list((site.path / "slurm").glob("job.*"))


def test_durations_are_those_of_the_last_session(site):
    assert site.virtqual("qualify", "--system", "testsite", "-n", "lj").returncode == 0
    said = planned(site, "--pairs", "6")
    assert "14 runs in the first round" in said
    assert "About 0 min if every metric is decided by the first round" in said
    assert "node-hours" in said
    assert "never run" not in said


def test_nodes_that_are_held_and_all_work_at_once(site):
    said = planned(site, **ON_TWO)
    assert (
        "1 cases, 20 runs in the first round with its warm-ups: 2 jobs, held for the whole session." in said
    )
    assert "Checks of one node go over 2 nodes a side, all of them at work at once." in said


def test_nodes_that_the_system_file_leaves_out_are_not_planned_for(site):
    cloud = json.loads(ON_THREE["FAKE_EXTRAS_cloud"])
    cloud["session_access"] = [*cloud["session_access"], "--exclude=cloud-3"]
    said = planned(site, **ON_THREE | {"FAKE_EXTRAS_cloud": json.dumps(cloud)})
    assert "Checks of one node go over 2 nodes a side" in said
    assert "Checks of one node go over 3 nodes a side" in planned(site, **ON_THREE)


def test_what_makes_no_sense_is_refused_as_a_session_would_be(site):
    done = site.virtqual("qualify", "--system", "testsite", "--plan", "--resume", "last")
    assert done.returncode == 2
    assert "--resume takes no option but --system and --wait" in " ".join(done.stderr.split())


def test_a_session_uses_eight_nodes_of_forty_unless_more_are_asked_for(site):
    hosts = {f"host-{k}": [f"cloud-{k}"] for k in range(1, 41)}
    cloud = {"session_access": ["--partition=cloud"], "nodes_of_hosts": hosts}
    env = {**ON_TWO, "FAKE_NODES": "40", "FAKE_EXTRAS_cloud": json.dumps(cloud)}
    assert "80 runs in the first round with its warm-ups" in planned(site, **env)
    assert "120 runs in the first round" in planned(site, "--nodes", "12", **env)
    done = site.virtqual("qualify", "--system", "testsite", "--plan", "--nodes", "41", **env)
    assert done.returncode == 2
    assert "--nodes 41: system 'testsite' states 40 nodes of each side (extras.nodes)" in site.words(done)
