"""The names of systems and classes by which commands select sessions."""

from __future__ import annotations

from collections.abc import Sequence

from virtqual import paths
from virtqual.errors import UsageError, VirtqualError
from virtqual.files.wording import suggest
from virtqual.references import project_references
from virtqual.session.store import NoSessionError
from virtqual.session.summary import Summary
from virtqual.site.configuration import read_systems


def select_sessions(
    sessions: Sequence[Summary | VirtqualError], system: str = "", hypervisor_class: str = ""
) -> list[Summary]:
    """Return the sessions of a system and class (empty for any).

    Raises
    ------
    UsageError
        Neither a session nor a file has the name.
    NoSessionError
        There is none.
    """
    readable = [session for session in sessions if isinstance(session, Summary)]
    systems = {session.system for session in readable}
    if system and system not in systems:
        systems |= read_systems().keys()
        _check_name("system", system, systems)
    classes = {session.hypervisor_class for session in readable}
    if hypervisor_class and hypervisor_class not in classes:
        _check_name("class", hypervisor_class, classes | project_references().classes.keys())
    selected = [
        session
        for session in readable
        if system in ("", session.system) and hypervisor_class in ("", session.hypervisor_class)
    ]
    if not selected:
        named = {"system": system, "class": hypervisor_class}
        kind = "".join(f" of {what} {name!r}" for what, name in named.items() if name)
        errors = [session for session in sessions if isinstance(session, VirtqualError)]
        raise NoSessionError(paths.sessions(), kind, errors)
    return selected


def _check_name(kind: str, name: str, names: set[str]) -> None:
    if name not in names:
        raise UsageError(f"there is no {kind} {name!r}: {suggest(name, names)}")
