"""The scripts of `ci/` that set up Python and Spack, with stand-ins for programs."""

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile

import pytest

from made_programs import write_program
from virtqual import paths
from virtqual.files.reading import compute_sha256

TOOLS = ("bash", "sh", "cat", "cp", "dirname", "flock", "id", "mkdir", "sha256sum", "grep", "tail", "sed")
# A Python of the machine, which makes an environment.
PYTHON = """#!/bin/sh
case "$*" in
    "-c import sys"*) exit {too_old} ;;
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo "{name}" > taken ;;
esac
"""
# The Python of an environment, with a pip that fails or not.
PIP = """#!/bin/sh
echo "$*" > pip-arguments
echo "WARNING: Retrying" >&2
echo "      ERROR: No matching distribution found for setuptools>=77" >&2
echo "note: This error originates from a subprocess, and is likely not a problem with pip." >&2
exit $FAKE_PIP
"""
SPACK = """#!/bin/sh
echo "$*" >> commands
[ "$1" != arch ] || echo debian12
[ "$1" != --version ] || cat version
[ "$3" != install ] || [ ! -e no-compiler ]
"""


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    shutil.copytree(paths.root() / "ci", root / "ci")
    for name in ("pyproject.toml", "requirements.lock"):
        (root / name).write_text(name)
    return root


@pytest.fixture
def run(checkout):
    def run(name, *arguments, code=None, **env):
        command = ["bash", f"ci/{name}", *arguments]
        env = {**os.environ, **env}
        done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
        assert code in (None, done.returncode), done.stderr
        return done

    return run


@pytest.mark.parametrize("name", ["build-stack", "demo", "lock", "nightly.sbatch", "setup", "test", "venv"])
def test_help_installs_nothing(run, checkout, name):
    files = set(checkout.rglob("*"))
    done = run(name, "--help", PATH=str(checkout.parent) + ":/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) >= 2
    assert not done.stdout.startswith("#")
    assert set(checkout.rglob("*")) == files


@pytest.mark.parametrize("name", ["build-stack", "setup"])
def test_an_unknown_option_is_refused(run, checkout, name):
    done = run(name, "--sett")
    assert (done.returncode, done.stderr) == (2, f"ci/{name}: unknown option --sett (see --help)\n")
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("pythons", "env", "taken"),
    [
        ({"python3": False, "python3.13": False}, {}, "python3"),
        ({"python3": True, "python3.11": False, "python3.12": False}, {}, "python3.12"),
        ({"python3": False, "mine": False}, {"VIRTQUAL_PYTHON": "mine"}, "mine"),
        ({"python3": True, "mine": True}, {}, None),
        ({"python3": True, "mine": True, "python3.12": False}, {"VIRTQUAL_PYTHON": "mine"}, None),
    ],
    ids=["python3 is new enough", "RHEL 9", "it is named", "all are too old", "the named one is too old"],
)
def test_the_first_python_that_is_new_enough(run, checkout, tmp_path, pythons, env, taken):
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    for name, too_old in pythons.items():
        write_program(tmp_path / "bin" / name, PYTHON.format(name=name, too_old=int(too_old)))
    done = run("venv", code=0 if taken else 5, PATH=str(tmp_path / "bin"), **env)
    if taken:
        assert (checkout / "taken").read_text().strip() == taken
    else:
        assert f"is needed; none of {env.get('VIRTQUAL_PYTHON', 'python3 python3.14')}" in done.stderr
        for way in ("dnf install python3.11", "apt-get install python3 python3-venv", "VIRTQUAL_PYTHON="):
            assert way in done.stderr


def test_a_changed_lock_is_installed(run, checkout):
    write_program(checkout / ".venv/bin/python", PIP)
    write_program(checkout / ".venv/bin/virtqual", "")
    for lock, installs in (("a", True), ("a", False), ("b", True)):
        (checkout / "requirements.lock").write_text(lock)
        (checkout / "pip-arguments").unlink(missing_ok=True)
        run("venv", code=0, FAKE_PIP="0")
        assert (checkout / "pip-arguments").exists() is installs


