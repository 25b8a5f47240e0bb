"""ReFrame's site configuration: one system a file under ``systems/``, environments from the stacks."""

from pathlib import Path

from virtqual.harness import guards, steps
from virtqual.qualify import plain
from virtqual.site import configuration as site

guards.install(plain.run_session)
steps.install()
site_configuration = site.configuration(Path(__file__).parent / "systems")
