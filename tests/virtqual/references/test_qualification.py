"""The checks that a class asks for: a name that no check has is a mistake."""

import pytest

from virtqual.references.qualification import CheckSet, RequiredCheck

CASES = ("stream %threads=1 %kernel=triad", "stream %threads=2 %kernel=copy", "lammps %problem=lj", "hpl")


@pytest.mark.parametrize(
    ("check", "where", "key", "message"),
    [
        ("stream", None, None, None),
        ("stream %kernel=copy", "rdma", None, None),
        # Numbers follow from the system.
        ("stream %threads=4096 %kernel=triad", None, None, None),
        ("strem", None, "check", "unknown check 'strem': did you mean stream?"),
        ("stream %kernl=copy", None, "check", "stream has no parameter 'kernl': did you mean kernel?"),
        ("stream %threads=2 %kernel=cop", None, "check", "no case with kernel=cop: did you mean copy?"),
        ("lammps %threads=2", None, "check", "lammps has no parameter 'threads'"),
        ("stream %kernel=a2", None, "check", "no case with kernel=a2"),
        ("hpl", "rdam", "where", "unknown feature 'rdam': did you mean rdma?"),
    ],
)
def test_a_check_parameter_or_feature_that_does_not_exist(check, where, key, message):
    check_set = CheckSet("full", (RequiredCheck(check="hpl"), RequiredCheck(check=check, where=where)))
    problems = list(check_set.find_unknown(CASES, ["rdma", "gpu"]))
    assert [problem.key for problem in problems] == ([f"checks[1].{key}"] if key else [])
    assert all(message in problem.message for problem in problems)
