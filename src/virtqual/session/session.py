"""One session as data: what was run, what failed, what was judged, and what it came to.

A session is one directory.  Its record is the log (`virtqual.session.log`), to which every finished run is
appended at once; ``session.json`` is made from the log and has everything but the runs.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from virtqual.identity import Identity
from virtqual.preflight.canaries import Canary
from virtqual.preflight.finding import Finding
from virtqual.runs import Name, Run
from virtqual.verdict.slow_runs import SlowRuns
from virtqual.verdict.verdict import Verdict

SCHEMA: Literal["virtqual-session/3"] = "virtqual-session/3"

#: Why a case left no run. A node or Slurm (``infrastructure``) are every case's matter; its own are a program
#: that fails or a job that is ended (``failed``), a gate that the run did not pass (``refused``), and native
#: nodes that miss their absolute reference (``reference``).
Kind = Literal["infrastructure", "failed", "refused", "reference"]

#: Slurm's states of jobs that a lost node ended.
NODE_STATES = frozenset(["BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL"])

#: Length of a label at most.
MAX_LABEL_CHARS = 200


def _zoned(text: str) -> str:
    """Return an ISO date and time that can be compared with others."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no ISO date and time") from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    if not 1970 <= time.year < 9000:
        raise ValueError(f"{text!r} is out of range")
    return text


Time = Annotated[str, AfterValidator(_zoned)]


class HypervisorFacts(TypedDict, total=False):
    """The hypervisor as the system file states it."""

    vendor: str
    build: str
    accelerator: str
    machine: str | None
    details: dict[str, Any]


class PartitionFacts(TypedDict, total=False):
    """A partition as the system file states it."""

    partition: str
    processor: dict[str, Any]
    features: list[str]
    hypervisor: HypervisorFacts
    guest: dict[str, Any]
    placement: dict[str, bool | int | str]


class BothPartitions(TypedDict):
    """Both partitions."""

    native: PartitionFacts
    virtual: PartitionFacts


class StackProgram(TypedDict):
    """A program of a stack, and what else `virtqual.stack.manifest.Program` says of it."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    name: str
    version: str
    features: NotRequired[list[str]]


class StackFacts(TypedDict):
    """The software stack: its name, hash and programs."""

    name: str
    hash: str
    programs: list[StackProgram]


class Provenance(BaseModel):
    """The code and the reviewed data that judge a session.

    Attributes
    ----------
    version, commit
        Of virtqual; the commit is empty outside a git checkout.
    modified
        Whether tracked files of the checkout differ from the commit.
    references
        SHA-256 of the directory of reviewed data.
    site
        SHA-256 of the system file and of the site's own checks.
    packages
        SHA-256 of the names and versions of all installed Python packages.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    commit: str
    modified: bool
    references: str
    site: str
    packages: str


class Request(BaseModel):
    """What a person asked for; see ``virtqual qualify --help``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: str
    hypervisor_class: str = ""
    against: str = ""
    full: bool = False
    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    stack: str = ""
    label: str = ""
    max_pairs: int = 18
    pairs: int | None = None
    policy: str = "serial"


class Head(BaseModel):
    """The facts of a session before its first run.

    Attributes
    ----------
    session
        Its id: date, time and system.
    label
        A name that a person gave it.
    created
        ISO date and time.
    hypervisor_class
        The class of budgets under which it is judged.
    identity
        What the system file states of each partition, by side.
    stack
        Name, hash and programs (name, version, checksum).
    against
        Id of the earlier session it is compared with, or None.
    repetitions
        By case: how often a run starts its program, where the earlier session has decided it.
    request
        What was asked for; None for a plain ReFrame run, which cannot be resumed.
    provenance
        The code and data of virtqual at its begin; None if unknown.
    """

    model_config = ConfigDict(extra="forbid")

    schema_: Literal["virtqual-session/3"] = Field(alias="schema", default=SCHEMA)
    session: Name
    label: str = Field(default="", max_length=MAX_LABEL_CHARS)
    created: Time
    system: Name
    hypervisor_class: Name
    identity: BothPartitions
    stack: StackFacts
    against: Name | None = None
    repetitions: dict[str, int] = {}
    request: Request | None = None
    provenance: Provenance | None = None

    @property
    def build(self) -> str:
        """The hypervisor's build, as waivers name it."""
        return str(self._hypervisor.get("build", "unknown"))

    @property
    def hypervisor(self) -> str:
        """The hypervisor with its build, for people."""
        return f"{self._hypervisor.get('vendor', 'unknown hypervisor')} {self.build}"

    @property
    def _hypervisor(self) -> HypervisorFacts:
        return self.identity["virtual"].get("hypervisor", {})

    @property
    def placement(self) -> dict[str, bool | int | str]:
        """How the VMs lie on their hosts, as far as it is told."""
        return self.identity["virtual"].get("placement", {})


