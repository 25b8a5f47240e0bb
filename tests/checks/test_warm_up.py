"""The run on each side before the first pair: it must pass, and nothing of it is kept."""

from site_runs import read_cases

WARM_UPS = ["warm-up-N", "warm-up-V"]


def test_it_precedes_the_first_pair_and_is_in_no_record(site):
    done = site.lammps(VIRTQUAL_PAIRS="0:1", code=0)
    assert site.submitted() == [*WARM_UPS, "0N", "0V", "1V", "1N"]
    runs = [(run["side"], run["pair"]) for run in site.session()["runs"]]
    assert runs == [("native", 0), ("virtual", 0), ("virtual", 1), ("native", 1)]
    ended = [event["case"] for event in site.events("warmed-up")]
    assert [any(slot in case for case in ended) for slot in WARM_UPS] == [True, True]
    # ReFrame says that it ran, and neither its report nor its perf log has a value of it.
    assert all(f"%sample={slot} " in done.stdout for slot in WARM_UPS)
    cases = read_cases(site)
    kept = {case["display_name"]: (bool(case["perfvalues"]), bool(case.get("record"))) for case in cases}
    assert [fields for name, fields in kept.items() if "warm-up" in name] == [(False, False)] * 2
    assert kept["lammps %sample=0N %problem=lj"] == (True, True)
    logs = [path.read_text(encoding="utf-8") for path in site.path.rglob("lammps.log")]
    assert logs
    entries = [line.split("|") for text in logs for line in text.splitlines()[1:]]
    cases_with_a_value = {case for _, case, _, _, _, value, *_ in entries if value != "null"}
    assert len(cases_with_a_value) == 4
    assert not any("warm-up" in case for case in cases_with_a_value)
