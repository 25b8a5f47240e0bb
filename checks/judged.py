"""Any check of ReFrame's, judged: a check that knows nothing of virtqual is run on both sides and compared.

`judge` is all that a site's file needs; docs/add-a-benchmark.md begins with it.
"""

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import reframe as rfm
import reframe.core.runtime as rt
import reframe.utility.osext as osext
import reframe.utility.sanity as sn
from reframe.core.exceptions import SanityError
from reframe.core.meta import make_test
from reframe.utility import import_module_from_file

from virtqual.references import project_references
from virtqual.runs import Declared, Result

from .base import Sampled
from .overhead import set_to, simple_test
from .selection import Selection, features


class Value(NamedTuple):
    """The metric as which a performance variable is judged.

    Attributes
    ----------
    metric
        A name in ``references/metrics/``, or the name of a metric that is declared here.
    unit
        Unit of the metric, where the check itself states none.
    declared
        Direction, budget and margin of a metric that is declared here; empty for one of ``references/``.
    """

    metric: str
    unit: str
    declared: dict

    def result(self, setting, number, unit):
        """Return the result of a run in which the check printed a number in a unit, which may be empty."""
        unit = unit or self.unit
        if not self.declared:
            wanted = project_references().metrics[self.metric].unit
            if unit != wanted:
                raise SanityError(f"{self.metric} is in {wanted!r}, but the check's value in {unit!r}")
            return Result.scalar(self.metric, setting, number)
        if not unit:
            raise SanityError(f"the check states no unit for {self.metric}: judge(..., units=...) does")
        return Result.scalar(self.metric, setting, number, declared=Declared(unit=unit, **self.declared))


class Foreign(Sampled, Selection):
    """The pairing of a check that others wrote; goes before it, and leaves it what it is.

    The check keeps its own sources, build, modules, options and sanity; its hooks come first in every phase.
    It is bound as it asks to be, which is noted with the run and not judged.
    """

    #: By performance variable: the metric as which it is judged.
    judged_as = {}
    #: The check's own ``valid_systems`` and ``valid_prog_environs``.
    theirs = ((), ())
    #: It asks nothing of a stack.
    feature, nodes = "", 1

    @classmethod
    def environments(cls):
        """Return its own ``valid_prog_environs``."""
        return list(cls.theirs[1])

    @classmethod
    def systems(cls, side):
        """Return the features of its own ``valid_systems``, with the side; names of systems give way."""
        wanted = [f"{entry} +{side}" if entry[:1] in "+-%" else f"+{side}" for entry in cls.theirs[0]]
        return list(dict.fromkeys(wanted))

    @classmethod
    def tags_of(cls, case):
        """Return its tags, those that it gives itself included."""
        return set(cls.tags) | set(case.tags)

    @classmethod
    def unfit(cls, case):
        """Return why no partition or stack fits what it asks for."""
        for side in ("native", "virtual"):
            fitting = rt.valid_sysenv_comb(cls.systems(side), cls.environments())
            if features(side) and not any(fitting.values()):
                systems, environments = map(list, cls.theirs)
                return (
                    f"no {side} partition and stack fit its valid_systems {systems} and valid_prog_environs "
                    f"{environments} (judge(..., systems=['*'], environments=['*']) takes any)"
                )
        return ""

    @run_after("setup")
    def refuse_what_cannot_be_paired(self):
        """It has to run in a job of its side's partition, where it can note what it sees."""
        if self.is_local():
            raise SanityError("it runs on this machine (local), not on the nodes that are compared")
        if self.container_platform.image:
            raise SanityError("it runs in a container, in which it cannot be noted what its tasks see")
        # An environment of the site's own is no stack, and has none of a stack's marks.
        self.current_environ.extras.setdefault("stack_hash", "none")

    @run_before("run")
    def note_what_it_sees(self):
        """Put the notes around its program, however it has been named by now."""
        self.num_tasks = 1 if self.num_tasks is None else self.num_tasks
        program = shlex.split(self.executable)[0]
        # The shell finds it, after the check's modules were loaded.
        self.note_around(f'"$(command -v {program} || echo {program})"')

    @run_before("performance")
    def report_values(self):
        """Take the check's values once, by its own functions, and keep the run."""
        units = self.take_values()
        setting = self.case.replace(" %", ", ")
        self.results = [
            value.result(setting, self.values[name], units[name]) for name, value in self.judged_as.items()
        ]
        self.measure()
        if self.warm_up:
            self.perf_variables = {}
        if self.slot.side == "virtual" or self.warm_up:
            # Absolute references are native's: virtual is held against native.
            self.reference, self.require_reference = {}, False

    def take_values(self):
        """Evaluate the performance variables, however the check declares them; return their units."""
        patterns = getattr(self, "perf_patterns", None)
        if patterns:
            reference = self._resolve_reference()
            functions = {
                name: sn.make_performance_function(expression, self._unit_in(reference, name))
                for name, expression in patterns.items()
            }
            self.perf_patterns = None
        else:
            functions = dict(self.perf_variables)
        if missing := sorted(self.judged_as.keys() - functions.keys()):
            raise SanityError(
                f"the check has no performance variable {', '.join(missing)}; it has {', '.join(functions)}"
            )
        self.values, units = {}, {}
        with osext.change_dir(self.stagedir):
            for name, function in functions.items():
                try:
                    self.values[name], units[name] = function.evaluate(), function.unit
                except Exception as error:
                    raise SanityError(f"no value for {name}: {error}") from error
        self.refuse_no_numbers(self.values)
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), units[name])
            for name, value in self.values.items()
        }
        return units

    def _unit_in(self, reference, name):
        entry = reference.get(f"{self.current_partition.fullname}:{name}")
        return (entry[3] if entry and len(entry) > 3 else None) or ""

    def read(self):
        """Return what was taken: its sanity has been proven by the check itself."""
        return self.results

    def expected_values(self):
        """Every value of the check must arrive, under its own name."""
        return self.values


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
    tags=("quick", "full"),
):
    """Make a paired, judged check of one that knows nothing of virtqual.

    Parameters
    ----------
    check
        Class of the check; or ``"FILE:CLASS"``, with the file beside the caller's or absolute.
    better
        Better direction of each performance variable, by name: ``"higher"`` or ``"lower"``.
    budget, margin
        Of these variables: by which factor virtual may be worse than native (1.05: a time of 1.05x, a rate
        of 0.95x), and how far above it an overhead may hide (0.03).
    metrics
        By name of performance variable: its metric in ``references/metrics/``, which has budget and margin.
    units
        Unit of each performance variable, by name, where the check states none.
    systems, environments
        Features of partitions and stacks to run with, instead of its ``valid_systems`` and
        ``valid_prog_environs``; ``["*"]`` for any.
    name
        Name of the new check; the old check's if empty.  The verdict is ``NAME_overhead``.
    tags
        To add: of the scope, and by topic.

    Returns
    -------
    type
        The new check.

    Raises
    ------
    ValueError
        Naming what is missing or contradicts itself.
    """
    caller = sys._getframe(1).f_globals
    if isinstance(check, str):
        check = _load(check, Path(caller["__file__"]).parent)
    if issubclass(check, rfm.CompileOnlyRegressionTest):
        raise ValueError(f"{check.__name__} runs nothing that could be compared")
    if check.num_variants != len(check.param_space):
        raise ValueError(
            f"{check.__name__} has fixtures with parameters, and a sample cannot say which it had: judge "
            "a subclass whose fixtures have one value each"
        )
    if clash := sorted(_own_names(Foreign) & _own_names(check)):
        raise ValueError(f"{check.__name__} and the pairing both define {', '.join(clash)}")
    name = name or check.__name__
    body = {
        "descr": set_to(check, "descr", "") or name,
        "judged_as": _values(name, better or {}, budget, margin, metrics or {}, units or {}),
        "theirs": (
            tuple(systems or set_to(check, "valid_systems", ["*"])),
            tuple(environments or set_to(check, "valid_prog_environs", ["*"])),
        ),
        "tags": set(set_to(check, "tags", ())) | set(tags),
    }
    new = make_test(name, (Foreign, check), body, module=caller["__name__"], custom_prefix=check._rfm_prefix)
    # ReFrame finds a test of an earlier run (--restore-session) by its name in its file.
    caller[name] = simple_test(new)
    return caller[name]


