"""Slurm's partitions: their settings, what jobs get of their nodes, and the nodes that options select."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from virtqual.errors import UsageError
from virtqual.files.wording import list_names, pluralize, suggest
from virtqual.identity.cpus import cpu_list
from virtqual.site import slurm
from virtqual.site.options import parse_minutes, parse_options, read_options
from virtqual.site.slurm import SilentError, parse_fields
from virtqual.site.systems import Partition

#: How much memory nodes of one kind may have more than the smallest of them. RealMemory is mostly what the
#: kernel of each node leaves, which differs by some MiB; a DIMM of 32 is 3.1 %.
MEMORY_TOLERANCE = 0.03
#: Values of limits that do not limit.
UNLIMITED = {"UNLIMITED", "INFINITE", "0", ""}
_UNITS = " KMGTP"
_MAX_RANGES_SHOWN = 4
#: Fields of a node that are needed, with the columns of `sinfo` that have them, too.
_COLUMNS = {"CPUTot": "%c", "Sockets": "%X", "CoresPerSocket": "%Y", "RealMemory": "%m"}


class NodeSize(NamedTuple):
    """What jobs get of a node; memory in MiB, None if Slurm's configuration has none."""

    cpus: int
    cores: int
    memory_mib: int | None

    def __str__(self) -> str:
        memory = f" and {self.memory_mib} MiB" if self.memory_mib else ""
        return f"{pluralize(self.cpus, 'CPU')}{memory}"


