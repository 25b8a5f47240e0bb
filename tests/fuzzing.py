"""How many random examples tests try.

The usual run tries few, and the same ones each time. ``pytest -m slow`` tries as many new ones as
VIRTQUAL_FUZZ_EXAMPLES says (default: 500 each).
"""

import os

from hypothesis import HealthCheck, Phase, settings

FEW = settings(
    deadline=None,
    max_examples=25,
    derandomize=True,
    # An example takes up to a second: a search for a smaller one would take minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
MANY = settings(FEW, max_examples=int(os.environ.get("VIRTQUAL_FUZZ_EXAMPLES", "500")), derandomize=False)
