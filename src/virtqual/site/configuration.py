"""ReFrame's site configuration, made from the system files and the stacks that are set up.

``reframe/settings.py`` calls :func:`configuration`; nothing else does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from virtqual import paths
from virtqual.errors import UsageError, VirtqualError
from virtqual.files.wording import suggest
from virtqual.site import held, systems
from virtqual.site.systems import Partition, System, SystemFile
from virtqual.stack import manifest
from virtqual.stack.manifest import Manifest

# One that no check asks for: ReFrame wants at least one, also before any stack is set up.
NO_STACK = "no-stack"
#: A command of job scripts: the first command that fails ends the script with its exit code.
EXIT_ON_ERROR = "trap 'code=$?; echo \"exit code $code of: $BASH_COMMAND\" >&2; exit $code' ERR"

#: The partition of a system that is not there at the moment: nothing runs on it.
ABSENT = "absent"


def system_files(directory: Path) -> list[Path]:
    """Return the system files: those of the project, then those that ``VIRTQUAL_SYSTEMS`` names.

    ``VIRTQUAL_SYSTEMS`` holds paths separated by colons, for sites that keep their file elsewhere.
    """
    extra = [Path(part) for part in os.environ.get("VIRTQUAL_SYSTEMS", "").split(":") if part]
    return sorted(directory.glob("[a-z]*.py")) + extra


def known_systems(directory: Path) -> dict[str, SystemFile]:
    """Return every system file by the name of its system; one that is broken stands for itself alone."""
    found: dict[str, SystemFile] = {}
    # A file that broke before it stated a name has its own, which is no reason to hide a system.
    for file in sorted(map(systems.read, system_files(directory)), key=lambda file: not file.stated):
        other = found.setdefault(file.name, file)
        if other is not file and file.stated:
            twice = UsageError(f"system {file.name!r} is defined twice, by {other.file} and by {file.file}")
            found[file.name] = replace(other, found=twice)
    return found


def load_system(name: str) -> System:
    """Return a system by name.

    Raises
    ------
    UsageError
        No file defines it, and those that are there are named; or its file is wrong.
    InfrastructureError
        The system is not there at the moment; the message says why.
    """
    known = known_systems(paths.root() / "reframe/systems")
    if name not in known:
        nameless = [file.found for file in known.values() if not file.stated]
        broken = [f"; not read: {error}" for error in nameless if isinstance(error, UsageError)]
        raise UsageError(
            f"no system {shorten(repr(name), 60)} (there are: {', '.join(known)}): {suggest(name, known)} "
            f"See docs/add-a-system.md{''.join(broken)}"
        )
    return known[name].checked()


def configuration(directory: Path) -> dict[str, Any]:
    """Build ReFrame's ``site_configuration``.

    Parameters
    ----------
    directory
        Directory of the system files.

    Raises
    ------
    virtqual.errors.InfrastructureError
        The state directory cannot be written.
    """
    stacks = manifest.load_all(paths.stacks())
    state = paths.state()
    known = known_systems(directory).values()
    return {
        "systems": [_for_reframe(file, stacks) for file in known],
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
                "remote_detect": False,
                "topology_prefix": str(state / "topology"),
            },
            *_polling(known),
        ],
        # Which cases there are: `reframe --mode=full` (see checks/guarded.py).
        "modes": [{"name": "full", "options": ["-S scope=full"]}],
        "storage": [{"enable": True, "backend": "sqlite", "sqlite_db_file": str(paths.database())}],
        "logging": [_logging(state)],
    }


def _polling(known: Collection[SystemFile]) -> list[dict[str, Any]]:
    """Return settings by which ReFrame asks for jobs often where that disturbs nobody; else ever less."""
    own = [
        file.name
        for file in known
        if not isinstance(file.found, VirtqualError)
        and (file.found[1].native.own_scheduler or (held.steps() and file.name == held.system()))
    ]
    # A case of a few seconds must not wait for a poll that backed off.
    return [{"poll_rate_max": 4, "poll_rate_min": 4, "target_systems": own}] if own else []


def _for_reframe(file: SystemFile, stacks: list[Manifest]) -> dict[str, Any]:
    """Return a system with what follows from its own words and from the stacks.

    One that cannot be used has nothing to run on; ReFrame says why when somebody selects it.
    """
    if isinstance(file.found, VirtqualError):
        nowhere = {"name": ABSENT, "scheduler": "local", "launcher": "local", "environs": [NO_STACK]}
        why = str(file.found).removeprefix(f"system {file.name!r}: ")
        return {"name": file.name, "descr": why, "hostnames": ["$^"], "partitions": [nowhere]}
    raw, system = file.found
    names = [stack.name for stack in stacks] or [NO_STACK]
    partitions = []
    for partition, known in zip(raw["partitions"], system.partitions, strict=True):
        if isinstance(known, Partition):
            features = systems.offers(known.features, known.extras)
            commands = [*partition.get("prepare_cmds", ()), EXIT_ON_ERROR]
            partition = {"environs": names, **partition, "features": features, "prepare_cmds": commands}
            # As virtqual started this ReFrame for a session that holds allocations.
            partition |= held.changes(known.name) if system.name == held.system() else {}
        partitions.append(partition)
    return {**raw, "partitions": partitions}


def _environment(stack: Manifest) -> dict[str, Any]:
    programs = {
        feature: program.model_dump(mode="json") for program in stack.programs for feature in program.features
    }
    return {
        "name": stack.name,
        "features": stack.features,
        "extras": {"programs": programs, "stack_hash": stack.hash},
    }


#: Options with which ReFrame only says what there is: then nothing is written.
_LISTING = {"-l", "--list", "-L", "--list-detailed", "--list-tags"}


def _logging(state: Path) -> dict[str, Any]:
    line = "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s"
    file = {
        "type": "file",
        "name": str(state / "log" / "reframe.log"),
        "level": "debug",
        "format": line,
        "append": False,
    }
    lists_only = bool(_LISTING.intersection(sys.argv[1:]))
    if not lists_only:
        paths.make(state / "log")
    return {
        "level": "debug",
        # A record for each value: the columns are the same for all checks.
        "perflog_multiline": True,
        "handlers$": [{"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}],
        "handlers": [] if lists_only else [file],
        "handlers_perflog": [
            {
                "type": "filelog",
                "prefix": "%(check_system)s/%(check_partition)s",
                "basedir": str(state / "perflogs"),
                "level": "info",
                "format": (
                    "%(check_job_completion_time)s|%(check_info)s|%(check_result)s|%(check_jobid)s|"
                    "%(check_perf_var)s|%(check_perf_value)s|%(check_perf_unit)s|"
                    "%(check_perf_ref)s|%(check_perf_lower_thres)s|%(check_perf_upper_thres)s"
                ),
                "append": True,
            }
        ],
    }
