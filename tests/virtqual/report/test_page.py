"""The report: it has what the session says, and nothing in it is anything but text."""

import html
import re
import shlex
from html.parser import HTMLParser

import pytest
from made_reports import DECLARED, make_broken_session, make_session, session_slow_by
from made_series import CHANGE, PRIOR, alone

from made_runs import made_failure, made_run, session_of
from virtqual.identity import Host, gather, readers
from virtqual.report import page
from virtqual.runs import Result
from virtqual.session.session import Request
from virtqual.verdict.slow_runs import SlowRuns

#: What may come from outside, and what is wrong with it.
HOSTILE = {
    "a tag": "<script>alert(1)</script>",
    "an attribute": '" onload="alert(1)',
    "the end of a style": "</style><img src=x>",
    "the end of CDATA": "]]>",
    "a template": "{{ 7 * 7 }}{% raw %}",
    "letters from right to left": "\N{RIGHT-TO-LEFT OVERRIDE}nihtiw",
    "a control character": "bell\x07",
}


class Page(HTMLParser):
    """The elements of a page, each of which is closed in its order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            self.ids += [value] if name == "id" else []
            self.links += [value] if name == "href" else []
            assert not name.startswith("on")
            assert name not in ("style", "src")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize(("is_stated", "shown"), [(True, " (stated)"), (False, "")])
def test_a_build_that_a_person_typed_is_shown_as_stated(is_stated, shown):
    session = session_slow_by(1.0)
    session.build_is_stated = is_stated
    assert f">{session.hypervisor}{shown}</" in page.render(session)
    assert ("(stated)" in page.render(session)) is is_stated


@pytest.mark.parametrize(
    ("times", "pairs", "outcome"),
    [(1.0, 12, "WITHIN"), (1.5, 12, "OVER"), (1.2, 2, "UNDECIDED"), (0.3, 12, "INVALID")],
)
def test_every_outcome_is_said_first(times, pairs, outcome):
    session = session_slow_by(times, pairs=pairs)
    assert session.outcome == outcome
    text = page.render(session)
    assert text.index(f'<span class="word {outcome}">{outcome}</span>') < text.index("<main>")
    assert session.conclusion in text
    assert text == page.render(session)
    made = Page(text)
    assert made.tags.count("h1") == 1
    assert {link for link in made.links if link.startswith("#")} == set(made.links)
    assert {link[1:] for link in made.links} <= set(made.ids)
    assert len(made.ids) == len(set(made.ids))


def test_slow_runs_alone_are_linked_from_the_top():
    session = session_slow_by(1.0)
    session.slow_runs = SlowRuns(found=True, text="5 of 8 virtual runs")
    assert 'href="#not-within"' in page.render(session)


def test_nothing_is_fetched_and_nothing_runs():
    text = page.render(session_slow_by(1.5, pairs=8))
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(Page(text).tags)
    assert "default-src 'none'; style-src 'sha256-" in text
    assert not re.findall(r"https?://|url\(|@import", text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_comes_from_outside_stays_text(text):
    def results(side, number):
        return (Result.scalar("x", text, 1.5 if side == "virtual" else 1.0, declared=DECLARED),)

    failure = made_failure(check=text, case=text, partition=text, kind="failed", reason=text)
    identity = {"virtual": {"hypervisor": {"vendor": text, "build": text, "details": {text: text}}}}
    session = make_session(results, pairs=8, failures=[failure], label=text, identity=identity)
    # No log with such a name is read.
    session.system = text
    session.not_run = [f"{text}: {text}"]
    plain = Page(page.render(session_slow_by(1.5, pairs=8, failures=[failure], identity=identity)))
    written = page.render(session)
    assert set(Page(written).tags) <= set(plain.tags) | {"details", "ul", "li", "summary", "br"}
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in written
    assert "\x07" not in written
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", written)[0]


def test_a_word_of_any_length_is_no_reason_to_fail():
    session = session_slow_by(1.5, pairs=8)
    session.label = "x" * 10_000
    assert "x" * 10_000 in page.render(session)


def test_two_hundred_metrics_of_eighteen_pairs_are_a_megabyte():
    def results(side, number):
        return tuple(
            Result.scalar(
                "x",
                f"{index} ranks of a program",
                (1.1 if side == "virtual" else 1) + 1e-4 * number * index,
                declared=DECLARED,
            )
            for index in range(200)
        )

    written = page.render(make_session(results, pairs=18))
    assert len(written.encode()) < 1_000_000


@pytest.mark.parametrize("sides", [[], ["native"], ["virtual"]])
def test_a_session_without_runs_of_both_sides_has_a_report(sides):
    node = readers.read(gather.NodeFiles({}, {}))
    text = page.render(make_broken_session(made_run(side, 0, identity={"n1": node}) for side in sides))
    assert "no node answered" in text
    assert all(f"{side}, n1" in text for side in sides)


def test_what_only_one_side_has_stands_apart_from_what_differs():
    node = readers.read(gather.NodeFiles({}, {}))
    guest = node.on(Host(source="host1.json", module_parameters={"kvm_amd.npt": "Y"}))
    runs = [made_run("native", 0, identity={"n1": node}), made_run("virtual", 0, identity={"n1": guest})]
    text = page.render(make_broken_session(runs))
    section = text[text.index('id="identity"') : text.index('id="preflight"')]
    assert "0 of 0" not in section
    assert re.search(r"<p>0 of \d\d facts that both nodes have differ", section)
    only = section[section.index("Only on virtual, n1: its host") :]
    assert only.index("kvm_amd.npt: Y") < only.index("the same on both sides")
    assert ">not there<" not in section


def test_the_command_that_measures_again_selects_what_was_over_and_in_its_scope():
    request = Request(system="site", full=True, stack="spack", nodes=2)
    session = session_slow_by(1.5, pairs=8, request=request, against="20260101-000000-site")
    again = re.search(r"Look for the cause: <code>(.*?)</code>", page.render(session))[1]
    *line, option, name = shlex.split(html.unescape(again))
    assert shlex.join(line[2:]) == (
        "--system site --full --stack spack --nodes 2 --against 20260101-000000-site"
    )
    assert option == "-n"
    check = session.runs[0].check.replace(" ", "%")
    assert re.search(name, check)
    assert not re.search(name, f"{check}0")


def test_a_report_that_cannot_be_made_says_so_in_its_place(tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("<b>by zero</b>")

    monkeypatch.setattr(page, "_content", broken)
    session = session_slow_by(1.5, pairs=8)
    page.write(session, tmp_path)
    text = (tmp_path / page.FILE).read_text()
    assert "ZeroDivisionError: &lt;b&gt;by zero" in text
    assert session.conclusion in text


def test_a_comparison_draws_the_overhead_of_sessions_that_judge_the_change(metrics, make):
    series = make(metrics["hpl"], [0.5] * 4)
    verdict = alone(series, CHANGE, PRIOR, baseline=series)
    drawn = page._take_overhead(verdict)
    assert verdict.estimate == verdict.change
    assert (drawn.estimate, drawn.limit, drawn.smallest_over) == (verdict.overhead, None, None)


def test_a_run_without_a_node_is_shown():
    runs = [made_run(side, 0, nodes=()) for side in ("native", "virtual")]
    assert "kvm" in page.render(session_of(runs))
