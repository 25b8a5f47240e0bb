"""What people see first: the answer, what was compared, where each metric lies, and what is missing."""

import html
import json
import math
import re
from dataclasses import replace

import pytest
from made_reports import DECLARED, judge_recorded, make_refused_session, make_session

from virtqual.report import page, plots
from virtqual.report.nodes import describe_sides
from virtqual.report.summary import sort_lines
from virtqual.runs import Result
from virtqual.verdict import Interval
from virtqual.verdict.notation import format_value, scale_unit

#: Session, how it ended, its outcome, what its first sentence says, its exit code.
RECORDED = [
    ("kvm-within", {}, "WITHIN", "KVM 6.1.0 is within budget. lammps_loop_time lj is 0.1% faster", 0),
    ("kvm-over", {}, "OVER", "KVM 6.1.0 is over budget. lammps_loop_time lj is", 1),
    ("kvm-slower-against", {}, "OVER", "KVM 6.1.0 is over budget on both verdicts.", 1),
    ("emulated-hosts-quiet-disks", {}, "UNDECIDED", "No verdict yet on QEMU 7.2.22", 3),
    (
        "emulated-hosts-crash",
        {},
        "UNDECIDED",
        "although it is within budget on all 5 metrics: runs were lost",
        3,
    ),
    ("kvm-numa-hidden", {}, "INVALID", "Refused: cpu-model forbids a fair comparison of KVM 6.1.0", 4),
    ("kvm-within", {"interrupted": True}, "INTERRUPTED", "the session was interrupted after 8 runs.", 130),
    ("emulated-vm-died", {}, "BROKEN", "the infrastructure failed (lammps %sample=1V", 5),
    ("emulated-baseline", {}, "BASELINE", "was recorded with 15 metrics; no budget applies to it.", 0),
]
NAMES = [f"{name} {outcome}" for name, _, outcome, _, _ in RECORDED]


