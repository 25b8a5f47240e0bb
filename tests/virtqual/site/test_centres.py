"""What `virtqual system init` writes at real centres, held against what is published about them.

tests/outputs/centres/README.md has the page of each value. Nobody at these centres took part.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from described_centres import NAMES, read, write
from test_other_sites import at, check, complete  # noqa: F401

from virtqual.site.systems import Partition

#: Options of Slurm that a person still reads.
MAX_ACCESS_CHARACTERS = 300


def find_faults(partition: Partition, right: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs from what is right."""
    options, access = list(partition.extras.rdma_options), " ".join(partition.access)
    stated = {
        **dict(partition.processor),
        **partition.extras.model_dump(
            include={"numa_nodes", "llc_bytes", "link_gbit", "memory_mib", "nodes"}
        ),
        "device": options[options.index("-d") + 1] if "rdma" in partition.features else None,
    }
    for key, value in right.items():
        if key == "access":
            yield from (f"access lacks {word}: {access}" for word in value if word not in access)
        elif key in ("memory_mib", "nodes"):
            if not value[0] <= stated[key] <= value[1]:
                yield f"{key} is {stated[key]}, not within {value}"
        elif stated[key] not in (value if isinstance(value, list) else [value]):
            yield f"{key} is {stated[key]}, not {value}"
    if len(access) > MAX_ACCESS_CHARACTERS:
        yield f"access has {len(access)} characters"


def initialise(site, name, **options):
    """Call `virtqual system init` at a centre; return what it printed, as one line, and what it wrote."""
    sides = [f"--{side}-options={text}" for side, text in options.items()]
    said = site.virtqual("system", "init", "mysite", *map(str, read(name)["init"]), *sides, code=0)
    return site.words(said), (site.path / "site/systems/mysite.py").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_what_the_centre_publishes(at, tmp_path, name):  # noqa: F811
    write(name, tmp_path / "centres" / name)
    description, site = read(name), at(tmp_path / "centres" / name)
    initialise(site, name, **description.get("options", {}))
    system = complete(site, hypervisor_class="production")
    faults = {
        side: list(find_faults(system.partition(side), description["right"][side]))
        for side in ("native", "virtual")
    }
    assert faults == {"native": [], "virtual": []}
    if wrong := description["right"].get("check"):
        assert wrong in check(site, "--on-nodes", code=2)
    else:
        assert "Slurm agrees with it, and so do the nodes" in check(site, "--on-nodes")


@pytest.mark.parametrize(
    ("name", "drafted"),
    [
        (
            "cyclecloud",
            [
                '["UCX_NET_DEVICES", "mlx5_ib0:1"],  # UCX would use mlx5_an0 port 1, too',
                '"hypervisor_class": "production",  # the only class for hyperv',
            ],
        ),
        (
            "slurm-appliance",
            [
                '["UCX_NET_DEVICES", "mlx5_1:1"],  # UCX would use mlx5_0 port 1, too',
                '"hypervisor_class": "TODO: ',
            ],
        ),
        (
            "parallelcluster",
            [
                '"features": ["native"],',
                "# metal-dy-metal-c5n-4 has EFA (rdmap0s6), which has no queue pairs of type RC",
            ],
        ),
    ],
)
def test_what_follows_from_adapters_and_accelerator_is_drafted(at, tmp_path, name, drafted):  # noqa: F811
    write(name, tmp_path / "centres" / name)
    _, text = initialise(at(tmp_path / "centres" / name), name)
    assert [line for line in drafted if line not in text] == []


def test_features_by_which_nodes_of_one_size_differ_are_named(at, tmp_path):  # noqa: F811
    """Perlmutter's partition without `-C`, but for its rule that jobs must name a feature."""
    write("perlmutter", tmp_path / "centres/perlmutter")
    (tmp_path / "centres/perlmutter/demands.txt").write_text("", "utf-8")
    site = at(tmp_path / "centres/perlmutter")
    said, _ = initialise(site, "perlmutter", virtual="-C vm")
    differ = (
        "nodes of one size in partition regular differ in features: 3072 nodes with cpu "
        "(nid[004074-007145]); 8 nodes with vm (vm[0001-0008]). If these are not the "
        "same hardware, -C cpu selects the first"
    )
    assert differ in said
    complete(site)
    assert differ in check(site)


def test_ucx_chooses_among_ports_of_one_network(at, tmp_path):  # noqa: F811
    write("csd3", tmp_path / "centres/csd3")
    for look in (tmp_path / "centres/csd3").glob("look.*"):
        text = look.read_text("utf-8")
        look.write_text(
            text + re.sub("(?m)^(?!.*infiniband).*\n", "", text).replace("mlx5_0", "mlx5_1"), "utf-8"
        )
    _, text = initialise(at(tmp_path / "centres/csd3"), "csd3")
    assert "the first of 2 such ports (mlx5_1 port 1)" in text
    assert "UCX_NET_DEVICES" not in text


def test_efa_has_no_ports_that_checks_of_rdma_measure(at, tmp_path):  # noqa: F811
    write("csd3", tmp_path / "centres/csd3")
    site = at(tmp_path / "centres/csd3")
    initialise(site, "csd3")
    complete(site)
    for look in (tmp_path / "centres/csd3").glob("look.*"):
        look.write_text(
            look.read_text("utf-8").replace("link_layer:InfiniBand", "link_layer:Unknown"), "utf-8"
        )
    said = check(site, "--on-nodes", code=2)
    assert "features: states 'rdma', but mlx5_0 port 1 of" in said
    assert "is EFA, which has no queue pairs of type RC: take 'rdma' from the features" in said
