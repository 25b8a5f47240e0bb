"""Limits of partitions, accounts and QOS by which Slurm takes no job, or never begins it."""

from __future__ import annotations

import getpass
import grp
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from virtqual.errors import InfrastructureError
from virtqual.files.wording import pluralize, suggest
from virtqual.site import slurm
from virtqual.site.options import format_minutes, parse_minutes
from virtqual.site.partitions import (
    SELECTING_OPTIONS,
    UNLIMITED,
    SlurmPartition,
    filter_nodes,
    list_features,
    parse_constraint,
    parse_count,
    shorten_nodes,
)
from virtqual.site.slurm import SilentError

#: What a partition does in a state in which it begins no jobs.
_STATES = {
    "INACTIVE": "takes no jobs and begins none",
    "DRAIN": "takes no new jobs",
    "DOWN": "takes jobs and begins none",
}
#: Limits as `sacctmgr` names them: of QOS and associations, and of either.
_LIMITS = ("MaxTRES", "MaxWall", "GrpTRES")
_OF_ASSOCIATIONS = ("MaxJobs", "MaxSubmit")
_OF_QOS = ("MinTRES", "MaxTRESPU", "MaxJobsPU", "MaxSubmitPU")
_DATABASE_TIMEOUT_S = 10
#: Empty once `sacctmgr` has not answered: it is not asked again.
_HAS_ANSWERED = ["sacctmgr"]
_RESOURCES = {"node": "node", "cpu": "CPU"}


@dataclass(frozen=True)
class Demand:
    """What a session's job asks for on one side; a job of a single run asks for a node."""

    options: Mapping[str, str]
    nodes: int = 1
    cpus: int = 1
    #: The jobs that Slurm counts: one for each side of an allocation.
    jobs: int = 1