def _load(where, beside):
    """Return the class of ``FILE:CLASS``."""
    file, _, name = where.rpartition(":")
    if not (beside / file).is_file():
        raise ValueError(f"judge({where!r}): expected FILE:CLASS, and there is no file {beside / file}")
    module = import_module_from_file(str(beside / file), load_parents=True)
    if not hasattr(module, name):
        raise ValueError(f"judge({where!r}): {file} has no class {name}")
    return getattr(module, name)


def _own_names(check):
    """Return what a class and its bases define, but for ReFrame's own."""
    bases = [base for base in check.__mro__ if not base.__module__.startswith(("reframe.core", "builtins"))]
    named = {name for base in bases for name in vars(base)}
    spaces = {*check.var_space.vars, *check.raw_params, *check.fixture_space.fixtures}
    return {name for name in named | spaces if not name.startswith("_")} - _reframe_names()


def _reframe_names():
    test = rfm.RegressionTest
    return {*dir(test), *test.var_space.vars}


def _values(check, better, budget, margin, metrics, units):
    """Return by performance variable the metric as which it is judged."""
    if both := sorted(better.keys() & metrics.keys()):
        raise ValueError(
            f"{', '.join(both)}: metrics of references/ have a direction; leave them out of `better`"
        )
    if not better and not metrics:
        raise ValueError(
            f"{check}: name the performance variables that are judged, in `better` or in `metrics`"
        )
    if better and (budget is None or margin is None):
        raise ValueError(f"{check}: {', '.join(better)} need `budget` (such as 1.05) and `margin` (0.03)")
    known = project_references().metrics
    found = {
        variable: Value(known[metric].name, units.get(variable, ""), {})
        for variable, metric in metrics.items()
    }
    for variable, direction in better.items():
        declared = {"better": direction, "budget": budget, "margin": margin}
        # At once: a mistake must not wait for the first run.
        Declared(unit="any", **declared)
        metric = re.sub(r"\W+", "_", f"{check}_{variable}").lower()
        found[variable] = Value(metric, units.get(variable, ""), declared)
    return found
