# ruff: noqa: E501 - one row, one mistake
from datetime import date
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from virtqual.files.datafile import DataError
from virtqual.references import NoReferenceError, load_references
from virtqual.references.published import find_claim_ids
from virtqual.verdict.pairs import Series

METRICS = """\
schema: virtqual-metrics/1
metrics:
  - {name: speed, unit: m/s, better: higher, family: motion, description: how fast}
  - {name: pace, unit: m/s, better: higher, family: motion, description: how fast on foot}
  - {name: delay, unit: us, better: lower, family: waiting, kind: curve, axis: size, axis_unit: B, description: d}
"""
BUDGETS = """\
schema: virtqual-budgets/1
class: {name: good, gate: overhead, qualifies: true, accelerators: [kvm], description: d, reason: r}
budgets:
  - {family: motion, relative: 0.05, margin: 0.05, reason: {policy: ours}}
  - {family: waiting, relative: 5%, absolute: {value: 0.1, unit: us}, at_most: 20%, margin: 10%, reason: {claim: A1}}
"""
NOISE = """\
schema: virtqual-noise/1
noise:
  - {family: motion, sigma: 0.02, df: 6, source: stated}
  - {family: waiting, sigma: 0.04, df: 6, common: 0.02, source: stated}
"""
WAIVERS = """\
schema: virtqual-waivers/1
waivers:
  - {metric: speed, gate: overhead, up_to: 10%, class: good, build: b1, owner: me, reason: known, expires: 2026-05-31}
"""
QUALIFICATION = """\
schema: virtqual-qualification/1
classes: [good]
scope: full
reason: r
checks:
  - {check: lammps %problem=lj}
  - {check: rdma_latency, where: rdma}
"""
CLAIMS = "schema: virtqual-published/1\nclaims:\n  - id: A1\n"


