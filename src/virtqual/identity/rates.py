"""The rates that a port of an RDMA device can have."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

# Gbit/s of a lane, SDR to XDR, and the numbers of lanes, as the kernel's `rate_show` multiplies them
# (drivers/infiniband/core/sysfs.c); it states the rates of Ethernet ports in the same terms.
_LANES = (2.5, 5, 10, 14, 25, 50, 100, 200)
_WIDTHS = (1, 2, 4, 8, 12)
RATES = sorted({float(lane * width) for lane in _LANES for width in _WIDTHS})


def _check_rate(gbit: float) -> float:
    if gbit in RATES:
        return gbit
    nearest = min(RATES, key=lambda rate: abs(rate - gbit))
    raise ValueError(
        f"{gbit:g} Gbit/s is no rate of an RDMA port (the nearest is {nearest:g}); state what "
        "/sys/class/infiniband/*/ports/*/rate shows where the link is as it should be, in Gbit/s"
    )


LinkRate = Annotated[float, Field(strict=True), AfterValidator(_check_rate)]
