"""`show`, `compare` and `history` write the same numbers about one session."""

import gzip
from io import StringIO
from pathlib import Path

import pytest

from virtqual.history.builds import make_place
from virtqual.qualify import concluding
from virtqual.report.comparison import compare
from virtqual.report.console import verbatim
from virtqual.report.terminal import table_of
from virtqual.session.log import LOG, Log
from virtqual.session.summary import Summary
from virtqual.verdict import Outcome
from virtqual.verdict.rule import LOOKS

SESSIONS = Path(__file__).parents[2] / "sessions"


@pytest.fixture(params=["emulated-hosts-crash", "emulated-hosts-quiet-disks", "kvm-over"])
def session(request, tmp_path):
    (tmp_path / LOG).write_bytes(gzip.decompress((SESSIONS / f"{request.param}.jsonl.gz").read_bytes()))
    log = Log(tmp_path)
    basis = log.session().basis
    return concluding.conclude_session(log, None, looks=basis.looks if basis else LOOKS)


def test_all_tables_show_the_same_numbers(session):
    console = verbatim(width=200, file=StringIO())
    console.print(table_of(session.verdicts))
    lines = console.file.getvalue().splitlines()
    rows = {row.series: row for row in compare([session, session]) if row.session == 1}
    levels = {metric.name: metric.levels for metric in make_place("s", "c", [Summary.of(session)]).metrics}
    for verdict in session.verdicts:
        (at,) = (
            i for i, line in enumerate(lines) if line.startswith((f"{verdict.name} ", f"{verdict.name},"))
        )
        # Of a curve, its mean stands below what decides.
        line = " ".join(lines[at + bool(verdict.points)].split())
        row = rows[verdict.series]
        assert f" {row.overhead_text} {row.at_most}" in line
        assert verdict.outcome is not Outcome.INVALID
        (level,) = levels[verdict.name]
        assert f" {level.estimate} (" in line
        assert row.virtual == pytest.approx(row.native + verdict.overhead.log)
