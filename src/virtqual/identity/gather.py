"""Gather the small files that say what a node is, by a script that needs neither Python nor privileges."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.identity.record import NotObservable, unseen

#: Lines of one file at most: /proc/cpuinfo has a part for each CPU, of which the first one suffices.
MAX_LINES = 96
CPU_DIR, NODE_DIR, DMI_DIR = "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/class/dmi/id"
CLOCK_DIR = "/sys/devices/system/clocksource/clocksource0"
TRANSPARENT_PAGES_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"
HUGE_PAGES_DIR = "/sys/kernel/mm/hugepages"
HARDWARE_FILES = tuple(f"{DMI_DIR}/{name}" for name in ("sys_vendor", "product_name", "product_version"))
FIRMWARE_FILES = (f"{DMI_DIR}/bios_vendor", f"{DMI_DIR}/bios_version")
#: Files of a device about its PCIe link, by field of :class:`~virtqual.identity.record.PcieLink`.
LINK_FILES = {
    "speed": "current_link_speed",
    "width": "current_link_width",
    "best_speed": "max_link_speed",
    "best_width": "max_link_width",
}
_PCI = ("numa_node", "uevent", "physfn/vendor", *LINK_FILES.values())
#: The files, as shell patterns.
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
    *HARDWARE_FILES,
    *FIRMWARE_FILES,
    f"{CLOCK_DIR}/current_clocksource",
    f"{CLOCK_DIR}/available_clocksource",
    f"{CPU_DIR}/online",
    f"{CPU_DIR}/smt/active",
    f"{CPU_DIR}/vulnerabilities/*",
    f"{CPU_DIR}/cpu[0-9]*/topology/physical_package_id",
    f"{CPU_DIR}/cpu[0-9]*/topology/thread_siblings_list",
    *(f"{CPU_DIR}/cpu0/cache/index*/{name}" for name in ("level", "type", "size", "shared_cpu_list")),
    f"{CPU_DIR}/cpu0/cpufreq/scaling_governor",
    f"{CPU_DIR}/cpufreq/boost",
    f"{CPU_DIR}/intel_pstate/no_turbo",
    f"{CPU_DIR}/cpuidle/current_driver",
    f"{NODE_DIR}/node[0-9]*/cpulist",
    f"{NODE_DIR}/node[0-9]*/distance",
    TRANSPARENT_PAGES_FILE,
    f"{HUGE_PAGES_DIR}/hugepages-*/nr_hugepages",
    "/etc/tuned/active_profile",
    *(f"/sys/class/net/*/{name}" for name in ("mtu", "speed")),
    *(f"/sys/class/net/*/device/{name}" for name in _PCI),
    *(f"/sys/class/infiniband/*/{name}" for name in ("fw_ver", "board_id", "hca_type")),
    *(f"/sys/class/infiniband/*/device/{name}" for name in _PCI),
    *(f"/sys/class/infiniband/*/ports/*/{name}" for name in ("state", "rate", "link_layer")),
)
#: Stands for the session that the tools of a VMware guest show, with the host's build.
VMWARE_SESSION = "/vmware-toolbox-cmd/session"
#: The first line that the script prints.
FIRST_LINE = "virtqual-look"
#: The last line, which names the form of the text. People keep such files, so it does not change.
LAST_LINE = "virtqual-look/1"
_REASON = re.compile(r"grep: (/[^:]*): (.+)")


def script(more: Sequence[str] = (), then: str = "") -> str:
    """Return the shell script that prints what :func:`parse` reads.

    Parameters
    ----------
    more
        Further files, as shell patterns.
    then
        Shell commands that print further lines of the form ``/path:content``.
    """
    # grep names the file before each of its lines. Its messages on files that it cannot read follow after the
    # content, so that neither splits the other.
    files = " \\\n    ".join([*FILES, *more])
    return f"""# Prints the files that say what this node is, and why some cannot be read.
echo {FIRST_LINE}
exec 3>&1
virtqual_reasons=$(LC_ALL=C grep -m {MAX_LINES} '' /dev/null \\
    {files} 2>&1 >&3)
exec 3>&-
printf '%s\\n' "$virtqual_reasons"
if command -v vmware-toolbox-cmd > /dev/null; then
    vmware-toolbox-cmd stat raw text session 2> /dev/null | tr '\\r' '?' |
        sed 's|^|{VMWARE_SESSION}:|'
fi
{then}echo {LAST_LINE}
"""


@dataclass(frozen=True)
class NodeFiles:
    """Files of a node by path: their content without trailing blanks, or why they could not be read."""

    texts: Mapping[str, str]
    reasons: Mapping[str, str]

    def text(self, path: str) -> str | NotObservable:
        """Return the content of a file."""
        return self.texts.get(path) or unseen(f"{path}: {self.reasons.get(path, 'empty or not there')}")

    def under(self, directory: str) -> tuple[str, ...]:
        """Return the names of a directory's entries with a file that could be read, in natural order."""
        start = f"{directory}/"
        names = {path.removeprefix(start).split("/")[0] for path in self.texts if path.startswith(start)}

        def split_numbers(name: str) -> list[str | int]:
            return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

        return tuple(sorted(names, key=split_numbers))


class GatherError(InfrastructureError):
    """The text of a node is not the whole output of the script, or a file in it cannot be read."""


def parse(text: str) -> NodeFiles:
    """Read the output of the script.

    Raises
    ------
    GatherError
        The text is not whole, or one of its lines names no file.
    """
    # Only a line feed ends a line: names may hold other characters that Unicode calls line ends.
    lines = text.rstrip("\n").replace("\r\n", "\n").split("\n")
    if lines[-1] != LAST_LINE:
        raise GatherError(
            f"the text that the script printed is not whole: its last line is not {LAST_LINE!r}"
        )
    texts: dict[str, list[str]] = {}
    reasons = {}
    # A site's own scripts, such as Slurm's TaskProlog, may print lines before it.
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


def run_script(commands: str | None = None) -> NodeFiles:
    """Gather the files of this node by the script, or by a script of :func:`script` with more files."""
    return parse(execute.run(["sh", "-c", commands or script()]).stdout)
