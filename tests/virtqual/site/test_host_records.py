"""The hosts' own word: one record a host, brought at the start of a session; the build is read from them."""

import json
import os
import subprocess
import time

import pytest

from made_programs import ESXCLI, write_program
from made_runs import read_session
from virtqual.errors import UsageError
from virtqual.identity import gather, kvm_host
from virtqual.site import host_records

QEMU = "qemu-system-x86 1:7.2+dfsg-7+deb12u18"
ON = ("qualify", "--system", "testsite", "-n", "lj")


def write(directory, **builds):
    directory.mkdir(exist_ok=True)
    for name, build in builds.items():
        record = {"schema": "virtqual-host/1", "source": name, "qemu_package": build, "kernel": "6.1.0-40"}
        (directory / f"{name}.json").write_text(json.dumps(record))
    return directory


def test_what_hosts_say_alike_is_said_of_them_and_what_differs_is_not(tmp_path):
    records = host_records.read(write(tmp_path, a=QEMU, b=QEMU))
    host = host_records.merge(records)
    assert host.qemu_package == QEMU
    assert host_records.find_build(host) == f"{QEMU}, KVM of kernel 6.1.0-40"
    assert host_records.find_different_builds(records) == []
    records = host_records.read(write(tmp_path, b="another 8.2"))
    assert host_records.find_build(host_records.merge(records)) is None
    assert host_records.find_different_builds(records) == [
        f"qemu_package is another 8.2 on b, and {QEMU} on a"
    ]


def test_a_host_whose_vm_runs_the_qemu_of_before_is_named(tmp_path):
    for reason in (
        "/usr/bin/q: replaced since the VM was started",
        "differs between the VMs n1, n2: name one",
    ):
        records = host_records.read(write(tmp_path, a=QEMU, b={"not_observable": reason, "differs": True}))
        (clause,) = host_records.find_different_builds(records)
        assert clause == f"qemu_package is not observable ({reason}) on b: restart its VMs"
    records = host_records.read(write(tmp_path, b={"not_observable": "no package of this host has /opt/q"}))
    assert host_records.find_different_builds(records) == []


