"""CPU lists as the kernel prints them."""

from __future__ import annotations

from collections.abc import Iterable


def cpu_list(text: str) -> frozenset[int]:
    """Read a kernel CPU list.

    Raises
    ------
    ValueError
        The text is not a CPU list.

    Examples
    --------
    >>> sorted(cpu_list("0,2-4"))
    [0, 2, 3, 4]
    """
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        try:
            cpus.update(range(int(first), int(last or first) + 1))
        except ValueError:
            raise ValueError(f"{text!r} is not a list of CPUs") from None
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
