"""Which RDMA ports preflight compares: those of the system file, or of one network that both sides have.

The nodes have the adapters of public postings: InfiniBand beside RoCE of storage (openucx/ucx#7991 has a
bond, open-mpi/ompi#9881 names of udev), a first port that is down (linux-rdma/rdma-core#847), a port of each
kind (claudebarthels/infinity#5, a vendor's manual), rails.
"""

import pytest
from preflight_pairs import FAULTS

from virtqual.identity import fabric, gather, readers
from virtqual.preflight.compare import compare
from virtqual.session import judge as judging

IB, ROCE = "InfiniBand", "Ethernet"
EDR, FDR, HDR, NDR = "100 Gb/sec (4X EDR)", "56 Gb/sec (4X FDR)", "200 Gb/sec (4X HDR)", "400 Gb/sec (4X NDR)"
UP, DOWN = "4: ACTIVE", "1: DOWN"


def node(name, ports, options=()):
    """Return a node with ports: device, number, link layer, rate and state."""
    files = gather.parse((FAULTS / f"{name}.look").read_text("utf-8"))
    texts = {path: text for path, text in files.texts.items() if not path.startswith("/sys/class/infiniband")}
    for device, number, layer, rate, state in ports:
        base = f"/sys/class/infiniband/{device}"
        texts |= {
            f"{base}/device/uevent": "DRIVER=mlx5_core\nPCI_ID=15B3:101B",
            f"{base}/device/numa_node": "0",
        }
        for key, text in {"link_layer": layer, "rate": rate, "state": state}.items():
            texts[f"{base}/ports/{number}/{key}"] = text
    return fabric.use_port(readers.read(gather.NodeFiles(texts, {})), options)


STORAGE_BESIDE = [("mlx5_0", 1, ROCE, NDR, UP), ("mlx5_1", 1, IB, HDR, UP)]
BOND_BESIDE = [("mlx5_bond_0", 1, ROCE, EDR, UP), ("mlx5_2", 1, IB, EDR, UP)]
BY_UDEV = [("rocep129s0f1", 1, ROCE, "25 Gb/sec (1X EDR)", UP), ("ibp129s0f0", 1, IB, EDR, UP)]
FIRST_PORT_DOWN = [("mlx4_0", 1, IB, "10 Gb/sec (4X SDR)", DOWN), ("mlx4_0", 2, IB, FDR, UP)]
OF_EACH_KIND = [
    *(("mlx4_0", 1, ROCE, "40 Gb/sec (4X QDR)", UP), ("mlx4_0", 2, ROCE, "10 Gb/sec (4X SDR)", DOWN)),
    *(("mlx4_1", 1, IB, FDR, UP), ("mlx4_2", 1, IB, "10 Gb/sec (4X SDR)", DOWN)),
]
RAILS = [(f"mlx5_{number}", 1, IB, NDR, UP) for number in (0, 3, 4, 10)]
# As /sys of a kernel has it (linux-rdma/rdma-core#884); ibv_devinfo says "Unspecified".
EFA = [("rdmap0s6", 1, "Unknown", "100 Gb/sec (4X EDR)", UP)]


@pytest.mark.parametrize(
    ("native", "virtual", "names"),
    [
        (STORAGE_BESIDE, [("mlx5_0", 1, IB, HDR, UP)], ("mlx5_1 port 1", "mlx5_0 port 1")),
        # The VM has the storage's adapter only.
        (STORAGE_BESIDE, [("mlx5_0", 1, ROCE, NDR, UP)], ("mlx5_0 port 1", "mlx5_0 port 1")),
        (BOND_BESIDE, [("mlx5_0", 1, IB, EDR, UP)], ("mlx5_2 port 1", "mlx5_0 port 1")),
        (BY_UDEV, BY_UDEV[1:], ("ibp129s0f0 port 1", "ibp129s0f0 port 1")),
        (FIRST_PORT_DOWN, [("mlx4_0", 1, IB, FDR, UP)], ("mlx4_0 port 2", "mlx4_0 port 1")),
        (OF_EACH_KIND, OF_EACH_KIND, ("mlx4_1 port 1", "mlx4_1 port 1")),
        (RAILS, RAILS[:1], ("mlx5_0 port 1", "mlx5_0 port 1")),
        (EFA, EFA, ("rdmap0s6 port 1", "rdmap0s6 port 1")),
        # Two InfiniBand networks, of which the VM has the slower one.
        (
            [*RAILS, ("mlx5_5", 1, IB, EDR, UP)],
            [("mlx5_0", 1, IB, EDR, UP)],
            ("mlx5_5 port 1", "mlx5_0 port 1"),
        ),
        (RAILS, [("mlx5_0", 1, ROCE, NDR, UP)], ()),
        (RAILS, [], ()),
    ],
)
def test_the_ports_of_one_network(native, virtual, names):
    chosen = fabric.select_common_ports(node("bare", native), node("guest", virtual))
    assert tuple(ports[0].name for ports in chosen if ports) == names
    assert len({len({port.kind for port in ports}) for ports in chosen}) == 1