def write_files(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return directory


@pytest.fixture
def tree(tmp_path):
    """Return a function that writes a references directory, one file of it changed."""

    def write(file: str = "", old: str = "", new: str = "", **more: str) -> Path:
        content = {
            "metrics/m.yaml": METRICS,
            "budgets/good.yaml": BUDGETS,
            "noise/n.yaml": NOISE,
            "waivers.yaml": WAIVERS,
            "qualifications/q.yaml": QUALIFICATION,
            "published/study.yaml": CLAIMS,
        }
        if file:
            assert old in content[file]
            content[file] = content[file].replace(old, new)
        return write_files(tmp_path, {**content, **more})

    return write


def test_a_budget_is_found_by_metric_family_setting_and_size(tree):
    more = """\
        schema: virtqual-budgets/1
        class: {name: fine, gate: overhead, qualifies: true, accelerators: [kvm], description: d, reason: r}
        budgets:
          - {family: motion, relative: 0.05, margin: 0.05, reason: {policy: by family}}
          - {family: motion, setting: hill, relative: 0.06, margin: 0.05, reason: {policy: by family and setting}}
          - {metric: pace, relative: 0.07, margin: 0.05, reason: {policy: by metric}}
          - {metric: pace, setting: hill, relative: 0.08, margin: 0.05, reason: {policy: by metric and setting}}
          - {metric: delay, relative: 0.09, margin: 0.05, reason: {policy: all sizes}}
          - {metric: delay, sizes: {from: 16, to: 128}, relative: 0.2, margin: 0.05, reason: {policy: some sizes}}
        """
    references = load_references(tree(**{"budgets/fine.yaml": more}))

    def why(metric, setting, size=None):
        series = Series(references.metrics[metric], setting)
        return references.budget(series, "fine").term(size).reason.policy

    assert why("speed", "track") == "by family"
    assert why("speed", "hill") == "by family and setting"
    assert why("pace", "track") == "by metric"
    assert why("pace", "hill") == "by metric and setting"
    assert [why("delay", "x", size) for size in (8, 16, 128, 129)] == [
        "all sizes",
        "some sizes",
        "some sizes",
        "all sizes",
    ]


def test_a_budget_knows_its_class_gate_reason_and_place(tree):
    references = load_references(tree())
    delay, speed = (Series(references.metrics[name], "x") for name in ("delay", "speed"))
    budget = references.budget(delay, "good")
    assert budget.gate == "overhead"
    (term,), (of_speed,) = budget.terms, references.budget(speed, "good").terms
    assert (term.reason.claim, of_speed.reason.policy) == ("A1", "ours")
    assert term.text(references.metrics["delay"]) == (
        "at most 5% slower or 0.1 us more, whichever is larger, up to 20% (margin 10%)"
    )
    assert references.classes["good"].qualifies
    assert references.classes["good"].accelerators == ("kvm",)


def test_what_is_not_there_is_an_error_that_says_where_to_add_it(tree):
    references = load_references(tree())
    speed = Series(references.metrics["speed"], "x")
    with pytest.raises(NoReferenceError, match=r"unknown class 'god': did you mean good"):
        references.budget(speed, "god")
    with pytest.raises(
        NoReferenceError, match=r"no change budget for speed \(family motion\): add one under `changes`"
    ):
        references.budget(speed, "good", gate="change")


def test_noise_of_the_system_comes_before_the_class_and_the_general(tree):
    one = "schema: virtqual-noise/1\nnoise: [{metric: speed, sigma: 0.5, df: 30, source: history}]\n"
    of_class = (
        "schema: virtqual-noise/1\nclass: good\nnoise: [{family: motion, sigma: 0.3, df: 3, source: class}]\n"
    )
    references = load_references(tree(**{"systems/here/noise.yaml": one, "noise/good.yaml": of_class}))
    speed, pace = (Series(references.metrics[name], "x") for name in ("speed", "pace"))
    assert references.prior(speed).sigma == 0.02
    assert references.prior(speed, "good").sigma == 0.3
    assert references.prior(speed, "good", "here").sigma == 0.5
    assert references.prior(pace, "good", "here").sigma == 0.3
    assert references.prior(speed, "good", "elsewhere").sigma == 0.3


def test_noise_by_size_holds_only_for_those_sizes(tree):
    sized = "{metric: delay, sigma: [0.1, 0.2], points: [8, 16], df: 9, source: s}"
    one = f"schema: virtqual-noise/1\nnoise: [{sized}]\n"
    references = load_references(tree(**{"systems/here/noise.yaml": one}))
    metric = references.metrics["delay"]
    assert references.prior(Series(metric, "x", (8.0, 16.0)), "good", "here").sigma == (0.1, 0.2)
    assert references.prior(Series(metric, "x", (8.0, 32.0)), "good", "here").sigma == 0.04


def test_no_noise_at_all_is_an_error(tree):
    references = load_references(
        tree("noise/n.yaml", "  - {family: motion, sigma: 0.02, df: 6, source: stated}\n")
    )
    with pytest.raises(
        NoReferenceError, match=r"noise of speed \(family motion\): add it to references/noise"
    ):
        references.prior(Series(references.metrics["speed"], "x"))


# Text of a file | the text that replaces it | line: key of the mistake | part of the message.
MISTAKES = {
    "budgets/good.yaml": r"""
family: motion | metric: sped | 4: budgets[0].metric | unknown metric 'sped': did you mean speed
family: motion | family: notion | 4: budgets[0].family | did you mean motion
family: motion | family: [motion, wating] | 4: budgets[0].family | did you mean waiting
family: motion | family: [motion, waiting] | 5: budgets[1] | contradicts
family: motion | family: [] | 4: budgets[0] | name either a `metric` or a `family`
family: motion, relative | relative | 4: budgets[0] | name either a `metric` or a `family`
family: motion | family: motion, metric: speed | 4: budgets[0] | name either a `metric`
unit: us | unit: ms | 5: budgets[1].absolute.unit | wrong unit 'ms': delay is in us
{family: waiting, relative: 5%, absolute: {value: 0.1, unit: us} | {metric: delay, relative: 5%, absolute: {value: 0.1, unit: ms} | 5: budgets[1].absolute.unit | wrong unit 'ms': delay is in us
relative: 0.05, margin: 0.05 | relative: 0, margin: 1 | 4: budgets[0].margin | impossible
relative: 0.05, margin | relative: 0.96, margin | 4: budgets[0].relative | impossible
budgets: | changes:\n  - {family: motion, relative: 0.96, margin: 0.02, reason: {policy: p}}\nbudgets: | 4: changes[0].relative | impossible
relative: 0.05, margin | relative: 5 percent, margin | 4: budgets[0].relative | not in percent
relative: 0.05, margin | relative: -0.1, margin | 4: budgets[0].relative | -0.1 is less than 0
margin: 0.05 | margin: 0 | 4: budgets[0].margin | must be more than 0
margin: 0.05 | margin: .nan | 4: budgets[0].margin | nan is no finite number
margin: 0.05, reason | reason | 4: budgets[0].margin | is missing
relative: 0.05, margin | margin | 4: budgets[0].relative | is missing
margin: 0.05 | margin: {value: 1, unit: m/s} | 4: budgets[0].margin | is no number
at_most: 20%, margin | margin | 5: budgets[1] | which fraction may `absolute` come to
at_most: 20% | at_most: 0.05 | 5: budgets[1] | must be larger than `relative`
at_most: 20% | at_most: 1 | 5: budgets[1].at_most | less than 1
relative: 0.05, margin: 0.05 | relative: 0.05, at_most: 0.1, margin: 0.05 | 4: budgets[0] | `absolute` and `at_most` go together
margin: 0.05 | absolute: {value: 1, unit: m/s}, at_most: 0.95, margin: 0.05 | 4: budgets[0].at_most | would allow all of speed to be lost
reason: {policy: ours} | note: none | 4: budgets[0].reason | is missing
{policy: ours} | {} | 4: budgets[0].reason | either `claim`
claim: A1 | claim: A2 | 5: budgets[1].reason.claim | unknown claim 'A2': did you mean A1
ENTRY | ENTRY\n  - ENTRY | 5: budgets[1] | contradicts
ENTRY | ENTRY\n    extra: 1 | 5:  | is not YAML
relative: 0.05, margin | relative: 0.05, relative: 0.1, margin | 4:  | may stand only once
family: motion | family: motion, sizes: {from: 1, to: 2} | 4: budgets[0].sizes | is a scalar
family: waiting | family: waiting, sizes: {from: 3, to: 2} | 5: budgets[1].sizes | swap them
gate: overhead | gate: change | 2: class.gate | `changes` is empty
budgets: | changes: | 2: class.gate | `budgets` is empty
accelerators: [kvm], description | description | 2: class.accelerators | is missing
accelerators: [kvm] | accelerators: [] | 2: class.accelerators | [] is empty
qualifies: true | qualifies: true, because: b | 2: class | qualifies: false
gate: overhead | gate: door | 2: class.gate | 'overhead' or 'change'
schema: virtqual-budgets/1\nclass | class | 1: schema | is missing
budgets: | changes:\n  - {family: waiting, relative: 0.1, absolute: {value: 1, unit: us}, at_most: 0.2, margin: 0.1, reason: {policy: p}}\nbudgets: | 4: changes[0].absolute | a change is a ratio
budgets: | changes:\n  - {family: waiting, relative: 0.1, margin: 0.1, margin_up_to: 0.1, reason: {policy: p}}\nbudgets: | 4: changes[0] | goes with a smaller `margin`
margin: 0.05 | margin: 0.05, margin_up_to: 0.2 | 4: budgets[0].margin_up_to | only the margin of a change may widen
""",
    "noise/n.yaml": r"""
sigma: 0.02 | sigma: 0 | 3: noise[0].sigma | must be more than 0
, source: stated}\n  - {family: waiting | }\n  - {family: waiting | 3: noise[0].source | missing
sigma: 0.04 | sigma: [0.1] | 4: noise[1] | goes with a list of `points`
sigma: 0.04 | sigma: [0.1], points: [1, 2] | 4: noise[1] | 1 values of `sigma` for 2
sigma: 0.02 | sigma: [0.1], points: [1] | 3: noise[0].points | is a scalar
family: waiting | family: motion | 4: noise[1] | stated already at
family: waiting | family: [waiting, motion] | 4: noise[1] | stated already at
noise: | class: god\nnoise: | 2: class | unknown class 'god': did you mean good
""",
    "waivers.yaml": r"""
metric: speed | metric: sped | 3: waivers[0].metric | did you mean speed
class: good | class: god | 3: waivers[0].class | did you mean good
gate: overhead, up_to | up_to | 3: waivers[0].gate | is missing
up_to: 10%, class | class | 3: waivers[0].up_to | is missing
up_to: 10% | up_to: 1.1 | 3: waivers[0].up_to | such as 8%
up_to: 10% | up_to: 100% | 3: waivers[0].up_to | it would allow all of speed to be lost
up_to: 10% | up_to: 8 percent | 3: waivers[0].up_to | such as 8%
up_to: 10% | up_to: 0% | 3: waivers[0].up_to | must be more than 0
owner: me, reason | reason | 3: waivers[0].owner | is missing
2026-05-31 | soon | 3: waivers[0].expires | is no date: write YYYY-MM-DD
waivers: | waivers:\n  - {metric: speed, gate: overhead, up_to: 20%, class: good, build: b1, owner: me, reason: r, expires: 2026-05-31} | 4: waivers[1] | the same result is waived already at
""",
    "qualifications/q.yaml": r"""
classes: [good] | classes: [god] | 2: classes[0] | unknown class 'god': did you mean good
classes: [good] | classes: [] | 2: classes | [] is empty
classes: [good] | classes: [good, good] | 2: classes[1] | stands already at
scope: full | scope: all | 3: scope | 'quick' or 'full'
check: rdma_latency | check: lammps %problem=lj | 7: checks[1].check | is asked for already
lammps %problem=lj | lammps problem=lj | 6: checks[0].check | is not of the form
where: rdma | where: a feature | 7: checks[1].where | is not of the form
""",
    "metrics/m.yaml": r"""
unit: us | units: us | 5: metrics[2].units | is not a key
""",
}
ENTRY = "{family: motion, relative: 0.05, margin: 0.05, reason: {policy: ours}}"


@pytest.mark.parametrize(
    ("file", "old", "new", "place", "message"),
    [(file, *row.split(" | ")) for file, rows in MISTAKES.items() for row in rows.strip().splitlines()],
)
def test_every_mistake_names_file_line_and_key(tree, file, old, new, place, message):
    old, new = (text.replace("ENTRY", ENTRY).replace(r"\n", "\n") for text in (old, new))
    with pytest.raises(DataError) as error:
        load_references(tree(file, old, new))
    messages = {
        f"{problem.line}: {problem.key}": problem.message
        for problem in error.value.problems
        if problem.file.endswith(file)
    }
    assert message in messages[place]


def test_a_file_that_is_not_utf_8_is_named_with_the_line(tree):
    file = tree() / "waivers.yaml"
    file.write_bytes(file.read_bytes().replace(b"reason: known", b"reason: \xdcberlast"))
    with pytest.raises(DataError, match=r"waivers\.yaml:3: is not UTF-8: invalid continuation byte\."):
        load_references(file.parent)


def test_all_mistakes_are_reported_at_once(tree):
    directory = tree("budgets/good.yaml", "family: motion", "family: notion")
    (directory / "noise/n.yaml").write_text("schema: other\nnoise: []\n")
    with pytest.raises(DataError) as error:
        load_references(directory)
    assert {Path(problem.file).name for problem in error.value.problems} == {"good.yaml", "n.yaml"}


def test_ranges_of_sizes_that_meet_contradict_each_other(tree):
    def two(first, second):
        entry = "  - {{family: waiting, sizes: {{from: {0}, to: {1}}}, relative: 0.1, margin: 0.1, reason: {{policy: p}}}}\n"
        return "budgets:\n" + entry.format(*first) + entry.format(*second)

    load_references(tree("budgets/good.yaml", "budgets:\n", two((1, 8), (16, 32))))
    with pytest.raises(DataError, match=r"budgets\[1\]: contradicts .*good.yaml:4"):
        load_references(tree("budgets/good.yaml", "budgets:\n", two((1, 16), (16, 32))))


def test_a_class_has_one_file(tree):
    with pytest.raises(DataError, match=r"class 'good' has its budgets already in .*good.yaml:2"):
        load_references(tree(**{"budgets/later.yaml": BUDGETS}))


def test_what_a_class_asks_for_stands_in_one_file(tree):
    asked = load_references(tree()).qualifications["good"]
    assert asked.scope == "full"
    assert [(entry.check, entry.where) for entry in asked.checks] == [
        ("lammps %problem=lj", None),
        ("rdma_latency", "rdma"),
    ]
    places = [(Path(file).name, line) for file, line in (entry.place for entry in asked.checks)]
    assert places == [("q.yaml", 6), ("q.yaml", 7)]
    with pytest.raises(
        DataError, match=r"z.yaml:2: classes\[0\]: what class 'good' asks for stands already at"
    ):
        load_references(tree(**{"qualifications/z.yaml": QUALIFICATION}))


def test_a_class_that_never_qualifies_asks_for_nothing(tree):
    with pytest.raises(DataError, match=r"classes\[0\]: class 'good' qualifies no build: remove it here"):
        load_references(tree("budgets/good.yaml", "qualifies: true", "qualifies: false"))


def test_an_overhead_that_nobody_judges_needs_no_waiver(tree):
    says = r"waivers\[0\].gate: class 'good' judges changes only: no overhead needs a waiver"
    with pytest.raises(DataError, match=says):
        load_references(tree("budgets/good.yaml", "gate: overhead", "gate: change"))


def test_each_waiver_is_read_for_itself(tree):
    line = WAIVERS.splitlines(keepends=True)[-1]
    other = line.replace("speed", "pace")
    assert len(load_references(tree("waivers.yaml", line, line + other)).waivers) == 2
    wrong = line.replace("speed", "sped") + other.replace("10%", "100%")
    with pytest.raises(DataError) as error:
        load_references(tree("waivers.yaml", line, wrong))
    assert [problem.key for problem in error.value.problems] == ["waivers[0].metric", "waivers[1].up_to"]


def test_an_expired_waiver_is_a_problem_with_file_and_line(tree):
    references = load_references(tree())
    assert list(references.expired(date(2026, 5, 31))) == []
    (problem,) = references.expired(date(2026, 6, 1))
    assert problem.file.endswith("waivers.yaml")
    assert (problem.line, problem.key) == (3, "expires")
    assert problem.message == "expired on 2026-05-31: renew it with a reason, or remove it."


def test_noise_may_be_stated_for_a_setting(tree):
    one = "schema: virtqual-noise/1\nnoise: [{metric: speed, setting: hill, sigma: 0.5, df: 30, source: s}]\n"
    references = load_references(tree(**{"noise/z.yaml": one}))
    speed = references.metrics["speed"]
    assert [references.prior(Series(speed, name)).sigma for name in ("hill", "track")] == [0.5, 0.02]


def test_missing_directories_are_reported(tmp_path, tree):
    with pytest.raises(DataError, match="metrics: is not a directory"):
        load_references(tmp_path)
    directory = tree()
    for name in ("budgets", "noise"):
        (directory / name).rename(directory / f"no-{name}")
    with pytest.raises(DataError, match=r"budgets: is not a directory\.\n.*noise: is not a directory"):
        load_references(directory)


def test_a_study_that_cannot_be_read_is_named_and_strange_bytes_hide_no_claim(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"# \xff\n  - id: A1\n")
    assert find_claim_ids(tmp_path) == {"A1"}
    (tmp_path / "b.yaml").mkdir()
    with pytest.raises(DataError, match=r"/b\.yaml: cannot be read: Is a directory\.$"):
        find_claim_ids(tmp_path)


# -- the project's own data --------------------------------------------------------------------------


def test_every_class_has_budgets_and_noise_for_every_metric(references):
    assert set(references.classes) >= {"emulated", "kvm", "esxi", "production"}
    for name, hypervisor_class in references.classes.items():
        for metric in references.metrics.values():
            # Each class can judge build against build.
            for gate in (hypervisor_class.gate, "change"):
                budget = references.budget(Series(metric, "x"), name, gate=gate)
                limit, *margins = budget.limits(metric, (), np.array([1000.0]))
                assert (budget.gate, bool(np.all(limit >= 0))) == (gate, True)
                assert np.all(np.isfinite([limit, *margins]))
            assert references.prior(Series(metric, "x"), name).sigma > 0


def test_the_time_of_a_message_among_many_has_no_allowance_in_us(references):
    """Up to a thousand are in flight: 0.1 us would be several times what one of them takes."""
    metric = references.metrics["rdma_buffers"]
    for name, hypervisor_class in references.classes.items():
        budget = references.budget(Series(metric, "x"), name)
        limit, margin, _ = budget.limits(metric, (1.0, 256.0, 1024.0), np.array([1.0, 0.06, 0.015]))
        assert limit == pytest.approx(np.full(3, limit[0])), name
        # Emulation is coarser, and qualifies nothing.
        assert not hypervisor_class.qualifies or np.expm1(limit + margin).max() <= 0.2 + 1e-9


def test_no_short_latency_may_grow_by_more_than_twice_the_relative_part(references):
    native = np.array([0.05, 0.2, 0.8, 100.0])
    for name, hypervisor_class in references.classes.items():
        for metric in (m for m in references.metrics.values() if m.family in ("mpi-latency", "rdma-latency")):
            budget = references.budget(Series(metric, "x"), name)
            limit, _, _ = budget.limits(metric, (1.0, 2.0, 4.0, 8.0), native)
            relative = np.expm1(limit[3])
            twice = 2 if hypervisor_class.qualifies else 1
            assert np.expm1(limit[:2]) == pytest.approx(twice * relative), (name, metric.name)


def test_every_class_that_qualifies_says_what_it_asks_for(references):
    qualifying = {name for name, hypervisor_class in references.classes.items() if hypervisor_class.qualifies}
    assert set(references.qualifications) == qualifying
    for check_set in references.qualifications.values():
        # What every centre has: memory, arithmetic, messages between nodes, applications.
        always = {required.check.split(" ")[0] for required in check_set.checks if required.where is None}
        assert always >= {"stream", "hpl", "osu_nodes", "npb", "lammps", "wrf_ideal", "milc", "os_noise"}


def test_emulated_results_are_never_qualified(references):
    assert not references.classes["emulated"].qualifies
    assert references.classes["emulated"].gate == "change"
    on_emulated = references.classes["kvm-on-emulated-hosts"]
    assert (on_emulated.unqualified, on_emulated.gate) == ("emulated hosts", "overhead")


@pytest.mark.parametrize(
    ("stated", "fitting"),
    [("kvm", {"kvm", "esxi", "production"}), ("kvm-on-emulated-hosts", {"kvm-on-emulated-hosts"})],
)
def test_a_class_that_qualifies_no_build_stands_for_no_other(references, stated, fitting):
    classes = references.classes
    assert {name for name in classes if classes[name].fits(classes[stated])} == fitting


SITE = {
    "budgets/mine.yaml": """\
        schema: virtqual-budgets/1
        class: good
        budgets:
          - {family: motion, relative: 0.2, margin: 0.05, reason: {policy: the site's}}
          - {metric: delay, sizes: {from: 0, to: 8}, relative: 0.3, margin: 0.1, reason: {policy: small}}
        """,
    "noise/mine.yaml": """\
        schema: virtqual-noise/1
        noise: [{family: waiting, sigma: 0.5, df: 6, source: the site's}]
        """,
    "waivers.yaml": WAIVERS.replace("build: b1", "build: b2"),
    "qualifications/mine.yaml": QUALIFICATION.replace("lammps %problem=lj", "stream"),
    "metrics/mine.yaml": """\
        schema: virtqual-metrics/1
        metrics: [{name: leap, unit: m, better: higher, family: motion, description: how far}]
        """,
    "systems/here/hosts.yaml": """\
        schema: virtqual-hosts/1
        made_of: {sessions: [a], date: '2026-01-01', cpu: c, stack: s}
        hosts: [{family: motion, native: [a], virtual: [b], bound: 0.01, source: s}]
        """,
}


@pytest.fixture
def site(tmp_path):
    """Return a function that writes the references of a site."""

    return lambda **files: write_files(tmp_path / "site", files)


@pytest.mark.parametrize(
    ("sizes", "found"), [("", ["site", "site"]), ("sizes: {from: 0, to: 8}, ", ["site", "project"])]
)
def test_a_budget_of_the_site_counts_before_the_projects_for_some_sizes(tree, site, sizes, found):
    entry = "  - {{metric: delay, {}relative: 0.3, margin: 0.1, reason: {{policy: {}}}}}\n"
    project = BUDGETS + entry.format("sizes: {from: 4, to: 16}, ", "project")
    named = "schema: virtqual-budgets/1\nclass: good\nbudgets:\n" + entry.format(sizes, "site")
    references = load_references(tree(**{"budgets/good.yaml": project}), site(**{"budgets/mine.yaml": named}))
    budget = references.budget(Series(references.metrics["delay"], "x", points=(4.0, 16.0)), "good")
    assert [budget.term(size).reason.policy for size in (4.0, 16.0)] == found


def test_an_entry_of_the_site_replaces_the_projects_about_the_same_and_all_others_hold(tree, site):
    hosts = dedent(SITE["systems/here/hosts.yaml"]).replace("[b]", "[c]")
    references = load_references(tree(**{"systems/here/hosts.yaml": hosts}), site(**SITE))

    speed, leap, delay = (Series(references.metrics[name], "x") for name in ("speed", "leap", "delay"))
    budgets = [references.budget(series, "good").term(None).relative for series in (speed, leap)]
    assert budgets == [0.2, 0.2]
    assert [references.budget(delay, "good").term(size).relative for size in (8, 16)] == [0.3, 0.05]
    assert references.classes["good"].accelerators == ("kvm",)
    assert (references.prior(delay).sigma, references.prior(speed).sigma) == (0.5, 0.02)
    assert [waiver.build for waiver in references.waivers] == ["b2"]
    asked = references.qualifications["good"]
    assert ([check.check for check in asked.checks], asked.is_of_site) == (["stream", "rdma_latency"], True)
    assert [references.host_bound(speed, "here", ["a"], [name]) for name in "bcd"] == [0.01, 0.01, np.inf]
    alone = load_references(tree())
    assert (alone.budget(speed, "good").term(None).relative, alone.waivers[0].build) == (0.05, "b1")
    assert not alone.qualifications["good"].is_of_site


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("budgets/mine.yaml", "class: good", "class: goood", r"site/budgets/mine.yaml:2: class: unknown class 'goood': did you mean good\?"),
        ("budgets/mine.yaml", "family: motion", "family: motoin", r"site/budgets/mine.yaml:4: budgets\[0\].family: .*did you mean motion\?"),
        ("budgets/mine.yaml", "class: good", "class: {name: good}", r"mine.yaml:2: class.gate: is missing"),
        ("metrics/mine.yaml", "name: leap", "name: speed", r"site/metrics/mine.yaml:2: .*'speed' is declared already at .*metrics/m.yaml"),
        ("waivers.yaml", "class: good", "class: godo", r"site/waivers.yaml:3: waivers\[0\].class: .*did you mean good\?"),
    ],
)  # fmt: skip
def test_a_mistake_of_the_site_names_its_file_line_and_near_names(tree, site, name, old, new, says):
    with pytest.raises(DataError, match=says):
        load_references(tree(), site(**{**SITE, name: SITE[name].replace(old, new)}))


def test_a_name_that_is_not_read_is_a_mistake_and_no_silence(tree, site):
    names = {"waiver.yaml": WAIVERS, "budget/mine.yaml": SITE["budgets/mine.yaml"], "noise.yml": NOISE}
    place = site(**names, **{"notes.txt": "x", ".old.yaml": WAIVERS})
    with pytest.raises(DataError) as error:
        load_references(tree(), place)
    assert {(problem.line, problem.key) for problem in error.value.problems} == {(None, "")}
    said = {
        Path(problem.file).name: problem.message.partition(" Known are budgets, inputs, marks.yaml,")[0]
        for problem in error.value.problems
    }
    assert said == {
        "waiver.yaml": "is not read: did you mean waivers.yaml or marks.yaml?",
        "budget": "is not read: did you mean budgets?",
        "noise.yml": "is not read: did you mean noise?",
    }


def test_what_is_shipped_of_boots_says_what_a_change_of_the_host_adds(references, metrics):
    for family in metrics.families:
        metric = next(metric for metric in metrics.values() if metric.family == family)
        prior = references.prior(Series(metric, "here"), "kvm")
        assert prior.between < prior.boots(hosts_known=False), family
        assert prior.source.startswith(("pairs", "stated")), family
