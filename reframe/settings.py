"""ReFrame's site configuration: one system a file under ``systems/``, environments from the stacks."""

import sys

from virtqual.errors import VirtqualError
from virtqual.harness import guards, steps
from virtqual.qualify import plain
from virtqual.site import configuration as site

guards.install(plain.run_session)
steps.install()
try:
    site_configuration = site.configuration()
except VirtqualError as error:
    sys.exit(f"virtqual: {error}")
