"""The words for the two sides of a comparison.

Code and records name the sides `native` and `virtual`, whatever they are. What people see says what was
compared: native and virtual runs, or the reference and the candidate of any other comparison.
"""

from __future__ import annotations

from typing import NamedTuple


class Labels(NamedTuple):
    """The words for the reference side and the candidate side."""

    reference: str = "native"
    candidate: str = "virtual"

    def of(self, side: str) -> str:
        """Return the word for a side: `native` is the reference side."""
        return self.reference if side == "native" else self.candidate

    @property
    def are_native_and_virtual(self) -> bool:
        """Whether bare metal is compared with virtual machines."""
        return self == NATIVE_AND_VIRTUAL

    @property
    def guest(self) -> str:
        """What runs on the candidate side: a guest, or the candidate."""
        return "guest" if self.are_native_and_virtual else self.candidate

    @property
    def build(self) -> str:
        """What is judged: a hypervisor build, or the candidate."""
        return "build" if self.are_native_and_virtual else self.candidate

    @property
    def less_noise(self) -> str:
        """What helps if the noise hides the margin."""
        if self.are_native_and_virtual:
            return "a quieter machine, or recorded noise (virtqual propose) if the stated one is too large"
        return "a quieter machine, longer runs, or a larger margin"

    @property
    def machines(self) -> str:
        """What boots on the candidate side."""
        return "virtual machines" if self.are_native_and_virtual else f"{self.candidate} machines"


NATIVE_AND_VIRTUAL = Labels()
REFERENCE_AND_CANDIDATE = Labels("reference", "candidate")