class Kind(NamedTuple):
    """Nodes of one size; of memory, which may differ by `MEMORY_TOLERANCE`, it has the least."""

    size: NodeSize
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class SlurmPartition:
    """A partition of Slurm, or several of which a job takes one."""

    #: Its name in Slurm; several are separated by commas.
    name: str
    #: What jobs get of each node, by name.
    sizes: Mapping[str, NodeSize]
    #: The settings of each partition, and the fields of each node, as `scontrol` prints them.
    settings: Sequence[Mapping[str, str]] = ({},)
    nodes: Mapping[str, Mapping[str, str]] | None = None
    #: A node of the kind that is used; None for the most common kind.
    typical_node: str | None = None

    @cached_property
    def kinds(self) -> list[Kind]:
        """The kinds of its nodes, the most common one first."""
        by_shape: dict[tuple[int, int, bool], list[str]] = {}
        for node, size in self.sizes.items():
            by_shape.setdefault((size.cpus, size.cores, size.memory_mib is None), []).append(node)
        kinds = [kind for nodes in by_shape.values() for kind in _group_by_memory(nodes, self.sizes)]
        return sorted(kinds, key=lambda kind: -len(kind.nodes))

    @cached_property
    def common_kind(self) -> Kind:
        """The most common kind, or that of the typical node."""
        return next((kind for kind in self.kinds if self.typical_node in kind.nodes), self.kinds[0])

    @property
    def common_size(self) -> NodeSize:
        """The size of the common kind."""
        return self.common_kind.size

    @property
    def common_nodes(self) -> list[str]:
        """The nodes of the common kind."""
        return list(self.common_kind.nodes)

    @cached_property
    def other_nodes(self) -> list[str]:
        """The nodes of other kinds."""
        common = set(self.common_kind.nodes)
        return [node for node in self.sizes if node not in common]

    @property
    def max_minutes(self) -> float:
        """The longest time limit of a job."""
        return max(parse_minutes(settings.get("MaxTime", "UNLIMITED")) for settings in self.settings)

    def select(self, options: Mapping[str, str]) -> SlurmPartition:
        """Return it with those of its nodes that options select; raise `UsageError` if there is none."""
        selected = filter_nodes(options, self.sizes)
        if not selected:
            stated = " ".join(f"{key}={value}" for key, value in options.items() if key in SELECTING_OPTIONS)
            raise UsageError(f"partition {self.name} has no node that {stated} selects")
        return self.keep(selected)

    def keep(self, nodes: Iterable[str]) -> SlurmPartition:
        """Return it with some of its nodes."""
        kept = set(nodes)
        return replace(self, sizes={node: size for node, size in self.sizes.items() if node in kept})

    def choose_probed(self, options: Sequence[str]) -> list[str]:
        """Return options of `srun` by which it takes a node of the common kind, instead of some of options.

        Slurm refuses a list of more nodes than it is asked for.
        """
        others = (self.nodes or self.sizes).keys() - set(self.common_nodes)
        named = {"--nodelist", "--nodefile", "--exclude"}
        if not self.other_nodes and named.isdisjoint(parse_options(options)):
            return list(options)
        kept = [
            f"{key}={value}" if value else key for key, value in read_options(options) if key not in named
        ]
        return [*kept, *([f"--exclude={','.join(compress_nodes(others))}"] if others else [])]

    def find_node(self, names: Iterable[str]) -> str | None:
        """Return the node whose name, or whose machine's name, is one of the names; None if none is."""
        by_name = {node.partition(".")[0]: node for node in self.sizes}
        for node, fields in (self.nodes or {}).items():
            for other in (fields.get("NodeHostName", ""), fields.get("NodeAddr", "")):
                # An address in numbers is no name.
                if node in self.sizes and re.match("[A-Za-z]", other):
                    by_name.setdefault(other.partition(".")[0], node)
        return next((by_name[name] for name in names if name in by_name), None)

    def describe_kinds(self) -> str:
        """Return a sentence on its kinds of nodes; empty if there is one."""
        if len(self.kinds) == 1:
            return ""
        kinds = [
            f"{pluralize(len(kind.nodes), 'node')} of {kind.size} ({shorten_nodes(kind.nodes)})"
            for kind in self.kinds
        ]
        return f"partition {self.name} has {len(kinds)} kinds of nodes: {'; '.join(kinds)}"

    def describe_features(self) -> str:
        """Return a sentence on features by which nodes of the common kind differ; empty if they do not.

        It leaves out those that say where a node is, such as its rack.
        """
        fields = self.nodes or {}
        features = {
            node: {*fields.get(node, {}).get("ActiveFeatures", "").split(",")} - {"", "(null)"}
            for node in self.common_nodes
        }
        telling = _find_telling_features(list(features.values()))
        groups: dict[frozenset[str], list[str]] = {}
        for node, names in features.items():
            groups.setdefault(telling & names, []).append(node)
        if len(groups) == 1:
            return ""
        largest, *others = sorted(groups.items(), key=lambda group: -len(group[1]))
        described = [
            f"{pluralize(len(nodes), 'node')} with {' and '.join(sorted(names)) or 'none of these'} "
            f"({shorten_nodes(nodes)})"
            for names, nodes in (largest, *others)
        ]
        shown = described[:_MAX_RANGES_SHOWN]
        if len(described) > len(shown):
            shown.append(f"{len(described) - len(shown)} more groups")
        own = sorted(largest[0].difference(*(names for names, _ in others)))
        remedy = f"-C {own[0]} selects the first of these groups" if own else "--exclude leaves nodes out"
        return (
            f"nodes of one size in partition {self.name} differ in features: {'; '.join(shown)}. If these "
            f"are not the same hardware, {remedy}"
        )

    def explain_cpus(self, node: str) -> str:
        """Return a clause on why jobs get fewer CPUs of a node than it has; empty if they get all."""
        return self._explain(
            "cpus", "CPUTot", ("CoreSpecCount", "CPUSpecList"), ("MaxCPUsPerNode", "MaxCPUsPerSocket"), node
        )

    def explain_memory(self, node: str) -> str:
        """Return a clause on why jobs get less memory of a node than it has; empty if they get all."""
        return self._explain(
            "memory_mib", "RealMemory", ("MemSpecLimit",), ("MaxMemPerNode", "MaxMemPerCPU"), node
        )

    def _explain(
        self, field: str, total_key: str, reserved: Sequence[str], limits: Sequence[str], node: str
    ) -> str:
        fields = (self.nodes or {}).get(node, {})
        size = getattr(self.sizes.get(node), field, None)
        if size is None or size >= parse_count(
            fields.get(total_key, "0"), "M" if field == "memory_mib" else " "
        ):
            return ""
        reasons = [f"{key}={fields[key]}" for key in reserved if key in fields]
        reasons += [
            f"{key}={settings[key]} of partition {settings.get('PartitionName', self.name)}"
            for settings in self.settings
            for key in limits
            if settings.get(key, "UNLIMITED") not in UNLIMITED
        ]
        return f" (jobs get {size} of its {fields[total_key]}{': ' * bool(reasons)}{', '.join(reasons)})"