def find_obstacles(partition: SlurmPartition, options: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each reason why none of a partition's jobs with these options ever runs.

    Of several partitions one that takes them is enough.
    """
    accounts = Accounts()
    of_each = [
        list(_find_obstacles_of_one(settings, partition.name, options, accounts))
        for settings in partition.settings
    ]
    if all(of_each):
        yield from chain.from_iterable(of_each)
    if "--licenses" in options:
        licenses = slurm.list_licenses()
        for name in options["--licenses"].split(","):
            if (name := name.partition(":")[0]) not in licenses:
                yield f"states a licence {name!r} that Slurm does not have: {suggest(name, licenses)}"
    yield from accounts.find_obstacles(options)


def _find_obstacles_of_one(
    settings: Mapping[str, str], name: str, options: Mapping[str, str], accounts: Accounts
) -> Iterator[str]:
    name = settings.get("PartitionName", name)
    if does := _STATES.get(settings.get("State", "UP")):
        yield f"partition {name} is {settings['State']}: it {does}"
    # Slurm keeps accounts and QOS in lower case.
    for option, kind in (("--account", "Accounts"), ("--qos", "Qos")):
        stated = options.get(option, "").lower() or (accounts.default_account if kind == "Accounts" else "")
        word = (
            f"states {option}={options[option]}" if option in options else f"your default account is {stated}"
        )
        allowed, denied = (
            settings.get(f"{verb}{kind}", default).lower().split(",")
            for verb, default in (("Allow", "ALL"), ("Deny", ""))
        )
        # Since 24.05 an account is allowed if one above it is.
        names = {
            stated,
            *(accounts.list_parents(stated) if kind == "Accounts" and "all" not in allowed else ()),
        }
        if stated and "all" not in allowed and names.isdisjoint(allowed):
            yield f"{word}, but partition {name} takes {' or '.join(sorted(allowed))} alone"
        elif stated and stated in denied:
            yield f"{word}, but partition {name} takes all but {' or '.join(sorted(denied))} (Deny{kind})"
    yield from _find_missing_rights(settings, name)
    if settings.get("ReqResv") == "YES" and "--reservation" not in options:
        yield f"states no --reservation, but partition {name} takes jobs in a reservation alone (ReqResv=YES)"
    if "--time" in options and parse_minutes(options["--time"]) > (
        limit := parse_minutes(settings.get("MaxTime", "UNLIMITED"))
    ):
        yield f"states --time={options['--time']}, but MaxTime of partition {name} is {format_minutes(limit)}"
    shared = settings.get("OverSubscribe", "NO")
    if shared.startswith("FORCE") and parse_count(shared.partition(":")[2] or "4") > 1:
        yield f"partition {name} has OverSubscribe={shared}: jobs share nodes, and --exclusive is ignored"


def _find_missing_rights(settings: Mapping[str, str], name: str) -> Iterator[str]:
    """Yield a sentence if the user of this process may not use a partition."""
    if os.getuid() == 0:
        return
    if settings.get("RootOnly") == "YES":
        yield f"partition {name} takes jobs of root alone (RootOnly=YES)"
    groups = settings.get("AllowGroups", "ALL").split(",")
    if "ALL" not in groups and _list_own_groups().isdisjoint(groups):
        yield f"partition {name} takes jobs of the group {' or '.join(groups)} alone, in which you are not"


def _list_own_groups() -> set[str]:
    names = set()
    for number in {os.getgid(), *os.getgroups()}:
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return names


def find_wrong_selection(partition: SlurmPartition, options: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each option that selects nodes which are not there."""
    try:
        selected = filter_nodes(options, partition.sizes)
    except SilentError as error:
        yield f"states {' '.join(f'{k}={v}' for k, v in options.items() if k in SELECTING_OPTIONS)}: {error}"
        return
    if not selected:
        stated = [f"{key}={options[key]}" for key in SELECTING_OPTIONS if key in options]
        words = f"states {' '.join(stated)}, which selects none of the nodes of partition {partition.name}"
        features = (
            sorted(set().union(*list_features(partition.sizes).values())) if "--constraint" in options else []
        )
        shown = ", ".join(filter(None, features))
        yield f"{words}{f': their features are {shown}' if shown else ''}"
    elif "--nodelist" in options:
        listed = set(slurm.expand_nodes(options["--nodelist"])) if "/" not in options["--nodelist"] else set()
        if missing := listed - set(partition.sizes):
            yield f"states --nodelist with {shorten_nodes(missing)}, which partition {partition.name} has not"


def explain_constraint(options: Mapping[str, str]) -> str:
    """Return why the nodes of a constraint cannot be counted; empty if they can."""
    try:
        parse_constraint(options.get("--constraint", "any"))
    except ValueError as error:
        return f"--constraint={options['--constraint']} is left to Slurm ({error}): its nodes are not counted"
    return ""


def find_exceeded_limits(partition: SlurmPartition, demand: Demand) -> Iterator[tuple[str, str]]:
    """Yield a key of a system file, and a sentence, for each limit that a demand exceeds."""
    for settings in partition.settings[:1]:
        name = settings.get("PartitionName", partition.name)
        most, least = settings.get("MaxNodes", ""), settings.get("MinNodes", "0")
        if most not in UNLIMITED and demand.nodes > parse_count(most):
            yield "nodes", f"states {demand.nodes}, but MaxNodes of partition {name} is {most}"
        if least.isdigit() and demand.nodes < int(least):
            yield (
                "nodes",
                f"states {demand.nodes}, but MinNodes of partition {name} is {least}",
            )
    accounts = Accounts()
    for source, limits in accounts.read_limits(partition.settings, demand.options):
        yield from _compare_limits(source, limits, demand)


def _compare_limits(source: str, limits: Mapping[str, str], demand: Demand) -> Iterator[tuple[str, str]]:
    wall, stated = limits.get("MaxWall", ""), demand.options.get("--time")
    if wall and stated and parse_minutes(stated) > parse_minutes(wall):
        yield "time", f"states --time={stated}, but MaxWall of {source} is {wall}"
    asked = {"node": demand.nodes, "cpu": demand.nodes * demand.cpus}
    for limit in ("MinTRES", "MaxTRES", "MaxTRESPU", "GrpTRES"):
        for resource, amount in parse_resources(limits.get(limit, "")).items():
            if asked[resource] < amount if limit == "MinTRES" else asked[resource] > amount:
                amounts = pluralize(asked[resource], _RESOURCES[resource])
                yield "nodes", f"jobs ask for {amounts}, but {limit} of {source} is {resource}={amount}"
    for limit in (*_OF_ASSOCIATIONS, "MaxJobsPU", "MaxSubmitPU"):
        text = limits.get(limit, "")
        if text.isdigit() and int(text) < demand.jobs:
            yield (
                "jobs",
                f"{limit} of {source} is {text}, but a session's job counts as {demand.jobs} (one a side)",
            )


def find_max_nodes(partition: SlurmPartition, options: Mapping[str, str], cpus: int) -> tuple[float, str]:
    """Return how many nodes a job may have by all limits that Slurm shows, and which limit that is."""
    limits = [(float("inf"), "")]
    for settings in partition.settings[:1]:
        if (most := settings.get("MaxNodes", "")) not in UNLIMITED:
            limits.append((parse_count(most), f"MaxNodes of partition {settings['PartitionName']}"))
    for source, values in Accounts().read_limits(partition.settings, options):
        for limit in ("MaxTRES", "MaxTRESPU", "GrpTRES"):
            resources = parse_resources(values.get(limit, ""))
            if "node" in resources:
                limits.append((resources["node"], f"{limit} of {source}"))
            if "cpu" in resources:
                limits.append((max(1, resources["cpu"] // cpus), f"{limit} of {source}"))
    return min(limits)


def find_max_minutes(partition: SlurmPartition, options: Mapping[str, str]) -> tuple[float, str]:
    """Return the longest time limit of a job by all limits that Slurm shows, and which limit that is."""
    limits = [(partition.max_minutes, f"MaxTime of {partition.name}")]
    for source, values in Accounts().read_limits(partition.settings, options):
        if values.get("MaxWall"):
            limits.append((parse_minutes(values["MaxWall"]), f"MaxWall of {source}"))
    return min(limits)


def parse_resources(text: str) -> dict[str, int]:
    """Return resources such as ``cpu=128,node=4,mem=1T``; memory and others are left out.

    Examples
    --------
    >>> parse_resources("cpu=1K,mem=1T,node=4")
    {'node': 4, 'cpu': 1024}
    """
    values = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    return {key: parse_count(values[key]) for key in _RESOURCES if key in values}


class Accounts:
    """What `sacctmgr` says of this user's accounts, and of QOS; nothing where it does not answer."""

    @cached_property
    def _enforced(self) -> set[str]:
        return set((slurm.read_setting("AccountingStorageEnforce") or "none").split(",")) - {"none"}

    @cached_property
    def _associations(self) -> list[dict[str, str]]:
        cluster = slurm.read_setting("ClusterName")
        own = [f"user={getpass.getuser()}", *([f"cluster={cluster}"] if cluster else [])]
        columns = ("Account", "QOS", "DefaultQOS", *_LIMITS, *_OF_ASSOCIATIONS)
        return _list_records("associations", columns, *own)

    @cached_property
    def default_account(self) -> str:
        """The account of jobs that state none; empty if it is not known, or jobs need none."""
        if not self._enforced:
            return ""
        rows = _list_records("user", ("DefaultAccount",), getpass.getuser())
        return rows[0]["DefaultAccount"] if rows else ""

    def list_parents(self, account: str) -> set[str]:
        """Return the accounts above an account."""
        parents: set[str] = set()
        # The top of every tree is root.
        while self._enforced and account not in ("", "root"):
            rows = _list_records("associations", ("Account", "ParentName"), f"account={account}", "user=")
            account = next((row["ParentName"] for row in rows if row["ParentName"] not in {"", *parents}), "")
            parents |= {account} - {""}
        return parents

    def find_obstacles(self, options: Mapping[str, str]) -> Iterator[str]:
        """Yield a sentence for an account or a QOS that this user's jobs may not have."""
        if not self._enforced & {"associations", "limits", "qos", "safe", "all"} or not self._associations:
            return
        own = {row["Account"] for row in self._associations}
        account = options.get("--account", "").lower()
        if account and account not in own:
            yield f"states --account={options['--account']}, but your accounts are {', '.join(sorted(own))}"
            return
        allowed = {
            qos
            for row in self._associations
            if account in ("", row["Account"])
            for qos in row["QOS"].split(",")
        }
        qos = options.get("--qos", "").lower()
        if qos and self._enforced & {"qos", "safe", "all"} and any(allowed) and qos not in allowed:
            own_qos = ", ".join(sorted(filter(None, allowed)))
            yield f"states --qos={options['--qos']}, but your QOS are {own_qos}"

    def read_limits(
        self, settings: Sequence[Mapping[str, str]], options: Mapping[str, str]
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield each QOS and association of a job by name, with its limits; none if Slurm enforces none."""
        if not self._enforced & {"limits", "safe", "all"}:
            return
        account = options.get("--account", "").lower() or self.default_account
        rows = [row for row in self._associations if row["Account"] == account]
        names = {settings[0].get("QoS", ""), options.get("--qos", "").lower()}
        names |= {row["DefaultQOS"] for row in rows} if "--qos" not in options else set()
        for row in rows:
            yield f"account {account}", row
        for name in sorted(filter(None, names)):
            for row in _list_records("qos", (*_LIMITS, *_OF_QOS), name):
                yield f"QOS {name}", row


def _list_records(kind: str, columns: Sequence[str], *conditions: str) -> list[dict[str, str]]:
    """Return records of Slurm's database; none if it does not answer."""
    command = [
        "sacctmgr",
        "--noheader",
        "--parsable2",
        "show",
        kind,
        *conditions,
        f"format={','.join(columns)}",
    ]
    if not _HAS_ANSWERED:
        return []
    try:
        lines = slurm.ask(command, _DATABASE_TIMEOUT_S).splitlines()
    except InfrastructureError:
        # Without its database each question waits for it.
        _HAS_ANSWERED.clear()
        return []
    rows = [line.split("|") for line in lines]
    return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]
