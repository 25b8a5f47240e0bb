"""VMs of one host at the same time against that host alone, as the ESX 4.1 study compares them."""

import reframe as rfm

from virtqual.job import notes
from virtqual.site import hosts as shared_hosts
from virtqual.site.hosts import Size
from virtqual.verdict.pairs import SIDES

from . import counts


class VmsOfOneHost(rfm.RegressionTestPlugin):
    """A case that runs on several VMs of one host, and natively on a single node with as many cores.

    Goes before a :class:`~checks.base.Measurement`.  Its parameter ``layout`` has the number of VMs, and of
    cores or threads of each, such as ``2x4``.
    """

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: too few VMs of a host, or no native node that is as large as they are.

        A side that is not selected lacks nothing: it has no runs.
        """
        count = counts.parse_layout(case.layout)[0]
        native, virtual = map(counts.find_partition, SIDES)
        hosts = virtual.extras.get("nodes_of_hosts", {}) if virtual else {}
        if virtual and not shared_hosts.select_nodes_of_one_host(hosts, count):
            return f"needs {count} VMs of one host (extras.nodes_of_hosts of the virtual partition)"
        if virtual and count > virtual.extras["nodes"]:
            return f"needs {count} nodes of the virtual partition"
        if native and virtual:
            host, vm = (Size(counts.cores_of(p), p.extras["memory_mib"]) for p in (native, virtual))
            if reasons := shared_hosts.find_overcommitment([vm] * count, host):
                return f"overcommitted, or native nodes are not whole hosts: {'; '.join(reasons)}"
        return super().explain_unfit(case)

    def count_nodes(self):
        """Return the number of VMs, and natively a single node."""
        return 1 if self.slot.side == "native" else counts.parse_layout(self.layout)[0]

    @run_after("init")
    def take_vms(self):
        """Take the VMs of the layout."""
        self.vms, self.per_vm = counts.parse_layout(self.layout)

    @property
    def ranks_per_node(self):
        """The ranks of a VM, or those of all VMs on the native node."""
        return self.vms * self.per_vm // self.nodes

    @property
    def where(self):
        """The words about it in the setting, the same on both sides."""
        return f", {self.vms} VMs of one host"

    def choose_vms(self):
        """Return VMs of one host."""
        return shared_hosts.select_nodes_of_one_host(self.partition_extras["nodes_of_hosts"], self.vms)

    def check_topology(self, noted):
        """Assert that the VMs are of one host, by their names in the system file."""
        super().check_topology(noted)
        if self.slot.side == "native":
            return
        names = sorted({task.node for task in noted.tasks})
        host_names = {
            name: files.texts.get("/proc/sys/kernel/hostname", name) for name, files in noted.files.items()
        }
        nodes_of_hosts = self.partition_extras.get("nodes_of_hosts", {})
        hosts = shared_hosts.find_hosts(nodes_of_hosts, names, "virtual", host_names)
        if len(hosts) < len(names) or len(set(hosts.values())) > 1:
            raise notes.NotesError(f"the VMs {', '.join(names)} are not of one host by extras.nodes_of_hosts")
