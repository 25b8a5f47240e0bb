"""A box of TIP3P water for NAMD, generated: structure, coordinates, parameters and configuration.

Geometry, charges and Lennard-Jones parameters are those of TIP3P as CHARMM uses it (Jorgensen et al.,
J. Chem. Phys. 79, 926, 1983; MacKerell et al., J. Phys. Chem. B 102, 3586, 1998).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

# Angstrom and degrees; the spacing gives 0.998 g/cm3.
BOND, ANGLE = 0.9572, 104.52
SPACING = 3.1066
# Steps downhill before the dynamics, and steps between outputs of energies and timing.
DOWNHILL_STEPS, OUTPUT_STEPS = 100, 50
_CHARGE = {"O": -0.834, "H": 0.417}
_MASS = {"O": 15.9994, "H": 1.008}
_ATOMS = (("OH2", "OT", "O"), ("H1", "HT", "H"), ("H2", "HT", "H"))

PARAMETERS = f"""* TIP3P water
*

BONDS
OT   HT   450.0   {BOND}

ANGLES
HT   OT   HT   55.0   {ANGLE}

NONBONDED
OT   0.0   -0.1521   1.7682
HT   0.0   -0.0460   0.2245

END
"""


def atoms(edge: int) -> int:
    """Return the number of atoms of a box with ``edge`` molecules along each side."""
    return 3 * edge**3


def structure(edge: int) -> str:
    """Return the PSF of a box with ``edge`` molecules along each side."""
    count = edge**3
    lines = ["PSF", "", f"{1:8d} !NTITLE", " REMARKS a box of water", "", f"{3 * count:8d} !NATOM"]
    serial = 0
    for molecule in range(1, count + 1):
        for name, kind, element in _ATOMS:
            serial += 1
            lines.append(
                f"{serial:8d} WAT  {molecule:<6d} TIP3 {name:<4s} {kind:<4s} "
                f"{_CHARGE[element]:10.6f} {_MASS[element]:13.4f} {0:11d}"
            )
    first = range(1, 3 * count + 1, 3)
    lines += _table("NBOND: bonds", [(o, o + h) for o in first for h in (1, 2)], 4)
    lines += _table("NTHETA: angles", [(o + 1, o, o + 2) for o in first], 3)
    for what in ("NPHI: dihedrals", "NIMPHI: impropers", "NDON: donors", "NACC: acceptors", "NNB"):
        lines += _table(what, [], 1)
    return "\n".join([*lines, f"{1:8d}{0:8d} !NGRP", f"{0:8d}{0:8d}{0:8d}", "", ""])


def _table(what: str, rows: list[tuple[int, ...]], a_line: int) -> list[str]:
    lines = ["", f"{len(rows):8d} !{what}"]
    for begin in range(0, len(rows), a_line):
        lines.append("".join(f"{atom:8d}" for row in rows[begin : begin + a_line] for atom in row))
    return [*lines, ""]


def coordinates(edge: int) -> str:
    """Return the PDB: oxygen on a cubic lattice around the origin, neighbours turned against each other."""
    lines = []
    for serial, (name, place, molecule) in enumerate(_places(edge), 1):
        x, y, z = place
        lines.append(
            f"ATOM  {serial % 100000:5d}  {name:<3s} TIP3{molecule % 10000:5d}    "
            f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00      WAT "
        )
    return "\n".join([*lines, "END", ""])


def _places(edge: int) -> Iterator[tuple[str, tuple[float, float, float], int]]:
    half = math.radians(ANGLE / 2)
    along, across = BOND * math.cos(half), BOND * math.sin(half)
    middle = SPACING * (edge - 1) / 2
    for molecule, (i, j, k) in enumerate(product(range(edge), repeat=3), 1):
        x, y, z = (SPACING * n - middle for n in (i, j, k))
        sign = 1 if (i + j + k) % 2 == 0 else -1
        yield "OH2", (x, y, z), molecule
        # Every second molecule lies in another plane and points the other way.
        for name, side in (("H1", across), ("H2", -across)):
            turned = (sign * along, side, 0.0) if sign > 0 else (sign * along, 0.0, side)
            yield name, (x + turned[0], y + turned[1], z + turned[2]), molecule


def configuration(edge: int, steps: int) -> str:
    """Return NAMD's configuration: `DOWNHILL_STEPS`, then dynamics from 300 K without a thermostat.

    The dynamics has steps of 1 fs, a multiple of `OUTPUT_STEPS`.
    """
    cell = SPACING * edge
    # Grid points of PME: at most 1.2 A apart, and a number with small factors.
    grid = math.ceil(cell / 1.2)
    while 30**14 % grid:
        grid += 1
    return f"""structure          water.psf
coordinates        water.pdb
paraTypeCharmm     on
parameters         water.prm
temperature        300
seed               12345
exclude            scaled1-4
1-4scaling         1.0
switching          on
switchdist         8
cutoff             9
pairlistdist       10.5
timestep           1
stepspercycle      10
fullElectFrequency 2
rigidBonds         water
cellBasisVector1   {cell:.4f} 0 0
cellBasisVector2   0 {cell:.4f} 0
cellBasisVector3   0 0 {cell:.4f}
PME                on
PMEGridSizeX       {grid}
PMEGridSizeY       {grid}
PMEGridSizeZ       {grid}
outputname         out
binaryoutput       no
outputEnergies     {OUTPUT_STEPS}
outputTiming       {OUTPUT_STEPS}
minimize           {DOWNHILL_STEPS}
reinitvels         300
run                {steps}
"""
