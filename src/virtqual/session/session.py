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
from virtqual.verdict.budget import Gate
from virtqual.verdict.outliers import Outlier
from virtqual.verdict.pairs import Side
from virtqual.verdict.slow_runs import SlowRuns
from virtqual.verdict.verdict import Verdict

#: Why a case left no run: a node or Slurm (``infrastructure``), a program that failed or a job that was ended
#: (``failed``), a gate that the run did not pass (``refused``), or native nodes that missed their absolute
#: reference (``reference``).
Kind = Literal["infrastructure", "failed", "refused", "reference"]

#: Slurm's states of jobs that a lost node ended.
NODE_STATES = frozenset(["BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL"])

#: Length of a label at most.
MAX_LABEL_CHARS = 200


def _check_time(text: str) -> str:
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


Time = Annotated[str, AfterValidator(_check_time)]


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


class Provenance(BaseModel, extra="forbid", frozen=True):
    """The code and the reviewed data that judge a session."""

    version: str
    #: Empty outside a git checkout.
    commit: str
    #: Tracked files of the checkout differ from the commit.
    modified: bool
    #: SHA-256 of the directory of reviewed data.
    references: str
    #: SHA-256 of the system file and of the site's own checks.
    site: str
    #: SHA-256 of the names and versions of all installed Python packages, and of virtqual's own code.
    packages: str
    #: Versions of Python and of the packages that judge; empty in sessions from before 2026-11-30.
    versions: dict[str, str] = {}


class Request(BaseModel, extra="forbid", frozen=True):
    """The arguments of ``virtqual qualify``."""

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
    #: Two pairs can acquit a metric, and no build is qualified.
    fast: bool = False
    #: How long to wait for nodes; None for what the system file says.
    wait_hours: float | None = None
    #: At most so many nodes of each side; None for all that the system file states.
    nodes: int | None = None

    @property
    def scope(self) -> str:
        """The scope of the checks."""
        return "full" if self.full else "quick"


class Head(BaseModel, extra="forbid"):
    """The facts of a session before its first run."""

    schema_: Literal["virtqual-session/3"] = Field(alias="schema", default="virtqual-session/3")
    #: Its id: date, time and system.
    session: Name
    label: str = Field(default="", max_length=MAX_LABEL_CHARS)
    created: Time
    system: Name
    hypervisor_class: Name
    identity: BothPartitions
    stack: StackFacts
    #: Id of the earlier session that it is compared with.
    against: Name | None = None
    #: How often a run of a case starts its program, if the earlier session has decided it.
    repetitions: dict[str, int] = {}
    #: The native peak of a case, of which shares are offered, if the earlier session has shown it.
    peaks: dict[str, float] = {}
    #: The VMs are created anew between rounds.
    recreates_vms: bool = False
    #: A person typed the hypervisor's build into the system file, and no host reported it.
    build_is_stated: bool = False
    #: None for a plain ReFrame run, which cannot be resumed.
    request: Request | None = None
    provenance: Provenance | None = None

    @property
    def fast(self) -> bool:
        """It was asked for with ``--fast``."""
        return self.request is not None and self.request.fast

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
        """The placement of the VMs on their hosts, as the system file states it."""
        return self.identity["virtual"].get("placement", {})


class Round(BaseModel, extra="forbid", frozen=True):
    """One ReFrame run of a session, with the numbers of its first and last turn.

    A turn is a pair; if runs rotate, it is a pair on each place.
    """

    number: int
    first: int
    last: int
    #: The side that runs first in each turn, N or V; empty for the standard order.
    order: str = Field(pattern="^[NV]*$", default="")
    #: Names of the checks that it runs; empty for all of the session.
    checks: tuple[str, ...] = ()
    #: Its duration; None if it has not ended by itself.
    seconds: float | None = None
    #: Seconds that it took to create the VMs anew before it; None if they were not.
    recreated: float | None = None

    def __contains__(self, turn: int) -> bool:
        """Return whether the round runs a turn."""
        return self.first <= turn <= self.last


