"""Runs that no job made, for tests of what is read from runs."""

import json
from pathlib import Path

from virtqual.runs import Declared, Run
from virtqual.session.log import Begun, Failed, Finished, Log
from virtqual.session.seal import seal
from virtqual.session.session import Conclusion, Failure, Head, Session


def keep(session: Session, sessions: Path) -> Path:
    """Write a session below a directory of sessions as if it had been run; returns its directory."""
    directory = sessions / session.session
    directory.mkdir(parents=True)
    log, fields = Log(directory), session.model_dump(by_alias=True)
    log.append(Begun(head=Head(**{name: fields[name] for name in fields if name in _HEAD})))
    for run in session.runs:
        log.append(Finished(run=run))
    for failure in session.failures:
        log.append(Failed(failure=failure))
    if session.outcome != Conclusion().outcome:
        log.conclude(session)
        log.write()
    return directory


def read_session(directory: Path) -> dict:
    """Return the document of a session, with the runs of its log."""
    document = json.loads((directory / "session.json").read_text("utf-8"))
    runs = Log(directory).session().model_dump(mode="json", by_alias=True, include={"runs"})
    return {**document, **runs}


def sealed(*lines):
    """Return the content of a log that has these lines."""
    return seal(lines)


def session_of(runs, hypervisor_class="kvm", name="s", **more) -> Session:
    """Return a session that has these runs."""
    fields = {"created": "2026-01-01T00:00:00+00:00", "system": "site", "identity": SIDES, "stack": STACK}
    for part in ("identity", "stack"):
        more[part] = fields[part] | more.get(part, {})
    return Session(session=name, hypervisor_class=hypervisor_class, runs=runs, **{**fields, **more})


#: What the heads of made sessions say of both partitions and of the stack.
SIDES = {"native": {}, "virtual": {}}
STACK = {"name": "test", "hash": "0", "programs": []}
HEAD = Head(
    session="s",
    created="2026-01-01T00:00:00+00:00",
    system="x",
    hypervisor_class="kvm",
    identity=SIDES,
    stack=STACK,
)
#: What a site says of a time that no file declares.
DECLARED = Declared(unit="s", better="lower", budget=1.05, margin=0.1)
_HEAD = {field.alias or name for name, field in Head.model_fields.items()}


def made_run(side, pair, **more) -> Run:
    """Return a run of the check ``case`` on one side, with these fields."""
    fields = {
        "check": "case",
        "start": 0.0,
        "end": 1.0,
        "clock": "test",
        "job": "1",
        "nodes": ("n1",),
        "results": (),
        "seconds": 1.0,
        "stack": "test",
        "stack_hash": "0",
        "reference": "none",
    }
    return Run(side=side, pair=pair, **{**fields, **more})


def alternating(results, pairs=4, **more) -> list[Run]:
    """Return runs of the sides in turn; `results` returns a run's by side and number of the pair."""
    sides = ("native", "virtual"), ("virtual", "native")
    runs = []
    for pair in range(pairs):
        for side in sides[pair % 2]:
            start = 10.0 * len(runs)
            fields = {"job": str(len(runs)), "start": start, "end": start + 5, "seconds": 4.5, **more}
            runs.append(made_run(side, pair, results=results(side, pair), **fields))
    return runs


def made_failure(**more) -> Failure:
    """Return a failure of the check ``case`` in a VM, with these fields."""
    fields = {"check": "case", "case": "case", "pair": 0, "side": "virtual", "partition": "vm", "reason": "r"}
    return Failure(**{**fields, "kind": "refused", **more})
