"""The text of a system file, made of what Slurm and a node of each partition show."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtqual.files.wording import list_names
from virtqual.identity import seen
from virtqual.identity.fabric import RdmaPort, find_port, list_active_ports
from virtqual.site.observed import Fact, Observed
from virtqual.site.options import format_minutes, parse_options, read_options
from virtqual.site.partitions import SlurmPartition, compress_nodes
from virtqual.site.systems import TODO, is_name
from virtqual.verdict.pairs import SIDES

#: The time limit of a session's job, if the partition allows it.
SESSION_MINUTES = 480
MAX_VMS_SHOWN = 16
#: OpenBLAS's kernels by a feature of the processor and its vendor, the best first.
_CORETYPES = (("avx512f", "", "SkylakeX"), ("avx2", "AuthenticAMD", "Zen"), ("avx2", "", "Haswell"))
#: Required values that a node may not show.
_REQUIRED = {
    "processor": {"num_sockets": "the number of sockets of a node"},
    "extras": {
        "memory_mib": "the memory of a node that a check may use, MiB",
        "llc_bytes": "all last-level caches of a node together, bytes",
    },
}
_RDMA_KEYS = {"rdma_options", "link_gbit"}


@dataclass(frozen=True)
class Draft:
    """A system file to be written."""

    name: str
    #: Both sides, after `virtqual.site.observed.reconcile`.
    native: Observed
    virtual: Observed
    #: By side, the options of Slurm, such as ``--partition=vm``.
    options: Mapping[str, Sequence[str]]
    #: By side, the longest time limit of a job in minutes, and the limit of Slurm that says so.
    limits: Mapping[str, tuple[float, str]]
    #: The directory for staging, which both nodes see; None if one does not see it.
    prefix: Path | None
    #: `sacct` answers.
    has_accounting: bool
    #: The names of the classes of budgets that are for the VMs' accelerator; none if it was not seen.
    classes: Sequence[str] = ()

    def compose(self) -> str:
        """Return the text of the file."""
        prefix = _todo("a directory that all nodes of both partitions see at the same path")
        if self.prefix:
            # Colleagues who use the file stage in directories of their own.
            user = os.environ.get("USER")
            path = "/".join("$USER" if part == user else part for part in str(self.prefix).split("/"))
            prefix = f"{json.dumps(path)},  # {self.native.node} and {self.virtual.node} see it"
        # Lmod sets both variables.
        module_systems = {"LMOD_CMD": "lmod", "MODULESHOME": "envmod"}
        modules = next((name for key, name in module_systems.items() if key in os.environ), "nomod")
        lines = [
            f'"""System {self.name}, written by `virtqual system init`: docs/system-file.md has every key.',
            "",
            f"`virtqual system check {self.name}` names what is missing or untrue.",
            '"""',
            "",
            "system = {",
            f'    "name": "{self.name}",',
            f'    "hostnames": ["{socket.gethostname().partition(".")[0]}"],',
            f'    "prefix": {prefix}',
            f'    "modules_system": "{modules}",',
            '    "partitions": [',
            *self._compose_partition("native", self.native),
            *self._compose_partition("virtual", self.virtual),
            "    ],",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _compose_partition(self, side: str, observed: Observed) -> Iterator[str]:
        partition = observed.partition
        access, access_notes = list(self.options[side]), []
        if partition.other_nodes:
            access = _leave_out_other_kinds(access, partition)
            access_notes.append(f"# {partition.describe_kinds()}.")
        features = [side, "rdma"] if self._has_rdma else [side]
        limit, source = self.limits[side]
        minutes = min(SESSION_MINUTES, limit)
        architecture = observed.identity.cpu.architecture
        has_time = "--time" in parse_options(access)
        session_access = access if has_time else [*access, f"--time={format_minutes(minutes)}"]
        entries = [
            f'"name": "{self._names[side]}",',
            '"scheduler": "slurm",' if self.has_accounting else '"scheduler": "squeue",  # there is no sacct',
            '"launcher": "srun",',
            *access_notes,
            f'"access": {json.dumps(access)},',
            f'"features": {json.dumps(features)},',
            '"processor": {',
            f'    "arch": "{architecture if seen(architecture) else platform.machine()}",',
            *_format_facts(self._complete_facts("processor", observed.processor), 4),
            "},",
            *self._choose_variables(side),
            *(f"# {note}" for note in observed.notes),
            '"extras": {',
            *_format_facts(self._complete_facts("extras", observed.extras), 4),
            f"    # scontrol: {source} is {format_minutes(limit)}.",
            f'    "session_access": {json.dumps(session_access)},',
            *(_describe_hypervisor(observed, self.classes) if side == "virtual" else ()),
            "},",
        ]
        yield "        {"
        yield from (f"{' ' * 12}{entry}" for entry in entries)
        yield "        },"

    @property
    def _names(self) -> dict[str, str]:
        """The names of both partitions in ReFrame: those in Slurm, if they are different names."""
        return choose_names([side.partition.name for side in (self.native, self.virtual)])

    @property
    def _has_rdma(self) -> bool:
        return all("rdma_options" in side.extras for side in (self.native, self.virtual))

    def _complete_facts(self, group: str, facts: Mapping[str, Fact]) -> dict[str, Fact]:
        """Return facts of one side, with a sentence for each required one that the node does not show."""
        todos = {key: Fact(f"{TODO}{sentence}") for key, sentence in _REQUIRED[group].items()}
        completed = {**todos, **facts}
        return {key: fact for key, fact in completed.items() if self._has_rdma or key not in _RDMA_KEYS}

    def _choose_variables(self, side: str) -> list[str]:
        """Return the lines of a partition's variables."""
        variables = [*self._choose_coretype(), *self._choose_devices(side)]
        return ['"env_vars": [', *(f"    {variable}" for variable in variables), "],"] if variables else []

    def _choose_devices(self, side: str) -> list[str]:
        """Return UCX's variable with the ports of one network, if either node has active ports of another.

        MPI by UCX would use them, too, or instead.
        """
        if not self._has_rdma:
            return []
        others: dict[str, list[str]] = {}
        chosen: dict[str, list[RdmaPort]] = {}
        for key, observed in zip(SIDES, (self.native, self.virtual), strict=True):
            used = find_port(observed.identity, observed.extras["rdma_options"].value)
            active = list_active_ports(observed.identity)
            chosen[key] = [port for port in active if used and port.kind == used.kind]
            others[key] = [port.name for port in active if port not in chosen[key]]
        if not any(others.values()):
            return []
        devices = ",".join(f"{port.hca.name}:{port.port.number}" for port in chosen[side])
        reason = f"UCX would use {', '.join(others[side])}, too" if others[side] else "as on the other side"
        return [f'["UCX_NET_DEVICES", "{devices}"],  # {reason}']

    def _choose_coretype(self) -> list[str]:
        """Return the variable of OpenBLAS, which would choose by CPUID, which a guest may hide."""
        cpus = [side.identity.cpu for side in (self.native, self.virtual)]
        features = [set(cpu.features.split()) if seen(cpu.features) else set() for cpu in cpus]
        signature = cpus[0].signature if seen(cpus[0].signature) else ""
        for feature, vendor, coretype in _CORETYPES:
            if all(feature in names for names in features) and signature.startswith(vendor):
                return [f'["OPENBLAS_CORETYPE", "{coretype}"],  # both show {feature}']
        return []


