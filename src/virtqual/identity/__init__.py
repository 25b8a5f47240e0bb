"""The identity of a node: gathered without privileges, read by pure functions, kept with every result.

`gather` collects files, `readers` makes the `record` of them, `host` adds what only the hypervisor's host can
say, and `load` says what a node had to bear while something ran.
"""

from virtqual.identity.load import Load
from virtqual.identity.record import Host, Identity, NotObservable, seen

__all__ = ["Host", "Identity", "Load", "NotObservable", "seen"]
