"""`virtqual check`: a record follows from its runs, or a command says that not."""

import gzip
import hashlib
import json
import os
import shutil
from importlib import metadata

import pytest

from calling import call
from made_runs import keep, session_of
from virtqual import paths, trust
from virtqual.commands import report
from virtqual.errors import UsageError
from virtqual.qualify import checking, concluding
from virtqual.qualify.checking import check_conclusion
from virtqual.report import page
from virtqual.runs import Result
from virtqual.session import store
from virtqual.session.log import (
    DOCUMENT,
    LOG,
    Begun,
    Concluded,
    Finished,
    Log,
    Released,
    Resumed,
    RoundBegun,
    SetAside,
    Submitted,
)
from virtqual.session.seal import intact_lines, seal, sealed_crc
from virtqual.session.session import UNJUDGED_ANSWERS, Loss, Resumption, Round
from virtqual.session.summary import file_of, summary
from virtqual.verdict import Outcome

SESSIONS = paths.root() / "tests/sessions"


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    return paths.make(paths.sessions())


@pytest.fixture
def session(state):
    """A recorded session that is WITHIN, concluded by the present code."""
    return put(state, "kvm-within")


def put(sessions, name):
    content = gzip.decompress((SESSIONS / f"{name}.jsonl.gz").read_bytes())
    head = json.loads(content.split(b"\n", 1)[0])["head"]
    directory = sessions / head["session"]
    directory.mkdir()
    (directory / LOG).write_bytes(content)
    earlier = Log(sessions / head["against"]).session() if head["against"] else None
    concluding.conclude_session(Log(directory), earlier)
    return directory


def run(*arguments):
    done = call(*arguments)
    return done.exit_code, " ".join(done.output.split())


def test_no_session_at_all_is_said(state):
    """Such as with a wrong VIRTQUAL_STATE in a job of every night."""
    code, said = run("check")
    assert (code, "there is no session yet below" in said) == (5, True)


def rewrite(directory, kind, edit):
    """Replace the events of a kind as an attacker can, who seals the lines again."""
    log = Log(directory)
    lines = [line for _, line in intact_lines(log.path.read_bytes(), "")]
    events = list(log.events())
    log.path.unlink()
    log = Log(directory)
    for event, line in zip(events, lines, strict=True):
        # The other lines stay as they are: a head of an earlier version has fewer fields.
        if isinstance(event, kind):
            log.append(edit(event))
        else:
            content = log.path.read_bytes() if log.path.exists() else b""
            log.path.write_bytes(content + seal([line], sealed_crc(content[:-1]) or 0))
    log.write()


def edit_conclusion(directory, fields):
    """Change fields of the conclusion; `fields` may be a function of the conclusion that returns them."""

    def edit(event):
        update = fields(event.conclusion) if callable(fields) else fields
        return Concluded(conclusion=event.conclusion.model_copy(update=update))

    rewrite(directory, Concluded, edit)


def test_a_session_as_it_was_written_is_well(session):
    summary(session)
    assert run("check") == (0, "1 session checked: as they were written")
    assert run("check", session)[0] == 0


def test_a_session_that_is_compared_with_another_is_judged_with_it(state):
    put(state, "kvm-within")
    put(state, "kvm-slower-against")
    assert run("check") == (0, "2 sessions checked: as they were written")


def test_a_damaged_earlier_session_leaves_the_others_checked(state):
    earlier, later = put(state, "kvm-within"), put(state, "kvm-slower-against")
    content = (earlier / LOG).read_bytes()
    (earlier / LOG).write_bytes(content.replace(b'"pair":3', b'"pair":4'))
    code, output = run("check")
    assert code == 4
    assert "the line is damaged" in output
    assert f"{later.name}: changes since session {earlier.name}, which is not here or is damaged" in output
    assert "2 sessions checked: 1 problem found" in output


