"""Programs that modules provide become a manifest; each mistake is reported with its line."""

import shutil
from pathlib import Path

import pytest

from calling import call
from made_programs import write_program
from virtqual.files.datafile import DataError
from virtqual.stack import manifest, modules

# The machine may have a module system of its own, which BASH_ENV loads.
PROFILE = """
echo a notice of the centre
unset BASH_ENV
module() {
    shift
    for name; do
        if [ ! -d "$HOME/apps/$name" ]; then
            echo "ERROR: Unable to locate a modulefile for '$name'" >&2
            return 1
        fi
        export LOADEDMODULES="$LOADEDMODULES:$name" PATH="$HOME/apps/$name:$PATH"
    done
}
"""


@pytest.fixture
def centre(tmp_path, monkeypatch):
    """A home whose login shell has `module`, and modules of a few programs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SECRET", "of this shell")
    (tmp_path / ".bash_profile").write_text(PROFILE)
    for name in ("mpi/1/any", "osu/7.4/osu_latency", "osu/7.4/osu_bw", "stress/1/stress-ng", "hpl/2/xhpl"):
        program = tmp_path / "apps" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", program)
    with (tmp_path / "apps/hpl/2/xhpl").open("ab") as file:
        file.write(b"\0HPLinpack 2.3  --  High-Performance\0")
    answer = '#!/bin/sh\n[ -z "$SECRET" ] && echo "stress-ng, version 0.15.06 (gcc)"\n'
    (tmp_path / "apps/stress/1/stress-ng").write_text(answer)
    modules.load_modules.cache_clear()
    return tmp_path


def register(centre, text):
    file = centre / "centre.yaml"
    file.write_text(text)
    return modules.register(file, centre / "stacks")


def test_a_program_has_its_variables_when_it_is_asked_and_no_directories_of_spack(centre):
    text = '#!/bin/sh\n[ -n "$WM_PROJECT_DIR" ] && echo "Using: OpenFOAM-v2312 (2312) - visit"\n'
    write_program(centre / "apps/foam/1/icoFoam", text)
    text = (
        "name: centre\n"
        "mpi: {name: openmpi, modules: [mpi/1]}\n"
        "programs:\n"
        "  openfoam: {modules: [foam/1], env: {WM_PROJECT_DIR: /foam},\n"
        "    data: {blockMesh: /bin/true, decomposePar: /bin/true}}\n"
    )
    (openfoam,) = register(centre, text).programs
    assert (openfoam.version, openfoam.env) == ("2312", {"WM_PROJECT_DIR": "/foam"})
    with pytest.raises(DataError, match=r"icoFoam does not say its version"):
        register(centre, text.replace("WM_PROJECT_DIR", "OTHER"))


def test_the_programs_of_modules(centre):
    stack = register(
        centre,
        "name: centre\n"
        "mpi: {name: openmpi, modules: [mpi/1], env: {OMPI_MCA_pml: ucx}}\n"
        "programs:\n"
        "  osu-micro-benchmarks: {modules: [osu/7.4], version: '7.4'}\n"
        "  stress-ng: {modules: [stress/1]}\n"
        "  hpl: {modules: [hpl/2]}\n"
        "  netpipe: {modules: [mpi/1], program: any, version: '3'}\n"
        f"  fluent: {{program: {centre}/apps/mpi/1/any, version: 2024R1, env: {{LICENCE: x}}}}\n",
    )
    assert manifest.load_all(centre / "stacks") == [stack]
    osu, stress, hpl, netpipe, fluent = stack.programs
    assert (netpipe.env, netpipe.features) == ({}, ("mpi-latency", "mpi-bandwidth"))
    assert osu.path == centre / "apps/osu/7.4/osu_latency"
    assert osu.data == {name: centre / "apps/osu/7.4" / name for name in ("osu_bw", "osu_latency")}
    assert (osu.modules, osu.features) == (("mpi/1", "osu/7.4"), ("osu",))
    # The stand-in is linked with no MPI library.
    assert (osu.mpi, osu.launch) == (None, ())
    # A script does not show what it starts: it has the file's library.
    assert (stress.version, stress.mpi, stress.launch) == ("0.15.06", "openmpi", ("--mpi=pmix",))
    assert stress.env == {"OMPI_MCA_pml": "ucx"}
    assert (hpl.version, hpl.env["OPENBLAS_NUM_THREADS"]) == ("2.3", "1")
    assert (fluent.features, fluent.env, fluent.modules) == (("fluent",), {"LICENCE": "x"}, ("mpi/1",))
    assert all(program.libraries for program in (osu, hpl, fluent))


@pytest.mark.parametrize(
    ("linked", "name", "launch"),
    [
        ("libmpi.so.40 libopen-pal.so.40", "openmpi", ("--mpi=pmix",)),
        ("libmpi.so.12", "mvapich2", ("--mpi=pmi2",)),
        ("libmpi_gnu_91.so.12", "cray-mpich", ("--mpi=cray_shasta",)),
        ("libmpich.so.12", "mpich, srun: [--mpi=pmix]", ("--mpi=pmix",)),
        ("libmpi.so.12", "mpich, srun: []", ()),
        (
            "libmpi.so.12",
            "openmpi",
            "linked with another library than Open MPI (libmpi.so.12), and `mpi.name`",
        ),
        ("libmpi.so.40 libopen-pal.so.40", "mpich", "is linked with Open MPI (libmpi.so.40), and `mpi.name`"),
        ("libmpi.so.40", None, "is linked with libmpi.so.40. State its MPI library as `mpi`"),
    ],
)
def test_the_launch_options_are_those_of_the_linked_library(centre, monkeypatch, linked, name, launch):
    libraries = [Path("/bin") / library for library in linked.split()]
    monkeypatch.setattr(modules, "find_libraries", lambda *_: libraries)
    monkeypatch.setattr(manifest, "compute_sha256", lambda _: "0" * 64)
    mpi = f"mpi: {{name: {name}}}\n" if name else ""
    text = f"name: centre\n{mpi}programs:\n  osu: {{modules: [osu/7.4], version: '7.4'}}\n"
    if isinstance(launch, tuple):
        assert register(centre, text).programs[0].launch == launch
    else:
        with pytest.raises(DataError, match=r"centre.yaml:\d: programs.osu: ") as error:
            register(centre, text)
        assert launch in str(error.value)


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        ("name: centre", "name: spack", "centre.yaml:1: name: 'spack' is another stack"),
        ("name: centre", "nam: centre", "centre.yaml:1: nam: is not a key .*did you mean name"),
        ("openmpi", "opnmpi", "centre.yaml:2: mpi.name: no library 'opnmpi' is known: did you mean openmpi"),
        (
            "  osu:",
            "  osuu:",
            "centre.yaml:4: programs.osuu: no check of virtqual runs 'osuu': did you mean osu",
        ),
        (
            "osu/7.4",
            "osu/7.3",
            "centre.yaml:4: programs.osu: `module load mpi/1 osu/7.3` fails .*Unable to loc",
        ),
        (
            "modules: [osu/7.4]",
            "module: [osu/7.4]",
            "programs.osu.module: is not a key .*did you mean modules",
        ),
        ("osu/7.4", "hpl/2", "programs.osu: osu_latency is not on PATH after its modules were loaded. State"),
        ("version: '7.4'", "version: 7.4", "programs.osu.version: 7.4 is no text: put it in quotes"),
        (
            ", version: '7.4'",
            "",
            "programs.osu: .*/osu_latency does not say its version. State it as `version`",
        ),
        (
            "version: '7.4'",
            "version: '7.4', data: {pt2pt: /no}",
            "/no is missing, .* as `data: {pt2pt: PATH}`",
        ),
    ],
)
def test_mistakes(centre, line, instead, says):
    text = (
        "name: centre\n"
        "mpi: {name: openmpi, modules: [mpi/1]}\n"
        "programs:\n"
        "  osu: {modules: [osu/7.4], version: '7.4'}\n"
    )
    assert line in text
    with pytest.raises(DataError, match=says):
        register(centre, text.replace(line, instead))
    assert not (centre / "stacks").exists()


def test_the_command_says_which_checks_can_run(centre, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(centre / "state"))
    (centre / "centre.yaml").write_text("name: centre\nprograms: {stress-ng: {modules: [stress/1]}}\n")
    done = call("stack", "register", "--modules", centre / "centre.yaml", code=0)
    assert (
        "\n  stress-ng 0.15.06 (modules stress/1)\nchecks that have a program:\n  stress-ng: paging\nch"
        in done.output
    )
    assert "checks without a program:\n  stream: stream, stream_nodes" in done.output
    (centre / "apps/stress/1/stress-ng").write_text("another")
    done = call("stack", "check", code=5)
    assert "`virtqual stack register --modules FILE` sets it up again" in done.output
