"""The project's ``checks/`` as a package: a site's checks import ``virtqual.checks.judged`` and others."""

from virtqual import paths

__path__ = [str(paths.root() / "checks")]