def test_an_earlier_session_that_went_on_since_is_no_fault_of_the_later_one(state):
    earlier, later = put(state, "kvm-within"), put(state, "kvm-slower-against")
    log = Log(earlier)
    run_ = log.session().runs[0]
    log.append(Finished(run=run_.model_copy(update={"pair": 99, "job": "99"})))
    log.conclude(log.session())
    log.write()
    code, output = run("check", later.name)
    assert (code, f"changes since session {earlier.name}, which went on since" in output) == (0, True)


#: A conclusion that says more than its runs do.
PASS = {"outcome": "WITHIN", "exit_code": 0, "qualified": "yes"}


def by_other_code(**fields):
    """Return how to edit fields of a conclusion, which is then said to be of another commit."""

    def edit(conclusion):
        provenance = conclusion.basis.provenance.model_copy(update={"commit": "0" * 40})
        return fields | {"basis": conclusion.basis.model_copy(update={"provenance": provenance})}

    return edit


def pass_all(conclusion):
    """Return the verdicts of a conclusion, all WITHIN."""
    update = {"outcome": Outcome.WITHIN}
    return {"verdicts": [verdict.model_copy(update=update) for verdict in conclusion.verdicts]}


@pytest.mark.parametrize("verdicts", [lambda _: {"verdicts": []}, pass_all, lambda _: {}])
@pytest.mark.parametrize("fields", [PASS, {"qualified": "yes"}, {"outcome": "WITHIN", "exit_code": 0}])
def test_a_pass_that_its_runs_do_not_give_is_a_fault_whatever_code_judged_it(state, fields, verdicts):
    directory = put(state, "kvm-over")
    edit_conclusion(directory, verdicts)
    edit_conclusion(directory, by_other_code(**fields))
    # It is of the conclusion that was replaced.
    (directory / "report.html").unlink()
    code, output = run("check")
    assert (code, "either the conclusion was edited, or the rule or the references" in output) == (4, True)
    assert f"since version {metadata.version('virtqual')} (000000000000) judged it" in output
    assert check_conclusion(Log(directory).session(), directory).problems


def test_a_verdict_alone_that_its_runs_do_not_give_is_a_fault_whatever_code_judged_it(state):
    directory = put(state, "kvm-over")
    edit_conclusion(directory, pass_all)
    edit_conclusion(directory, by_other_code())
    code, output = run("check")
    assert (code, "recorded WITHIN at" in output) == (4, True)


def test_a_session_that_was_over_by_another_rule_is_judged_otherwise_and_is_no_baseline(state):
    """As after a budget became wider: nobody is misled by it."""
    directory = put(state, "kvm-within")
    fields = {"outcome": "OVER", "exit_code": 1, "qualified": "no (over)"}
    edit_conclusion(directory, by_other_code(**fields))
    (directory / "report.html").unlink()
    code, output = run("check")
    assert (code, "1 session checked: as they were written; 1 judged otherwise" in output) == (0, True)
    assert check_conclusion(Log(directory).session(), directory).is_judged_otherwise


def test_runs_that_cannot_be_judged_any_more_are_a_fault_only_of_a_pass(state, monkeypatch):
    within, over = put(state, "kvm-within"), put(state, "kvm-over")
    message = "no metric of this name"

    def refuse(*_):
        raise UsageError(message)

    monkeypatch.setattr(checking, "draw_conclusion", refuse)
    sessions = {directory: Log(directory).session() for directory in (within, over)}
    for directory, session in sessions.items():
        same = check_conclusion(session, directory)
        assert (len(same.problems), same.is_judged_otherwise) == (1, False)
    monkeypatch.setattr(checking, "provenance", lambda: None)
    passed, other = (check_conclusion(session, directory) for directory, session in sessions.items())
    assert (other.problems, other.is_judged_otherwise, message in other.notes[0]) == ([], True, True)
    assert message in passed.problems[0]


