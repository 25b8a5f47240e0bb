"""ReFrame's site configuration, made from the system files and the stacks that are set up.

``reframe/settings.py`` calls :func:`configuration`; nothing else does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from virtqual import paths
from virtqual.errors import InfrastructureError, UsageError
from virtqual.site import systems
from virtqual.site.systems import System
from virtqual.stack import manifest
from virtqual.stack.manifest import Manifest

# One that no check asks for: ReFrame wants at least one, also before any stack is set up.
NO_STACK = "no-stack"


def system_files(directory: Path) -> list[Path]:
    """Return the system files: those of the project, then those that ``VIRTQUAL_SYSTEMS`` names.

    ``VIRTQUAL_SYSTEMS`` holds paths separated by colons, for sites that keep their file elsewhere.
    """
    extra = [Path(part) for part in os.environ.get("VIRTQUAL_SYSTEMS", "").split(":") if part]
    return sorted(directory.glob("[a-z]*.py")) + extra


def load_system(name: str) -> System:
    """Return a system by name.

    Raises
    ------
    UsageError
        No file defines it; those that are there are named.
    InfrastructureError
        It is not there at the moment, and why.
    """
    known = {}
    for file in system_files(paths.root() / "reframe/systems"):
        raw = systems.read(file)
        known[raw["name"]] = (raw, file)
    if name not in known:
        raise UsageError(f"no system {name!r} (there are: {', '.join(known)}); see docs/add-a-system.md")
    raw, file = known[name]
    if not any("extras" in partition for partition in raw["partitions"]):
        raise InfrastructureError(f"system {name!r}: {raw['descr']}")
    return systems.check(raw, str(file))


def configuration(directory: Path) -> dict[str, Any]:
    """Build ReFrame's ``site_configuration``.

    Parameters
    ----------
    directory
        Where the system files are.

    Raises
    ------
    virtqual.errors.UsageError
        A system file is wrong.
    """
    stacks = manifest.installed(paths.stacks())
    found = [systems.read(file) for file in system_files(directory)]
    state = paths.state()
    return {
        "systems": [_complete(system, stacks) for system in found],
        "environments": [
            {"name": NO_STACK, "extras": {"programs": {}, "stack_hash": "none"}},
            *map(_environment, stacks),
        ],
        "general": [
            {
                "check_search_path": [str(paths.root() / "checks")],
                "check_search_recursive": True,
                "report_file": str(state / "reports" / "run-{sessionid}.json"),
                "report_junit": str(state / "reports" / "last.xml"),
                "generate_file_reports": True,
                "trap_job_errors": True,
                "remote_detect": False,
                "topology_prefix": str(state / "topology"),
                # A case of a few seconds must not wait for a poll that backed off.
                "poll_rate_max": 4,
                "poll_rate_min": 4,
            }
        ],
        # Which cases there are: `reframe --mode=full` (see checks/selection.py).
        "modes": [{"name": "full", "options": ["-S scope=full"]}],
        "storage": [{"enable": True, "backend": "sqlite", "sqlite_db_file": str(paths.database())}],
        "logging": [_logging(state)],
    }


def _complete(system: dict[str, Any], stacks: list[Manifest]) -> dict[str, Any]:
    """Add to a system what follows from its own words and from the stacks."""
    names = [stack.name for stack in stacks] or [NO_STACK]
    partitions = []
    for partition in system["partitions"]:
        if "extras" not in partition:
            return system
        features = systems.offers(partition.get("features", ()), partition["extras"])
        partitions.append({"environs": names, **partition, "features": features})
    return {**system, "partitions": partitions}


def _environment(stack: Manifest) -> dict[str, Any]:
    programs = {
        feature: program.model_dump(mode="json") for program in stack.programs for feature in program.features
    }
    return {
        "name": stack.name,
        "features": stack.features,
        "extras": {"programs": programs, "stack_hash": stack.hash},
    }


def _logging(state: Path) -> dict[str, Any]:
    line = "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s"
    (state / "log").mkdir(parents=True, exist_ok=True)
    return {
        "level": "debug",
        "handlers$": [{"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}],
        "handlers": [
            {
                "type": "file",
                "name": str(state / "log" / "reframe.log"),
                "level": "debug",
                "format": line,
                "append": False,
            }
        ],
        "handlers_perflog": [
            {
                "type": "filelog",
                "prefix": "%(check_system)s/%(check_partition)s",
                "basedir": str(state / "perflogs"),
                "level": "info",
                "format": (
                    "%(check_job_completion_time)s|%(check_info)s|%(check_result)s|"
                    "%(check_jobid)s|%(check_perfvalues)s"
                ),
                "format_perfvars": (
                    "%(check_perf_value)s|%(check_perf_unit)s|%(check_perf_ref)s|"
                    "%(check_perf_lower_thres)s|%(check_perf_upper_thres)s|"
                ),
                "append": True,
            }
        ],
    }
