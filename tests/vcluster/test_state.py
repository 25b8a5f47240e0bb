"""The state file: what is written is read back, and what is wrong is named."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vcluster import cluster, namespaces
from vcluster import state as st
from vcluster.cli import app
from vcluster.directory import StateDirectory
from vcluster.errors import StateError
from vcluster.processes import Process


def test_round_trip(state: st.State, tmp_path: Path) -> None:
    path = tmp_path / "new/state.json"
    state.save(path)
    assert st.load_state(path) == state
    assert json.loads(path.read_text())["schema"] == "vcluster/3"
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "vcluster/2"}, "vcluster/2"),
        ({"schema": None}, "wanted is 'vcluster/3'"),
        ({"status": "sideways"}, "status"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"guest": {"kernel": "6.1"}}, r"guest\.vcpus"),
    ],
)
def test_a_wrong_state_names_file_and_key(
    state: st.State, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state.model_dump(mode="json", by_alias=True) | change))
    with pytest.raises(StateError, match=message) as caught:
        st.load_state(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "{", "[]", '"x"'])
def test_no_state(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "state.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StateError, match="no cluster was started" if text is None else str(path)):
        st.load_state(path)


@pytest.mark.parametrize(("later", "is_ended"), [(0, True), (1, False)])
def test_a_cluster_of_another_version_is_taken_down(tmp_path: Path, later: int, is_ended: bool) -> None:
    directory = StateDirectory(tmp_path)
    directory.state_file.write_text('{"schema": "vcluster/1"}')
    with subprocess.Popen(["sleep", "60"]) as process:
        started = Process.look_up(process.pid).started + later
        directory.entry_file.write_text(f"{process.pid} {started} \n")
        assert cluster.down(directory) is is_ended
        assert (process.poll() is not None) is is_ended
        process.kill()
    assert not directory.entry_file.exists()


@pytest.mark.parametrize(
    ("script", "damage"),
    [
        # A controller that is lost is named once, and not as three lost nodes.
        (
            "echo 'Unable to contact slurm controller' >&2; exit 1",
            "slurmctld does not answer: sinfo failed: Unable to contact slurm controller",
        ),
        (
            "echo 'native1|idle*|none'; echo 'vm1|down|VM vm1 died (signal 9)'",
            "native1 idle*; vm1 down: VM vm1 died (signal 9); vm2 unknown: Slurm does not list it",
        ),
        ('for name in native1 vm1 vm2; do echo "$name|mixed|none"; done', ""),
    ],
)
def test_damage_names_each_lost_node_with_its_reason(
    state: st.State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, damage: str
) -> None:
    monkeypatch.setattr(namespaces, "enter_command", lambda *_: ["/bin/sh", "-c", script])
    nodes, text = cluster.inspect_nodes(state)
    assert set(nodes) == {"native1", "vm1", "vm2"}
    assert text == damage
    monkeypatch.setenv("VCLUSTER_DIR", str(tmp_path))
    state.save(tmp_path / "state.json")
    result = CliRunner().invoke(app, ["status", "--json"])
    assert json.loads(result.stdout)["healthy"] is (damage == "")
    assert (result.exit_code, damage in result.stderr) == (5 if damage else 0, True)
    table = CliRunner().invoke(app, ["status"]).stdout
    assert re.search(r"^vm2 +virtual +this machine +0,1 +\w", table, re.MULTILINE)