def test_a_conclusion_that_was_edited_is_named_by_each_command(state, tmp_path):
    directory = put(state, "kvm-over")
    edit_conclusion(directory, PASS)
    elsewhere = shutil.copytree(directory, tmp_path / "vendor")
    for code, *command in (
        (4, "check", directory.name),
        (0, "show", elsewhere),
        (0, "report", elsewhere),
        (0, "compare", elsewhere, elsewhere),
    ):
        done = run(*command)
        assert done[0] == code, done
        assert "recorded WITHIN (exit code 0), its runs say OVER (1)" in done[1]


def shrink_overhead(conclusion):
    (verdict,) = conclusion.verdicts
    overhead = verdict.overhead.model_copy(update={"log": verdict.overhead.log - 0.01})
    return {"verdicts": [verdict.model_copy(update={"overhead": overhead})]}


def slow_down(event):
    results = [Result.scalar(r.metric, r.setting, r.values[0] * 1.01) for r in event.run.results]
    return Finished(run=event.run.model_copy(update={"results": tuple(results)}))


def rename_build(event):
    event.head.identity["virtual"]["hypervisor"]["build"] = "another one"
    return event


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda directory: edit_conclusion(directory, shrink_overhead), "lj: recorded WITHIN at"),
        (lambda directory: rewrite(directory, Finished, slow_down), "drawn from other runs or another head"),
        (lambda directory: rewrite(directory, Begun, rename_build), "drawn from other runs or another head"),
    ],
    ids=["verdict", "run", "build"],
)
def test_an_edited_verdict_run_or_head_is_named(session, change, message):
    change(session)
    code, output = run("check")
    assert (code, message in output) == (4, True)


@pytest.mark.parametrize(
    "line",
    [
        SetAside(loss=Loss(round=1, nodes={"vm1": "died"})),
        Resumed(resumption=Resumption(time="2026-01-01T00:00:00+00:00", ended="why", node_lost=False)),
        RoundBegun(round=Round(number=2, first=9, last=9)),
        Submitted(job="9", case="case", submitted=5.0),
    ],
    ids=["set-aside", "resumed", "round", "submitted"],
)
@pytest.mark.parametrize("place", [-1, None], ids=["before the conclusion", "after it"])
def test_a_line_that_was_added_after_the_judgement_is_named(state, line, place):
    """A line on rounds and lost nodes decides which failures count: BROKEN becomes BASELINE."""
    directory = put(state, "emulated-vm-died")
    edit_conclusion(directory, by_other_code(outcome="BASELINE", exit_code=0, qualified="no (baseline)"))
    log = Log(directory)
    lines = [body for _, body in intact_lines(log.path.read_bytes(), "")]
    log.append(line)
    *_, added = (body for _, body in intact_lines(log.path.read_bytes(), ""))
    lines.insert(len(lines) if place is None else place, added)
    log.path.write_bytes(seal(lines))
    (directory / "report.html").unlink()
    if place or not isinstance(line, Resumed):
        log.write()
        code, output = run("check")
        assert (code, "drawn from other runs or another head than the log has" in output) == (4, True)
    else:
        # It goes on, and nothing is concluded.
        (directory / DOCUMENT).unlink()
        assert Log(directory).session().outcome == "UNFINISHED"


def test_a_conclusion_of_log_format_4_is_checked_by_its_digest_of_runs_and_failures(session):
    def of_format_4(conclusion):
        basis = conclusion.basis.model_copy(update={"runs": Log(session).session().measured_runs})
        return {"basis": basis}

    edit_conclusion(session, of_format_4)
    (session / "report.html").unlink()
    # This version does not write it.
    assert run("check")[0] == 4
    edit_conclusion(session, by_other_code())
    assert run("check")[0] == 0


