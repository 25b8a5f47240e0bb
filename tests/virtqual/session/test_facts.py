"""What a session says of its machines: another host of VMs is another build."""

from pathlib import Path

import pytest

from made_runs import made_run, session_of
from virtqual.history.builds import get_build_key
from virtqual.identity import Host, gather, readers
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
