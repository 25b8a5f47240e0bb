"""The share of its time that a program waits for messages: by mpiP, where the program does not say it."""

from pathlib import Path

import reframe as rfm

from virtqual.harness import order
from virtqual.identity.record import NotObservable
from virtqual.programs import mpip
from virtqual.programs.text import OutputError

from .asked import as_asked

FEATURE = "mpi-profile"
# One table of each task's times, in milliseconds; which line of the source called is of no interest.
OPTIONS = "-d -e -k 0 -f ."
# Seconds by scale: a run that does not end must not take the timed ones along.
LIMIT = {"small": 120, "standard": 1200}
VERSIONS = ("short", "long")


class Profiled(rfm.RegressionTestPlugin):
    """Runs the program again on all processes, under a profiler, once in a short and once in a long version.

    The difference of both is the extra work of the long run: time steps, without reading, set-up and writing,
    during which tasks wait for the one that does it.  Neither run is timed: they come after the timed one,
    and a profiler that fails costs the share of communication and nothing else.  Only the first pair
    of a run of ReFrame has them: they say what the case is, not how fast it was.

    Goes before a :class:`~checks.base.Measurement`, whose ``arrange`` calls `plan_profiles` last.  The
    subclass puts the files in which the versions differ beside the job script, under their names with
    ``.short`` or ``.long`` behind them, and says in `finished` what a run did.
    """

    optional = {FEATURE: "its share of communication"}
    #: The files in which both versions differ.
    differing = ()

    def finished(self, directory, version):
        """Return the seconds that a finished run's steps took, or raise an error that says what is wrong."""
        raise NotImplementedError

    def unobservable(self):
        """Return why there is no profiler to use; empty if there is one."""
        profiler = self.current_environ.extras["programs"].get(FEATURE)
        if profiler is None:
            return f"no program with the feature {FEATURE!r} in the stack"
        if profiler["mpi"] != self.program["mpi"]:
            ours, its = self.program["mpi"], profiler["mpi"]
            return f"{self.program['name']} runs over {ours}, {profiler['name']} is for {its}"
        return ""

    def awaited(self):
        """Return whether this is a run that is profiled too."""
        return self.slot.pair == order.parse_pairs()[0] and not self.warm_up

    def plan_profiles(self):
        """Add both runs after the timed one, in directories that are made before it leaves its outputs."""
        if self.unobservable() or not self.awaited():
            return
        library = self.current_environ.extras["programs"][FEATURE]["path"]
        launch = self.launch_command()
        run = " ".join([self.executable, *self.executable_opts])
        for version in VERSIONS:
            links = [f"ln -sf ../{name}.{version} {name}" for name in self.differing]
            room = f"profile-{version}"
            self.prerun_cmds += [f"mkdir {room} && (cd {room} && ln -s ../* . && {' && '.join(links)})"]
            # Into the program alone: what starts it is none of MPI's.
            within = f"env MPIP='{OPTIONS}' LD_PRELOAD={library}"
            limit = f"timeout --kill-after=10 {LIMIT[self.partition_extras['scale']]}"
            self.postrun_cmds += [
                f"(cd {room} && {limit} {launch} {within} {run} > output 2>&1 || echo $? > failed)"
            ]

    def profile(self, directory):
        """Return the profile of a run.

        Nothing that the program does after its report changes the profile (MPI libraries may not end).
        """
        reports, failed = sorted(directory.glob("*.mpiP")), directory / "failed"
        if len(reports) != 1:
            code = f", exit code {failed.read_text(encoding='utf-8').strip()}" if failed.is_file() else ""
            raise OutputError(mpip.NAME, f"{len(reports)} reports in {directory.name}{code}")
        profile = mpip.parse(reports[0].read_text(encoding="utf-8", errors="replace"))
        as_asked(mpip.NAME, tasks=(len(profile.seconds), self.num_tasks))
        return profile

    def share(self):
        """Return the share of communication in what the long run did more, or why it is not observable.

        None where another pair's run says it.
        """
        if why := self.unobservable():
            return NotObservable(not_observable=why)
        if not self.awaited():
            return None
        rooms = {version: Path(self.stagedir) / f"profile-{version}" for version in VERSIONS}
        try:
            short, long = (self.profile(room) for room in rooms.values())
            before, after = (self.finished(room, version) for version, room in rooms.items())
            return long.beyond(short, after - before).share
        except OutputError as error:
            return NotObservable(not_observable=str(error))