def test_a_verdict_without_the_basis_of_its_judgement_is_named(session):
    edit_conclusion(session, {"basis": None})
    code, output = run("check")
    assert (code, "which does not follow from its runs" in output) == (4, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("conclusion", "All is well."),
        ("canaries", []),
        ("preflight", []),
        ("verdicts.message", "WITHIN, and well so"),
        ("verdicts.pairs", 400),
        ("verdicts.native", 1.0),
    ],
)
def test_every_field_of_a_conclusion_is_compared(session, name, value):
    part, _, field = name.partition(".")

    def edit(conclusion):
        verdicts = [verdict.model_copy(update={field: value}) for verdict in conclusion.verdicts]
        return {part: verdicts if field else value}

    edit_conclusion(session, edit)
    code, output = run("check")
    assert (code, name.rpartition(".")[2] in output) == (4, True)


def test_a_verdict_of_a_broken_session_is_compared(state):
    directory = put(state, "emulated-vm-died")
    assert run("check")[0] == 0
    assert Log(directory).session().verdicts

    edit_conclusion(directory, pass_all)
    assert run("check")[0] == 4


@pytest.mark.parametrize("outcome", ["BROKEN", "INVALID"])
def test_a_session_without_a_judged_run_is_not_qualified(state, outcome):
    answer = UNJUDGED_ANSWERS[outcome]
    fields = {"outcome": outcome, "exit_code": 5, "conclusion": "why"}
    keep(session_of([], name="honest", qualified=answer, **fields), state)
    assert run("check", "honest") == (0, "1 session checked: as they were written")
    keep(session_of([], name="edited", qualified="yes (1 accepted by waiver)", **fields), state)
    code, output = run("check", "edited")
    assert (code, "which does not follow from its runs" in output) == (4, True)


def test_an_interruption_before_the_first_run_is_judged_again(state):
    directory = keep(session_of([], name="interrupted"), state)
    session = concluding.conclude_session(Log(directory), None, interrupted=True)
    assert (session.outcome, run("check", directory)[0]) == ("INTERRUPTED", 0)


def test_a_document_and_a_summary_that_were_edited_are_said(session):
    summary(session)
    (session / "junit.xml").write_bytes((session / "junit.xml").read_bytes() + b" ")
    for path in (session / "session.json", file_of(session)):
        path.write_text(path.read_text().replace('"WITHIN"', '"OVER"', 1), encoding="utf-8")
    code, output = run("check")
    assert code == 4
    assert "session.json: is not what the log tells" in output
    assert "junit.xml: is not what the log tells" in output
    assert f"{session.name}.json: is not what the log tells" in output


def test_a_document_of_other_code_may_lack_fields_that_were_added_since(session):
    edit_conclusion(session, by_other_code())
    (session / "report.html").unlink()
    document = json.loads((session / "session.json").read_text("utf-8"))
    assert document.pop("lost") == []
    (session / "session.json").write_text(json.dumps(document), encoding="utf-8")
    assert run("check") == (0, "1 session checked: as they were written")
    document["outcome"] = "OVER"
    (session / "session.json").write_text(json.dumps(document), encoding="utf-8")
    code, output = run("check")
    assert (code, "session.json: is not what the log tells" in output) == (4, True)


def test_a_report_of_another_log_is_said(session):
    """A report names the SHA-256 of its log, which anybody can compare."""
    report = session / "report.html"
    content = report.read_text(encoding="utf-8")
    digest = hashlib.sha256((session / LOG).read_bytes()).hexdigest()
    assert content.count(digest) >= 2
    # What is appended after the conclusion, such as the end of a job, makes it no other log.
    Log(session).append(Released(job="7"))
    assert run("check")[0] == 0
    for other in (content.replace(digest, "0" * 64), content.replace('name="log-sha256"', 'name="other"')):
        report.write_text(other, encoding="utf-8")
        code, output = run("check")
        assert (code, "report.html: is not of this log" in output) == (4, True)