def choose_names(names: Sequence[str]) -> dict[str, str]:
    """Return ReFrame's names of both partitions: those in Slurm, if they are two that ReFrame takes."""
    are_fit = len(set(names)) == len(SIDES) and all(map(is_name, names))
    return dict(zip(SIDES, names if are_fit else SIDES, strict=True))


def _leave_out_other_kinds(access: Sequence[str], partition: SlurmPartition) -> list[str]:
    """Return options by which jobs run on the nodes of the common kind."""
    options, names = parse_options(access), {"--nodelist", "--nodefile"} & parse_options(access).keys()
    changed = names or {"--exclude"}
    kept = [f"{key}={value}" if value else key for key, value in read_options(access) if key not in changed]
    if names:
        return [*kept, f"--nodelist={','.join(compress_nodes(partition.common_nodes))}"]
    others = [options["--exclude"]] if "--exclude" in options else []
    return [*kept, f"--exclude={','.join([*others, *compress_nodes(partition.other_nodes)])}"]


def _todo(sentence: str) -> str:
    return f"{json.dumps(TODO + sentence)},"


def _format_facts(facts: Mapping[str, Fact], indent: int) -> Iterator[str]:
    for key, fact in facts.items():
        comment = f"  # {fact.origin}" if fact.origin else ""
        yield f'{" " * indent}"{key}": {json.dumps(fact.value)},{comment}'


def _describe_hypervisor(observed: Observed, classes: Sequence[str]) -> Iterator[str]:
    """Yield the keys of the virtual partition that mostly people know alone."""
    shown, vendor = observed.hypervisor, observed.identity.hypervisor.vendor
    hint = f" ({observed.node} shows {vendor})" if seen(vendor) else ""
    sentences = {
        "vendor": f"the hypervisor, such as VMware ESXi or KVM{hint}",
        "build": "its exact build, such as 8.0.3-24022510; results are kept by it",
        "accelerator": "kvm, esxi, xen, hyperv or tcg",
    }
    yield '    "hypervisor": {'
    facts = {key: shown.get(key, Fact(f"{TODO}{text}")) for key, text in sentences.items()}
    yield from _format_facts(facts, 8)
    yield "    },"
    hypervisor_class = Fact(f"{TODO}the class of budgets: kvm, esxi, or production, which is stricter")
    if len(classes) == 1:
        hypervisor_class = Fact(classes[0], f"the only class for {facts['accelerator'].value}")
    yield from _format_facts({"hypervisor_class": hypervisor_class}, 4)
    vms = observed.partition.common_nodes
    yield f"    # The VMs: {list_names(vms, MAX_VMS_SHOWN)}."
    example = f"{{'host01': ['{vms[0]}'], ...}}"
    yield f'    "nodes_of_hosts": {_todo(f"the machine of each VM, {example}; no key if unknown")}'
