"""From the files of a node to its record, on recorded nodes and on this one."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from calling import call
from virtqual.identity import Identity, NotObservable, gather, readers, seen
from virtqual.identity.devices import kind
from virtqual.identity.load import between

OUTPUTS = Path(__file__).parents[2] / "outputs/identity"
FAULTS = Path(__file__).parents[2] / "faults/preflight"


def read(file):
    return readers.read(gather.parse(file.read_text()))


def list_leaves(value, path=""):
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from list_leaves(child, f"{path}.{key}")
    else:
        yield path, value


def test_a_node_of_two_sockets():
    node = read(FAULTS / "bare.look")
    assert node.hypervisor.present is False
    assert not seen(node.hypervisor.vendor)
    assert node.cpu.signature == "GenuineIntel 6-85-7"
    assert (node.topology.sockets, node.topology.threads_per_core, node.topology.smt) == (2, 2, "on")
    assert node.topology.threads_used == 2
    text = (FAULTS / "bare.look").read_text()
    assert readers.read(gather.parse(text), "0-3").topology.threads_used == 1
    assert node.topology.packages == {"0": "0-1,4-5", "1": "2-3,6-7"}
    assert node.topology.numa == {"0": "0-1,4-5", "1": "2-3,6-7"}
    assert node.topology.caches["L3"] == "19712K shared by 0-1,4-5"
    assert (node.power.governor, node.power.turbo) == ("performance", "on")
    assert node.memory.transparent_huge_pages == "always"
    (hca,) = node.hcas
    assert (hca.kind, hca.firmware, hca.numa_node) == ("physical", "16.35.3006", 0)
    assert hca.link.speed == hca.link.best_speed == "8.0 GT/s PCIe"
    assert hca.ports[0].rate == "100 Gb/sec (4X EDR)"


def test_a_guest_of_esxi():
    node = read(FAULTS / "guest.look")
    hypervisor = node.hypervisor
    assert (hypervisor.present, hypervisor.vendor, hypervisor.accelerator) == (True, "VMware", "esxi")
    assert isinstance(hypervisor.build, NotObservable)
    assert isinstance(node.power.governor, NotObservable)
    assert "no such file" in node.power.governor.not_observable
    assert node.hcas[0].kind == node.nics[0].kind == "virtual function"
    assert isinstance(node.hcas[0].link.speed, NotObservable)


def test_the_tools_of_vmware_say_the_build():
    text = (FAULTS / "guest.look").read_text()
    text = f"{gather.VMWARE_SESSION}:version = VMware ESXi 8.0.3 build-24022510\n{text}"
    assert readers.read(gather.parse(text)).hypervisor.build == "VMware ESXi 8.0.3 build-24022510"


def test_a_guest_under_emulation_and_its_host():
    guest, host = read(OUTPUTS / "tcg-guest.look"), read(OUTPUTS / "native.look")
    assert (guest.hypervisor.vendor, guest.hypervisor.accelerator) == ("QEMU", "tcg")
    assert "pc-i440fx" in guest.hypervisor.hardware
    assert guest.topology.cpus == "0-1"
    assert guest.nics[0].kind == "paravirtual"
    assert host.hypervisor.accelerator == "kvm"  # the host of this cluster is itself a VM
    assert [nic.kind for nic in host.nics if nic.name == "eth0"] == ["software"]


def test_a_guest_of_kvm_on_an_emulated_host_is_under_kvm():
    """The guest shows the name of its host's CPU; the clock is KVM's all the same."""
    text = (OUTPUTS / "tcg-guest.look").read_text("utf-8")
    text = text.replace("available_clocksource:hpet", "available_clocksource:kvm-clock hpet")
    guest = readers.read(gather.parse(text))
    assert "TCG" in guest.cpu.model
    assert guest.hypervisor.accelerator == "kvm"


def test_nothing_that_cannot_be_seen_has_a_value():
    empty = readers.read(gather.NodeFiles({}, {}))
    leaves = [
        (path, value)
        for path, value in list_leaves(empty.plain())
        if not path.endswith("not_observable") and path != ".schema"
    ]
    assert leaves == []
    assert Identity.model_validate(empty.plain()) == empty
    assert all(value for _, value in list_leaves(empty.plain()))


def test_records_come_back_as_they_were():
    for file in (*OUTPUTS.glob("*.look"), *FAULTS.glob("*.look")):
        node = read(file)
        assert Identity.model_validate_json(json.dumps(node.plain())) == node


def test_last_level_caches_of_all_cpus_are_summed():
    """One CPU of each socket shows no L2, and a CPU that is shown first has no cache of the last level."""
    node = read(OUTPUTS / "caches-missing.look")
    assert node.topology.last_level_cache == ("4096K", "1,5")
    assert node.topology.last_level_bytes == 3 * 4 * 2**20
    assert not seen(read(FAULTS / "bare.look").topology.last_level_bytes)


LOOK = (FAULTS / "guest.look").read_text("utf-8")
NOTICES = "\x1b[1;31mMaintenance on Tuesday\x1b[0m\n/home/u is 90% full: tidy up\nvirtqual-looks fine\n"


def print_as(task, text):
    """Return a text as `srun --label` prints that of a task."""
    return "".join(f"{task}: {line}\n" for line in text.splitlines())


def test_a_look_among_what_a_site_prints():
    whole = f"{gather.FIRST_LINE}\n{LOOK}"
    expected = gather.parse(whole)
    for text in (
        NOTICES + whole + NOTICES,
        f"{NOTICES}{whole}".replace("\n", "\r\n"),
        print_as(0, NOTICES + whole + NOTICES),
        print_as("00", whole) + NOTICES,
        whole.replace(gather.FIRST_LINE, f"\x1b[0m{gather.FIRST_LINE}"),
        f"Job 7 begins{whole}",
        f"+ echo {gather.FIRST_LINE}\n{whole}",
    ):
        assert gather.parse(text) == expected


def test_a_look_that_is_not_certain_is_refused():
    whole = f"{gather.FIRST_LINE}\n{LOOK}"
    for text, says in (
        (
            whole.replace("/proc/cmdline:", "srun: job 7 queued\n/proc/cmdline:"),
            "names no file: 'srun: job 7",
        ),
        (whole + whole, "several nodes or tasks"),
        (print_as(0, whole) + print_as(1, whole), "several nodes or tasks"),
        (whole.replace(gather.LAST_LINE, ""), "not whole"),
    ):
        with pytest.raises(gather.GatherError, match=says):
            gather.parse(text)


def test_a_checksum_tells_whole_lines_in_between_from_broken_ones():
    env = {**os.environ, "SLURMD_NODENAME": "nid000001"}
    commands = gather.guard(gather.script(then="printf '/virtqual/a:\\303\\244\\tb\\n'\n"))
    printed = subprocess.run(
        ["sh", "-c", commands], capture_output=True, text=True, check=True, env=env
    ).stdout
    expected = gather.parse(printed)
    assert expected.texts["/virtqual/a"] == "ä\tb"
    assert readers.read(expected).name == "nid000001"
    lines = printed.splitlines()
    half = len(lines) // 2
    between = [*lines[:half], "srun: job 7 queued", "", *lines[half:]]
    assert gather.parse("\n".join(between)) == expected
    assert gather.parse(print_as(3, "\n".join(between)) + NOTICES) == expected
    # What came over a terminal or a log in Latin-1 has other bytes for what is not ASCII.
    assert gather.parse(printed.replace("ä", "\ufffd\ufffd")).texts["/virtqual/a"] == "\ufffd\ufffd\tb"
    broken = [*lines[:half], lines[half][:-3] + "srun: job 7 queued", lines[half][-3:], *lines[half + 1 :]]
    for text in ("\n".join(broken), "\n".join(lines[:half] + lines[half + 1 :])):
        with pytest.raises(gather.GatherError, match="its checksum is wrong"):
            gather.parse(text)


def test_a_binary_file_is_no_line_of_others():
    node = readers.read(
        gather.parse(
            f"{LOOK}".replace(
                gather.LAST_LINE,
                f"""Binary file {gather.DMI_DIR}/x matches
{gather.LAST_LINE}""",
            )
        )
    )
    assert node == read(FAULTS / "guest.look")


def test_this_node():
    node = readers.read(gather.run_script())
    assert seen(node.node)
    assert seen(node.cpu.model)
    with pytest.raises(gather.GatherError, match="not whole"):
        gather.parse(
            subprocess.run(["sh", "-c", gather.script()], capture_output=True, text=True).stdout[:-5]
        )


@pytest.mark.parametrize(
    ("driver", "pci_id", "guest", "expected"),
    [
        ("virtio_net", None, True, "paravirtual"),
        ("vmxnet3", "15ad:07b0", True, "paravirtual"),
        ("e1000", "8086:100f", True, "emulated"),
        ("e1000e", "8086:10d3", True, "emulated"),
        ("e1000e", "8086:15bb", False, "physical"),
        ("mlx5_core", "15b3:1017", False, "physical"),
        ("mlx5_core", "15b3:1017", True, "passthrough"),
        ("mlx5_core", "15b3:1018", True, "virtual function"),
        ("iavf", "8086:1889", True, "virtual function"),
        # QEMU 8.0 and later.
        ("igb", "8086:10c9", True, "emulated"),
        ("igb", "8086:10c9 1af4:1100", True, "emulated"),
        ("igb", "8086:10c9 8086:a03c", True, "passthrough"),
        ("igb", "8086:1521 8086:0001", True, "passthrough"),
        ("igbvf", "8086:10ca 1af4:1100", True, "emulated"),
        ("igbvf", "8086:10ca 8086:a03c", True, "virtual function"),
        ("e1000e", "8086:10d3 8086:0000", True, "emulated"),
        ("e1000e", "8086:10d3 15ad:07d0", True, "emulated"),
        ("mlx5_core", "15b3:101b 15b3:0007", True, "passthrough"),
        ("vmw_pvrdma", "15ad:0820 15ad:0820", True, "paravirtual"),
    ],
)
def test_kinds_of_adapters(driver, pci_id, guest, expected):
    unseen = NotObservable(not_observable="no PCI device")
    device, subsystem = [*(pci_id or "").split(), "", ""][:2]
    assert (
        kind(driver, device or unseen, virtual_function=False, guest=guest, subsystem=subsystem) == expected
    )
    assert isinstance(kind(unseen, unseen, virtual_function=False, guest=True), NotObservable)


def test_load_of_a_run():
    begin = {"time": "0", "cpu_ticks": "100 0 0 100 0 0 0 0", "cpus_online": "0-3"}
    begin |= {"pswpin": "1", "pswpout": "0"}
    end = {"time": "10", "cpu_ticks": "2100 0 0 1900 0 0 0 200", "pswpin": "4", "pswpout": "1"}
    load = between(begin, end, own_cpus=1)
    assert (load.seconds, load.steal, load.foreign, load.swapped) == (10, 0.05, 1.0, 4)
    assert "cpu_waiting_us" in load.waiting.not_observable
    assert "balloon_inflate" in load.ballooned.not_observable


run = partial(call, "identity", COLUMNS="80")


def test_the_command_shows_80_columns_and_every_reason():
    done = run("--from", FAULTS / "guest.look", code=0)
    assert max(map(len, done.output.splitlines())) <= 80
    for word in ("VMware", "virtual function", "tuned profile", "not observable", "GenuineIntel 6-85-7"):
        assert word in done.output


def test_the_command_says_what_is_wrong(tmp_path):
    (tmp_path / "nothing").write_text(f"{gather.LAST_LINE}\n")
    for file, code, says in (
        (tmp_path / "no", 2, "cannot be read"),
        (__file__, 2, "not whole"),
        (tmp_path / "nothing", 5, "holds none of the files"),
    ):
        done = run("--from", file)
        assert (done.exit_code, says in done.output) == (code, True), done.output


def test_a_node_says_what_it_is_without_what_judges():
    code = (
        "import sys, virtqual.commands.identity, virtqual.cli; "
        "print({'scipy', 'numpy', 'reframe'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
