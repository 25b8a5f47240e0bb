"""Fixtures that every room of the tests may use."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import forked
from following import until
from made_programs import write_program
from made_runs import read_session
from virtqual.session.log import Log
from virtqual.stack.manifest import Manifest, Program

ROOT = Path(__file__).parents[1]
FAKE = ROOT / "tests/fakeslurm"


#: Events of Python's audit that start a process.
PROCESS_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}

STARTS_A_PROCESS = "starts a process: `ci/test` without --quick runs it"


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="skip each test when it starts a process")


def pytest_configure(config):
    """Skip a test at its first process if --quick is set: no list of slow tests can become outdated."""
    if config.getoption("--quick"):
        worker = os.getpid()

        def audit(event, _arguments):
            if event in PROCESS_EVENTS and os.getpid() == worker and "PYTEST_CURRENT_TEST" in os.environ:
                pytest.skip(STARTS_A_PROCESS)

        sys.addaudithook(audit)


@pytest.fixture(autouse=True)
def own_environment(request, tmp_path_factory, monkeypatch):
    """Keep tests out of the checkout's site directory, but for those that run the stacks in it."""
    # A container need not set it.
    monkeypatch.setenv("USER", "tester")
    if not any(request.node.get_closest_marker(name) for name in ("cluster", "centre", "slow")):
        monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path_factory.mktemp("site")))


@cache
def read_items() -> list[dict]:
    """Return the items of the project's preflight."""
    return YAML(typ="safe").load(ROOT / "references/preflight.yaml")["items"]


@dataclass
class Site:
    """A site with a stand-in for Slurm, a stand-in for LAMMPS, and real ReFrame."""

    path: Path
    env: dict[str, str]

    until = staticmethod(until)

    def fault(self, name: str, content: str = "") -> None:
        """Break something; the stand-ins look for these files."""
        (self.path / "slurm" / name).write_text(content, encoding="utf-8")

    def mend(self, name: str) -> None:
        (self.path / "slurm" / name).unlink()

    def stand_in(self, name: str, text: str, *partitions: str) -> None:
        """Put a program before all others on the nodes of these partitions, of both if none is named."""
        for partition in partitions or ("bare", "cloud"):
            write_program(self.path / f"slurm/bin.{partition}/{name}", text)

    def submitted(self) -> list[str]:
        """Return the samples whose runs were submitted, in their order."""
        return [re.search(r"sample=(\S+)", event["case"])[1] for event in self.events("submitted")]

    def report(self, *items: str) -> None:
        """State in the site's references that these items of preflight refuse nothing."""
        entries = [
            {**item, "actions": {"default": "report"}} for item in read_items() if item["item"] in items
        ]
        self.add_reference("preflight.yaml", json.dumps({"schema": "virtqual-preflight/1", "items": entries}))

    def add_reference(self, name: str, text: str) -> None:
        """Write a file of the site's references."""
        file = self.path / "site/references" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run(self, *command: str, code: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the site; it has to end with the exit code, if one is given."""
        if command[0] in forked.PROGRAMS:
            done = forked.run_program(command, {**self.env, **env}, self.path, timeout_s=180)
        else:
            done = subprocess.run(
                command,
                env={**self.env, **env},
                cwd=self.path,
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
        assert code in (None, done.returncode), f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def reframe(self, *options: str, checks: str | Path = "", code: int | None = None, **env: str):
        """Run the plain `reframe` command on the site; returns what it did.

        `checks` is a directory, or a file of the project's checks: all take a second longer to load.
        """
        where = str(ROOT / "checks" / checks)
        return self.run("reframe", "-c", where, "-r", "--system", "testsite", *options, code=code, **env)

    def lammps(self, *options: str, code: int | None = None, **env: str):
        """Run the check of LAMMPS that every stack can run by the plain `reframe` command."""
        return self.reframe("-n", "lammps.*lj", *options, checks="lammps.py", code=code, **env)

    def virtqual(self, *options: str, code: int | None = None, **env: str):
        return self.run("virtqual", *options, code=code, **env)

    def qualify(self, *options: str, code: int | None = None, **env: str):
        return self.virtqual("qualify", "--system", "testsite", *options, code=code, **env)

    @staticmethod
    def words(done: subprocess.CompletedProcess[str]) -> str:
        """Return what a command printed, without line breaks."""
        return " ".join((done.stdout + (done.stderr or "")).split())

    def directory(self, number: int = -1) -> Path:
        """Return the directory of a session, by default of the latest."""
        return sorted((self.path / "state/sessions").glob("2*"))[number]

    def log(self, number: int = -1) -> Log:
        return Log(self.directory(number))

    def session(self, number: int = -1) -> dict:
        return read_session(self.directory(number))

    def events(self, kind: str = "", number: int = -1) -> list[dict]:
        """Return the lines of a session's log, of one kind or all."""
        lines = (self.directory(number) / "log.jsonl").read_text("utf-8").splitlines()
        return [event for event in map(json.loads, lines) if kind in ("", event["event"])]

    def start(self, *options: str, **env: str) -> subprocess.Popen[str]:
        """Start `virtqual`, to be followed by `until` and ended by the test."""
        return subprocess.Popen(
            ["virtqual", *options],
            env={**self.env, **env},
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Two partitions on a stand-in for Slurm, class kvm, and a stack that has a stand-in for LAMMPS."""
    return build_site(tmp_path)


def build_site(tmp_path: Path) -> Site:
    """Make a site in a directory; see the fixture `site`."""
    slurm, own = tmp_path / "slurm", tmp_path / "site"
    slurm.mkdir()
    (tmp_path / "state").mkdir()
    stack = own / "stacks/fake"
    bench = stack / "bench"
    bench.mkdir(parents=True)
    (bench / "in.lj").write_text("create_atoms 1 box\nrun 100\n", encoding="utf-8")
    program = shutil.copy(FAKE / "lmp", stack)
    Manifest(
        name="fake",
        programs=(
            Program.from_files(
                Path(program),
                name="lammps",
                version="1",
                origin="the tests",
                features=("lammps",),
                data={"bench": bench},
            ),
        ),
    ).write(stack)
    (own / "systems").mkdir()
    shutil.copy(FAKE / "system.py", own / "systems/testsite.py")
    env = {
        **os.environ,
        "PATH": f"{FAKE}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FAKE_SLURM": str(slurm),
        "SLURM_CONF": str(slurm / "slurm.conf"),
        "VIRTQUAL_ROOT": str(ROOT),
        "VIRTQUAL_STATE": str(tmp_path / "state"),
        "VIRTQUAL_SITE": str(own),
        "RFM_CONFIG_FILES": str(ROOT / "reframe/settings.py"),
        "VCLUSTER_DIR": str(tmp_path / "none"),
        "COLUMNS": "80",
        # The stand-in for Slurm answers at once.
        "RFM_POLL_RATE_MAX": "100",
    }
    site = Site(tmp_path, env)
    # The machine of the tests is no exclusive node: what else it does must not decide what they see.
    site.report("steal", "foreign-load")
    return site


@pytest.fixture(scope="session")
def browser(pytestconfig):
    """A headless Chromium, that of the distribution."""
    if pytestconfig.getoption("--quick"):
        pytest.skip(STARTS_A_PROCESS)  # Playwright starts it in a coroutine, which no exception leaves
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("there is no chromium here (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright  # takes half a second, and few tests need it

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
