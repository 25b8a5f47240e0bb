"""The errors of vcluster: one sentence a person can act on, and the exit code it ends in."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster cannot do what was asked; the message says what is wrong and what to do.

    Attributes
    ----------
    exit_code : int
        Exit code of a command that ends in this error.
    """

    exit_code = 1


class OptionError(ClusterError):
    """An option is wrong, or does not fit the cluster that runs."""

    exit_code = 2


class RequirementError(ClusterError):
    """The machine lacks something: a program, a right, a kernel feature."""

    exit_code = 5


class BootError(ClusterError):
    """A part of the cluster did not start."""

    exit_code = 5


class NodeError(ClusterError):
    """The cluster runs, but a part of it is lost."""

    exit_code = 5


class NotUpError(ClusterError):
    """Something was asked of a cluster that does not run."""

    exit_code = 1


class StateError(ClusterError):
    """The state file is missing, damaged or of another version."""

    exit_code = 5
