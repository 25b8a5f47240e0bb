"""The bulk test of benchmarks/outside finds a wrong number, and none in the corpus."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest
from corpus import CORPUS

from virtqual.paths import root


@pytest.fixture(scope="module")
def outside():
    path = root() / "benchmarks" / "outside" / "run.py"
    spec = importlib.util.spec_from_file_location("outside_run", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_output_of_the_corpus_is_read_wrongly(outside):
    decisions = {
        (file, name): outside.decide(name, output)
        for file, content in outside.list_files(CORPUS)
        for name, output in outside.find_outputs(content.decode())
    }
    assert {name for _, name in decisions} == set(outside.PROGRAMS)
    assert [key for key, decision in decisions.items() if decision.startswith("WRONG")] == []
    assert list(decisions.values()).count("accepted") > 70


def test_a_number_that_a_plain_read_does_not_find_is_wrong(outside, monkeypatch):
    rate = outside.Outside("", lambda text: SimpleNamespace(rate=2.5), outside.compare("rate", r"rate (\S+)"))
    monkeypatch.setitem(outside.PROGRAMS, "HPL", rate)
    assert outside.decide("HPL", "rate 2.5\n") == "accepted"
    assert outside.decide("HPL", "rate 2.4\n") == "WRONG: 2.5, plainly 2.4"