class Loss(BaseModel, extra="forbid", frozen=True):
    """Nodes that were set aside after a round, with the reasons; their pairs were run again as others."""

    round: int
    nodes: dict[str, str]


class Resumption(BaseModel, extra="forbid", frozen=True):
    """A session went on after it had ended: its runs before that count, and none of them was run again."""

    time: Time
    #: The conclusion with which the session had ended.
    ended: str
    #: A lost node had ended the session, and not a person, Slurm or the login node.
    node_lost: bool = True
    #: The number of the round before, and the nodes that it lost, with the reasons.
    round: int = 0
    nodes: dict[str, str] = {}


class Failure(BaseModel, extra="forbid", frozen=True):
    """One case that left no run."""

    #: Name of the check and its parameters, without the sample.
    check: str
    #: Its name as ReFrame shows it.
    case: str
    pair: int
    side: Side
    partition: str
    #: Id of the scheduler's job; empty if it had none.
    job: str = ""
    kind: Kind
    #: In one line.
    reason: str
    #: Slurm's state of the job, such as ``TIMEOUT``, if Slurm ended the job.
    state: str | None = None
    #: It precedes the first pair.
    warm_up: bool = False
    #: Seconds since the epoch; None if unknown.
    start: float | None = None
    end: float | None = None
    #: The nodes that the run had, if they are known.
    nodes: tuple[str, ...] = ()

    @property
    def node_lost(self) -> bool:
        """A node died, or did not begin the job."""
        return self.state in NODE_STATES

    @property
    def why(self) -> str:
        """The reason why nothing of the check may be judged."""
        if self.kind == "reference":
            return f"native misses its absolute reference ({self.reason})"
        return f"{self.partition}: {self.reason}"


#: By gate and series (``metric@setting``) n, if a session is the n-th of its build in a row that tries to
#: pass it; series of which it is the first are left out.
Attempts = dict[Gate, dict[str, int]]


class Basis(BaseModel, extra="forbid", frozen=True):
    """The arguments of a judgement besides the session: with these it can be made again.

    See `virtqual.session.judge.judge` and `virtqual.session.conclusion.conclude` for most of them.
    """

    #: `Session.measured`; of logs of format 4, `Session.measured_runs`.
    runs: str
    looks: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    share: int = Field(default=1, ge=1)
    #: The same of the earlier session; empty if there is none.
    earlier: str = ""
    slow_before: SlowRuns | None = None
    attempts: Attempts = {}
    today: date | None = None
    interrupted: bool = False
    broken: tuple[str, ...] = ()
    #: A lost node ended the session.
    node_lost: bool = False
    #: The nodes that were lost when it ended, with the reasons.
    lost_nodes: dict[str, str] = {}
    #: Cases that were not run, since they take more nodes than could run jobs when the session began.
    too_large: tuple[str, ...] = ()
    provenance: Provenance | None = None


#: Outcomes of sessions that have not come to their end: nothing is concluded, and they may go on.
OPEN_OUTCOMES = frozenset(["UNFINISHED", "BROKEN", "INTERRUPTED"])
#: `Conclusion.qualified` of sessions whose runs were not judged, by outcome.
UNJUDGED_ANSWERS = {
    "UNFINISHED": "no (unfinished)",
    "BROKEN": "no (broken)",
    "INVALID": "no (refused by preflight)",
}


