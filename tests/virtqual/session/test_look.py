"""What a look measured is kept, whatever can be made of it."""

import json
from unittest.mock import Mock

import pytest
from made_runs import made_run

from virtqual.harness.process import Files
from virtqual.qualify import look
from virtqual.qualify.job import Qualification, Request
from virtqual.session import judging, store
from virtqual.session.store import Session


def test_what_cannot_be_judged_is_kept(tmp_path, monkeypatch):
    files = Files(*(tmp_path / name for name in ("look-1.json", "look-1.junit.xml", "look-1.log")))
    cases = [
        {"result": "pass", "record": made_run(side, 0).dump(), "display_name": "case", "partition": side}
        for side in ("native", "virtual")
    ]
    info = {"num_cases": 2, "num_failures": 0, "uuid": "u"}
    files.report.write_text(json.dumps({"runs": [{"testcases": cases}], "session_info": info}))
    files.log.write_text("")
    session = Session(
        session="s", created="2026-01-01", system="x", hypervisor_class="kvm", identity={}, stack={}
    )
    job = Qualification(Request("x"), Mock(), Mock(), session, tmp_path, Mock())

    def judge(*_, **__):
        raise KeyError("what nobody thought of")

    monkeypatch.setattr(judging, "judge_runs", judge)
    with pytest.raises(KeyError):
        look._take_in(job, files, 0, 0, 1.0)
    kept = store.load(tmp_path)
    assert [run.side for run in kept.runs] == ["native", "virtual"]
    assert (kept.outcome, kept.exit_code, len(kept.looks)) == ("UNFINISHED", 5, 1)