def find_reasons(native, virtual, item="link-rate"):
    """Return the reasons of one item; the first of the refused ones stands for all."""
    findings = compare(native, virtual, judging.policy(), "esxi")
    return [finding.reason for finding in findings if finding.item == item and finding.action == "refuse"]


@pytest.mark.parametrize(
    ("native", "virtual", "options", "says"),
    [
        (STORAGE_BESIDE, [("mlx5_0", 1, IB, HDR, UP)], (["-d", "mlx5_1"], ["-d", "mlx5_0"]), None),
        (STORAGE_BESIDE, [("mlx5_0", 1, IB, HDR, UP)], ([], []), None),
        (
            FIRST_PORT_DOWN,
            [("mlx4_0", 1, IB, FDR, UP)],
            (["-d", "mlx4_0", "-i", "2"], ["-d", "mlx4_0"]),
            None,
        ),
        (
            *(FIRST_PORT_DOWN, [("mlx4_0", 1, IB, FDR, UP)], (["-d", "mlx4_0"], ["-d", "mlx4_0"])),
            "RDMA ports are 1: DOWN natively and 4: ACTIVE in the VM",
        ),
        (
            *(STORAGE_BESIDE, [("mlx5_0", 1, IB, EDR, UP)], (["-d", "mlx5_1"], ["-d", "mlx5_0"])),
            "RDMA port mlx5_1 port 1 has 200 Gbit/s natively and 100 in the VM",
        ),
        (
            *(STORAGE_BESIDE, [("mlx5_0", 1, IB, NDR, UP)], (["-d", "mlx5_0"], ["-d", "mlx5_0"])),
            "the RDMA port is Ethernet natively and InfiniBand in the VM",
        ),
        (
            *(RAILS, RAILS[:1], (["-d", "mlx5_0", "-i", "2"], ["-d", "mlx5_0"])),
            "extras.rdma_options names mlx5_0 port 2, native has mlx5_0 port 1, mlx5_3 port 1",
        ),
        # A faster port for storage does not hide a slow link of the network.
        (
            *([("mlx5_0", 1, ROCE, NDR, UP), ("mlx5_1", 1, IB, HDR, UP)],),
            *([("mlx5_0", 1, ROCE, NDR, UP), ("mlx5_1", 1, IB, EDR, UP)], ([], [])),
            "the fastest RDMA port has 200 Gbit/s natively and 100 in the VM",
        ),
    ],
)
def test_the_rate_of_the_port_that_is_used(native, virtual, options, says):
    reasons = find_reasons(node("bare", native, options[0]), node("guest", virtual, options[1]))
    assert (says is None) == (not reasons)
    assert says is None or any(says in reason for reason in reasons), reasons


def test_the_firmware_of_the_port_that_is_used():
    native, virtual = (
        node(name, ports, ["-d", device])
        for name, ports, device in (("bare", STORAGE_BESIDE, "mlx5_1"), ("guest", RAILS[:1], "mlx5_0"))
    )
    findings = compare(native, virtual, judging.policy(), "esxi")
    (reason,) = {
        finding.reason
        for finding in findings
        if finding.item == "hca-firmware" and "native" in finding.reason
    }
    assert reason.startswith("the firmware of mlx5_1 of native")


def test_omni_path_is_named():
    omni = node("bare", [("hfi1_0", 1, IB, EDR, UP)])
    assert fabric.name_other_fabrics(omni) == [
        "Omni-Path (hfi1_0), which MPI uses by PSM2 and perftest by verbs"
    ]
    assert fabric.name_other_fabrics(node("bare", RAILS)) == []


@pytest.mark.parametrize("layer", ["Unknown", "Unspecified"])
def test_efa_is_named(layer):
    efa = node("bare", [(name, 1, layer, EDR, UP) for name in ("rdmap16s27", "rdmap32s27")])
    assert fabric.name_other_fabrics(efa) == [
        "EFA (rdmap16s27, rdmap32s27), which has no queue pairs of type RC: the feature rdma is not for it"
    ]
