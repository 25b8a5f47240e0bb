"""Names of Arm processors: the kernel of a 64-bit Arm node prints numbers alone."""

from __future__ import annotations

import re

#: Implementers by the number in ``/proc/cpuinfo``, with their parts: those of servers.
#: Sources: ``arch/arm64/include/asm/cputype.h`` of Linux, ``sys-utils/lscpu-arm.c`` of util-linux.
_IMPLEMENTERS = {
    0x41: "Arm",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x56: "Marvell",
    0x61: "Apple",
    0x6D: "Microsoft",
    0x70: "Phytium",
    0xC0: "Ampere",
}
_PARTS = {
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4A): "Neoverse-E1",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD83): "Neoverse-V3AE",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD85): "Cortex-X925",
    (0x41, 0xD87): "Cortex-A725",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x42, 0x516): "ThunderX2",
    (0x43, 0x0A1): "ThunderX",
    (0x43, 0x0AF): "ThunderX2",
    (0x43, 0x0B8): "ThunderX3",
    (0x46, 0x001): "A64FX",
    (0x46, 0x003): "MONAKA",
    (0x48, 0xD01): "Kunpeng 920",
    (0x48, 0xD02): "Kunpeng 920 (TaiShan v120)",
    (0x48, 0xD06): "Kunpeng 950",
    (0x4E, 0x010): "Olympus",
    (0x50, 0x000): "X-Gene",
    (0x51, 0xC00): "Falkor",
    (0x6D, 0xD49): "Azure Cobalt 100",
    (0x70, 0x660): "FTC660",
    (0x70, 0x661): "FTC661",
    (0x70, 0x662): "FTC662",
    (0x70, 0x663): "FTC663",
    (0x70, 0x862): "FTC862",
    (0xC0, 0xAC3): "AmpereOne (Ampere-1)",
    (0xC0, 0xAC4): "AmpereOne (Ampere-1a)",
}
_FIELD = re.compile(r"^CPU (implementer|variant|part|revision)\s*: (?:0x)?([0-9a-f]+)", re.MULTILINE)


def describe_cores(cpuinfo: str) -> tuple[str, str] | None:
    """Return the name and the signature of the cores in a text of ``/proc/cpuinfo``; None if it is not Arm's.

    A processor may have cores of several kinds: all that the text shows are named.

    Examples
    --------
    >>> describe_cores("CPU implementer\\t: 0x41\\nCPU architecture: 8\\nCPU variant\\t: 0x3\\n"
    ...     "CPU part\\t: 0xd0c\\nCPU revision\\t: 1\\n")
    ('Arm Neoverse-N1', 'Arm 0xd0c r3p1')
    """
    names: dict[str, None] = {}
    signatures: dict[str, None] = {}
    for core in re.split(r"^processor\s*:", cpuinfo, flags=re.MULTILINE):
        fields = dict(_FIELD.findall(core))
        if not {"implementer", "part"} <= fields.keys():
            continue
        implementer, part = fields["implementer"], fields["part"]
        vendor = _IMPLEMENTERS.get(int(implementer, 16), f"implementer 0x{implementer}")
        name = _PARTS.get((int(implementer, 16), int(part, 16)), f"part 0x{part}")
        names[f"{vendor} {name}"] = None
        revision = f"r{int(fields.get('variant', '0'), 16)}p{fields.get('revision', '0')}"
        signatures[f"{vendor} 0x{part} {revision}"] = None
    return (" + ".join(names), " + ".join(signatures)) if names else None
