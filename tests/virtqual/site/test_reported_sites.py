"""What operators reported of Slurm and nodes: tests/outputs/bug-reports.md has each report."""

import re

import pytest
from test_other_sites import at, check, complete, initialise  # noqa: F401


@pytest.mark.parametrize("name", ["long-names", "reason-with-keys", "no-partition"])
def test_texts_of_slurm_do_not_become_other_values(at, name):  # noqa: F811
    site = at(name)
    initialise(site)
    system = complete(site)
    assert (system.native_extras.nodes, system.virtual_extras.nodes) == (8, 8)
    assert system.partition("native").processor["num_cpus"] == 128
    assert system.native_extras.memory_mib == int(0.9 * 256000)
    assert "Slurm agrees with it, and so do the nodes" in check(site, "--on-nodes")


def test_a_node_may_have_less_memory_than_slurm_is_told(at):  # noqa: F811
    site = at("less-memory-than-configured")
    initialise(site)
    system = complete(site)
    assert system.native_extras.memory_mib == int(0.9 * (445604864 // 1024))
    assert "Slurm agrees with it, and so do the nodes" in check(site, "--on-nodes")


def test_caches_that_a_node_does_not_show_are_left_to_people(at):  # noqa: F811
    site = at("no-l3")
    says = initialise(site)
    assert re.search(r"llc_bytes: TODO", says)
