"""The facts of a session and of its machines by name, so that two sessions can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from virtqual.identity import Host, seen
from virtqual.session.session import Head, Session
from virtqual.site.host_records import BUILD_FIELDS, format_setting


def facts(session: Session) -> dict[str, str]:
    """Return the facts of a session, by their names as people read them."""
    return {"label": session.label or "none"} | stated_facts(session) | dict(_list_node_facts(session))


def stated_facts(head: Head) -> dict[str, str]:
    """Return the facts that were known of a session before its first run, but for its label."""
    virtual = head.identity["virtual"]
    stated: dict[str, Any] = {
        "system": head.system,
        "class": head.hypervisor_class,
        "hypervisor": virtual.get("hypervisor", {}),
        "placement": virtual.get("placement", {}),
        "guest": virtual.get("guest", {}),
        "native processor": head.identity["native"].get("processor", {}),
        "stack": f"{head.stack['name']} ({head.stack['hash']})",
    }
    return dict(_flattened(stated))


def _list_node_facts(session: Session) -> Iterator[tuple[str, str]]:
    """Yield what the nodes of either side are: every value that any of them shows."""
    values_by_name: dict[str, dict[str, None]] = {}
    for run in session.runs:
        hosts = values_by_name.setdefault(f"{run.side} hosts", {})
        hosts.update(dict.fromkeys(run.hosts.get(node, node) for node in run.nodes))
        for node in run.identity.values():
            shown: dict[str, Any] = {
                "kernel": node.kernel.release,
                "command line": node.kernel.command_line,
                "microcode": node.cpu.microcode,
                "firmware": node.hypervisor.firmware,
                "mitigations": node.kernel.mitigations,
            }
            for name, value in shown.items():
                if seen(value):
                    values_by_name.setdefault(f"{run.side} {name}", {})[format_setting(value)] = None
            # The settings of the hosts of VMs are part of the build.
            for field in BUILD_FIELDS if isinstance(node.host, Host) and run.side == "virtual" else ():
                if seen(value := getattr(node.host, field)):
                    name = f"hypervisor host {field.replace('_', ' ')}"
                    values_by_name.setdefault(name, {})[format_setting(value)] = None
    for name, values in values_by_name.items():
        yield name, ", ".join(sorted(values))


def _flattened(stated: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in stated.items():
        name = f"{above} {key}".strip().replace("_", " ")
        if isinstance(value, dict):
            yield from _flattened(value, name)
        else:
            yield name, format_setting(value)
