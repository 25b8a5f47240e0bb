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
#: Centres whose file is not right yet, and what is wrong in it.
WRONG = {
    "archer2": "5,900 characters of --exclude, memory of the rarer nodes",
    "deucalion": "the architecture is that of the login node",
    "karolina": "an account in capitals is refused",
    "levante": "718 characters of --exclude",
    "lumi-c": "more nodes than MaxNodes",
    "lumi-g": "reserved cores are counted, more nodes than MaxNodes",
    "marenostrum5": "a hidden partition is not found",
    "marenostrum5-grace": "the architecture is that of the login node",
    "parallelcluster": "Slurm takes threads for sockets",
    "perlmutter": "no feature can be named",
    "slurm-appliance": "one node of four, since memory differs by some MiB; Ethernet instead of InfiniBand",
    "virgo": "memory and caches of the rarer nodes, 2,168 characters of --exclude",
}


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


def mark(name: str):
    """Expect a test to fail where the file is known to be wrong."""
    marks = [pytest.mark.xfail(strict=True, reason=WRONG[name])] if name in WRONG else []
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [mark(name) for name in NAMES])
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
    assert "Slurm agrees with it, and so do the nodes" in check(site, "--on-nodes")
