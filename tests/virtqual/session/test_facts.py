"""What a session says of its machines: another host of VMs is another build."""

from pathlib import Path

import pytest

from made_runs import made_run, session_of
from virtqual.history.builds import get_build_key
from virtqual.identity import Host, gather, readers
from virtqual.session.facts import facts
from virtqual.session.summary import Summary

GUEST = (Path(__file__).parents[2] / "faults/preflight/guest.look").read_text("utf-8")


def on(**host):
    guest = readers.read(gather.parse(GUEST), "").on(Host(source="host1.json", **host))
    node = str(guest.node)
    return Summary.of(session_of([made_run("virtual", 0, nodes=(node,), identity={node: guest})]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"module_parameters": {"kvm_amd.npt": "Y"}}, {"module_parameters": {"kvm_amd.npt": "N"}}),
        ({"qemu_package": "qemu-kvm 9.0.0-1"}, {"qemu_package": "qemu-kvm 9.0.0-2"}),
        ({"kernel": "5.14.0-427"}, {"kernel": "5.14.0-503"}),
    ],
)
def test_what_hosts_of_vms_say_is_part_of_the_build(before, after):
    assert get_build_key(on(**before)) != get_build_key(on(**after))
    assert get_build_key(on(**before)) == get_build_key(on(**before, governor="performance"))


def test_the_facts_of_a_session_are_those_of_its_system_file_and_its_nodes():
    blank, guest = readers.read(gather.NodeFiles({}, {})), readers.read(gather.parse(GUEST), "")
    runs = [
        made_run(
            "native",
            0,
            nodes=("n1", "n2"),
            hosts={"n1": "h1"},
            identity={"n1": blank.on(Host(source="h1.json", kernel="6.1"))},
        ),
        made_run(
            "virtual",
            0,
            nodes=("vm",),
            hosts={"vm": "h3"},
            identity={"vm": guest.on(Host(source="h3.json", kernel="5.14.0"))},
        ),
    ]
    virtual = {"hypervisor": {"vendor": "KVM"}, "placement": {"numa_hidden": True}, "guest": {"kernel": "k"}}
    identity = {"native": {"processor": {"model": "x", "cores": [2, 4]}}, "virtual": virtual}
    assert facts(session_of(runs, identity=identity)) == {
        "label": "none",
        "system": "site",
        "class": "kvm",
        "hypervisor vendor": "KVM",
        "placement numa hidden": "yes",
        "guest kernel": "k",
        "native processor model": "x",
        "native processor cores": "2 4",
        "stack": "test (0)",
        # A native node without a host's name is its own.
        "native hosts": "h1, n2",
        "virtual hosts": "h3",
        "virtual kernel": "5.14.0-427.el9.x86_64",
        "virtual command line": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro mitigations=auto",
        "virtual microcode": "0x5003604",
        "virtual mitigations": "mds=Mitigation: Clear CPU buffers; SMT vulnerable meltdown=Not affected",
        "virtual firmware": "VMware, Inc. VMW201.00V.24006586",
        # That of a native host is no part of the build.
        "hypervisor host kernel": "5.14.0",
    }
    stated_alone = {"label": "l", "system": "site", "class": "kvm", "stack": "test (0)"}
    assert facts(session_of([], label="l")) == stated_alone
