"""docs/queries.md: each query is asked of recorded sessions, and gives the answer that the page shows."""

import gzip
import re
from pathlib import Path

import duckdb
import pytest

from virtqual.qualify import concluding
from virtqual.session.log import LOG, Log
from virtqual.verdict.rule import LOOKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/queries.md").read_text("utf-8")
NAMES = ("emulated-baseline", "emulated-hosts-crash", "emulated-hosts-quiet-disks", "kvm-over")


@pytest.fixture
def sessions(tmp_path, monkeypatch):
    """Put the page's sessions where it expects them."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        directory = tmp_path / ".virtqual/sessions" / name
        directory.mkdir(parents=True)
        recorded = ROOT / "tests/sessions" / f"{name}.jsonl.gz"
        (directory / LOG).write_bytes(gzip.decompress(recorded.read_bytes()))
        log = Log(directory)
        basis = log.session().basis
        concluding.conclude_session(log, None, looks=basis.looks if basis else LOOKS)


@pytest.mark.usefixtures("sessions")
def test_the_page_shows_what_the_queries_answer():
    blocks = re.findall(r"```sql\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", PAGE, re.DOTALL)
    assert len([answer for _, answer in blocks if answer]) >= 5
    with duckdb.connect() as connection:
        for query, answer in blocks:
            relation = connection.sql(query)
            assert ("" if relation is None else str(relation)) == answer, query
    assert Path("verdicts.parquet").stat().st_size > 0