def test_a_report_that_is_no_file_is_said(session):
    """Nobody can read what a pipe or a link will say tomorrow."""
    report = session / "report.html"
    report.unlink()
    assert run("check")[0] == 0
    os.mkfifo(report)
    code, output = run("check")
    assert (code, f"{report}: cannot be read (it is no regular file); remove it" in output) == (4, True)
    report.unlink()
    report.symlink_to(session / "elsewhere.html")
    code, output = run("check")
    assert (code, f"{report}: cannot be read (it is a symbolic link); remove it" in output) == (4, True)


def test_a_report_is_written_to_the_session_that_was_read(session, tmp_path, monkeypatch):
    """Its directory may be another user's, who gives the name to another one meanwhile."""
    vendor, victim = tmp_path / "vendor", tmp_path / "victim"
    shutil.copytree(session, vendor)
    victim.mkdir()
    (victim / "report.html").write_text("mine", encoding="utf-8")

    def swap(directory):
        loaded = store.load(directory)
        vendor.rename(tmp_path / "moved")
        vendor.symlink_to(victim)
        return loaded

    (vendor / "report.html").unlink()
    monkeypatch.setattr(report, "load", swap)
    monkeypatch.setattr(report, "print_doubts", lambda *_: None)
    assert run("report", vendor)[0] == 0
    assert (victim / "report.html").read_text() == "mine"
    assert (tmp_path / "moved/report.html").is_file()


def test_files_that_others_can_write_are_said(session):
    (session / LOG).chmod(0o666)
    code, output = run("check")
    assert (code, f"{LOG}: other users can write to it; run: chmod go-w" in output) == (4, True)


def test_files_of_the_site_that_others_can_write_are_said(session, tmp_path, monkeypatch):
    commands = tmp_path / "site/notify.yaml"
    commands.parent.mkdir()
    commands.write_text("")
    monkeypatch.setenv("VIRTQUAL_SITE", str(commands.parent))
    # A group with nobody else in it.
    commands.chmod(0o664)
    monkeypatch.setattr(trust, "_is_private", lambda group, owners: True)
    assert run("check")[0] == 0
    commands.chmod(0o666)
    code, output = run("check")
    assert (code, f"{commands}: other users can write to it; run: chmod go-w" in output) == (4, True)


@pytest.fixture
def damaged(session):
    """Return how to damage the session in the line of an event, counted among those of its kind."""

    def damage(event, number):
        lines = (session / LOG).read_bytes().split(b"\n")
        kind = f'{{"event":"{event}"'.encode()
        index = [i for i, line in enumerate(lines) if line.startswith(kind)][number]
        lines[index] = lines[index].replace(b'"', b"'", 1)
        (session / LOG).write_bytes(b"\n".join(lines))
        return index + 1

    return damage


def test_a_damaged_session_is_broken_and_says_so(session, damaged):
    summary(session)
    number = damaged("finished", 3)
    says = f"{LOG}:{number}: the line is damaged (its checksum is wrong); docs/records.md says"
    for command in (("check",), ("show", session), ("list",), ("status",), ("history",)):
        _, output = run(*command)
        assert says in output.replace(f"{LOG}: {number}", f"{LOG}:{number}"), output
    assert run("check")[0] == 4
    assert run("show", session)[0] == 5
    assert "BROKEN" in run("list")[1]


def test_the_lines_before_the_first_damaged_one_are_a_session_that_can_go_on(session, damaged):
    """As docs/records.md says."""
    number = damaged("finished", 3)
    lines = (session / LOG).read_bytes().splitlines(keepends=True)
    (session / LOG).write_bytes(b"".join(lines[: number - 1]))
    for name in (DOCUMENT, page.FILE):
        (session / name).unlink()
    code, output = run("check")
    assert code == 0, output
    kept = Log(session).session()
    assert (kept.outcome, len(kept.runs)) == ("UNFINISHED", 3)
    csv = session.parent.parent / "runs.csv"
    assert run("report", kept.session, "-o", csv)[0] == 0
    assert "undecided" in run("judge", csv, "--class", "kvm")[1].lower()


