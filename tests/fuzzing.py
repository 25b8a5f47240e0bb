"""How many random examples tests try.

The usual run tries few, and the same ones each time. ``pytest -m slow`` tries 500 new ones of each, and with
``HYPOTHESIS_PROFILE=nightly`` as many as that profile says (``tests/virtqual/conftest.py``).
"""

from hypothesis import HealthCheck, Phase, settings

FEW = settings(
    deadline=None,
    max_examples=25,
    derandomize=True,
    # An example takes up to a second: a search for a smaller one would take minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
MANY = settings(FEW, max_examples=max(500, settings().max_examples), derandomize=False)
