"""Slurm's partitions, of which large ones have thousands of nodes."""

from virtqual.site.partitions import NodeSize, SlurmPartition


class CountedSizes(dict):
    """Sizes of nodes that count how often all are looked at."""

    looks = 0

    def values(self):
        self.looks += 1
        return super().values()


def test_the_size_of_most_nodes_is_found_once():
    """A draft for a thousand nodes took a minute: it was found for each node, and again for each pair."""
    sizes = CountedSizes({f"vm{number}": NodeSize(8, 4, None) for number in range(8)})
    sizes["vm8"] = NodeSize(4, 2, None)
    partition = SlurmPartition("vm", sizes, 60, None, None)
    assert (len(partition.common_nodes), partition.other_nodes) == (8, ["vm8"])
    assert partition.common_size == NodeSize(8, 4, None)
    assert sizes.looks == 1
