"""What was judged outside of a session, as HTML and as Markdown."""

import re

import numpy as np
import pytest
from made_series import FIVE, PRIOR, alone, steady
from markdown_it import MarkdownIt
from test_page import HOSTILE, Page

from in_a_browser import assert_fit_for_people
from virtqual.errors import UsageError
from virtqual.report.judged import JudgedFile, render_html, render_markdown, write_report
from virtqual.verdict import SessionVerdict
from virtqual.verdict.budget import Budget
from virtqual.verdict.unpaired import estimate_unpaired


@pytest.fixture
def judge(metrics, make):
    """Return how to judge pairs of HPL that are slower by a logarithm."""

    def judged(log, pairs=12):
        series = make(metrics["hpl"], steady(log, pairs, 0.002))
        return SessionVerdict((alone(series, FIVE, PRIOR),))

    return judged


def make_file(*answers, **more):
    return JudgedFile("stream on bm1 and vm1", [(f"s{n}", one) for n, one in enumerate(answers)], **more)


@pytest.mark.parametrize(
    ("log", "outcome", "code", "said"),
    [
        (0.0, "WITHIN", 0, "The build is within budget. hpl "),
        (0.4, "OVER", 1, "The build is over budget. hpl "),
        (0.07, "UNDECIDED", 3, "No verdict yet on the build. hpl "),
    ],
)
def test_the_answer_is_first_with_its_limit(judge, log, outcome, code, said):
    it = make_file(judge(log, 2 if outcome == "UNDECIDED" else 12))
    (verdict,) = it.judged[0][1].verdicts
    page, text = render_html(it), render_markdown(it)
    answer = page[: page.index("<main>")]
    assert f'<span class="word {outcome}">{outcome}</span>' in answer
    assert said in answer
    assert f"Exit code {code}:" in answer
    assert "at most 5% is allowed" in answer
    assert f"**{outcome}**: " in text
    assert said in text.replace("\\", "")
    assert verdict.overhead.text(verdict.better) in answer
    assert page == render_html(it)
    Page(page)


def test_runs_that_took_no_turns_have_no_words_on_turns_and_their_own_interval(judge, metrics):
    values = np.array([[100.0], [101.0], [99.0]])
    budget = Budget.build(0.05, margin=0.03)
    unpaired = estimate_unpaired(
        metrics["hpl"], "", (), values, values, budget=budget, reason="no turns", advice="pairs"
    )
    texts = [render_html(make_file(one)) for one in (judge(0.0), SessionVerdict((unpaired,)))]
    said = ("take turns in pairs", "by which WITHIN is decided", "of the scatter of the runs, at 95 %")
    found = [[words in text for words in said] for text in texts]
    assert found == [[True, True, False], [False, False, True]]


def test_the_limit_is_next_to_the_result_in_the_table(judge):
    tokens = MarkdownIt("commonmark").enable("table").parse(render_markdown(make_file(judge(0.4))))
    cells = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type in ("th_open", "td_open")]
    head, row = cells[:8], cells[8:]
    assert head[2:4] == ["virtual is", "limit"]
    assert row[1] == "OVER"
    assert row[3] == "at most 5%"


def test_what_was_compared_and_what_cannot_be_told_apart_is_said(judge):
    facts = {"native": {"host": "bm1", "boot": "a"}, "virtual": {"host": "vm1"}}
    it = make_file(judge(0.0), facts=facts, caveats=["The hosts differ."], not_measured=["2 runs hung"])
    for text in (render_html(it), render_markdown(it)):
        for word in ("bm1", "vm1", "The hosts differ.", "2 runs hung"):
            assert word in text


def test_the_worst_session_of_a_file_answers_for_it(judge):
    page = render_html(make_file(judge(0.0), judge(0.4)))
    assert page.index("OVER</span>") < page.index("<main>")
    assert re.findall(r"<h2 [^>]*>(s\d: \w+)</h2>", page) == ["s0: WITHIN", "s1: OVER"]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_comes_from_outside_stays_text(judge, text):
    facts = {"native": {text: text}, "virtual": {text: text}}
    more = {"caveats": [text], "not_measured": [text], "about": {text: text}, "again": text}
    written = render_html(JudgedFile(text, [(text, judge(0.4))], facts=facts, **more))
    plain = render_html(JudgedFile("x", [("x", judge(0.4))], facts={"native": {"x": "x"}}, **more))
    assert set(Page(written).tags) == set(Page(plain).tags)
    assert not re.search(r"[\x07\u202e]", written)
    tokens = MarkdownIt("commonmark").enable("table").parse(render_markdown(make_file(judge(0.4), **more)))
    kinds = {child.type for token in tokens for child in token.children or ()}
    assert kinds <= {"text", "text_special", "strong_open", "strong_close"}


def test_the_end_of_the_name_says_in_which_form(judge, tmp_path):
    it = make_file(judge(0.0))
    write_report(it, tmp_path / "a.html")
    write_report(it, tmp_path / "a.md")
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "a.md").read_text().startswith("# stream on bm1")
    with pytest.raises(UsageError, match=r"has to end with \.html or \.md"):
        write_report(it, tmp_path / "a.pdf")
    with pytest.raises(UsageError, match="No such file"):
        write_report(it, tmp_path / "missing" / "a.md")


def test_it_is_fit_for_people(browser, judge, tmp_path):
    facts = {"native": {"command": "ssh bm1 " + "x" * 300}, "virtual": {"command": "ssh vm1 ./stream"}}
    it = make_file(judge(0.0), judge(0.4), facts=facts, caveats=["c"], about={"date": "today"}, again="again")
    file = tmp_path / "judged.html"
    file.write_text(render_html(it), encoding="utf-8")
    assert_fit_for_people(browser, file)
