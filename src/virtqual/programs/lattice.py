"""Input of MILC's ``su3_rhmd_hisq``: a lattice made from nothing, with four flavours of one mass.

Four staggered flavours make the power of the fermion determinant a whole one.  The force needs
(x + 4 m^2)^-1, which is exact.  Only the first and last step of a trajectory need the square roots, which
are rational functions by quadrature: method 3 of Hale, Higham and Trefethen, SIAM J. Numer. Anal. 46, 2505
(2008).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ellipj, ellipk

FLAVOURS, MASS, BETA, U0 = 4, 0.1, 7.0, 0.88
# The rational functions have powers of x + 4 m^2, for x from 0 to this bound of the eigenvalues of the
# massless operator squared (that of MILC's own examples).
SHIFT, LARGEST = 4 * MASS**2, 90.0
# The quadrature's error falls by a factor of 6.5 a term for this mass: 14 terms are good to 2e-11.
TERMS = 14
# MILC prints and reads four masses, three of them unused here.
_UNUSED = 3


@dataclass(frozen=True)
class Rational:
    """A function ``constant + sum(residues / (x + poles))`` of x in [0, `LARGEST`]."""

    constant: float
    residues: tuple[float, ...]
    poles: tuple[float, ...]

    def __call__(self, x: float) -> float:
        """Return the function's value."""
        terms = zip(self.residues, self.poles, strict=True)
        return self.constant + math.fsum(residue / (x + pole) for residue, pole in terms)


def inverse_root() -> Rational:
    """Return (x + 4 m^2)^-1/2 by quadrature.

    Examples
    --------
    >>> f = inverse_root()
    >>> max(abs(f(x) * (x + 0.04) ** 0.5 - 1) for x in (0, 0.01, 1, 30, 90)) < 1e-10
    True
    """
    # The modulus of the ratio of the ends; sn and cn of an imaginary argument by Jacobi's transformation.
    complement = 1 - SHIFT / (SHIFT + LARGEST)
    period = float(ellipk(complement))
    residues, poles = [], []
    for term in range(TERMS):
        sn, cn, dn, _ = (float(value) for value in ellipj((term + 0.5) * period / TERMS, complement))
        poles.append(SHIFT * (sn / cn) ** 2 + SHIFT)
        residues.append(2 * period * math.sqrt(SHIFT) / (math.pi * TERMS) * dn / cn**2)
    return Rational(0.0, tuple(residues), tuple(poles))


def root() -> Rational:
    """Return (x + 4 m^2)^1/2: the shifted x times `inverse_root`.

    Examples
    --------
    >>> f = root()
    >>> max(abs(f(x) / (x + 0.04) ** 0.5 - 1) for x in (0, 0.01, 1, 30, 90)) < 1e-10
    True
    """
    below = inverse_root()
    residues = tuple(
        -residue * (pole - SHIFT) for residue, pole in zip(below.residues, below.poles, strict=True)
    )
    return Rational(math.fsum(below.residues), residues, below.poles)


def rationals() -> str:
    """Return the file of rational functions: for the force, the heat bath and the action."""
    lines = ["n_pseudo 1", "naik_term_epsilon 0"]
    inverse = Rational(0.0, (1.0,), (SHIFT,))
    functions = (("MD", inverse, -4, 4), ("GR", root(), 4, 8), ("FA", inverse_root(), -4, 8))
    for tag, function, above, below in functions:
        lines += [
            f"y_{tag} {above}{' 0' * _UNUSED}",
            f"z_{tag} {below}{f' {below}' * _UNUSED}",
            f"m_{tag} {MASS:g}{' 1' * _UNUSED}",
            f"order_{tag} {len(function.poles)}",
            *(f"res_{tag} {value:.15e}" for value in (function.constant, *function.residues)),
            # The constant's place in the list of poles is not used.
            *(f"pole_{tag} {value:.15e}" for value in (99.9, *function.poles)),
        ]
    return "\n".join(lines) + "\n"


def parameters(lattice: tuple[int, int, int, int], trajectories: int, steps: int) -> str:
    """Return the parameters of one run from a cold lattice; it reads `rationals` from a file of that name.

    Each trajectory is measured, and has an even number of steps of 0.02.
    """
    nx, ny, nz, nt = lattice
    return f"""prompt 0
nx {nx}
ny {ny}
nz {nz}
nt {nt}
iseed 4711
n_pseudo 1
load_rhmc_params rationals
beta {BETA:g}
n_dyn_masses 1
dyn_mass {MASS:g}
dyn_flavors {FLAVOURS}
u0 {U0:g}

warms 0
trajecs {trajectories}
traj_between_meas 1
microcanonical_time_step 0.02
steps_per_trajectory {steps}
cgresid_md_fa_gr 1e-6 1e-6 1e-6
max_multicg_md_fa_gr 2000 2000 2000
cgprec_md_fa_gr 2 2 2
prec_ff 2
number_of_pbp_masses 1
max_cg_prop 1000
max_cg_prop_restarts 5
npbp_reps 1
prec_pbp 2
mass {MASS:g}
naik_term_epsilon 0
error_for_propagator 1e-6
rel_error_for_propagator 0
fresh
forget
"""
