"""Gather the small files that say what a node is, by one `grep` on the node or by reading a directory.

In a job, and on nodes that have no Python of ours, :func:`script` gathers them: POSIX shell, one process,
unprivileged.  :func:`of_root` reads the same files below a directory.  What is made of them is in
:mod:`virtqual.identity.readers`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtqual.files import execute, reading
from virtqual.identity.record import NotObservable

# Lines of one file at most: of /proc/cpuinfo that is the first CPU, of which 512 may follow.
LINES = 96
_CPU, _NODE = "/sys/devices/system/cpu", "/sys/devices/system/node"
_LINK = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
_PCI = ("numa_node", "uevent", "physfn/vendor", *_LINK)
_CLOCK = "/sys/devices/system/clocksource/clocksource0"
#: What is read, as shell patterns.
FILES = (
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/numa_balancing",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self/limits",
    "/proc/self/status",
    "/sys/hypervisor/type",
    "/sys/bus/vmbus/uevent",
    *(f"/sys/class/dmi/id/{name}" for name in ("sys_vendor", "product_name", "product_version")),
    *(f"/sys/class/dmi/id/bios_{name}" for name in ("vendor", "version")),
    f"{_CLOCK}/current_clocksource",
    f"{_CLOCK}/available_clocksource",
    f"{_CPU}/online",
    f"{_CPU}/smt/active",
    f"{_CPU}/smt/control",
    f"{_CPU}/vulnerabilities/*",
    f"{_CPU}/cpu[0-9]*/topology/physical_package_id",
    f"{_CPU}/cpu[0-9]*/topology/thread_siblings_list",
    *(f"{_CPU}/cpu0/cache/index*/{name}" for name in ("level", "type", "size", "shared_cpu_list")),
    f"{_CPU}/cpu0/cpufreq/scaling_governor",
    f"{_CPU}/cpufreq/boost",
    f"{_CPU}/intel_pstate/no_turbo",
    f"{_CPU}/cpuidle/current_driver",
    f"{_NODE}/node[0-9]*/cpulist",
    f"{_NODE}/node[0-9]*/distance",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/hugepages/hugepages-*/nr_hugepages",
    "/etc/tuned/active_profile",
    *(f"/sys/class/net/*/{name}" for name in ("mtu", "speed")),
    *(f"/sys/class/net/*/device/{name}" for name in _PCI),
    *(f"/sys/class/infiniband/*/{name}" for name in ("fw_ver", "board_id", "hca_type")),
    *(f"/sys/class/infiniband/*/device/{name}" for name in _PCI),
    *(f"/sys/class/infiniband/*/ports/*/{name}" for name in ("state", "rate", "link_layer")),
)
#: What the tools of a VMware guest say of the host's build, where they are installed.
VMWARE_SESSION = "/vmware-toolbox-cmd/session"
#: The first line that the script prints.
FIRST_LINE = "virtqual-look"
#: The last one: the form of the text.  People keep such files, so it does not change.
LAST_LINE = "virtqual-look/1"
_REASON = re.compile(r"grep: (/[^:]*): (.+)")


def script(more: Sequence[str] = (), then: str = "") -> str:
    """Return the shell script that prints what :func:`parse` reads.

    `grep` names the file before each of its lines, and says of each that it cannot read why; the complaints
    follow after the content, so that neither is split by the other.

    Parameters
    ----------
    more
        Files that are read besides, as shell patterns.
    then
        Shell commands that print further lines of the form ``/path:content``.
    """
    files = " \\\n    ".join([*FILES, *more])
    return (
        "# Prints the files that say what this node is, and why some cannot be read.\n"
        f"echo {FIRST_LINE}\n"
        "exec 3>&1\n"
        f"virtqual_reasons=$(LC_ALL=C grep -m {LINES} '' /dev/null \\\n    {files} 2>&1 >&3)\n"
        "exec 3>&-\n"
        "printf '%s\\n' \"$virtqual_reasons\"\n"
        "if command -v vmware-toolbox-cmd > /dev/null; then\n"
        "    vmware-toolbox-cmd stat raw text session 2> /dev/null | tr '\\r' '?' |\n"
        f"        sed 's|^|{VMWARE_SESSION}:|'\n"
        "fi\n"
        f"{then}"
        f"echo {LAST_LINE}\n"
    )


@dataclass(frozen=True)
class NodeFiles:
    """Files of a node, by path.

    Attributes
    ----------
    texts
        Content of the files that could be read, without trailing blanks.
    reasons
        The reason why each other file could not be read.
    """

    texts: Mapping[str, str]
    reasons: Mapping[str, str]

    def text(self, path: str) -> str | NotObservable:
        """Return the content of a file, or why it is not there."""
        if found := self.texts.get(path):
            return found
        return NotObservable(not_observable=f"{path}: {self.reasons.get(path, 'empty or not there')}")

    def under(self, directory: str) -> tuple[str, ...]:
        """Return the names of the entries of a directory of which something was read."""
        start = directory.rstrip("/") + "/"
        names = {path[len(start) :].split("/", 1)[0] for path in self.texts if path.startswith(start)}
        return tuple(sorted(names, key=_numbers))


def _numbers(name: str) -> tuple[str | int, ...]:
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


class GatherError(ValueError):
    """The text does not come from the script, or a part of it is missing."""


def parse(text: str) -> NodeFiles:
    """Read what the script printed.

    Raises
    ------
    GatherError
        The text is not whole, or a line of it names no file.
    """
    # A line ends nowhere else: names may hold what Unicode calls a line's end.
    lines = text.rstrip("\n").replace("\r\n", "\n").split("\n")
    if lines[-1] != LAST_LINE:
        raise GatherError(
            f"the text that the script printed is not whole: its last line is not {LAST_LINE!r}"
        )
    texts: dict[str, list[str]] = {}
    reasons = {}
    # What a site's own scripts print before it, such as Slurm's TaskProlog, is none of it.
    begin = lines.index(FIRST_LINE) + 1 if FIRST_LINE in lines else 0
    for line in lines[begin:-1]:
        if match := _REASON.fullmatch(line):
            reasons[match[1]] = match[2].lower()
        elif line.startswith("/"):
            path, _, content = line.partition(":")
            texts.setdefault(path, []).append(content)
        elif line:
            raise GatherError(
                f"the text that the script printed has a line that names no file: {line[:60]!r}"
            )
    return NodeFiles({path: "\n".join(content).strip() for path, content in texts.items()}, reasons)


def here(commands: str = "") -> NodeFiles:
    """Gather the files of this node, by `script`'s commands or others that print what `parse` reads."""
    return parse(execute.run(["sh", "-c", commands or script()]).stdout)


def of_root(root: Path, patterns: Sequence[str] = FILES) -> NodeFiles:
    """Gather the files below a directory that holds a node's ``/proc`` and ``/sys``."""
    texts, reasons = {}, {}
    for pattern in patterns:
        paths = [pattern] if not set(pattern) & set("*[") else _matches(root, pattern)
        for path in paths:
            try:
                content = reading.read_start(root / path[1:], reading.MAX_REVIEWED_BYTES)
                text = content.decode(errors="replace")
                texts[path] = "\n".join(text.split("\n", LINES)[:LINES]).strip()
            except OSError as error:
                reasons[path] = (error.strerror or str(error)).lower()
    return NodeFiles(texts, reasons)


def _matches(root: Path, pattern: str) -> list[str]:
    return [f"/{path.relative_to(root)}" for path in sorted(root.glob(pattern[1:]))]
