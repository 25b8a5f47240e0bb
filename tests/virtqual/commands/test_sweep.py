"""The table of `virtqual sweep`: every figure is legible, and the same as in the sentence above it."""

import math
import re
from types import SimpleNamespace

from rich.console import Console

from virtqual.commands import sweep
from virtqual.verdict.outliers import Outlier

SLOW = math.log(1.1)


def session(metrics):
    """Return what a sweep over eight nodes a side has found: VM host 3 is 10 % slower than the others."""
    names = {"native": [f"bare{n}" for n in range(1, 9)], "virtual": [f"host{n}" for n in range(1, 9)]}
    # As verdicts have them: from the mean of the kind, the slow host among them.
    hosts = dict.fromkeys(names["native"], 1.0)
    hosts |= {name: math.exp(SLOW * ((name == "host3") - 1 / 8)) for name in names["virtual"]}
    return SimpleNamespace(
        verdicts=[SimpleNamespace(name=f"m{n} s", hosts=hosts) for n in range(metrics)],
        outliers=[Outlier(host="host3", metric="", log=SLOW)],
        runs=[SimpleNamespace(side=side, hosts={h: h for h in every}) for side, every in names.items()],
    )


def test_every_figure_is_there_in_80_columns():
    console = Console(width=80, record=True)
    sweep._show(session(13), console)
    said = console.export_text()
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    slow = re.findall(r"host3 \(virtual\)(.*)", said)
    assert " ".join(slow).split() == ["+10.0%"] * 13
    others = re.findall(r"host4 \(virtual\)(.*)", said)
    assert " ".join(others).split() == ["+0.0%"] * 13
    assert [f"[{n}] m{n - 1} s" in said for n in range(1, 14)] == [True] * 13


def test_where_no_node_can_be_told_from_another_it_says_why():
    console = Console(width=80, record=True)
    sweep._show(SimpleNamespace(verdicts=[SimpleNamespace(hosts={})], runs=[], outliers=[]), console)
    assert "nodes that all work at once" in " ".join(console.export_text().split())