def test_a_host_without_a_record_is_named(tmp_path):
    with pytest.raises(UsageError, match="no record of host c, d"):
        host_records.read(write(tmp_path, a=QEMU), ["a", "d", "c"])
    with pytest.raises(UsageError, match="no record of any host"):
        host_records.read(tmp_path / "none")
    assert host_records.read(tmp_path, ["a", "d"], all_required=False).keys() == {"a"}
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(UsageError, match=r"two records of host a: a\.json, a\.txt"):
        host_records.read(tmp_path)
    (tmp_path / "a.txt").unlink()
    (tmp_path / "lost.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match=r"lost\.txt: cannot be read \(No such file"):
        host_records.read(tmp_path)
    assert host_records.read(tmp_path, ["a"]).keys() == {"a"}


def test_what_the_script_printed_on_a_host_is_a_record(tmp_path):
    line = ["sh", "-c", kvm_host.script()]
    printed = subprocess.run(line, capture_output=True, text=True, check=False).stdout
    (tmp_path / "h.txt").write_text(printed)
    host = host_records.read(tmp_path)["h"]
    assert host.kernel == os.uname().release
    cpus = "/sys/devices/system/node/node0/cpulist:0-99999"
    for text in ("what a broken ssh prints", f"{gather.FIRST_LINE}\n{cpus}\n{gather.LAST_LINE}\n"):
        (tmp_path / "h.txt").write_text(text)
        with pytest.raises(UsageError, match=r"h\.txt"):
            host_records.read(tmp_path)


def test_what_esxcli_printed_on_a_host_is_a_record(tmp_path):
    for name, build in (("esx01", "24022510"), ("esx02", "24022510"), ("esx03", "24280767")):
        (tmp_path / f"{name}.txt").write_text(ESXCLI.replace("24022510", build))
    records = host_records.read(tmp_path, ["esx01", "esx02", "esx03"])
    assert host_records.find_build(records["esx01"]) == "8.0.3-24022510"
    assert (records["esx01"].smt, records["esx01"].cpus_per_node) == ("on", 64)
    assert host_records.find_different_builds(records) == [
        "build is 8.0.3-24280767 on esx03, and 8.0.3-24022510 on esx01, esx02"
    ]
    (tmp_path / "esx01.txt").write_text("ssh: connect to host esx01 port 22: Connection refused\n")
    with pytest.raises(UsageError, match=r"esx01\.txt: is not what `virtqual .*\. ESXi: "):
        host_records.read(tmp_path)


@pytest.fixture
def asked(site):
    """Return the site's environment with a command that brings a record of each host."""

    def environment(command):
        text = f"#!/bin/sh\ncd '{site.path}/hosts' || exit 1\n{command}\n"
        script = write_program(site.path / "ask-hosts", text)
        write(site.path / "hosts", **{"bare-1": "old", "bare-2": "old"})
        for file in (site.path / "hosts").iterdir():
            os.utime(file, (time.time() - 3600,) * 2)
        extras = {
            "hypervisor": {"vendor": "KVM", "accelerator": "kvm"},
            "host": str(site.path / "hosts"),
            "ask_hosts": [str(script)],
            "nodes_of_hosts": {"bare-1": ["cloud-1"], "bare-2": ["cloud-2"]},
        }
        site.fault("nodes", "2")
        return {"FAKE_NODES": "2", "FAKE_EXTRAS_cloud": json.dumps(extras)}

    return environment


RECORD = json.dumps({"schema": "virtqual-host/1", "source": "x", "qemu_package": QEMU, "kernel": "6.1"})
RESTART = RECORD.replace(
    f'"{QEMU}"', '{"not_observable": "q: replaced since the VM was started", "differs": true}'
)
NEW = f"for h in bare-1 bare-2; do echo '{RECORD}' > $h.json; done"


@pytest.mark.parametrize("known", [("bare-1", "bare-2"), ("bare-1",), (), ("left-out",)])
def test_the_build_of_a_session_is_what_the_hosts_say_now(site, asked, known):
    """Whichever of them have been asked before, also one that is left out now."""
    env = asked(NEW)
    write(site.path / "hosts", **dict.fromkeys(known, "old"))
    for name in {"bare-1", "bare-2"} - set(known):
        (site.path / f"hosts/{name}.json").unlink()
    done = site.virtqual(*ON, "--pairs", "4", code=0, **env)
    (directory,) = (site.path / "state/sessions").glob("2*")
    session = read_session(directory)
    assert QEMU in session["identity"]["virtual"]["hypervisor"]["build"]
    assert f"{QEMU}, KVM of kernel 6.1" in " ".join(done.stdout.split())
    assert "(stated)" not in done.stdout
    virtual = next(run for run in session["runs"] if run["side"] == "virtual")
    assert virtual["identity"][virtual["nodes"][0]]["host"]["qemu_package"] == QEMU


def test_preflight_asks_the_hosts_as_a_session_does(site, asked):
    env = asked(NEW.replace("6.1", "6.2"))
    done = site.virtqual("preflight", "--system", "testsite", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"kernel": "6.2"' in (site.path / "hosts/bare-2.json").read_text()
    done = site.virtqual("preflight", "--system", "testsite", **asked(NEW.replace("bare-1 bare-2", "bare-1")))
    assert done.returncode == 5, done.stdout + done.stderr
    assert "brought no new record of host bare-2" in site.words(done)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (NEW + "\nsed -i s/7.2/8.2/ bare-2.json", 4, "on bare-2. Bring all"),
        (f"{NEW}\necho '{RESTART}' > bare-2.json", 4, "VM was started) on bare-2: restart its VMs"),
        ("echo no route to bare-2; exit 3", 5, "ended with exit code 3: no route to bare-2"),
        (NEW.replace("bare-1 bare-2", "bare-1"), 5, "brought no new record of host bare-2"),
        (NEW + "\nrm bare-2.json", 2, "no record of host bare-2"),
        ("rm -r ../hosts", 5, "brought nothing: "),
    ],
)
def test_a_half_rolled_upgrade_and_a_host_that_does_not_answer_are_named(site, asked, command, code, says):
    done = site.virtqual(*ON, **asked(command))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, said
    assert says in said
    assert not (site.path / "state/sessions").exists()
