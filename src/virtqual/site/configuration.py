"""ReFrame's site configuration, made from the system files and the stacks for ``reframe/settings.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from virtqual import paths
from virtqual.errors import UsageError, VirtqualError
from virtqual.files.wording import suggest
from virtqual.site import held, slurm, systems
from virtqual.site.options import parse_options
from virtqual.site.systems import Partition, System, SystemFile
from virtqual.stack import manifest
from virtqual.stack.manifest import Manifest

#: The environment without programs: ReFrame needs one before any stack is set up.
NO_STACK = "no-stack"
#: The partition of a system that is not available at the moment: nothing runs on it.
ABSENT_PARTITION = "absent"
#: A command of job scripts: the first command that fails ends the script with its exit code.
EXIT_ON_ERROR = "trap 'code=$?; echo \"exit code $code of: $BASH_COMMAND\" >&2; exit $code' ERR"
#: How often `sacct` may fail before ReFrame gives up: for some four minutes at its own rate.
MAX_SACCT_FAILURES = 120
#: Options with which ReFrame only lists checks: nothing is written then.
_LISTING_OPTIONS = {"-l", "--list", "-L", "--list-detailed", "--list-tags"}


def find_system_files() -> list[Path]:
    """Return the system files of the project, if it is here, then those of the site."""
    checkout = paths.find_root()
    directories = [*([checkout / "reframe/systems"] if checkout else []), paths.site() / "systems"]
    return [file for path in directories for file in sorted(path.glob("[!_.]*.py"))]


def read_systems() -> dict[str, SystemFile]:
    """Return every system file by the name of its system."""
    files: dict[str, SystemFile] = {}
    # A broken file that has only its own name hides no system of that name.
    for file in sorted(map(systems.read, find_system_files()), key=lambda file: not file.states_name):
        other = files.setdefault(file.name, file)
        if other is not file and file.states_name:
            error = UsageError(f"system {file.name!r} is defined twice, by {other.path} and by {file.path}")
            files[file.name] = replace(other, content=error)
    return files


def load_system(name: str) -> System:
    """Return a system by name.

    Raises
    ------
    UsageError
        No file defines the system, or its file is wrong.
    InfrastructureError
        The system is not available at the moment; the message says why.
    """
    files = read_systems()
    if name not in files:
        nameless = [file.content for file in files.values() if not file.states_name]
        broken = [f"; not read: {error}" for error in nameless if isinstance(error, UsageError)]
        broken += [f"; {f.path} defines {other!r}" for other, f in files.items() if f.path.stem == name]
        raise UsageError(
            f"there is no system {shorten(repr(name), 60)}: {suggest(name, files)} A new one needs a system "
            f"file (docs/add-a-system.md){''.join(broken)}"
        )
    system = files[name].load()
    slurm.choose_cluster(system.partition("native").job_options.get("--clusters", ""))
    return system


def configuration() -> dict[str, Any]:
    """Build ReFrame's ``site_configuration``.

    Raises
    ------
    virtqual.errors.InfrastructureError
        The state directory cannot be written, or others can change what is run.
    """
    paths.check_owners()
    stacks = manifest.load_all(paths.stacks())
    state = paths.state()
    files = read_systems().values()
    return {
        "systems": [_configure_system(file, stacks) for file in files],
        "environments": [
            {"name": NO_STACK, "extras": {"programs": {}, "stack_hash": "none"}},
            *map(_configure_environment, stacks),
        ],
        "general": [
            {
                "check_search_path": [str(path) for path in paths.checks()],
                "check_search_recursive": True,
                "report_file": str(state / "reports" / "run-{sessionid}.json"),
                "report_junit": str(state / "reports" / "last.xml"),
                "generate_file_reports": True,
                "remote_detect": False,
                "topology_prefix": str(state / "topology"),
            },
            *_configure_jobs(files),
        ],
        # All cases: `reframe --mode=full` (see checks/guarded.py).
        "modes": [{"name": "full", "options": ["-S scope=full"]}],
        "storage": [{"enable": True, "backend": "sqlite", "sqlite_db_file": str(paths.database())}],
        "logging": [_configure_logging(state)],
    }


def _configure_jobs(files: Iterable[SystemFile]) -> list[dict[str, Any]]:
    """Return the settings of ReFrame for the jobs of some systems."""
    available = [file.content[1] for file in files if not isinstance(file.content, VirtqualError)]
    session = held.read()
    # ReFrame asks less and less often, and cases of a few seconds would wait for it.
    often = {"poll_rate_max": 4, "poll_rate_min": 4}
    polled = [
        system.name
        for system in available
        if system.native_extras.own_scheduler or (session.jobs and system.name == session.system)
    ]
    # `module` is defined in login shells. ReFrame would load modules in its own process, to find conflicts in
    # the environment of this shell.
    shells = {"use_login_shell": True, "resolve_module_conflicts": False}
    with_modules = [system.name for system in available if system.modules_system != "nomod"]
    settings = ((often, polled), (shells, with_modules))
    return [{**keys, "target_systems": names} for keys, names in settings if names]


def _configure_system(file: SystemFile, stacks: list[Manifest]) -> dict[str, Any]:
    """Return a system with the stacks and its derived features.

    ReFrame says why a system is not available if it is selected.
    """
    if isinstance(file.content, VirtqualError):
        absent = {
            "name": ABSENT_PARTITION,
            "scheduler": "local",
            "launcher": "local",
            "environs": [NO_STACK],
        }
        reason = str(file.content).removeprefix(f"system {file.name!r}: ")
        return {"name": file.name, "descr": reason, "hostnames": ["$^"], "partitions": [absent]}
    raw, system = file.content
    session = held.read()
    if in_session := system.name == session.system:
        system = system.use_nodes(session.of)
    environments = [stack.name for stack in stacks] or [NO_STACK]
    partitions = []
    for keys in raw["partitions"]:
        if side := systems.find_side(keys):
            partition = system.partition(side)
            keys = {
                "environs": environments,
                **keys,
                "access": _complete_access(partition),
                "features": partition.all_features,
                "prepare_cmds": [*keys.get("prepare_cmds", ()), EXIT_ON_ERROR],
                "sched_options": {**_choose_scheduler_options(partition), **keys.get("sched_options", {})},
                "extras": {**keys["extras"], "nodes": partition.extras.nodes},
            }
            if in_session:
                keys |= session.list_changed_keys(partition)
        partitions.append(keys)
    return {**raw, "partitions": partitions}


def _complete_access(partition: Partition) -> list[str]:
    """Return the options of a single job, whose tasks fill one socket after the other unless they say how."""
    is_stated = "--distribution" in parse_options(partition.access)
    return [*partition.access, *([] if is_stated else [f"--distribution={held.DISTRIBUTION}"])]


def _choose_scheduler_options(partition: Partition) -> dict[str, Any]:
    """Return options by which no waiting job is cancelled, and no pause of the database ends a session."""
    patient = {} if partition.extras.own_scheduler else {"max_sacct_failures": MAX_SACCT_FAILURES}
    return {"slurm_job_cancel_reasons": [], **patient}


def _configure_environment(stack: Manifest) -> dict[str, Any]:
    programs = {
        feature: program.model_dump(mode="json") for program in stack.programs for feature in program.features
    }
    return {
        "name": stack.name,
        "features": stack.features,
        "extras": {"programs": programs, "stack_hash": stack.hash},
    }


def _configure_logging(state: Path) -> dict[str, Any]:
    file = {
        "type": "file",
        "name": str(state / "log" / "reframe.log"),
        "level": "debug",
        "format": "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s",
        "append": False,
    }
    only_lists = bool(_LISTING_OPTIONS.intersection(sys.argv[1:]))
    if not only_lists:
        paths.make(state / "log")
    return {
        "level": "debug",
        # A record for each value: the columns are the same for all checks.
        "perflog_multiline": True,
        "handlers$": [{"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}],
        "handlers": [] if only_lists else [file],
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
