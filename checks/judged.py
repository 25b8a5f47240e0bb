"""Any check of ReFrame's, judged: a check that knows nothing of virtqual is run on both sides and compared.

A site's file calls `judge`; docs/add-a-benchmark.md begins with it.
"""

import math
import re
import shlex
import sys
from pathlib import Path

import reframe as rfm
import reframe.core.runtime as rt
import reframe.utility.osext as osext
import reframe.utility.sanity as sn
from pydantic import ValidationError
from reframe.core.exceptions import SanityError
from reframe.core.meta import make_test
from reframe.utility import import_module_from_file

from virtqual.files.wording import describe_first_mistake, pluralize
from virtqual.references import project_metrics
from virtqual.runs import Declared, Result
from virtqual.site import held
from virtqual.verdict.pairs import SIDES

from . import counts
from .overhead import get_class_value, simple_test
from .sampled import Sampled


class Foreign(Sampled):
    """The pairing of a check that others wrote; goes before it, and leaves it as it is.

    The check keeps its own sources, build, modules, options and sanity; its hooks come first in every phase.
    Its binding is its own, which is noted with the run and not judged.
    """

    #: By performance variable that is judged: the name of its metric; and its direction, budget and margin,
    #: which are None if the metric is one of ``references/``.
    judged_metrics = {}
    #: By performance variable: its unit, if the check itself states none.
    stated_units = {}
    #: The check's own ``valid_systems`` and ``valid_prog_environs``.
    own_systems = own_environments = ()
    #: It asks nothing of a stack.
    feature = ""
    #: Nodes that its tasks are spread over.
    nodes = 1

    @classmethod
    def environments(cls):
        """Return its own ``valid_prog_environs``."""
        return list(cls.own_environments)

    @classmethod
    def systems(cls, side):
        """Return the features of its own ``valid_systems``, with the side; names of systems give way."""
        systems = [f"{entry} +{side}" if entry[:1] in "+-%" else f"+{side}" for entry in cls.own_systems]
        return list(dict.fromkeys(systems))

    @classmethod
    def explain_unfit(cls, case):
        """Return why no partition or stack fits what it asks for, or too few nodes."""
        if cls.nodes > counts.nodes():
            return f"needs {cls.nodes} nodes on each side"
        for side in SIDES:
            fitting = rt.valid_sysenv_comb(cls.systems(side), cls.environments())
            if counts.find_partition(side) and not any(fitting.values()):
                return (
                    f"no {side} partition and stack fit its valid_systems {list(cls.own_systems)} and "
                    f"valid_prog_environs {list(cls.own_environments)} "
                    "(judge(..., systems=['*'], environments=['*']) takes any)"
                )
        return ""

    @run_after("setup")
    def refuse_unpairable(self):
        """It has to run in a job of its side's partition, where it can note its nodes and tasks."""
        if self.is_local():
            raise SanityError("it runs on this machine (local), not on the nodes that are compared")
        if self.container_platform.image:
            raise SanityError("it runs in a container, in which it cannot be noted what its tasks see")
        # An environment of the site's own is no stack, and has no hash of one.
        self.current_environ.extras.setdefault("stack_hash", "none")

    def settle_tasks(self):
        """Spread its tasks over its nodes, unless it does so itself; refuse what would be lost."""
        self.num_tasks = 1 if self.num_tasks is None else self.num_tasks
        if self.num_tasks < 1:
            raise SanityError(
                "its number of tasks is that of the free nodes: state one, the same on both sides"
            )
        self.num_tasks_per_node = self.num_tasks_per_node or math.ceil(self.num_tasks / self.nodes)
        taken = math.ceil(self.num_tasks / self.num_tasks_per_node)
        if taken != self.nodes:
            raise SanityError(f"its tasks take {pluralize(taken, 'node')}: judge(..., nodes={taken}) says so")
        options = [option for option in self.job.options if not option.startswith("--nodelist=")]
        if held.read().jobs and options:
            raise SanityError(
                f"{' '.join(options)}: a step of the session's job takes no options of a job; state them "
                "for all checks in extras.session_access of both partitions"
            )

    @run_before("run")
    def note_around_program(self):
        """Put the notes around its program, which hooks of the check may have renamed until now."""
        program = shlex.split(self.executable)[0]
        # The shell finds it, after the check's modules were loaded.
        self.note_around(f'"$(command -v {program} || echo {program})"')

    @run_before("performance")
    def report_values(self):
        """Evaluate the check's values once, by its own functions, and record the run."""
        functions = self.find_functions()
        if missing := sorted(self.judged_metrics.keys() - functions.keys()):
            raise SanityError(
                f"the check has no performance variable {', '.join(missing)}; it has {', '.join(functions)}"
            )
        values = {}
        with osext.change_dir(self.stagedir):
            for name, function in functions.items():
                try:
                    values[name] = function.evaluate()
                except Exception as error:
                    raise SanityError(f"no value for {name}: {error}") from error
        self.refuse_no_numbers(values)
        self.own_results = [
            self.make_result(name, values[name], functions[name].unit) for name in self.judged_metrics
        ]
        self.measure()
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), functions[name].unit)
            for name, value in values.items()
            if not self.warm_up
        }
        if self.slot.side == "virtual" or self.warm_up:
            # Absolute references are native's: virtual is held against native.
            self.reference, self.require_reference = {}, False

    def find_functions(self):
        """Return the performance functions by variable, however the check declares them."""
        if not getattr(self, "perf_patterns", None):
            return dict(self.perf_variables)
        reference, functions = self._resolve_reference(), {}
        for name, expression in self.perf_patterns.items():
            entry = reference.get(f"{self.current_partition.fullname}:{name}") or ()
            unit = entry[3] if len(entry) > 3 else None
            functions[name] = sn.make_performance_function(expression, unit or "")
        self.perf_patterns = None
        return functions

    def make_result(self, name, value, unit):
        """Return the result of a performance variable, in the unit of the check if it states one."""
        (metric, declared), setting = self.judged_metrics[name], self.case.replace(" %", ", ")
        unit = unit or self.stated_units.get(name)
        if declared:
            if not unit:
                raise SanityError(f"the check states no unit for {metric}: judge(..., units=...) does")
            return Result.scalar(metric, setting, value, declared=Declared(unit=unit, **declared))
        metric_unit = project_metrics()[metric].unit
        if unit != metric_unit:
            raise SanityError(f"{metric} is in {metric_unit!r}, but the check's value in {unit!r}")
        return Result.scalar(metric, setting, value)

    def read(self):
        """Return the check's own values: it has proven its sanity itself."""
        return self.own_results