class Round(BaseModel):
    """One ReFrame run of a session.

    Attributes
    ----------
    number
        From 1.
    first, last
        Turns that it runs, both included: numbers of pairs, where one run is at a time; where runs rotate, a
        turn is a pair on each place.
    checks
        Names of the checks that it runs; empty for all that were asked for.
    seconds
        How long it took; None while it runs, or where it was cut short.
    recreated
        Seconds that it took to create the VMs anew before it; None where they were not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    first: int
    last: int
    checks: tuple[str, ...] = ()
    seconds: float | None = None
    recreated: float | None = None

    def __contains__(self, turn: int) -> bool:
        """Return whether it is to run a turn."""
        return self.first <= turn <= self.last


class Loss(BaseModel):
    """Nodes that were lost and set aside; the pairs that were cut off were run under other numbers.

    Attributes
    ----------
    round
        Number of the round that ended with the loss.
    nodes
        The reason why each node was lost, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    round: int
    nodes: dict[str, str]


class Resumption(BaseModel):
    """A session went on after it had ended: its runs before that count, and none of them was run again.

    Attributes
    ----------
    time
        ISO date and time.
    ended
        The conclusion with which the session had ended.
    node_lost
        Whether a lost node had ended the session, and not a person, Slurm or the login node.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    time: Time
    ended: str
    node_lost: bool = True


class Failure(BaseModel):
    """One case that left no run.

    Attributes
    ----------
    check
        Name of the check and its parameters, without the sample.
    case
        Its name as ReFrame shows it.
    pair, side
        Its place in the order of runs.
    partition, job
        Where it was to run, and the scheduler's id of its job; empty if it had none.
    kind
        See `Kind`.
    reason
        In one line.
    state
        Slurm's state of the job, such as ``TIMEOUT``, if Slurm ended the job; else None.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    check: str
    case: str
    pair: int
    side: Literal["native", "virtual"]
    partition: str
    job: str = ""
    kind: Kind
    reason: str
    state: str | None = None

    @property
    def node_lost(self) -> bool:
        """A node died, or did not begin the job."""
        return self.state in NODE_STATES

    @property
    def why(self) -> str:
        """Why nothing of the check may be judged."""
        if self.kind == "reference":
            return f"native misses its absolute reference ({self.reason})"
        return f"{self.partition}: {self.reason}"


