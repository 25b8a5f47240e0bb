"""What `virtqual system init` writes at real centres, held against what is published about them.

tests/outputs/centres/README.md has the page of each value. Nobody at these centres took part.
"""

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


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_what_the_centre_publishes(at, tmp_path, name):  # noqa: F811
    write(name, tmp_path / "centres" / name)
    description, site = read(name), at(tmp_path / "centres" / name)
    sides = [f"--{side}-options={text}" for side, text in description.get("options", {}).items()]
    site.virtqual("system", "init", "mysite", *map(str, description["init"]), *sides, code=0)
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