def test_a_log_whose_end_is_gone_is_not_taken_for_one_that_still_runs(session):
    lines = (session / LOG).read_bytes().split(b"\n")
    (session / LOG).write_bytes(b"\n".join(lines[:-2]) + b"\n")
    code, output = run("show", session)
    assert (code, "its end is missing: session.json is of a concluded session" in output) == (5, True)


@pytest.mark.parametrize(
    ("cut", "code"),
    [
        pytest.param(lambda content: content[:-100], 4, id="cut"),
        pytest.param(lambda content: content[:-100] + bytes(100), 4, id="zeroed"),
        pytest.param(lambda content: content + bytes(100), 4, id="zeros after the end"),
        pytest.param(
            lambda content: content[: content[:-1].rindex(b"\n") + 1], 0, id="without its last line"
        ),
    ],
)
def test_a_log_whose_end_was_cut_is_no_whole_record(session, cut, code):
    """Without its documents it looks like one that still runs."""
    for name in (DOCUMENT, page.FILE, "junit.xml"):
        (session / name).unlink()
    content = (session / LOG).read_bytes()
    (session / LOG).write_bytes(cut(content))
    found = run("check", session.name)
    assert found[0] == code
    assert ("its end was cut or overwritten" in found[1]) == (code == 4)
    is_concluded = cut(content).startswith(content)
    assert ("1 without a conclusion" in found[1]) != is_concluded


def test_a_session_from_elsewhere_has_to_have_a_conclusion(session, tmp_path):
    lines = (session / LOG).read_bytes().splitlines(keepends=True)
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / LOG).write_bytes(b"".join(lines[:-1]))
    code, output = run("check", tmp_path / "vendor")
    assert (code, "has no conclusion: it was copied before it had ended" in output) == (4, True)


def test_a_session_of_the_future_is_left_out(state):
    directory = put(state, "kvm-within")
    future = directory.with_name("20990101-000000-testsite")
    directory.rename(future)
    put(state, "kvm-within")

    def change(line):
        return line.replace(b'"created":"2026-', b'"created":"2099-').replace(
            directory.name.encode(), future.name.encode()
        )

    lines = intact_lines((future / LOG).read_bytes(), LOG)
    (future / LOG).write_bytes(seal(change(line) for _, line in lines))
    code, output = run("list")
    assert (code, "in the future: a clock was wrong" in output) == (0, True)
    assert directory.name in run("show", "last")[1]


#: The first lines of logs of which none may hide another session, or end it.
POISON = {
    "nested": b'{"event":"begun","head":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "an event that is an object": b'{"event":{}}',
    "an event that is a list": b'{"event":[1]}',
    "identity.virtual a list": b'{"event":"begun","head":{"identity":{"native":{},"virtual":[1]}}}',
    "no object": b"[]",
    "line feeds": b"\n" * 5_000_000,
    "zeros": bytes(100_000),
}


@pytest.mark.parametrize("content", POISON.values(), ids=POISON)
@pytest.mark.parametrize("sealed", [True, False])
def test_a_poisoned_session_hides_no_other_and_ends_none(state, content, sealed):
    poisoned = state / "20260101-000000-testsite"
    poisoned.mkdir()
    line = seal([content]) if sealed and content.startswith(b"{") else content + b"\n"
    (poisoned / LOG).write_bytes(line)
    (poisoned / "session.json").write_text("{}", encoding="utf-8")
    # What concludes a session looks at all others.
    directory = put(state, "kvm-within")
    assert Log(directory).session().outcome == "WITHIN"
    for command in ("list", "status", "history"):
        code, output = run(command)
        assert "traceback" not in output, output
        assert code in (0, 1)
    assert directory.name in run("list")[1]
    assert run("check")[0] == 4
