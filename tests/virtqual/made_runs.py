"""Runs that no job made, for tests of what is read from runs."""

from virtqual.runs import Run


def made_run(side, pair, **more) -> Run:
    """Return a run of the check ``case`` on one side, with these fields."""
    fields = {
        "check": "case",
        "start": 0.0,
        "end": 1.0,
        "clock": "test",
        "job": "1",
        "nodes": ("n1",),
        "results": (),
        "seconds": 1.0,
        "stack": "test",
        "stack_hash": "0",
        "reference": "none",
    }
    return Run(side=side, pair=pair, **{**fields, **more})