def _group_by_memory(nodes: Sequence[str], sizes: Mapping[str, NodeSize]) -> Iterable[Kind]:
    """Yield kinds of nodes with the same CPUs: each has the most nodes that are within the tolerance."""
    rest = sorted(nodes, key=lambda node: sizes[node].memory_mib or 0)
    while rest:
        memory = [sizes[node].memory_mib or 0 for node in rest]
        best, end = (0, 0), 0
        for begin, least in enumerate(memory):
            while end < len(memory) and memory[end] <= least * (1 + MEMORY_TOLERANCE):
                end += 1
            best = max(best, (begin, end), key=lambda ends: ends[1] - ends[0])
        members = set(rest[best[0] : best[1]])
        yield Kind(sizes[rest[best[0]]], tuple(node for node in nodes if node in members))
        rest = [node for node in rest if node not in members]


def _find_telling_features(features: Sequence[set[str]]) -> frozenset[str]:
    """Return the features that some nodes have and others lack, without those that number places or nodes."""
    counts = Counter(chain(*features))
    some = {name for name, count in counts.items() if count < len(features)}
    # Racks and switches are many features that differ in a number; others name a single node each.
    series = {name: re.sub(r"\d+", "#", name) if counts[name] > 1 else "" for name in some}
    sizes = Counter(series.values())
    return frozenset(name for name in some if sizes[series[name]] <= _MAX_RANGES_SHOWN)


