"""ReFrame's site configuration: one system a file under ``systems/``, environments from the stacks."""

from pathlib import Path

from virtqual.harness import guards, steps
from virtqual.qualify import plain
from virtqual.site import configuration as site

# The guards come first: what they refuse does not become a session.
plain.install()
guards.install()
steps.install()
site_configuration = site.configuration(Path(__file__).parent / "systems")
