"""The error rates of a decision and how they are spent over the looks.

Shares of an error rate add up to one over the looks (a plain Bonferroni spending). That costs a few per
cent of power against the recursive integration of group-sequential textbooks and buys three things:
it holds for any dependence between looks, levels scale exactly with the error rate (so Holm's procedure
applies to them as it stands), and an operator can add the shares up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Design:
    """How an overhead is decided.

    Parameters
    ----------
    alpha
        Nominal error rate of OVER for one series (in a session: of all its series together) while the
        true overhead is within its budget. Outliers and drift bring the real rate closer to 1 %; see
        ``benchmarks/decision``.
    beta
        Error rate of WITHIN while the true overhead is the budget plus the margin.
    looks
        Numbers of pairs after which a decision is tried. The last is the maximum.
    over_shares, curve_shares, within_shares
        Shares of `alpha` (for a scalar, for a curve) and of `beta` spent at each look. A scalar cannot
        be OVER with two pairs, of which nobody can say which one is the outlier.
    change_shares
        Takes the place of `over_shares` and `curve_shares` where a session judges a change: the earlier
        session's pairs do not grow in number, so that only the late looks are much surer than the first.
    screen_shares
        Takes the place of `within_shares` in a session, where the screen must acquit nearly everything:
        every metric that it flags costs more runs.
    clip
        Differences farther than this many standard deviations from their median are pulled in: an
        outlier is a fact about the machine, not about the hypervisor.
    contradiction
        Two pairs whose differences lie farther apart than this many standard deviations of such a
        distance decide nothing: nobody can say which one is the outlier.
    majority
        Share of the pairs that must be over budget on their own before their mean can be.
    session_majority
        Takes the place of `majority` in a session: load comes in bursts that last, so the pairs after a
        flag are often hit by what raised it.
    screen
        Number of first pairs that may acquit but not convict: OVER is decided on the pairs after
        them. 0 outside a session.
    family
        Number of ways into which `alpha` is divided (Holm); 1 outside a session.

    Raises
    ------
    ValueError
        If rates, looks and shares do not make a design.
    """

    alpha: float = 0.0085
    beta: float = 0.05
    looks: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 18)
    over_shares: tuple[float, ...] = (0.00, 0.10, 0.40, 0.41, 0.03, 0.03, 0.03)
    curve_shares: tuple[float, ...] = (0.40, 0.15, 0.15, 0.15, 0.05, 0.05, 0.05)
    change_shares: tuple[float, ...] = (0.00, 0.05, 0.20, 0.20, 0.10, 0.10, 0.35)
    within_shares: tuple[float, ...] = (0.30, 0.20, 0.20, 0.10, 0.10, 0.05, 0.05)
    screen_shares: tuple[float, ...] = (0.64, 0.12, 0.08, 0.05, 0.05, 0.03, 0.03)
    clip: float = 2.0
    contradiction: float = 3.0
    majority: float = 0.75
    session_majority: float = 0.8
    screen: int = 0
    family: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.alpha < 0.5 and 0 < self.beta < 0.5):
            raise ValueError(f"error rates lie between 0 and 0.5: alpha {self.alpha}, beta {self.beta}.")
        if not self.looks or self.looks[0] < 2 or sorted(set(self.looks)) != list(self.looks):
            raise ValueError(f"looks must rise from 2 pairs or more: {self.looks}.")
        for name in ("over_shares", "curve_shares", "change_shares", "within_shares", "screen_shares"):
            shares = getattr(self, name)
            if len(shares) != len(self.looks):
                raise ValueError(f"{name} needs one share for each of the {len(self.looks)} looks.")
            if min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
                raise ValueError(f"{name} must add up to 1: {shares}.")
        if min(self.clip, self.contradiction) <= 0 or self.screen < 0 or self.family < 1:
            raise ValueError("clip and contradiction are above 0, screen not below 0, family at least 1.")

    @property
    def max_pairs(self) -> int:
        """The last look."""
        return self.looks[-1]

    def look(self, pairs: int) -> int | None:
        """Return the index of the last look that `pairs` pairs reach; None before the first."""
        reached = [index for index, look in enumerate(self.looks) if look <= pairs]
        return reached[-1] if reached else None

    def next_look(self, pairs: int, *, confirming: bool = False) -> int | None:
        """Return the number of pairs of the first look beyond `pairs`; None after the last.

        With `confirming`, looks at which OVER cannot be decided are skipped.
        """
        looks = (look for index, look in enumerate(self.looks) if self.confirms(index) or not confirming)
        return next((look for look in looks if look > pairs), None)

    def confirms(self, look: int) -> bool:
        """Return whether OVER can be decided at look `look`: at least two pairs lie after the screen."""
        return self.looks[look] - self.screen >= 2

    def over_level(self, look: int, windows: int = 1) -> float:
        """Return the level of OVER at look `look` for each of `windows` windows (1 for a scalar)."""
        if not self.confirms(look):
            return 0.0
        shares = self.over_shares if windows == 1 else self.curve_shares
        spent = sum(share for index, share in enumerate(shares) if self.confirms(index))
        return self.alpha / self.family * shares[look] / spent / windows

    def within_level(self, look: int) -> float:
        """Return the level of WITHIN at look `look`."""
        return self.beta * (self.screen_shares if self.screen else self.within_shares)[look]

    def up_to(self, max_pairs: int) -> Design:
        """Return this design with the looks that `max_pairs` pairs allow; their shares are scaled up.

        Raises
        ------
        ValueError
            If that leaves no look at which a scalar could be OVER.
        """
        keep = [index for index, look in enumerate(self.looks) if look <= max_pairs]
        if not keep or not any(self.over_shares[index] for index in keep):
            least = next(look for look, share in zip(self.looks, self.over_shares, strict=True) if share)
            raise ValueError(f"{max_pairs} pairs decide nothing: at least {least} are needed.")

        def scaled(shares: tuple[float, ...]) -> tuple[float, ...]:
            kept = [shares[index] for index in keep]
            return tuple(share / sum(kept) for share in kept)

        return replace(
            self,
            looks=tuple(self.looks[index] for index in keep),
            over_shares=scaled(self.over_shares),
            curve_shares=scaled(self.curve_shares),
            change_shares=scaled(self.change_shares),
            within_shares=scaled(self.within_shares),
            screen_shares=scaled(self.screen_shares),
        )

    def in_session(self, screen: int, family: int, *, change: bool = False) -> Design:
        """Return this design for one of `family` series, screened with `screen` pairs."""
        design = replace(self, screen=screen, family=max(family, 1), majority=self.session_majority)
        if change:
            design = replace(design, over_shares=self.change_shares, curve_shares=self.change_shares)
        return design

    def alone(self) -> Design:
        """Return this design for a series that shares its error rate with no other."""
        return replace(self, family=1)