def plain(text):
    """Return the text of a part of a page, with one blank between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def first_screen(text):
    """Return the page up to the links to its details."""
    return text[text.index("<header>") : text.index("<nav")]


def rows_of(text):
    """Return the rows of the picture: each cell as text, and the places of its mark and of its limit."""
    table = text[
        text.index('<table class="wide picture">') : text.index("</table>", text.index("wide picture"))
    ]
    rows = []
    for row in re.findall(r"<tr>(.*?)</tr>", table.split("<tbody>")[1], re.DOTALL):
        cells = [plain(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)]
        mark = re.search(r'href="#[A-Z]+" x="([\d.]+)"', row)
        limit = re.search(r'class="budget" d="M([\d.]+)', row)
        rows.append((cells, mark and float(mark[1]), limit and float(limit[1])))
    return rows


@pytest.mark.parametrize(("name", "ended", "outcome", "said", "code"), RECORDED, ids=NAMES)
def test_it_answers_and_says_what_was_compared(name, ended, outcome, said, code, tmp_path):
    session = judge_recorded(name, tmp_path, **ended)
    screen = first_screen(page.render(session))
    words = plain(screen)
    assert re.search(r'<p class="answer"><span class="word (\w+)">\1</span>', screen)[1] == outcome
    assert said in words
    assert f"Exit code {code}:" in words
    assert "nothing is concluded" not in words
    for run in session.runs:
        for node, identity in run.identity.items():
            assert node in words
            assert str(identity.cpu.model) in words
            assert str(identity.kernel.release) in words
    assert f"{len(session.runs)} runs" in words
    assert session.created[:10] in words
    assert session.hypervisor in words


@pytest.mark.parametrize(("name", "ended"), [one[:2] for one in RECORDED], ids=NAMES)
def test_its_numbers_are_those_of_the_document(name, ended, tmp_path):
    session = judge_recorded(name, tmp_path, **ended)
    document = json.loads((tmp_path / name / "session.json").read_text("utf-8"))
    rows = rows_of(page.render(session))
    assert len(rows) == min(len(document["verdicts"]), 12)
    for cells, _, _ in rows:
        outcome, title, _, result, allowed, native, virtual = cells
        shown = [
            v for v in document["verdicts"] if v["outcome"] == outcome.split()[0] and v["metric"] in title
        ]
        candidates = [
            scale_unit(verdict["unit"], one["native"], one["virtual"])
            for verdict in shown
            for one in (verdict, *verdict["points"], *verdict["findings"])
        ]
        values = native.split()[1], [native.split()[0], virtual.split()[0]]
        assert values in [(unit, [*map(format_value, numbers)]) for unit, numbers in candidates]
        if outcome in ("WITHIN", "OVER", "UNDECIDED", "BASELINE"):
            assert ("at most" in allowed) == (outcome != "BASELINE")
        assert result


def test_a_refusal_before_the_first_run_says_what_to_do():
    words = plain(first_screen(page.render(make_refused_session())))
    assert "INVALID Refused before anything was measured: cpu-model forbids a fair comparison" in words
    assert "To do: pass the CPU through." in words
    assert "No metric was judged." in words


def test_an_interrupted_session_says_what_holds_so_far_and_what_is_missing(tmp_path):
    words = plain(first_screen(page.render(judge_recorded("kvm-within", tmp_path, interrupted=True))))
    assert "So far, of 1 metric: 1 within budget. That is not an answer on the build as a whole." in words
    assert words.index("What was not measured") < words.index("the rest of the session")
    assert "Nothing is missing" not in words


def test_a_command_in_a_note_is_marked_as_one_and_stays_text():
    session = make_refused_session()
    session.next_step = "`virtqual qualify --resume <b>` goes on with it"
    assert "<code>virtqual qualify --resume &lt;b&gt;</code> goes on" in page.render(session)


def of_times(times):
    """Return a session with a metric for each factor by which its virtual side takes longer."""

    def results(side, number):
        return tuple(
            Result.scalar(
                "x",
                f"case {index}",
                (factor if side == "virtual" else 1.0) * (1 + 1e-4 * number),
                declared=DECLARED,
            )
            for index, factor in enumerate(times)
        )

    return make_session(results, pairs=12)


def test_the_marks_are_sorted_and_lie_where_their_numbers_say():
    """What is over budget is first, then the slowest; places are proportional to percent of native."""
    session = of_times([1.02, 1.3, 1.0, 1.6])
    rows = rows_of(page.render(session))
    assert [cells[0] for cells, _, _ in rows] == ["OVER", "OVER", "WITHIN", "WITHIN"]
    assert [cells[1] for cells, _, _ in rows] == [f"x case {index}" for index in (3, 1, 0, 2)]
    by_setting = {verdict.setting: verdict for verdict in session.verdicts}
    places = {cells[1].removeprefix("x "): place for cells, place, _ in rows}
    slope = (places["case 3"] - places["case 2"]) / (
        by_setting["case 3"].overhead.ratio - by_setting["case 2"].overhead.ratio
    )
    native = places["case 2"] - slope * (by_setting["case 2"].overhead.ratio - 1)
    for setting, place in places.items():
        assert place == pytest.approx(native + slope * (by_setting[setting].overhead.ratio - 1), abs=0.15)
    # The limit of all is 5 %.
    assert [limit for _, _, limit in rows] == pytest.approx([native + slope * 0.05] * 4, abs=0.15)


def test_a_large_slowdown_is_drawn_by_factors():
    """Twice as slow and half the rate are one place: what is 2 times as slow lies at 2x."""
    rows = rows_of(page.render(of_times([1.0, 2.0, 4.0])))
    places = {cells[1].removeprefix("x "): place for cells, place, _ in rows}
    assert places["case 2"] - places["case 1"] == pytest.approx(places["case 1"] - places["case 0"], abs=0.15)
    axis = plots.SlowdownAxis(True)
    assert axis.place(math.log(2), "higher") == axis.place(math.log(2), "lower")
    assert plots.SlowdownAxis(False).place(math.log(2), "higher") == pytest.approx(0.5)


@pytest.mark.parametrize(("factors", "outcome"), [((1.5, 1.9, 1.2), "OVER"), ((1.0, 1.02, 1.01), "WITHIN")])
def test_what_decides_stands_for_a_curve(factors, outcome):
    """Not a mean over sizes of which some are slow and some are not; sizes are written as people do."""
    sizes = (8.0, 2.0**20, 2.0**21)

    def results(side, number):
        shown = factors if side == "virtual" else (1.0, 1.0, 1.0)
        rows = zip(sizes, shown, strict=True)
        values = {size: size * factor * (1 + 1e-4 * number) for size, factor in rows}
        return (Result.curve("mpi_latency", "two nodes", values),)

    session = make_session(results, pairs=12)
    (verdict,) = session.verdicts
    text = page.render(session)
    ((cells, _, _),) = rows_of(text)
    assert cells[0] == verdict.outcome.value == outcome
    assert cells[1] == f"mpi_latency two nodes {verdict.where}"
    assert cells[3] == verdict.deciding.judged.text("lower")
    assert verdict.where
    assert "2 MiB" in text
    assert "e+06" not in text


def test_of_two_hundred_metrics_those_that_matter_are_in_the_picture():
    session = of_times([1.0] * 197 + [1.5, 1.4, 1.3])
    text = page.render(session)
    rows = rows_of(text)
    assert [cells[0] for cells, _, _ in rows] == ["OVER"] * 3 + ["WITHIN"] * 9
    assert "188 more metrics, all within budget" in text


@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize(("name", "ended"), [one[:2] for one in RECORDED], ids=NAMES)
def test_it_fits_the_screen(browser, name, ended, width, tmp_path):
    """Nothing is scrolled sideways, and answer, sides and the first metric are on the first screen."""
    session = judge_recorded(name, tmp_path, **ended)
    file = tmp_path / "report.html"
    file.write_text(page.render(session), encoding="utf-8")
    screen = browser.new_page(viewport={"width": width, "height": 1000})
    screen.goto(file.as_uri())
    assert screen.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    for part in (".answer", "table.sides", "table.picture tbody svg"):
        box = screen.locator(part).first.bounding_box()
        assert box["y"] + box["height"] < 1000, part
        assert box["width"] > 250
    screen.close()


def test_what_a_waiver_accepts_is_after_what_blocks():
    session = of_times([1.6, 1.3, 1.0])
    for verdict in session.verdicts:
        verdict.waived = verdict.setting == "case 0"
    assert [line.verdict.setting for line in sort_lines(session.verdicts)] == ["case 1", "case 0", "case 2"]


@pytest.mark.parametrize(
    ("name", "native"),
    [
        ("kvm-within", "KVM (the node is itself a VM)"),
        ("emulated-hosts-quiet-disks", "emulated by QEMU"),
        ("bare metal", "none (bare metal)"),
    ],
)
def test_the_native_side_says_what_is_below_it(name, native, tmp_path):
    session = judge_recorded("kvm-within" if name == "bare metal" else name, tmp_path)
    if name == "bare metal":
        for run in session.runs:
            for node, seen in run.identity.items():
                below = seen.hypervisor.model_copy(update={"present": False})
                run.identity[node] = seen.model_copy(update={"hypervisor": below})
    assert describe_sides(session)[0][:2] == ("hypervisor", native)


def test_a_side_that_nobody_asked_has_nothing_to_say_of_its_hypervisor():
    assert describe_sides(make_refused_session())[0][:2] == ("hypervisor", "not observable")


@pytest.mark.parametrize(
    ("ends", "is_open"),
    [((-0.11, 0.2), (False, False)), ((-0.4, 0.2), (True, False)), ((-0.11, 0.6), (False, True))],
)
def test_the_axis_shows_intervals_up_to_three_times_the_limit(ends, is_open):
    """One that ends farther off has an arrow, and does not flatten the others."""
    session = of_times([1.0])
    (line,) = sort_lines(session.verdicts)
    interval = Interval.build(0.02, *ends, "lower")
    forest = plots.draw_forest([replace(line, judged=interval), line])
    bar, other = forest.bars
    assert (bar.open_left, bar.open_right) == is_open
    assert other.margin - forest.native > 40


def caption_of(session):
    text = page.render(session)
    return plain(text[text.index("The mark is") : text.index("What was not measured")])


def test_the_caption_explains_what_is_drawn():
    caption = caption_of(of_times([1.0, 1.5]))
    assert "beyond the shaded area nothing can be WITHIN" in caption
    assert "a slowdown of limit plus margin passes in at most 5 % of sessions" in caption
    assert "arrow" not in caption
    session = of_times([1.0])
    for verdict in session.verdicts:
        verdict.margin = None
    assert "shaded" not in caption_of(session)


def test_a_metric_that_is_over_has_its_margin_also_in_older_records(tmp_path):
    session = judge_recorded("kvm-over", tmp_path)
    (verdict,) = session.verdicts
    old = verdict.findings[0].model_copy(update={"margin": None})
    session.verdicts = [verdict.model_copy(update={"findings": (old,)})]
    assert session.verdicts[0].deciding.margin == verdict.margin
    assert 'class="margin"' in first_screen(page.render(session))


def test_a_range_that_is_over_has_the_margin_of_its_sizes_also_in_older_records():
    sizes = (8.0, 2.0**20, 2.0**21)

    def results(side, number):
        factor = (1.5 if side == "virtual" else 1.0) * (1 + 1e-4 * number)
        return (Result.curve("mpi_latency", "two nodes", {size: size * factor for size in sizes}),)

    (verdict,) = make_session(results, pairs=12).verdicts
    found = verdict.findings[0]
    old = found.model_copy(update={"margin": None})
    known = verdict.model_copy(update={"findings": (old,)}).deciding.margin
    assert known == pytest.approx(found.margin)
    assert found.low < found.high


def test_what_is_at_risk_is_said_in_words(tmp_path):
    session = judge_recorded("emulated-vm-died", tmp_path)
    text = page.render(session)
    asked = {claim for one in session.preflight if one.action != "unseen" for claim in one.protects}
    assert asked
    for claim in asked:
        assert f'<a href="#claim-{claim}">{claim}</a>' in text
        said = re.search(rf'<dt id="claim-{claim}">{claim}</dt><dd>(.+?)</dd>', text)[1]
        assert re.search(r"\w+ .*\(.+, .+, (\d{4}|not stated)", said)


def test_a_bug_report_and_error_rates_are_there_where_they_belong(tmp_path):
    texts = {name: page.render(judge_recorded(name, tmp_path)) for name in ("kvm-within", "kvm-over")}
    texts["refused"] = page.render(make_refused_session())
    has_report = {name: 'id="vendor"' in text for name, text in texts.items()}
    assert has_report == {"kvm-within": False, "kvm-over": True, "refused": False}
    assert all(('href="#vendor"' in text) == has_report[name] for name, text in texts.items())
    assert "error rate" not in texts["refused"]
    assert "have any OVER" not in texts["refused"]
    assert "All 1" not in texts["kvm-within"]
    assert "All 2 verdicts share one error rate: at most 1 %" in page.render(of_times([1.0, 1.5]))


def test_a_metric_that_passes_says_from_where_on_it_would_be_over():
    text = plain(page.render(of_times([1.0])))
    assert re.search(r"with as much noise, OVER would begin at an estimate of about [\d.]+% slower", text)
    assert "OVER would begin at" not in plain(page.render(of_times([1.5])))
