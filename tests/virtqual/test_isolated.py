"""What people and schedulers start on a site without a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from calling import call
from made_programs import write_program
from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.stack import registry

ROOT = Path(__file__).parents[2]
NO_WAY_OUT = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]


@pytest.fixture
def isolated(site):
    """Run a script of a checkout whose Python is set up, in a network namespace without a way out."""
    if subprocess.run([*NO_WAY_OUT, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespaces for this user")
    root = site.path / "checkout"
    (root / ".venv/bin").mkdir(parents=True)
    shutil.copytree(ROOT / "ci", root / "ci")
    for room in ("checks", "reframe", "references", "src"):
        (root / room).symlink_to(ROOT / room)
    inputs = ("pyproject.toml", "requirements.lock")
    for name in inputs:
        (root / name).touch()
    program = f"#!{sys.executable}\nfrom virtqual.cli import app\napp()\n"
    write_program(root / ".venv/bin/virtqual", program)
    done = subprocess.run(["sha256sum", *inputs], cwd=root, capture_output=True, check=True)
    (root / ".venv/virtqual.sum").write_bytes(done.stdout)

    def run(name, *arguments):
        return site.run(*NO_WAY_OUT, "bash", str(root / "ci" / name), *arguments)

    return run


def test_the_main_job_needs_no_network_where_a_stack_is(isolated):
    done = isolated("qualify", "--system", "testsite", "-n", "stream%")
    assert "stack fake is set up: nothing is installed into the registry stack" in done.stdout
    # As far as to ReFrame, on a Slurm.
    why = "virtqual: the checks that -n and -t select cannot run here: no program in the stack"
    assert done.stderr.startswith(why), done.stderr


@pytest.fixture
def setup(site, monkeypatch):
    """Start `virtqual setup` where no command that would install something works."""

    def refused(command, failed, **how):
        raise InfrastructureError(failed)

    for key, value in site.env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(execute, "run_checked", refused)
    monkeypatch.setattr(registry, "_read_version", lambda package: None if package == "missing" else "1")

    def start(*arguments, code):
        return call("setup", *arguments, code=code).output

    return start


def test_the_registry_stack_is_set_up_where_it_is_used(setup, site):
    assert "could not make a Python environment" in setup("--stack", "registry", code=5)
    assert "nothing is installed" in setup(code=0)
    assert "--extra is for the registry stack, and fake is used" in setup("--extra", "x", code=2)
    assert "the registry stack has no extra 'x'" in setup("--stack", "registry", "--extra", "x", code=2)
    told = setup("--stack", "spack", code=2)
    assert "no stack 'spack' is set up (there are: fake); ci/build-stack sets it up" in told
    (site.path / "site/stacks/fake/manifest.json").unlink()
    told = setup(code=5)
    assert "so the registry stack cannot be set up here" in told
    assert "takes installed programs (docs/stack.md)" in told
    # One that another virtqual wrote is set up again, and does not stand in its own way.
    (site.path / "site/stacks/registry").mkdir(exist_ok=True)
    (site.path / "site/stacks/registry/manifest.json").write_text("{}")
    assert "could not make a Python environment" in setup(code=5)


def test_what_else_needs_packages_is_told_of_them_alone(setup, monkeypatch):
    assert "registry stack cannot" not in setup("--package", "missing", code=5)
    monkeypatch.setattr(registry.shutil, "which", lambda name: None)
    assert "nothing is installed" in setup(code=0)
    told = setup("--package", "missing", code=5)
    assert "this machine is no Debian (it has no dpkg-query), and these packages are needed: missing" in told
    assert "no Debian" in setup("--stack", "registry", code=5)
