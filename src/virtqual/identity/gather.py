"""Gather the small files that say what a node is, by a script that needs neither Python nor privileges."""

from __future__ import annotations

import hashlib
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
#: Say of Arm guests whose firmware is a device tree what is below them, as words that end with a zero.
DEVICE_TREE_FILES = ("/proc/device-tree/hypervisor/compatible", "/proc/device-tree/compatible")
FIRMWARE_FILES = (f"{DMI_DIR}/bios_vendor", f"{DMI_DIR}/bios_version")
#: Files of a device about its PCIe link, by field of :class:`~virtqual.identity.record.PcieLink`.
LINK_FILES = {
    "speed": "current_link_speed",
    "width": "current_link_width",
    "best_speed": "max_link_speed",
    "best_width": "max_link_width",
}
CACHE_FILES = ("level", "type", "size", "shared_cpu_list")
#: The caches of all CPUs, which a script prints if it is asked for more.
ALL_CACHES = tuple(f"{CPU_DIR}/cpu[0-9]*/cache/index*/{name}" for name in CACHE_FILES)
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
    "/proc/sys/kernel/arch",
    "/sys/hypervisor/type",
    "/sys/class/ptp/ptp*/clock_name",
    *HARDWARE_FILES,
    *FIRMWARE_FILES,
    f"{CLOCK_DIR}/current_clocksource",
    f"{CLOCK_DIR}/available_clocksource",
    f"{CPU_DIR}/online",
    f"{CPU_DIR}/smt/active",
    f"{CPU_DIR}/vulnerabilities/*",
    f"{CPU_DIR}/cpu[0-9]*/topology/physical_package_id",
    f"{CPU_DIR}/cpu[0-9]*/topology/thread_siblings_list",
    # The first CPUs may be offline.
    *(f"{CPU_DIR}/cpu[0-9]/cache/index*/{name}" for name in CACHE_FILES),
    f"{CPU_DIR}/cpu[0-9]/cpufreq/scaling_governor",
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
#: Begins the line after it in the output of :func:`guard`: a checksum follows.
SUM = "virtqual-sum"
#: Stands for Slurm's name of the node in whose job the script ran.
SLURM_NODE = "/virtqual/slurm-node"
#: Stands for what ``uname -m`` prints.
MACHINE = "/virtqual/machine"
# Older versions of grep print the second line, to standard output.
_REASON = re.compile(r"grep: (?P<path>/[^:]*): (?P<reason>.+)|Binary file (?P<binary>/.*) matches")
#: Colours and the like, by which a terminal would not show.
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]")
# `srun --label` puts the number of the task before each line.
_MARK = re.compile(rf"(?P<label>\s*[0-9]+: ?)?(?P<mark>{FIRST_LINE}|{LAST_LINE}|{SUM} [0-9a-f]{{64}}\b.*)")


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
for virtqual_file in {" ".join(DEVICE_TREE_FILES)}; do
    [ -r $virtqual_file ] && {{ printf %s: $virtqual_file; tr '\\0\\n' '  ' < $virtqual_file; echo; }}
done
[ -z "$SLURMD_NODENAME" ] || echo "{SLURM_NODE}:$SLURMD_NODENAME"
{then}echo {LAST_LINE}
"""


def guard(commands: str) -> str:
    """Return a script that prints what a script prints, with a checksum.

    By it :func:`parse` can leave out lines that a site's own programs print in between. It is of printable
    ASCII characters, since others may be lost on the way.
    """
    return f"""virtqual_text=$(
{commands})
printf '\\n%s\\n' "$virtqual_text"
echo "{SUM} $(printf '%s\\n' "$virtqual_text" | LC_ALL=C tr -cd '\\12\\40-\\176' | sed '/^$/d' | sha256sum)"
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
    """Read the output of the script, among lines that a site's own programs print.

    Raises
    ------
    GatherError
        The text is not whole, holds several outputs of the script, or has foreign lines of which it is not
        certain that they are whole lines.
    """
    lines, checksum = _select_lines(text)
    texts: dict[str, list[str]] = {}
    reasons, foreign_lines, own_lines = {}, [], []
    for line in lines:
        if match := _REASON.fullmatch(line):
            reasons[match["path"] or match["binary"]] = (match["reason"] or "binary file matches").lower()
        elif line.startswith("/"):
            path, _, content = line.partition(":")
            texts.setdefault(path, []).append(content)
        else:
            foreign_lines += [line] if line.strip() else []
            continue
        own_lines.append(line)
    if checksum and checksum != _compute_checksum([FIRST_LINE, *own_lines, LAST_LINE]):
        raise GatherError(
            "the text that the script printed was changed on the way: its checksum is wrong"
            + (f". Among it is the line {foreign_lines[0][:60]!r}" if foreign_lines else "")
        )
    if foreign_lines and not checksum:
        raise GatherError(
            f"the text that the script printed has a line that names no file: {foreign_lines[0][:60]!r}"
        )
    return NodeFiles({path: "\n".join(content).strip() for path, content in texts.items()}, reasons)


def _select_lines(text: str) -> tuple[list[str], str]:
    """Return the lines between the first and the last one of the script, without labels, and their checksum.

    The checksum is empty if the script printed none, and the first line may be missing.
    """
    # Only a line feed ends a line: names may hold other characters that Unicode calls line ends.
    lines = text.replace("\r\n", "\n").split("\n")
    marks: dict[str, list[tuple[int, str]]] = {FIRST_LINE: [], LAST_LINE: [], SUM: []}
    checksum = ""
    for number, line in enumerate(lines):
        match = _MARK.fullmatch(_CONTROL_SEQUENCE.sub("", line)) if "virtqual-" in line else None
        if match:
            mark, _, stated = match["mark"].partition(" ")
            marks[mark].append((number, match["label"] or ""))
            checksum = stated[:64] or checksum
    if not marks[FIRST_LINE]:
        # What a site printed before may have no line feed at its end.
        ends = (n for n, line in enumerate(lines) if line.endswith(FIRST_LINE) and not line.startswith("/"))
        marks[FIRST_LINE] = [(number, "") for number in ends]
    if not marks[LAST_LINE]:
        raise GatherError(f"the text that the script printed is not whole: it has no line {LAST_LINE!r}")
    if any(len(places) > 1 for places in marks.values()):
        raise GatherError("the text holds what several nodes or tasks printed: only one is expected")
    end, label = marks[LAST_LINE][0]
    begin = marks[FIRST_LINE][0][0] + 1 if marks[FIRST_LINE] else 0
    return [line[len(label) :] for line in lines[begin:end] if line.startswith(label)], checksum


def _compute_checksum(lines: Sequence[str]) -> str:
    printable = re.sub(r"[^\n\x20-\x7e]", "", "".join(f"{line}\n" for line in lines))
    return hashlib.sha256(printable.encode("ascii")).hexdigest()


def run_script(commands: str | None = None) -> NodeFiles:
    """Gather the files of this node by the script, or by a script of :func:`script` with more files."""
    return parse(execute.run(["sh", "-c", commands or script()]).stdout)
