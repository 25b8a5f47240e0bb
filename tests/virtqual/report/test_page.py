"""The report: it has what the session says, and nothing in it is anything but text."""

import html
import re
import shlex
from html.parser import HTMLParser

import pytest

from made_runs import made_run, session_of
from virtqual.identity import Host, gather, readers
from virtqual.report import page
from virtqual.runs import Declared, Result
from virtqual.session.conclusion import conclude
from virtqual.session.judge import judge
from virtqual.session.session import Failure, Request

DECLARED = Declared(unit="s", better="lower", budget=1.05, margin=0.1)
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


def session(results, pairs=4, **more):
    """A session that is concluded; `results` gives a run's, by side and number of the pair."""
    order = [
        (n, side) for n in range(pairs) for side in (("native", "virtual"), ("virtual", "native"))[n % 2]
    ]
    runs = [
        made_run(side, n, job=str(i), start=10.0 * i, end=10.0 * i + 5, seconds=4.5, results=results(side, n))
        for i, (n, side) in enumerate(order)
    ]
    found = session_of(runs, created="2026-01-01T00:00:00+00:00", **more)
    conclude(found, judge(found))
    return found


def one(times, **more):
    def results(side, number):
        return (
            Result.scalar(
                "x", "y", (times if side == "virtual" else 1) * (1 + 0.001 * number), declared=DECLARED
            ),
        )

    return session(results, **more)


class Page(HTMLParser):
    """The elements of a page, and that each is closed in its order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.ids, self.links = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.found.append(tag)
        known = dict(attributes)
        self.ids += [known["id"]] if "id" in known else []
        self.links += [known["href"]] if "href" in known else []
        assert not [name for name in known if name.startswith("on") or name in ("style", "src")], known
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    ("times", "pairs", "outcome"),
    [(1.0, 12, "WITHIN"), (1.5, 12, "OVER"), (1.2, 2, "UNDECIDED"), (0.3, 12, "INVALID")],
)
def test_every_outcome_is_said_first(times, pairs, outcome):
    found = one(times, pairs=pairs)
    assert found.outcome == outcome
    text = page.render(found)
    assert text.index(f'<span class="word {outcome}">{outcome}</span>') < text.index("<main>")
    assert found.conclusion in text
    assert text == page.render(found)
    made = Page(text)
    assert made.found.count("h1") == 1
    assert {link for link in made.links if link.startswith("#")} == set(made.links)
    assert {link[1:] for link in made.links} <= set(made.ids)
    assert len(made.ids) == len(set(made.ids))


def test_nothing_is_fetched_and_nothing_runs():
    made, text = Page(page.render(one(1.5, pairs=8))), page.render(one(1.5, pairs=8))
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(made.found)
    assert "default-src 'none'; style-src 'sha256-" in text
    assert not re.findall(r"https?://|url\(|@import", text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_comes_from_outside_stays_text(text):
    def results(side, number):
        return (Result.scalar("x", text, 1.5 if side == "virtual" else 1.0, declared=DECLARED),)

    failure = Failure(
        check=text, case=text, pair=0, side="native", partition=text, kind="failed", reason=text
    )
    identity = {"virtual": {"hypervisor": {"vendor": text, "build": text, "details": {text: text}}}}
    found = session(results, pairs=8, failures=[failure], label=text, identity=identity)
    # No log with such a name is read.
    found.system = text
    found.not_run = [f"{text}: {text}"]
    plain = Page(page.render(one(1.5, pairs=8, failures=[failure], identity=identity)))
    written = page.render(found)
    assert set(Page(written).found) <= set(plain.found) | {"details", "ul", "li", "summary"}
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in written
    assert "\x07" not in written
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", written)[0]


def test_a_word_of_any_length_is_no_reason_to_fail():
    found = one(1.5, pairs=8)
    found.label = "x" * 10_000
    assert "x" * 10_000 in page.render(found)


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

    written = page.render(session(results, pairs=18))
    assert len(written.encode()) < 1_000_000


def test_a_session_without_a_run_has_a_report():
    found = session_of([], created="2026-01-01T00:00:00+00:00")
    conclude(found, judge(found), broken=["no node answered"])
    assert "no node answered" in page.render(found)


@pytest.mark.parametrize("side", ["native", "virtual"])
def test_a_session_with_runs_of_one_side_has_a_report(side):
    node = readers.read(gather.NodeFiles({}, {}))
    found = session_of([made_run(side, 0, identity={"n1": node})], created="2026-01-01T00:00:00+00:00")
    conclude(found, judge(found), broken=["no node answered"])
    text = page.render(found)
    assert "no node answered" in text
    assert f"{side}, n1" in text


def test_what_only_one_side_has_stands_apart_from_what_differs():
    node = readers.read(gather.NodeFiles({}, {}))
    guest = node.on(Host(source="host1.json", module_parameters={"kvm_amd.npt": "Y"}))
    runs = [made_run("native", 0, identity={"n1": node}), made_run("virtual", 0, identity={"n1": guest})]
    found = session_of(runs, created="2026-01-01T00:00:00+00:00")
    conclude(found, judge(found), broken=["no node answered"])
    text = page.render(found)
    section = text[text.index('id="identity"') : text.index('id="preflight"')]
    assert "0 of 0" not in section
    assert re.search(r"<p>0 of \d\d facts that both nodes have differ", section)
    only = section[section.index("Only on virtual, n1: its host") :]
    assert only.index("kvm_amd.npt: Y") < only.index("both sides are alike")
    assert ">not there<" not in section


def test_the_command_that_measures_again_selects_what_was_over_and_in_its_scope():
    found = one(1.5, pairs=8, request=Request(system="site", full=True, stack="spack"))
    again = re.search(r"Measure it again: <code>(.*?)</code>", page.render(found))[1]
    *line, option, name = shlex.split(html.unescape(again))
    assert line == ["virtqual", "qualify", "--system", "site", "--full", "--stack", "spack"]
    assert option == "-n"
    check = found.runs[0].check.replace(" ", "%")
    assert re.search(name, check)
    assert not re.search(name, f"{check}0")


def test_a_report_that_cannot_be_made_says_so_in_its_place(tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("<b>by zero</b>")

    monkeypatch.setattr(page, "_content", broken)
    found = one(1.5, pairs=8)
    page.write(found, tmp_path)
    text = (tmp_path / page.FILE).read_text()
    assert "ZeroDivisionError: &lt;b&gt;by zero" in text
    assert found.conclusion in text
