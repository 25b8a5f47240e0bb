"""The rehearsed centre's system: the file that `virtqual system init` wrote there, as a test varies it."""

import os
import runpy
from pathlib import Path

system = runpy.run_path(str(Path(os.environ["CENTRE"]) / "site/systems/centre.py"))["system"]
ACCOUNT = os.environ.get("CENTRE_ACCOUNT", "performance")
ACCESS = os.environ.get("CENTRE_ACCESS", "").split()
# A command that brings what the hosts say into a directory; without it the system file states the build.
ASKED = os.environ.get("CENTRE_HOSTS")

for partition in system["partitions"]:
    extras = partition["extras"]
    # Programs sleep for a second where real ones would compute for a minute: each is started once.
    extras["run_seconds"] = float(os.environ.get("CENTRE_RUN_SECONDS", "0"))
    for keys, name in ((partition, "access"), (extras, "session_access")):
        words = [word.replace("--account=performance", f"--account={ACCOUNT}") for word in keys[name]]
        keys[name] = [*words, *ACCESS]
    # Where a site forbids long jobs, each run is a job of its own.
    if os.environ.get("CENTRE_HELD") == "no":
        del extras["session_access"]
    if limit := os.environ.get("CENTRE_TIME_LIMIT"):
        partition["time_limit"] = limit
    if ASKED and "hypervisor" in extras:
        del extras["hypervisor"]["build"]
        extras |= {"host": ASKED, "ask_hosts": [f"{ASKED}/ask"]}
