"""Sessions of one build that met another machine do not count as its noise."""

from dataclasses import replace

import numpy as np
import pytest
from made_recorded import make_recorded
from made_series import samples_of
from ruamel.yaml import YAML

from virtqual.history.change_points import compare_with_last
from virtqual.history.mixed import choose_sessions
from virtqual.history.propose import propose
from virtqual.verdict.pairs import pair_up

METRICS = 5
OLD, NEW = {"native kernel": "5.14.0-427", "label": "a"}, {"native kernel": "5.14.0-503", "label": "b"}


@pytest.fixture
def record(metrics):
    def draw(seed, shifts, sessions=20, sd=0.02, boots_sd=0.0, facts=lambda number: {}):
        """Return sessions of four pairs; `shifts` are by session, each of all metrics or of the first."""
        rng = np.random.default_rng(seed)
        recorded = []
        for number in range(sessions):
            d = rng.normal(0, sd, (METRICS, 4, 1)) + rng.normal(0, boots_sd, (METRICS, 1, 1))
            d[: 1 if shifts.get("one") else METRICS] += shifts.get(number, 0.0)
            series = [
                pair_up(metrics["hpl"], str(index), (), samples_of(metrics["hpl"], values))
                for index, values in enumerate(d)
            ]
            session = make_recorded(number + 1, *series)
            recorded.append(replace(session, facts=facts(number)))
        return recorded

    return draw


def read_noise(sessions, tmp_path):
    """Return the proposed file of noise: its entries, and its notes."""
    noise = next(p for p in propose(sessions, tmp_path) if p.path.name == "noise.yaml")
    return (YAML(typ="safe").load(noise.after) or {}).get("noise", []), noise.notes


def shift(*numbers, by=0.10, **options):
    return {number: np.log1p(by) for number in numbers} | options


@pytest.mark.parametrize("one", [False, True], ids=["all metrics", "one"])
@pytest.mark.parametrize(
    ("numbers", "by", "names"),
    [
        ((0, 1), 0.10, "s1, s2"),
        ((9, 10), 0.10, "s10, s11"),
        (range(10), 0.10, "s1 to s10"),
        (range(10), -0.10, "s1 to s10"),
    ],
    ids=["first", "middle", "half", "half, faster"],
)
def test_shifted_sessions_are_named_and_left_out(record, tmp_path, one, numbers, by, names):
    entries, notes = read_noise(record(1, shift(*numbers, by=by, one=one), boots_sd=0.003), tmp_path)
    left = 20 - len(numbers)
    assert entries[0]["between"] < 0.012
    assert entries[0]["between_df"] == left - 1
    assert entries[0]["source"].startswith(f"{left} sessions, s")
    assert f"build 9.2; left out: {names} (another level of hpl@" in entries[0]["source"]
    (note,) = notes
    assert f"noise.yaml: left out: {names}, where hpl@" in note
    assert (
        f"% {'slower' if by > 0 else 'faster'}{'' if one else ' and 2 more'} relative to native than in s20"
        in note
    )
    assert note.endswith("(changed with it: nothing that is recorded)")


def test_half_of_the_sessions_shifted_by_three_per_cent_are_left_out(record):
    chosen = choose_sessions(record(2, shift(*range(10), by=0.03))).sessions
    assert [session.session for session in chosen[-10:]] == [f"s{number}" for number in range(11, 21)]
    assert len(chosen) <= 11


def test_what_changed_with_a_shift_is_named(record):
    lines = ("quiet nohz=off", "quiet")
    sessions = record(3, shift(0, 1), facts=lambda n: {"native command line": lines[n > 1]})
    (note,) = choose_sessions(sessions).notes
    assert note.endswith("(changed with it: native command line: nohz=off -> nothing)")


@pytest.mark.parametrize(
    "name",
    ["native kernel", "virtual microcode", "native firmware", "virtual mitigations", "hypervisor machine"],
)
def test_sessions_of_another_machine_are_left_out_by_what_is_recorded(record, name):
    sessions = record(4, {}, facts=lambda n: {name: "new" if n in (0, 1, 2, 7, 19) else "old"})
    choice = choose_sessions(sessions)
    assert [session.session for session in choice.sessions] == ["s1", "s2", "s3", "s8", "s20"]
    odd = "s4 to s7, s9 to s19"
    assert choice.notes == [f"left out: {odd}, of another machine than s20 ({name}: old -> new)"]
    assert choice.source == f"5 sessions, s1 to s20, build 9.2; left out: {odd} (another {name})"


def test_other_facts_and_facts_that_were_not_recorded_set_nothing_apart(record):
    facts = [{}, {"label": "x", "native command line": "quiet", "native hosts": "n2"}]
    latest = {"native kernel": "5.14", "label": "y"}
    sessions = record(5, {}, facts=lambda n: facts[n % 2] if n < 19 else latest)
    choice = choose_sessions(sessions)
    assert len(choice.sessions) == 20
    assert choice.notes == []
    assert choice.source == "20 sessions, s1 to s20, build 9.2"


@pytest.mark.parametrize("recorded", [False, True])
def test_a_machine_that_has_just_changed_leaves_the_file_as_it_is(record, tmp_path, recorded):
    facts = (lambda n: NEW if n > 17 else OLD) if recorded else (lambda n: {})
    file = tmp_path / "site/noise.yaml"
    file.parent.mkdir()
    file.write_text("noise: [before]\n")
    proposals = propose(record(6, {} if recorded else shift(18, 19), facts=facts), tmp_path)
    noise = next(p for p in proposals if p.path == file)
    assert noise.diff == ""
    assert "left out: s1 to s18" in noise.notes[0]
    assert "2 sessions left, 3 are the least that show how sessions vary: the file stays as" in noise.notes[1]
    assert len(noise.notes) == 2


@pytest.mark.parametrize("boots_sd", [0.0, 0.005, 0.02])
def test_a_history_of_one_machine_is_hardly_ever_split(record, boots_sd):
    split = [bool(choose_sessions(record(seed, {}, boots_sd=boots_sd)).notes) for seed in range(40)]
    assert sum(split) <= 2


def test_levels_are_compared_with_the_last_one():
    rng = np.random.default_rng(1)
    log = rng.normal(0, 0.01, 12)
    variance = np.full(12, 1e-4)
    assert not compare_with_last(log, variance, 11).any()
    log[[2, 7, 8]] += [0.2, -0.1, -0.1]
    differences = compare_with_last(log, variance, 11)
    assert np.flatnonzero(differences).tolist() == [2, 7, 8]
    assert differences[[2, 7, 8]] == pytest.approx([0.2, -0.1, -0.1], abs=0.03)
    # What is left around the levels counts where it is more than the errors say.
    many = 10 * rng.normal(0, 0.01, (100, 12))
    assert sum(compare_with_last(values, variance, 11).any() for values in many) <= 2
    # Three sessions never show a step: it would leave no degree of freedom.
    assert not compare_with_last(np.array([0.0, 0.0, 9.0]), variance[:3], 1).any()
