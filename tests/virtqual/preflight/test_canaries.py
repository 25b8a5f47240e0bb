"""Canaries against what the published studies measured with and without the feature."""

import pytest

from virtqual.preflight.canaries import fits_a_node, iommu_large_pages, virtual_numa, write_combining

# A curve in the shape of ib_send_lat, made up: the study prints differences to native, and no curve.
NATIVE = {2: 0.90, 4: 0.90, 8: 0.91, 16: 0.92, 32: 0.95, 64: 0.98, 128: 1.05, 256: 1.35, 512: 1.5}


def shifted(offset, bump=0.0):
    return {size: us + offset + (bump if 16 <= size <= 128 else 0) for size, us in NATIVE.items()}


@pytest.mark.parametrize(
    ("what", "virtual", "native", "state"),
    [
        ("ESXi 6.0 send: +0.4 us (R03) and the bump (R04)", shifted(0.4, 0.5), NATIVE, "missing"),
        ("ESXi 6.0 read: +0.8 us (R01), no bump", shifted(0.8), NATIVE, "missing"),
        ("the bump alone, in the VM alone (R04)", shifted(0.4, 0.5), None, "missing"),
        ("ESXi 6.0u1: both gone (R02, R05)", shifted(0.0), NATIVE, "present"),
        ("a tenth of a microsecond of something else", shifted(0.1), NATIVE, "present"),
        ("native against itself, alone", NATIVE, None, "present"),
        ("a bump that native has, too", shifted(0.1, 0.5), shifted(0.0, 0.5), "present"),
        ("no size inside the bump", {2: 1.0, 8: 1.0, 256: 1.3}, NATIVE, "unknown"),
        ("native without small sizes", NATIVE, {256: 1.3}, "unknown"),
    ],
)
def test_write_combining(what, virtual, native, state):
    canary = write_combining(virtual, native)
    assert canary.state == state, (what, canary.text)
    assert "write combining" in canary.text


def test_an_offset_of_mpi_alone_may_have_another_cause():
    # R08: with write combining small MPI messages still took 20 % more; the IOMMU's pages were it.
    assert write_combining(shifted(0.4), NATIVE, offset=False).state == "present"
    assert write_combining(shifted(0.4, 0.5), NATIVE, offset=False).state == "missing"


@pytest.mark.parametrize(
    ("curve", "state", "says"),
    [
        # 20 % more once the buffers outnumber the IOTLB's entries (R08, R11); eliminated by 2 MB pages (R09).
        ({1: 1.00, 4: 1.00, 16: 1.00, 64: 1.20, 256: 1.20}, "missing", "1.20x), rising at 64"),
        ({1: 1.00, 4: 1.00, 16: 1.00, 64: 1.00, 256: 1.20}, "missing", "1.20x), rising at 256"),
        ({1: 1.00, 4: 1.01, 16: 1.00, 64: 1.02, 256: 1.02}, "present", "1.01x"),
        ({1: 1.0, 2: 1.0, 4: 1.2}, "unknown", "four numbers"),
        ({1: 1.0, 2: 1.0, 3: 1.2, 4: 1.2}, "unknown", "factor of 16"),
    ],
)
def test_iommu_large_pages(curve, state, says):
    canary = iommu_large_pages(curve)
    assert canary.state == state, canary.text
    assert says in canary.text


def test_what_more_buffers_cost_the_adapter_itself_is_not_the_iommus():
    native = {1: 1.00, 4: 1.00, 16: 1.00, 64: 1.30, 256: 1.60}
    assert iommu_large_pages(native).state == "missing"
    assert iommu_large_pages({count: 1.01 * us for count, us in native.items()}, native).state == "present"
    slower = {count: us * (1.2 if count >= 64 else 1.0) for count, us in native.items()}
    assert "1.20 of native with 256 buffers" in iommu_large_pages(slower, native).evidence