class Conclusion(BaseModel, extra="forbid"):
    """The result of a session."""

    #: An outcome of `virtqual.verdict.Outcome`, or ``BROKEN``, ``INTERRUPTED``, ``UNFINISHED``.
    outcome: str = Field(default="UNFINISHED", pattern=r"^[A-Z]{1,20}$")
    #: Number of verdicts by outcome.
    all_outcomes: dict[str, int] = {}
    #: ``yes``, ``yes (N accepted by waiver, without FEATURE)`` or ``no (reason)``.
    qualified: str = UNJUDGED_ANSWERS["UNFINISHED"]
    #: Cases that the class requires and that were not judged, if nothing else forbids to qualify the build.
    missing: list[str] = []
    #: The answer, in a few sentences.
    conclusion: str = ""
    #: One sentence on how a session that ended too early is continued.
    next_step: str | None = None
    #: The exit code of the command (docs/exit-codes.md).
    exit_code: int = 5
    #: Checks of which nothing may be judged, with the reasons.
    refused: dict[str, tuple[str, ...]] = {}
    #: Every difference of both sides and every disturbance of runs, with its consequence.
    preflight: list[Finding] = []
    canaries: list[Canary] = []
    #: The requested checks that cannot run here, with the reason.
    not_run: list[str] = []
    #: One for each series and gate.
    verdicts: list[Verdict] = []
    #: None if nothing was judged.
    slow_runs: SlowRuns | None = None
    #: Hosts that differ from the others of their kind: these were judged without them.
    outliers: list[Outlier] = []
    #: All waivers for this class and build, as people read them.
    waivers: list[str] = []
    #: None if nothing was concluded.
    basis: Basis | None = None

    @property
    def is_qualified(self) -> bool:
        """It says that the build is qualified."""
        return self.qualified.startswith("yes")

    @property
    def passes(self) -> bool:
        """It says that the build is within budget, is qualified, or can be compared with."""
        return self.exit_code == 0 or self.is_qualified

    @property
    def message(self) -> str:
        """The conclusion with the next step."""
        return f"{self.conclusion} {self.next_step}" if self.next_step else self.conclusion


class SessionDocument(Head, Conclusion):
    """A session as ``session.json`` keeps it."""

    rounds: list[Round] = []
    #: Every case that left no run, except cases that a lost node, or an end before a resumption, cut off.
    failures: list[Failure] = []
    lost: list[Loss] = []
    resumed: list[Resumption] = []
    #: One node of each partition, as it was before the first run.
    probed: dict[Side, Identity] = {}

    @property
    def node_lost(self) -> bool:
        """A lost node ended the session."""
        return bool(self.basis and self.basis.node_lost) or any(f.node_lost for f in self.failures)

    @property
    def resume_hint(self) -> str | None:
        """The command that continues a session; None for a plain ReFrame run."""
        is_refused = any(failure.kind == "refused" for failure in self.failures)
        stays = "; refused checks stay refused" if is_refused else ""
        return f"`virtqual qualify --resume {self.session}` goes on with it{stays}." if self.request else None


class Session(SessionDocument):
    """A session as its log tells it."""

    #: Every run, once, by start.
    runs: list[Run] = []
    #: Failures of cases that a lost node, or an end before a resumption, cut off, with their rounds.
    cut_off: list[tuple[int, Failure]] = []
    #: SHA-256 of the head, but for the id, and of all lines of the log on which a judgement depends: runs,
    #: failures, jobs, rounds, nodes that were set aside, resumptions.
    measured: str = ""
    #: SHA-256 of the head, but for the id, and of the runs and failures alone.
    measured_runs: str = ""
    #: SHA-256 of the log up to its last conclusion; None if it has none.
    log_digest: str | None = None
    #: No line follows the last conclusion that changes it, such as one of a run.
    is_complete: bool = False

    @property
    def is_empty(self) -> bool:
        """Nothing was run, so that it does not count; a refusal by preflight is an answer."""
        was_run = self.runs or self.lost or any(failure.job for failure in self.failures)
        return not was_run and self.outcome != "INVALID"

    def get_conclusion(self) -> Conclusion:
        """Return the conclusion alone."""
        return Conclusion.model_construct(**{name: getattr(self, name) for name in Conclusion.model_fields})

    def set_conclusion(self, conclusion: Conclusion) -> None:
        """Replace the conclusion."""
        for name in Conclusion.model_fields:
            setattr(self, name, getattr(conclusion, name))

    def find_verdicts(self, check: str) -> list[Verdict]:
        """Return the verdicts on what a check measured."""
        series = {result.series for run in self.runs if run.check == check for result in run.results}
        return [verdict for verdict in self.verdicts if verdict.series in series]

    def has_passed(self, check: str) -> bool:
        """Return whether all series that a check measured are within their budgets, or waived."""
        verdicts = self.find_verdicts(check)
        return bool(verdicts) and all(verdict.passes for verdict in verdicts)
