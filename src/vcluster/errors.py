"""The errors of vcluster: each message says what is wrong and what to do."""


class ClusterError(Exception):
    """The cluster cannot do what a command asks for."""

    # The exit code of a command that ends in this error.
    exit_code = 1


class OptionError(ClusterError):
    """An option is wrong, or does not fit the cluster that runs."""

    exit_code = 2


class RequirementError(ClusterError):
    """The machine lacks a program, a right or a kernel feature."""

    exit_code = 5


class BootError(ClusterError):
    """A part of the cluster did not start."""

    exit_code = 5


class NodeError(ClusterError):
    """The cluster runs, but a part of it is lost."""

    exit_code = 5


class StateError(ClusterError):
    """The state file is missing, damaged or of another version."""

    exit_code = 5
