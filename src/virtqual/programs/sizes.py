"""Problem sizes from what a node has: pure functions with worked examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

# STREAM's own rule: each array at least four times the sum of the last-level caches in use.
# (John D. McCalpin, STREAM benchmark, "Run Rules".)
STREAM_FACTOR = 4
# Small systems stop here: a software-emulated node would need minutes for more.
SMALL_ARRAY = 48_000_000


@dataclass(frozen=True)
class Arrays:
    """Arrays for a bandwidth measurement, each of as many bytes, in whole kilobytes (10^3).

    The family is ``memory`` if they exceed the caches by STREAM's rule.  It is ``cache`` otherwise: the
    measured value must not be called memory bandwidth.
    """

    bytes_each: int
    family: str


def arrays(llc_bytes: int, memory_bytes: int, *, small: bool) -> Arrays:
    """Size the three arrays of a STREAM-like kernel for one node, within half of its memory.

    `llc_bytes` are all last-level caches of the node together, as the hardware has them.

    Examples
    --------
    32 MiB of cache, 256 GiB of memory:

    >>> arrays(32 * 2**20, 256 * 2**30, small=False)
    Arrays(bytes_each=134218000, family='memory')

    260 MiB of cache on a small system: a gigabyte an array is out of reach, so it is not called memory.

    >>> arrays(260 * 2**20, 2 * 2**30, small=True)
    Arrays(bytes_each=48000000, family='cache')
    """
    largest = min(memory_bytes // 6, SMALL_ARRAY) if small else memory_bytes // 6
    size = min(max(STREAM_FACTOR * llc_bytes, SMALL_ARRAY), largest)
    name = family(size, llc_bytes)
    return Arrays(math.ceil(size / 1000) * 1000 if name == "memory" else size // 1000 * 1000, name)


def family(bytes_each: int, llc_bytes: int) -> str:
    """Return what kernels over arrays of this size measure: ``memory``, or ``cache`` (see `Arrays`).

    Examples
    --------
    >>> family(640_000_000, 32 * 2**20), family(48_000_000, 32 * 2**20)
    ('memory', 'cache')
    """
    return "memory" if bytes_each >= STREAM_FACTOR * llc_bytes else "cache"


def doublings(cores: int, cpus: int) -> list[int]:
    """Return the numbers of threads of a scaling curve: 1, 2, 4, ... all cores, all hardware threads.

    Examples
    --------
    >>> doublings(2, 2), doublings(12, 24)
    ([1, 2], [1, 2, 4, 8, 12, 24])
    """
    powers = {1 << power for power in range(cores.bit_length())}
    return sorted({*powers, cores, cpus})


def process_grid(processes: int) -> tuple[int, int]:
    """Return P and Q of the most square process grid, P <= Q, as HPL wants it.

    Examples
    --------
    >>> process_grid(8), process_grid(7)
    ((2, 4), (1, 7))
    """
    p = max(d for d in range(1, math.isqrt(processes) + 1) if processes % d == 0)
    return p, processes // p


def ranks_of_conus(cores: int) -> int:
    """Return the most ranks on so many cores among which WRF divides the 425 x 300 points of CONUS 12 km.

    It takes the most square grid of them, and refuses less than 10 points a rank in either direction.

    Examples
    --------
    >>> ranks_of_conus(16), ranks_of_conus(62), ranks_of_conus(128)
    (16, 60, 128)
    """
    return max(count for count in range(1, cores + 1) if process_grid(count)[1] <= 300 // 10)


def box_of_water(ranks: int) -> tuple[int, int]:
    """Return molecules along each side of a box of water, and time steps, that take NAMD about half a minute.

    Each rank has 16,000 atoms and 500 steps, up to the million atoms of STMV; beyond it there are more steps.

    Examples
    --------
    >>> box_of_water(1), box_of_water(64), box_of_water(128)
    ((17, 500), (70, 500), (70, 1000))
    """
    edge = round(math.cbrt(16000 / 3 * min(ranks, 64)))
    return edge, 500 * max(1, ranks // 64)


def split_cubically(count: int) -> tuple[int, int, int]:
    """Return the three whole factors of a number that are nearest to a cube, the largest first.

    Examples
    --------
    >>> split_cubically(1), split_cubically(7), split_cubically(60), split_cubically(64)
    ((1, 1, 1), (7, 1, 1), (5, 4, 3), (4, 4, 4))
    """
    sides = [(a, b, count // a // b) for a in _divisors(count) for b in _divisors(count // a)]
    a, b, c = sorted(min(sides, key=max), reverse=True)
    return a, b, c


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


# A run of HPL may take as long at 20 GFLOP/s a core.
HPL_SECONDS = 240


def hpl_size(
    memory_bytes: int, cores: int, *, small: bool, stated: Mapping[str, int] | None = None
) -> tuple[int, int]:
    """Return order and block of HPL's matrix: 80 % of memory, or a size of seconds on a small system.

    The numbers that a system file states (``extras.hpl``: ``order``, ``block``) go before both.

    All of a large node's memory makes a run of an hour.  The order is bounded to four minutes at 20 GFLOP/s a
    core; a core sustains half of that at least.

    Examples
    --------
    >>> hpl_size(16 * 2**30, 64, small=False), hpl_size(2**40, 128, small=False)
    ((41280, 192), (97152, 192))
    >>> hpl_size(2 * 2**30, 2, small=True)
    (640, 80)
    >>> hpl_size(128 * 2**30, 24, small=False, stated={"order": 110000, "block": 168})
    (110000, 168)
    """
    if stated:
        return stated["order"], stated["block"]
    if small:
        return 640, 80
    block = 192
    # 2/3 of the order cubed: operations of the factorisation.
    bound = math.cbrt(1.5 * HPL_SECONDS * 20e9 * cores)
    return int(min(math.sqrt(0.8 * memory_bytes / 8), bound)) // block * block, block


# Bytes that the main arrays of each benchmark take for a point, a key or a nonzero, and their number by
# class, of NPB 3.4 for MPI: the arrays that each allocates, and the sizes in `sys/setparams.c`.
_GRID = {"D": 408**3, "C": 162**3, "B": 102**3}
NPB: dict[str, tuple[float, dict[str, int]]] = {
    "is": (3 * 1.5 * 4, {"D": 2**31, "C": 2**27, "B": 2**25}),
    "cg": (3 * 4 + 2 * 8, {"D": 1500000 * 22**2, "C": 150000 * 16**2, "B": 75000 * 14**2}),
    "ft": (3 * 16 + 8, {"D": 2048 * 1024 * 1024, "C": 512**3, "B": 512 * 256 * 256}),
    "mg": ((1 + 2 * 8 / 7) * 8, {"D": 1024**3, "C": 512**3, "B": 256**3}),
    "lu": (20 * 8, _GRID),
    "bt": (46 * 8, _GRID),
    "sp": (38 * 8, _GRID),
    # It only counts.
    "ep": (0, {"D": 0, "C": 0, "B": 0}),
}
# LU, BT and SP take longer.  On two emulated cores a run takes 6 to 18 minutes in class A, too much for a
# small system.  Class D has 3 to 6e13 operations (NPB's own counts) at about one GFLOP/s a core; C has a
# twentieth.
_LONG_KERNELS = ("lu", "bt", "sp")


def npb_class(kernel: str, memory_bytes: int, cores: int, *, small: bool) -> str:
    """Return the largest class of a NAS Parallel Benchmark that fits a node.

    Half of the memory is left to halos, MPI and the system.  Class D is for nodes of 8 cores at least.  LU,
    BT and SP, which would take a quarter of an hour on 64 cores, have it on 256.

    Examples
    --------
    The machine of the OpenStack study ran IS and CG in class D.  FT's arrays take 120 GB in that class.

    >>> [npb_class(kernel, 128 * 10**9, 20, small=False) for kernel in ("is", "cg", "ft")]
    ['D', 'D', 'C']
    >>> [npb_class(kernel, 256 * 2**30, 64, small=False) for kernel in ("ft", "bt")]
    ['D', 'C']
    >>> [npb_class(kernel, 2**31, 2, small=True) for kernel in ("is", "bt")]
    ['A', 'W']
    """
    if small:
        return "W" if kernel in _LONG_KERNELS else "A"
    cores_of_class = {"D": 256 if kernel in _LONG_KERNELS else 8}
    bytes_of_element, element_counts = NPB[kernel]
    for name, count in element_counts.items():
        if memory_bytes >= 2 * bytes_of_element * count and cores >= cores_of_class.get(name, 1):
            return name
    return "A"
