"""When a node is lost: never after one glance, and always with its name and why."""

import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest

from virtqual.errors import InfrastructureError, UsageError
from virtqual.site import nodes, slurm
from virtqual.site.extras import Timeouts
from virtqual.site.nodes import Watch
from virtqual.site.slurm import NodeState

NOT_RELEASED = "it does not release a job (extras.timeouts.completing is how long an epilog may take)"


@pytest.fixture
def watch(monkeypatch):
    """Return a watch of a native and a virtual node, and how to let time go by while Slurm says something."""
    clock = SimpleNamespace(now=1000.0)
    says = {"native": {"n1": NodeState("idle", "")}, "virtual": {"vm1": NodeState("idle", "")}}

    def states(*partitions):
        listed = {}
        for partition in partitions:
            if isinstance(says[partition], Exception):
                raise says[partition]
            listed |= says[partition]
        return listed

    monkeypatch.setattr(nodes, "list_node_states", states)
    monkeypatch.setattr(nodes.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(nodes.time, "sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
    extras = SimpleNamespace(nodes=1, own_scheduler=False, timeouts=Timeouts())
    partitions = {side: SimpleNamespace(slurm_name=side, job_options={}, extras=extras) for side in says}
    made = Watch(SimpleNamespace(partition=partitions.get, native_extras=extras))
    assert made.begin() == []
    for side in says:
        made.use(side, says[side])

    def goes_by(seconds, state, reason=""):
        if isinstance(state, Exception):
            says["virtual"] = state
        else:
            says["virtual"] = {"vm1": NodeState(state, reason)}
        until = clock.now + seconds
        while clock.now < until:
            clock.now += 3
            made.ask()
            if made.stop.is_set():
                break

    return made, goes_by, clock


def test_a_log_that_cannot_be_read_for_a_while_ends_no_watch(watch):
    made, *_ = watch

    def jobs():
        raise UsageError("log.jsonl: Stale file handle")

    made.jobs = jobs
    assert made._note_jobs({"7"}) == {"7"}
    assert not made.stop.is_set()


def test_an_allocation_gets_heartbeats_in_time(watch, monkeypatch):
    made, _, clock = watch
    told = [clock.now]

    def ended(seconds):
        clock.now += seconds
        return clock.now > 5000

    monkeypatch.setattr(nodes, "send_heartbeat", lambda number: told.append(clock.now))
    made.allocation, made._ended = lambda: "7", SimpleNamespace(wait=ended)
    made._loop()
    assert told[-1] > 4000
    assert max(later - before for before, later in pairwise(told)) < 60 * slurm._ABANDONED_MINUTES / 4


def test_a_node_that_the_system_file_leaves_out_is_named(watch, monkeypatch):
    made = watch[0]
    monkeypatch.setattr(nodes, "select_nodes", lambda partition, nodes: set(nodes) - {"vm1"})
    assert made.begin() == ["partition virtual: 0 of 1 nodes can run jobs; the system file leaves out vm1"]
    monkeypatch.setattr(nodes, "list_node_states", lambda *_: {})
    assert "partition virtual: 0 of 1 nodes can run jobs; sinfo knows no node of it" in made.begin()


@pytest.mark.parametrize("state", ["down", "drained", "fail", "idle*", "unknown", "allocated*", "completing"])
def test_one_glance_decides_nothing(watch, state):
    """M7: a controller that restarts calls every node unknown for some seconds."""
    made, goes_by, _ = watch
    goes_by(3, state)
    goes_by(30, "idle")
    assert (made.lost, made.stop.is_set()) == ({}, False)


def test_two_glances_at_one_time_decide_nothing(watch):
    """The background and `settle` may both ask."""
    made, goes_by, clock = watch
    goes_by(3, "down")
    made.ask()
    assert made.lost == {}
    clock.now += 3
    made.ask()
    assert made.stop.is_set()


def test_a_watch_that_ends_by_an_error_stops_the_session(watch, monkeypatch):
    made = watch[0]
    monkeypatch.setattr(made, "ask", lambda: 1 / 0)
    made._ended = SimpleNamespace(wait=lambda seconds: False)
    made._loop()
    assert "watch of the nodes has ended: ZeroDivisionError" in made.lost["watch"]
    assert made.stop.is_set()


def test_unknown_for_some_seconds_is_a_restart(watch):
    made, goes_by, _ = watch
    for _ in range(3):
        goes_by(15, "unknown")
        goes_by(15, "allocated")
    assert made.lost == {}


@pytest.mark.parametrize(
    ("state", "reason", "seconds", "says"),
    [
        ("down", "VM vm1 died", 10, "node vm1 is down (VM vm1 died)"),
        ("drained", "night work", 10, "node vm1 is drained (night work)"),
        ("idle*", "", 70, "node vm1 has not answered Slurm for 60 s (idle*)"),
        ("down*", "Not responding", 70, "node vm1 has not answered Slurm for 60 s (down*)"),
        ("unknown", "", 70, "node vm1 has not answered Slurm for 60 s (unknown)"),
        (
            "completing",
            "",
            610,
            "node vm1 has been completing for 600 s: it does not release a job "
            "(extras.timeouts.completing is how long an epilog may take)",
        ),
    ],
)
def test_a_node_that_stays_so_is_lost_and_named(watch, state, reason, seconds, says):
    """M1, M3, M11: named for what it is, after a stated time."""
    made, goes_by, clock = watch
    before = clock.now
    goes_by(700, state, reason)
    assert made.lost == {"vm1": says}
    assert made.stop.is_set()
    assert clock.now - before <= seconds


def test_a_node_that_drains_is_left_to_its_job(watch):
    """M5: the running job of a node that was drained was cancelled."""
    made, goes_by, _ = watch
    goes_by(45, "draining", "night work")
    assert not made.stop.is_set()
    goes_by(10, "drained", "night work")
    assert made.lost == {"vm1": "node vm1 is drained (night work)"}


def test_a_held_node_that_is_drained_for_tomorrow_is_left_to_the_session(watch):
    made, goes_by, _ = watch
    made.use("virtual", ["vm1"], held=True)
    goes_by(400, "draining", "rack 7 moves tomorrow")
    assert (made.lost, made.stop.is_set()) == ({}, False)
    # A job that is yet to come does not get it.
    made.use("virtual", ["vm1"])
    goes_by(100, "draining", "rack 7 moves tomorrow")
    assert made.lost


def test_an_epilog_may_take_as_long_as_the_system_file_states(watch):
    """A health check after every job, such as those of clouds, takes minutes."""
    made, goes_by, _ = watch
    made.system.native_extras.timeouts = Timeouts(completing=1200)
    goes_by(1100, "completing")
    assert made.lost == {}
    goes_by(110, "completing")
    assert "has been completing for 1200 s" in made.lost["vm1"]


def test_nodes_that_finish_jobs_of_others_are_no_doubt_of_ours(watch):
    made, goes_by, _ = watch
    made.use("virtual", ["vm1"])
    made._is_held.clear()
    goes_by(1000, "completing")
    made.settle()
    assert made.lost == {}


def test_what_becomes_of_a_node_that_the_session_does_not_use_is_no_loss(watch):
    made, goes_by, _ = watch
    goes_by(10, "drained", "night work")
    assert made.lost
    made.use("virtual", ["vm2"])
    assert made.lost == {}
    assert made.nodes("virtual") == ["vm2"]
    made.stop.clear()
    made.use("virtual", ["vm1"])
    goes_by(10, "drained", "night work")
    assert list(made.lost) == ["vm1"]


def test_a_controller_that_is_gone_is_named(watch):
    """M10: three nodes were called unknown, and the controller was not named."""
    made, goes_by, _ = watch
    refused = InfrastructureError("sinfo: Unable to contact slurm controller (connect failure)")
    # A second controller takes over after two minutes.
    goes_by(150, refused)
    goes_by(6, "idle")
    assert made.lost == {}
    goes_by(330, refused)
    assert "slurmctld) has not answered for 300 s: sinfo: Unable to contact" in made.lost["slurmctld"]
    assert made.stop.is_set()


def test_a_controller_of_our_own_that_is_gone_is_known_sooner(watch):
    made, goes_by, _ = watch
    made.system.native_extras.own_scheduler = True
    goes_by(90, InfrastructureError("sinfo: Unable to contact slurm controller (connect failure)"))
    assert "slurmctld) has not answered for 60 s" in made.lost["slurmctld"]


def test_a_job_that_slurm_has_forgotten_is_named(watch, monkeypatch):
    """A controller that died before it saved the job: the session waited for its end without end."""
    made, _, _ = watch
    monkeypatch.setattr(nodes, "read_job_states", lambda jobs: {"7": ("RUNNING", "None")})
    made.jobs = lambda: ["7", "7.1-2", "8"]
    assert made._note_jobs(set()) == {"8"}
    assert made.lost == {}
    assert made._note_jobs({"8"}) == {"8"}
    assert made.lost == {
        "job 8": "Slurm has forgotten job 8, whose end was not seen: did its controller lose its state?"
    }


def test_a_run_that_waits_as_a_job_says_why_and_since_when(watch, monkeypatch):
    made, notes = watch[0], []
    made.jobs, made.say = lambda: ["7"], notes.append
    waits = [("PENDING", reason) for reason in ("None", "Priority", "Priority", "Priority")]
    for seen in (*waits[:3], ("RUNNING", "None"), waits[3]):
        monkeypatch.setattr(nodes, "read_job_states", lambda jobs, seen=seen: {"7": seen})
        assert made._note_jobs(set()) == set()
    first, second, third = notes
    assert first.startswith("waiting for the nodes of the next run since ")
    assert second == third == f"{first} Slurm says Priority: other jobs come first."


def test_settling_ends_when_slurm_does_not_answer(watch):
    """A controller that is gone for good answers no doubt: the session must end all the same."""
    made, goes_by, _ = watch
    goes_by(3, "completing")
    goes_by(90, InfrastructureError("sinfo: connect failure"))
    made.settle()
    assert list(made.lost) == ["slurmctld"]


def test_settling_ends(watch):
    made, goes_by, _ = watch
    goes_by(3, "down", "VM vm1 died")
    made.settle()
    assert made.lost == {"vm1": "node vm1 is down (VM vm1 died)"}


def test_a_lost_job_is_no_lost_node(watch):
    made, goes_by, _ = watch
    goes_by(10, "down", "host died")
    made.lost["job 7"] = "Slurm has forgotten job 7"
    assert (made.stop.is_set(), made.lost_nodes) == (True, {"vm1"})


def test_nodes_that_boot_are_waited_for(watch, monkeypatch):
    made, goes_by, clock = watch
    goes_by(3, "down", "booting")

    def sleep(seconds):
        clock.now += seconds
        if clock.now > 1040:
            goes_by(0, "idle")

    monkeypatch.setattr(nodes.time, "sleep", sleep)
    assert made.wait_until_usable(5) == ["node vm1 is down (booting)"]
    assert made.wait_until_usable(300) == []


def test_nobody_is_asked_while_vms_are_made_anew(watch):
    made = watch[0]
    with made.paused():
        asking = threading.Thread(target=made.ask, daemon=True)
        asking.start()
        asking.join(0.2)
        assert asking.is_alive()
    asking.join(5)
    assert not asking.is_alive()