def test_an_environment_that_was_left_half_made_is_made_again(run, checkout, tmp_path):
    """The script was killed while venv installed pip."""
    write_program(tmp_path / "bin/python3", PYTHON.format(name="python3", too_old=0))
    write_program(checkout / ".venv/bin/python", "#!/bin/sh\necho No module named pip >&2\nexit 1\n")
    (checkout / ".venv/pyvenv.cfg").touch()
    run("venv", code=0, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert (checkout / "taken").exists()


def test_two_installations_at_once_are_one(run, checkout):
    """A slow pip fails if it runs twice at a time, and the second call finds nothing left to install."""
    pip = '#!/bin/sh\nmkdir installing || exit 1\nsleep 0.3\nrmdir installing\necho "$*" >> pip-arguments\n'
    write_program(checkout / ".venv/bin/python", pip)
    write_program(checkout / ".venv/bin/virtqual", "")
    both = [subprocess.Popen(["bash", "ci/venv"], cwd=checkout) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert len((checkout / "pip-arguments").read_text().splitlines()) == 2


def test_the_checkout_that_was_activated_last_runs_with_its_own_packages(checkout, tmp_path):
    other = shutil.copytree(checkout, tmp_path / "other")
    for root in (checkout, other):
        write_program(root / ".venv/bin/virtqual", "")
    line = f". {checkout}/ci/activate; . {other}/ci/activate; cd {checkout.parent}; . checkout/ci/activate"
    line += '; command -v virtqual; echo "$VIRTQUAL_ROOT${PYTHONPATH-}"'
    env = {**os.environ, "PYTHONPATH": "/module", "CDPATH": f"{other.parent}:/"}
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == [str(checkout / ".venv/bin/virtqual"), str(checkout)]


def test_a_python_that_this_machine_lacks_is_named(run, checkout):
    """A session as a job may begin on a node without the login node's Python."""
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to("/nowhere/python3.11")
    done = run("venv", code=5)
    assert ".venv was made with /nowhere/python3.11, which is not on" in done.stderr


def test_a_failure_of_pip_is_one_message(run, checkout):
    write_program(checkout / ".venv/bin/python", PIP)
    done = run("venv", code=5, FAKE_PIP="1")
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("ci/venv: "))
    assert line.endswith("could not be installed: ERROR: No matching distribution found for setuptools>=77")
    assert "Retrying" not in done.stderr
    assert "PIP_FIND_LINKS=DIR" in done.stderr
    assert not list((checkout / ".venv").glob("*.sum"))
    run("venv", code=0, FAKE_PIP="0")


def test_a_wheel_with_another_hash_is_refused(run, checkout, tmp_path):
    wheel = tmp_path / "index/needed-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        info = "needed-1.dist-info"
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: needed\nVersion: 1\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    assert compute_sha256(wheel) != "0" * 64
    (checkout / "requirements.lock").write_text(f"needed==1 --hash=sha256:{'0' * 64}\n")
    # The real pip, which does not come to installing.
    write_program(checkout / ".venv/bin/python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    done = run("venv", code=5, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheel.parent))
    assert "could not be installed: another hash than in the lock: needed==1" in done.stderr


def git(directory, *arguments):
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", directory, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def build(run, checkout, tmp_path):
    """Run `ci/build-stack` with repositories of one recipe and a stand-in for Spack."""
    write_program(tmp_path / "git/spack.git/bin/spack", SPACK)
    write_program(tmp_path / "git/spack-packages.git/recipe", "")
    commits = []
    for name in ("spack", "spack-packages"):
        repository = tmp_path / f"git/{name}.git"
        git(repository, "init", "--quiet")
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "--message", "pinned")
        commits.append(git(repository, "rev-parse", "HEAD"))
        git(repository, "commit", "--quiet", "--allow-empty", "--message", "newer")
    script = checkout / "ci/build-stack"
    script.write_text(re.sub(r"(?<=spack_commit=)\w+", commits[0], script.read_text()))
    text = (paths.root() / "spack.yaml").read_text(encoding="utf-8")
    text = re.sub(r"(?<=commit: )\w+", commits[1], text)
    (checkout / "spack.yaml").write_text(text, encoding="utf-8")
    (checkout / "spack.lock").write_text('"platform_os": "debian12"')
    (checkout / "NAMD_2.14_Source.tar.gz").touch()
    write_program(checkout / ".venv/bin/python", PIP)
    write_program(checkout / ".venv/bin/virtqual", '#!/bin/sh\necho "virtqual $*" >> commands\n')

    def build(*arguments, git=tmp_path / "git", root=""):
        env = {"VIRTQUAL_GIT": str(git), "SPACK_ROOT": str(root), "VIRTQUAL_SITE": ""}
        done = run("build-stack", *arguments, FAKE_PIP="0", **env)
        commands = checkout / "commands"
        lines = commands.read_text().splitlines() if commands.exists() else []
        commands.unlink(missing_ok=True)
        return done, lines

    return build


def test_spack_and_recipes_are_brought_once(build, checkout, tmp_path):
    done, commands = build("stream", "hpl")
    assert done.returncode == 0, done.stderr
    assert commands == [
        "arch --operating-system",
        "-e . install --only-concrete stream hpl",
        "virtqual stack register --spack .",
    ]
    (recipe,) = checkout.glob(".virtqual/spack-packages-*/recipe")
    assert recipe.is_file()
    assert done.stdout.count("fetching") == 2
    done, commands = build(git=tmp_path / "gone")
    assert (done.returncode, done.stdout) == (0, "")
    assert commands[1] == "-e . install --only-concrete"


@pytest.mark.parametrize(("version", "code"), [("0.23.1", 2), ("1.0.2", 2), ("1.1.0 (x)", 0), ("1.10.0", 0)])
def test_a_centres_own_spack_must_be_new_enough(build, checkout, tmp_path, version, code):
    (checkout / "version").write_text(version)
    done, commands = build("stream", root=tmp_path / "git/spack.git")
    assert (done.returncode, commands[0]) == (code, "--version")
    assert ("older than Spack 1.1: `unset SPACK_ROOT`" in done.stderr, len(commands) == 1) == (code == 2,) * 2


def test_what_cannot_be_built_is_named(build, checkout, tmp_path):
    done, commands = build("stream", "stream2")
    assert (done.returncode, commands) == (2, [])
    assert "no program stream2 in spack.yaml: it has " in done.stderr
    assert " hpl ior lammps milc " in done.stderr
    done, _ = build(git=tmp_path / "gone")
    assert done.returncode == 5
    assert "spack-packages.git cannot be fetched: VIRTQUAL_GIT names a copy of it" in done.stderr


def test_a_build_of_all_programs_begins_only_with_the_source_of_namd(build, checkout):
    """Spack would miss it after hours, in which the other programs were built."""
    (checkout / "NAMD_2.14_Source.tar.gz").unlink()
    for arguments in ((), ("stream", "namd")):
        done, commands = build(*arguments)
        assert (done.returncode, commands) == (2, [])
        assert "NAMD_2.14_Source.tar.gz is not in " in done.stderr
    others = done.stderr.partition("Without NAMD: ci/build-stack ")[2].split()
    assert {"lammps", "npb", "stream"} <= set(others)
    assert build(*others)[0].returncode == 0
    manifest = checkout / "site/stacks/spack/manifest.json"
    write_program(manifest, '{"programs": [{"name": "namd"}]}')
    assert build()[0].returncode == 0


def test_what_was_built_is_registered_although_another_program_failed(build, checkout):
    (checkout / "no-compiler").touch()
    done, commands = build("stream", "hpl")
    assert done.returncode == 5
    assert commands[-1] == "virtqual stack register --spack ."
    assert "those that it has built are registered" in done.stderr


def test_versions_are_chosen_anew_for_another_machine_or_site(build, checkout):
    (checkout / "spack.lock").write_text('"platform_os": "rocky9"')
    assert build()[1][1] == "-e . concretize --force"
    (checkout / "spack.lock").write_text('"platform_os":"debian12"')
    assert build("--concretize")[1][1] == "-e . concretize --force"
    git(checkout, "init", "--quiet")
    git(checkout, "add", "spack.lock")
    git(checkout, "commit", "--quiet", "--message", "shipped")
    assert build()[1][1] == "-e . install --only-concrete"
    (checkout / "site/spack").mkdir(parents=True)
    assert build()[1][1] == "-e . concretize --force"
    (checkout / "spack.lock").write_text('the site\'s: "platform_os": "debian12"')
    assert build()[1][1] == "-e . install --only-concrete"
    changed = checkout / "site/spack/packages.yaml"
    changed.touch()
    os.utime(changed, (time.time() + 5,) * 2)
    assert build()[1][1] == "-e . concretize --force"


def test_a_failed_fetch_leaves_nothing(build, checkout, tmp_path):
    done, commands = build(git=tmp_path / "gone")
    assert (done.returncode != 0, commands) == (True, [])
    assert [path.suffix for path in (checkout / ".virtqual").iterdir()] == [".part"]