class Basis(BaseModel):
    """The arguments of a judgement besides the session: with these it can be made again.

    Attributes
    ----------
    runs
        SHA-256 of the head, but for the id, and of the runs and failures in the log.
    looks, share, slow_before, today
        See `virtqual.session.judge.judge`.
    earlier
        `Session.measured` of the session that it was compared with; empty if there is none.
    interrupted, broken
        See `virtqual.session.conclusion.conclude`.
    node_lost
        Whether a lost node ended the session.
    note
        A sentence that is added to the conclusion.
    provenance
        The code and data that judged.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: str
    looks: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    share: int = Field(default=1, ge=1)
    earlier: str = ""
    slow_before: SlowRuns | None = None
    today: date | None = None
    interrupted: bool = False
    broken: tuple[str, ...] = ()
    node_lost: bool = False
    note: str = ""
    provenance: Provenance | None = None


#: `Conclusion.qualified` of sessions whose runs were not judged, by outcome.
UNJUDGED_ANSWERS = {
    "UNFINISHED": "no (unfinished)",
    "BROKEN": "no (broken)",
    "INVALID": "no (refused by preflight)",
}


class Conclusion(BaseModel):
    """The result of a session.

    Attributes
    ----------
    outcome
        An outcome of `virtqual.verdict.Outcome`, or ``BROKEN``, ``INTERRUPTED``, ``UNFINISHED``.
    all_outcomes
        How many verdicts have which outcome.
    qualified
        ``yes``, ``yes (N accepted by waiver, without FEATURE)`` or ``no (reason)``.
    missing
        Cases that the class asks for and that were not judged, where nothing else keeps the build from being
        qualified.
    conclusion
        One sentence.
    next_step
        How a session that ended too early is continued, in one sentence.
    exit_code
        That of the command (docs/exit-codes.md).
    refused
        Checks of which nothing may be judged, with the reasons.
    preflight
        Everything in which both sides differ, or that disturbed runs, with what follows from it.
    canaries
        What the measurements themselves say of features that the hypervisor may lack.
    not_run
        Checks that cannot run here, with the reason; empty where only some were asked for.
    verdicts
        One for each series and gate.
    slow_runs
        What is said of runs that were slow; None where nothing was judged.
    waivers
        All that are about this class and build, as people read them.
    basis
        What it was drawn from; None where nothing was concluded.
    """

    model_config = ConfigDict(extra="forbid")

    outcome: str = Field(default="UNFINISHED", pattern=r"^[A-Z]{1,20}$")
    all_outcomes: dict[str, int] = {}
    qualified: str = UNJUDGED_ANSWERS["UNFINISHED"]
    missing: list[str] = []
    conclusion: str = ""
    next_step: str | None = None
    exit_code: int = 5
    refused: dict[str, tuple[str, ...]] = {}
    preflight: list[Finding] = []
    canaries: list[Canary] = []
    not_run: list[str] = []
    verdicts: list[Verdict] = []
    slow_runs: SlowRuns | None = None
    waivers: list[str] = []
    basis: Basis | None = None

    @property
    def message(self) -> str:
        """The conclusion with the next step."""
        return f"{self.conclusion} {self.next_step}" if self.next_step else self.conclusion


class SessionDocument(Head, Conclusion):
    """A session as ``session.json`` keeps it.

    Attributes
    ----------
    rounds
        Every ReFrame run.
    failures
        Every case that left no run, but for those that a lost node, or an end before a resumption, cut off.
    lost
        Every time that nodes were lost, and the session went on without them.
    resumed
        Every time that the session went on after it had ended.
    probed
        One node of each partition, as it was before the first run, by side.
    """

    rounds: list[Round] = []
    failures: list[Failure] = []
    lost: list[Loss] = []
    resumed: list[Resumption] = []
    probed: dict[Literal["native", "virtual"], Identity] = {}

    @property
    def node_lost(self) -> bool:
        """A lost node ended the session."""
        return bool(self.basis and self.basis.node_lost) or any(f.node_lost for f in self.failures)

    @property
    def resume_hint(self) -> str | None:
        """How a session that ended too early is continued; None for a plain ReFrame run."""
        return f"`virtqual qualify --resume {self.session}` goes on with it." if self.request else None


class Session(SessionDocument):
    """A session as its log tells it.

    Attributes
    ----------
    runs
        Every run, once, by start.
    measured
        SHA-256 of what was measured, as `Basis.runs` has it.
    """

    runs: list[Run] = []
    measured: str = ""

    def verdicts_of(self, check: str) -> list[Verdict]:
        """Return the verdicts on the series that a check measured."""
        own = {result.series for run in self.runs if run.check == check for result in run.results}
        return [verdict for verdict in self.verdicts if verdict.series in own]
