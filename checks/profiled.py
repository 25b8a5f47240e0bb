"""The share of its time that a program waits for messages: by mpiP, if the program does not print it."""

from pathlib import Path

import reframe as rfm

from virtqual.harness import order
from virtqual.identity.record import NotObservable
from virtqual.programs import mpip
from virtqual.programs.text import OutputError

from .asked import as_asked

FEATURE = "mpi-profile"
# One table of each task's times, in milliseconds; the lines of the source that called are of no interest.
MPIP_OPTIONS = "-d -e -k 0 -f ."
# By scale: a run that does not end must not take the timed runs along.
PROFILE_LIMITS_S = {"small": 120, "standard": 1200}
VERSIONS = ("short", "long")


class Profiled(rfm.RegressionTestPlugin):
    """Runs the program again on all processes, under a profiler, once in a short and once in a long version.

    The difference of both is the extra work of the long run: time steps, without reading, set-up and writing,
    during which tasks wait for the one that does it.  Neither run is timed: they come after the timed one,
    and a profiler that fails costs the share of communication and nothing else.  Only the first pair
    of a run of ReFrame has them: the share describes the case, not its speed.

    Goes before a :class:`~checks.base.Measurement`, whose ``arrange`` calls `plan_profiles` last.  The
    subclass puts the files in which the versions differ beside the job script, with ``.short`` or ``.long``
    behind their names, and reads a run in `read_profiled_seconds`.
    """

    #: The feature that the stack may have, with what cannot be observed without it.
    optional = {FEATURE: "its share of communication"}
    #: The files in which both versions differ.
    differing_files = ()

    def read_profiled_seconds(self, directory, version):
        """Return the time of a finished run's steps, or raise an error if the run does not count."""
        raise NotImplementedError

    def explain_no_profiler(self):
        """Return why there is no profiler to use; None if there is one."""
        profiler = self.current_environ.extras["programs"].get(FEATURE)
        if profiler is None:
            return f"no program with the feature {FEATURE!r} in the stack"
        if profiler["mpi"] != self.program["mpi"]:
            names = self.program["name"], profiler["name"]
            return f"{names[0]} runs over {self.program['mpi']}, {names[1]} is for {profiler['mpi']}"
        return None

    def is_profiled(self):
        """Return whether this run is followed by the profiled ones."""
        first = (order.parse_pairs()[0], 0)
        return self.rotation.divided(self.slot.pair) == first and not self.warm_up

    def plan_profiles(self):
        """Add both runs after the timed one, in directories that are made before it leaves its outputs."""
        if self.explain_no_profiler() or not self.is_profiled():
            return
        library = self.current_environ.extras["programs"][FEATURE]["path"]
        limit = f"timeout --kill-after=10 {PROFILE_LIMITS_S[self.partition_extras['scale']]}"
        # Into the program alone: the launcher is no MPI program.
        preload = f"env MPIP='{MPIP_OPTIONS}' LD_PRELOAD={library}"
        run = " ".join([limit, self.launch_command(), preload, self.executable, *self.executable_opts])
        for version in VERSIONS:
            room = f"profile-{version}"
            links = " && ".join(f"ln -sf ../{name}.{version} {name}" for name in self.differing_files)
            self.prerun_cmds += [f"mkdir {room} && (cd {room} && ln -s ../* . && {links})"]
            self.postrun_cmds += [f"(cd {room} && {run} > output 2>&1 || echo $? > failed)"]

    def read_profile(self, directory):
        """Return the profile of a run; a failure of the program after its report does not change it."""
        reports, failed = sorted(directory.glob("*.mpiP")), directory / "failed"
        if len(reports) != 1:
            code = f", exit code {failed.read_text(encoding='utf-8').strip()}" if failed.is_file() else ""
            raise OutputError(mpip.NAME, f"{len(reports)} reports in {directory.name}{code}")
        profile = mpip.parse(reports[0].read_text(encoding="utf-8", errors="replace"))
        as_asked(mpip.NAME, tasks=(len(profile.seconds), self.num_tasks))
        return profile

    def read_share(self):
        """Return the share of communication in the long run's extra work, or why it is not observable.

        None if this run is not profiled.
        """
        if reason := self.explain_no_profiler():
            return NotObservable(not_observable=reason)
        if not self.is_profiled():
            return None
        rooms = {version: Path(self.stagedir) / f"profile-{version}" for version in VERSIONS}
        try:
            short, long = (self.read_profile(room) for room in rooms.values())
            short_s, long_s = (self.read_profiled_seconds(room, name) for name, room in rooms.items())
            return long.beyond(short, long_s - short_s).share
        except OutputError as error:
            return NotObservable(not_observable=str(error))