def parse_count(text: str, unit: str = " ") -> int:
    """Return a number of Slurm, which shortens large ones; `unit` is that of a number without a suffix.

    Examples
    --------
    >>> parse_count("1024"), parse_count("1K"), parse_count("250G", "M"), parse_count("16+")
    (1024, 1024, 256000, 16)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)\+?", text)
    if not match:
        raise ValueError(f"{text!r} is no number of Slurm")
    steps = _UNITS.index(match[2]) - _UNITS.index(unit) if match[2] else 0
    return int(float(match[1]) * 1024.0**steps)


def list_partitions() -> list[str]:
    """Return the names of all partitions, with hidden ones."""
    return sorted({name for (name,) in slurm.list_rows("sinfo", "%R", "--all")})


def read_partition(name: str) -> SlurmPartition:
    """Ask Slurm for a partition, or several that are separated by commas; an empty name is the default's.

    Raises
    ------
    UsageError
        Slurm has no such partition, or no node of it.
    """
    names = (name or slurm.find_default_partition()).split(",")
    settings: list[dict[str, str]] = []
    nodes: dict[str, dict[str, str]] = {}
    sizes: dict[str, NodeSize] = {}
    for part in names:
        settings.append(_read_settings(part))
        of_part = _read_nodes(part, settings[-1].get("Nodes", ""))
        for node, fields in of_part.items():
            nodes.setdefault(node, fields)
            sizes.setdefault(node, read_size(fields, settings[-1]))
    if not sizes:
        raise UsageError(
            f"Slurm shows no node of partition {','.join(names)}. Nodes of a cloud that are switched off are "
            "hidden by some versions, unless PrivateData has cloud (slurm.conf)"
        )
    return SlurmPartition(",".join(names), sizes, settings, nodes)


def _read_settings(name: str) -> dict[str, str]:
    try:
        lines = slurm.ask(["scontrol", "--all", "-o", "show", "partition", name]).splitlines()
    except SilentError:
        if name in (names := list_partitions()):
            raise
        raise UsageError(f"Slurm has no partition {name!r}: {suggest(name, names)}") from None
    # A site may print notices first.
    found = (fields for line in lines if (fields := parse_fields(line)).get("PartitionName") == name)
    return next(found, {})


def _read_nodes(partition: str, names: str) -> dict[str, dict[str, str]]:
    """Return the fields of each node of a partition."""
    nodes = describe_nodes(names) if names else {}
    if nodes and all(_COLUMNS.keys() <= fields.keys() for fields in nodes.values()):
        return nodes
    rows = slurm.list_rows("sinfo", f"%N|{'|'.join(_COLUMNS.values())}", "--Node", "-p", partition)
    if not rows and partition not in (known := list_partitions()):
        raise UsageError(f"Slurm has no partition {partition!r}: {suggest(partition, known)}")
    return {
        node: {**dict(zip(_COLUMNS, values, strict=True)), **nodes.get(node, {})} for node, *values in rows
    }


def describe_nodes(names: str) -> dict[str, dict[str, str]]:
    """Return the fields of nodes, such as ``cn[1-8]``, as `scontrol` prints them; none if it does not."""
    command, listed = ["scontrol", "--all", "-o", "show", "node"], None
    try:
        lines = slurm.ask([*command, names]).splitlines()
    except SilentError:
        # It fails if it hides one of them: before 23.02 it hides a cloud's nodes that are switched off.
        try:
            lines, listed = slurm.ask(command).splitlines(), set(slurm.expand_nodes(names))
        except SilentError:
            return {}
    described = [fields for line in lines if "NodeName" in (fields := parse_fields(line))]
    return {f["NodeName"]: f for f in described if listed is None or f["NodeName"] in listed}


def read_size(node: Mapping[str, str], partition: Mapping[str, str]) -> NodeSize:
    """Return what jobs of a partition get of a node: Slurm may keep cores and memory for its system."""
    total = parse_count(node["CPUTot"])
    sockets = parse_count(node["Sockets"])
    cores = sockets * parse_count(node["CoresPerSocket"])
    threads = max(1, total // cores)
    # Before 21.08 there is no CPUEfctv.
    reserved = len(cpu_list(node["CPUSpecList"])) if "CPUSpecList" in node else 0
    reserved = reserved or threads * parse_count(node.get("CoreSpecCount", "0"))
    cpus = parse_count(node["CPUEfctv"]) if "CPUEfctv" in node else total - reserved
    limits = [
        count * parse_count(partition[key])
        for key, count in (("MaxCPUsPerNode", 1), ("MaxCPUsPerSocket", sockets))
        if partition.get(key, "UNLIMITED") not in UNLIMITED
    ]
    cpus = min([cpus if 0 < cpus <= total else total, *limits])
    memory = parse_count(node["RealMemory"], "M") - parse_count(node.get("MemSpecLimit", "0"), "M")
    # RealMemory is 1 where it is not configured.
    if memory <= 1:
        return NodeSize(cpus, max(1, min(cores, cpus // threads)), None)
    limits = [
        count * parse_count(partition[key], "M")
        for key, count in (("MaxMemPerNode", 1), ("MaxMemPerCPU", cpus))
        if partition.get(key, "UNLIMITED") not in UNLIMITED
    ]
    return NodeSize(cpus, max(1, min(cores, cpus // threads)), min([memory, *limits]))


#: Options by which jobs take some nodes of a partition.
SELECTING_OPTIONS = ("--nodelist", "--nodefile", "--exclude", "--reservation", "--constraint")


def select_nodes(partition: Partition, nodes: Iterable[str]) -> set[str]:
    """Return those of a partition's nodes that the options of a session's jobs allow."""
    return filter_nodes(partition.job_options, nodes)


def filter_nodes(options: Mapping[str, str], nodes: Iterable[str]) -> set[str]:
    """Return those nodes that options of jobs allow; a constraint that only Slurm can evaluate allows all."""
    selected = set(nodes)
    for option in ("--nodelist", "--nodefile"):
        if option in options:
            selected &= _expand(options[option])
    if "--exclude" in options:
        selected -= _expand(options["--exclude"])
    if "--reservation" in options and (reserved := list_reserved_nodes(options["--reservation"])):
        selected &= reserved
    if selected and "--constraint" in options:
        selected = _filter_by_features(options["--constraint"], selected)
    return selected


def _expand(names: str) -> set[str]:
    """Return the nodes of a list; Slurm takes one with a slash for the path of a file with names."""
    if "/" in names:
        try:
            names = ",".join(Path(names).read_text(encoding="utf-8").split())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{names}: cannot be read, although an option of Slurm names it: {error}"
            ) from error
    return set(slurm.expand_nodes(names))


def list_reserved_nodes(names: str) -> set[str]:
    """Return the nodes of reservations that are separated by commas; none if they are of no nodes."""
    nodes: set[str] = set()
    for name in names.split(","):
        lines = slurm.ask(["scontrol", "-o", "show", "reservation", name]).splitlines()
        for fields in map(parse_fields, lines):
            if fields.get("ReservationName") == name and "Nodes" in fields:
                nodes |= set(slurm.expand_nodes(fields["Nodes"]))
    return nodes


def _filter_by_features(constraint: str, nodes: set[str]) -> set[str]:
    try:
        allows = parse_constraint(constraint)
    except ValueError:
        return nodes
    features = list_features(nodes)
    return {node for node in nodes if allows(features[node])} if features else nodes


def list_features(nodes: Iterable[str]) -> dict[str, set[str]]:
    """Return the active features of nodes; nothing if Slurm does not show its nodes."""
    described = describe_nodes(",".join(compress_nodes(nodes)))
    return {
        node: set(described.get(node, {}).get("ActiveFeatures", "").split(",")) for node in nodes if described
    }


def parse_constraint(expression: str) -> Callable[[set[str]], bool]:
    """Return whether a node's features satisfy a constraint of Slurm, as a function.

    Raises
    ------
    ValueError
        Which nodes are taken depends on how many and which others a job has, or is not certain.

    Examples
    --------
    >>> [parse_constraint("(bare|metal)&!gpu")(features) for features in ({"bare"}, {"bare", "gpu"}, {"vm"})]
    [True, False, False]
    """
    if re.search(r"[*\[\]]", expression):
        raise ValueError("counts and brackets select nodes that depend on each other")
    tokens = re.findall(r"[^&|,!()\s]+|[&|,!()]", expression)
    allows = _parse_alternatives(tokens)
    if tokens:
        raise ValueError(f"{tokens[0]!r} is not expected")
    return allows


def _parse_alternatives(tokens: list[str]) -> Callable[[set[str]], bool]:
    """Take features that are joined by one operator off the tokens; Slurm takes a comma for ``&``."""
    parts, operators = [_parse_feature(tokens)], set()
    while tokens and tokens[0] in "&|,":
        operators.add("|" if tokens.pop(0) == "|" else "&")
        parts.append(_parse_feature(tokens))
    if len(operators) > 1:
        raise ValueError("& and | are mixed: put one of them in parentheses")
    combine = any if "|" in operators else all
    return lambda features: combine(part(features) for part in parts)


def _parse_feature(tokens: list[str]) -> Callable[[set[str]], bool]:
    """Take a feature, or an expression in parentheses, off the tokens."""
    word = tokens.pop(0) if tokens else ""
    if word == "!":
        negated = _parse_feature(tokens)
        return lambda features: not negated(features)
    if word == "(":
        inner = _parse_alternatives(tokens)
        if not tokens or tokens.pop(0) != ")":
            raise ValueError("a parenthesis is missing")
        return inner
    if not word or word in "&|,)":
        raise ValueError("a feature is missing")
    return lambda features: word in features


def compress_nodes(nodes: Iterable[str]) -> list[str]:
    """Return names of nodes as Slurm's lists do.

    Examples
    --------
    >>> compress_nodes(["cn09", "cn10", "cn11", "cn100", "login", "x1n0", "x1n1"])
    ['cn[09-11]', 'cn100', 'login', 'x1n[0-1]']
    """
    ranges: list[tuple[str, list[str]]] = []
    for node in sorted(nodes, key=lambda name: [*map(_pad_number, re.split(r"(\d+)", name))]):
        prefix, number = re.fullmatch(r"(.*?)(\d*)", node).groups()  # type: ignore[union-attr]
        last = ranges[-1] if ranges else None
        if last and number and last[0] == prefix and last[1][-1]:
            following = str(int(last[1][-1]) + 1).zfill(len(last[1][-1]))
            if number == following and len(number) == len(last[1][-1]):
                last[1].append(number)
                continue
        ranges.append((prefix, [number]))
    return [f"{p}[{n[0]}-{n[-1]}]" if len(n) > 1 else f"{p}{n[0]}" for p, n in ranges]


def _pad_number(part: str) -> str:
    return part.zfill(12) if part.isdigit() else part


def shorten_nodes(nodes: Iterable[str]) -> str:
    """Return names of nodes for a message: ranges, and the first of many."""
    return list_names(compress_nodes(nodes), _MAX_RANGES_SHOWN)
