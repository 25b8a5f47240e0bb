"""CPU lists as the kernel prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: CPUs of the largest machine whose lists are read: Linux numbers at most 8192.
MAX_CPUS = 2**16
#: Hardware threads of a core at most: POWER has 8, QEMU's -smp takes more.
MAX_THREADS = 256
#: Digits of a CPU's number, without leading zeros.
MAX_DIGITS = 5


def cpu_list(text: str, max_cpus: int = MAX_CPUS) -> frozenset[int]:
    """Read a kernel CPU list; raise ValueError if it is none, or names more or higher CPUs than allowed.

    Examples
    --------
    >>> sorted(cpu_list("0,2-4"))
    [0, 2, 3, 4]
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?", part)
        if not match:
            raise ValueError(f"{text[:60]!r} is not a list of CPUs")
        first, last = match[1], match[2] or match[1]
        # A virtual machine may have written the text: no set is made of numbers that are too large.
        if len(last) > MAX_DIGITS or len(first) > MAX_DIGITS or int(last) >= MAX_CPUS:
            raise ValueError(f"{text[:60]!r} names a CPU above {MAX_CPUS - 1}")
        cpus.update(range(int(first), int(last) + 1))
        if len(cpus) > max_cpus:
            raise ValueError(f"{text[:60]!r} names more than {max_cpus} CPUs")
    return frozenset(cpus)


def cpu_text(cpus: Iterable[int]) -> str:
    """Write a kernel CPU list.

    Examples
    --------
    >>> cpu_text({0, 2, 3, 4})
    '0,2-4'
    """
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
