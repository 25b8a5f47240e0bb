"""The noise of a metric, as far as it is known before the first pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STATED_BETWEEN_DF = 4.0
"""What a stated spread of boots counts for, in degrees of freedom, where nobody says how it is known.

An opinion that is believed like a bound makes nearly every session against an earlier one OVER where boots
vary by several times as much ("Boots that nobody measured" in docs/decision.md). With 4 the boots that
sessions show soon outweigh it, and it costs little where it is small beside the noise of the pairs.
"""


@dataclass(frozen=True)
class Prior:
    """Noise of one pair's log difference, from A/A history or stated.

    Parameters
    ----------
    sigma
        Standard deviation of d at one point, beyond `common`; one number, or one for each point.
    df
        Weight of this knowledge: it counts for so many degrees of freedom against the session's own pairs.
    source
        Origin of the numbers; shown with the verdict.
    correlation
        Of neighbouring points of a curve (it falls as a power with their distance).
    common
        Standard deviation of what a pair's whole curve shares.
    between
        Standard deviation of what a new boot of the virtual machine changes by itself.
    between_df
        Degrees of freedom of `between`: boots less one where it was measured, `STATED_BETWEEN_DF` where it is
        somebody's opinion, infinite where it is stated as a bound that boots do not exceed.

    Raises
    ------
    ValueError
        If a number cannot be what it says.
    """

    sigma: float | tuple[float, ...]
    df: float
    source: str
    correlation: float = 0.5
    common: float = 0.0
    between: float = 0.0
    between_df: float = STATED_BETWEEN_DF

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.sigma)) or np.min(self.sigma) <= 0:
            raise ValueError(f"sigma must be above 0: {self.sigma}.")
        if not (np.isfinite(self.df) and self.df > 0):
            raise ValueError(f"df must be above 0: {self.df}.")
        if not 0 <= self.correlation < 1:
            raise ValueError(f"correlation lies in [0, 1): {self.correlation}.")
        if not (0 <= self.common < np.inf and 0 <= self.between < np.inf):
            raise ValueError("common and between are standard deviations: finite and not below 0.")
        if not self.between_df > 0:
            raise ValueError(f"between_df must be above 0: {self.between_df}.")

    def covariance(self, width: int) -> NDArray[np.float64]:
        """Return the covariance of one pair's differences, shape (width, width).

        Raises
        ------
        ValueError
            If `sigma` has one number for each of another number of points.
        """
        if isinstance(self.sigma, tuple) and len(self.sigma) != width:
            raise ValueError(f"the prior has {len(self.sigma)} points, the series {width}.")
        sigma = np.broadcast_to(np.asarray(self.sigma, dtype=np.float64), (width,))
        index = np.arange(width)
        distance = np.abs(index[:, None] - index[None, :])
        covariance: NDArray[np.float64] = np.outer(sigma, sigma) * self.correlation**distance + self.common**2
        return covariance
