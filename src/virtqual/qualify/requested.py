"""A request is held against the checks, the list of its class, and the notices, before Slurm is asked."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from virtqual.errors import UsageError
from virtqual.files.datafile import DataError
from virtqual.harness import catalogue
from virtqual.harness.catalogue import Entry
from virtqual.harness.process import load_checks
from virtqual.history.channels import read_site_notify
from virtqual.references import project_references
from virtqual.session.session import Request
from virtqual.site.systems import System
from virtqual.verdict.budget import HypervisorClass

#: Features that follow from the extras of a partition (`virtqual.site.systems.Partition.all_features`).
_DERIVED_FEATURES = {"multinode", "numa"}


def list_checks(
    request: Request, system: System, features: Collection[str] | None, chosen: HypervisorClass
) -> tuple[Entry, ...]:
    """Return the checks that ReFrame has for a system, after holding a request against them.

    `features` are those of the stack; None if every program is assumed to be there.

    Raises
    ------
    UsageError
        A name or tag of the request selects no check, none of the selected checks can run on the system, or
        ``notify.yaml`` or the list of the class is wrong.
    """
    entries = load_checks(request)
    if features is None:
        features = {entry.feature for entry in entries}
    nodes = system.use_nodes(request.nodes).nodes
    _refuse(request, catalogue.explain_empty_selection(entries, request.names, request.tags, features, nodes))
    check_files(entries, chosen)
    return entries


def check_words(request: Request) -> None:
    """Refuse names and tags that no check has, before the system is there.

    Parameters of checks follow from the system: a name that has one, such as ``threads=8``, is not looked at.
    """
    names = [name for name in request.names if not re.search(r"[=\d/]", name)]
    if names or request.tags:
        _refuse(request, catalogue.explain_unknown_words(load_checks(request), names, request.tags))


def check_files(entries: Sequence[Entry] | None, chosen: HypervisorClass) -> None:
    """Refuse mistakes in ``notify.yaml``, and in the list of checks that a class asks for.

    The list is not looked at without all checks (None).
    """
    read_site_notify(sends=False)
    check_set = project_references().qualifications.get(chosen.name)
    if check_set and entries is not None:
        features = {feature for entry in entries for feature in (entry.feature, entry.needs) if feature}
        cases = [entry.case for entry in entries]
        if problems := list(check_set.find_unknown(cases, features | _DERIVED_FEATURES)):
            raise DataError(problems)


def _refuse(request: Request, reason: str | None) -> None:
    if reason:
        command = f"`reframe -L --system {request.system}` lists all"
        raise UsageError(f"{reason.rstrip('.')} ({command})")