def judge(
    check,
    *,
    better=None,
    budget=None,
    margin=None,
    metrics=None,
    units=None,
    systems=None,
    environments=None,
    name="",
    nodes=1,
    tags=("quick", "full"),
):
    """Make a paired, judged check of one that knows nothing of virtqual, and return it.

    Parameters
    ----------
    check
        Class of the check; or ``"FILE:CLASS"``, with the file beside the caller's or absolute.
    better
        Better direction of each performance variable, by name: ``"higher"`` or ``"lower"``.
    budget, margin
        Of these variables: how much slower than native virtual may be (``"5%"``), and how far above that an
        overhead may hide (``"3%"``).
    metrics
        By name of performance variable: its metric in ``references/metrics/``, which has budget and margin.
    units
        Unit of each performance variable, by name, if the check states none.
    systems, environments
        Features of partitions and stacks to run with, instead of its ``valid_systems`` and
        ``valid_prog_environs``; ``["*"]`` for any.
    name
        Name of the new check; the old check's if empty.  The verdict is ``NAME_overhead``.
    nodes
        Number of nodes that its tasks take.
    tags
        To add: of the scope, and by topic.

    Raises
    ------
    ValueError
        An argument is missing, or contradicts another one.
    """
    caller = sys._getframe(1).f_globals
    if isinstance(check, str):
        check = _load_check(check, Path(caller["__file__"]).parent)
    _refuse_unpairable_class(check)
    name = name or check.__name__
    body = {
        "descr": get_class_value(check, "descr", "") or name,
        "judged_metrics": _find_metrics(name, better or {}, budget, margin, metrics or {}),
        "stated_units": units or {},
        "nodes": nodes,
        "own_systems": tuple(systems or get_class_value(check, "valid_systems", ["*"])),
        "own_environments": tuple(environments or get_class_value(check, "valid_prog_environs", ["*"])),
        "tags": set(get_class_value(check, "tags", ())) | set(tags),
    }
    paired = make_test(
        name, (Foreign, check), body, module=caller["__name__"], custom_prefix=check._rfm_prefix
    )
    # ReFrame finds a test of an earlier run (--restore-session) by its name in its file.
    caller[name] = simple_test(paired)
    return paired


def _load_check(text, directory):
    """Return the class of ``FILE:CLASS``."""
    file, _, name = text.rpartition(":")
    path = directory / file
    if not path.is_file():
        raise ValueError(f"judge({text!r}): expected FILE:CLASS, and there is no file {path}")
    module = import_module_from_file(str(path), load_parents=True)
    if not hasattr(module, name):
        raise ValueError(f"judge({text!r}): {file} has no class {name}")
    return getattr(module, name)


def _refuse_unpairable_class(check):
    """Refuse a check that runs nothing, has fixtures with parameters, or names of the pairing's."""
    if issubclass(check, rfm.CompileOnlyRegressionTest):
        raise ValueError(f"{check.__name__} runs nothing that could be compared")
    if check.num_variants != len(check.param_space):
        raise ValueError(
            f"{check.__name__} has fixtures with parameters, and a sample cannot say which it had: judge "
            "a subclass whose fixtures have one value each"
        )
    if clash := sorted(_find_own_names(Foreign) & _find_own_names(check)):
        raise ValueError(f"{check.__name__} and the pairing both define {', '.join(clash)}")


def _find_own_names(check):
    """Return the names that a class and its bases define, without ReFrame's own."""
    names = {*dir(check), *check.var_space.vars, *check.raw_params, *check.fixture_space.fixtures}
    reframe_names = {*dir(rfm.RegressionTest), *rfm.RegressionTest.var_space.vars}
    return {name for name in names - reframe_names if not name.startswith("_")}


def _find_metrics(check, better, budget, margin, metrics):
    """Return `Foreign.judged_metrics` by the arguments of `judge`."""
    if twice := sorted(better.keys() & metrics.keys()):
        raise ValueError(
            f"{', '.join(twice)}: metrics of references/ have a direction; leave them out of `better`"
        )
    if not better and not metrics:
        raise ValueError(
            f"{check}: name the performance variables that are judged, in `better` or in `metrics`"
        )
    if better and (budget is None or margin is None):
        raise ValueError(f"{check}: {', '.join(better)} need `budget` (such as '5%') and `margin` ('3%')")
    reviewed = project_metrics()
    judged = {variable: (reviewed[metric].name, None) for variable, metric in metrics.items()}
    for variable, direction in better.items():
        declared = {"better": direction, "budget": budget, "margin": margin}
        # At once: a mistake must not wait for the first run.
        try:
            Declared(unit="any", **declared)
        except ValidationError as error:
            raise ValueError(f"{check}: {variable}: {describe_first_mistake(error)}") from None
        judged[variable] = re.sub(r"\W+", "_", f"{check}_{variable}").lower(), declared
    return judged