# One message in flight a buffer: natively 1 us of latency, then a rate of 10 million a second.
FEW_IN_FLIGHT = {1: 1.0, 4: 0.25, 16: 0.1, 64: 0.1, 256: 0.1, 1024: 0.1}
FLAT = dict.fromkeys(FEW_IN_FLIGHT, 0.1)


@pytest.mark.parametrize(
    ("what", "virtual", "native", "state", "says"),
    [
        (
            "0.4 us of latency (R03) where few are in flight must not hide 20 % from 256 buffers on",
            {1: 1.4, 4: 0.35, 16: 0.1, 64: 0.1, 256: 0.12, 1024: 0.12},
            FEW_IN_FLIGHT,
            "missing",
            "1.20 of native with 1024 buffers, 1.00 with 16 (1.20x), rising at 256",
        ),
        (
            "the same measured at too few numbers of buffers",
            {1: 1.4, 4: 0.35, 64: 0.1, 256: 0.12},
            {count: FEW_IN_FLIGHT[count] for count in (1, 4, 64, 256)},
            "unknown",
            "at which the rate limits both sides; it does at 64, 256",
        ),
        (
            "0.4 us of every message: the IOMMU's 20 % are within them",
            dict.fromkeys(FLAT, 0.5),
            FLAT,
            "unknown",
            "5.00 with 1 (1.00x): with few buffers something else",
        ),
        (
            "an overhead that falls, because the adapter takes longer for many buffers natively, too",
            {1: 0.14, 4: 0.14, 16: 0.14, 64: 0.14, 256: 0.18, 1024: 0.18},
            {1: 0.1, 4: 0.1, 16: 0.1, 64: 0.1, 256: 0.15, 1024: 0.15},
            "unknown",
            "(0.86x): with few buffers something else",
        ),
        (
            "the adapter alone",
            {1: 0.1, 4: 0.1, 16: 0.1, 64: 0.15},
            {1: 0.1, 4: 0.1, 16: 0.1, 64: 0.15},
            "present",
            "",
        ),
    ],
)
def test_what_else_a_vm_costs_does_not_hide_the_iommu(what, virtual, native, state, says):
    canary = iommu_large_pages(virtual, native)
    assert canary.state == state, (what, canary.text)
    assert says in canary.text


@pytest.mark.parametrize(
    ("remote", "native", "state"),
    [
        # S26: purely remote bandwidth is about half of purely local; a guest whose nodes are a lie shows 1.0.
        (0.5, None, "present"),
        (1.0, None, "missing"),
        (0.97, None, "missing"),
        (0, None, "unknown"),
        # Two nodes of one socket lie nearer to each other than two sockets.
        (0.82, 0.8, "present"),
        (0.97, 0.8, "missing"),
        (0.97, 0.95, "unknown"),
    ],
)
def test_virtual_numa(remote, native, state):
    told = (20000, 20000 * native) if native else None
    assert virtual_numa((20000, 20000 * remote), told).state == state
    # An emulated processor does not reach what its memory gives, near or far.
    assert virtual_numa((2000, 2000 * remote), (20000, 10000)).state == "unknown"


@pytest.mark.parametrize(
    ("ratio", "share", "state", "says"),
    [
        (1.00, 1.0, "present", "beside its CPUs"),
        (0.70, 1.0, "missing", "half of its accesses are remote"),
        (0.74, 1.0, "missing", "half of its accesses are remote"),  # D01: memory not pinned
        (0.50, 0.5, "present", "one node"),
        (0.70, 0.5, "missing", "spread over both nodes"),
        (0.48, 0.5, "present", "one node"),
        # Emulation, or whatever else takes more than a spread over nodes does.
        (0.06, 0.5, "unknown", "something else than NUMA"),
    ],
)
def test_a_vm_larger_than_a_node(ratio, share, state, says):
    # S24: one VM that fits a node gets half of the host; S25: one spread over both nodes gets 70 %.
    canary = fits_a_node(29622 * ratio, 29622, nodes=2, share=share)
    assert (canary.state, says in canary.text) == (state, True), canary.text
    assert fits_a_node(29622 * ratio, 29622, nodes=1, share=1.0).state == "unknown"
