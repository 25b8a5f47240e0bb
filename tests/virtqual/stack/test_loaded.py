"""What a node loads is read from real binaries by the real script; two of them are then compared."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import virtqual.job
from made_runs import made_run
from virtqual.job import seen_says
from virtqual.preflight.software import other_software
from virtqual.stack import loaded
from virtqual.stack.loaded import SoftwareDifference

SCRIPT = Path(virtqual.job.__file__).parent / "seen.sh"
MPI = """
#include <string.h>
int MPI_Get_library_version(char *text, int *length) {{ strcpy(text, "{version}"); return *length = 0; }}
"""
BLAS = """
#include <stdlib.h>
char *openblas_get_corename(void) {{
    char *asked = getenv("OPENBLAS_CORETYPE");
    return asked ? asked : "{core}";
}}
"""
MAIN = """
int MPI_Get_library_version(char *, int *);
char *openblas_get_corename(void);
int main(void) {
    char text[64];
    int length;
    openblas_get_corename();
    return MPI_Get_library_version(text, &length);
}
"""


def compile_(target: Path, source: str, *options: str) -> None:
    (cc := shutil.which("cc")) or pytest.skip("no C compiler (cc) to make programs and libraries with")
    subprocess.run(
        [cc, "-x", "c", "-", "-x", "none", "-o", str(target), *options], input=source, text=True, check=True
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A program, and two directories with each of its libraries in two versions."""
    root = tmp_path_factory.mktemp("tree")
    for name, version, core in (("a", "4.0.2", "Haswell"), ("b", "5.0.2", "Zen")):
        (root / name).mkdir()
        sources = {
            "libmpi.so.12": MPI.format(version=f"MPICH Version: {version}"),
            "libopenblas.so.0": BLAS.format(core=core),
        }
        for library, source in sources.items():
            compile_(root / name / library, source, "-shared", "-fPIC", f"-Wl,-soname,{library}")
    compile_(root / "program", MAIN, str(root / "a/libmpi.so.12"), str(root / "a/libopenblas.so.0"))
    return root


@pytest.fixture
def see(tree):
    """See the program with libraries from given directories, as a node does."""

    def seen(*paths: str, node: str = "n1", **env: str) -> loaded.LoadedSoftware:
        path = ":".join(str(tree / each) for each in paths)
        done = subprocess.run(
            ["sh", "-c", '. ./seen.sh; virtqual_seen "$1"', "sh", str(tree / "program")],
            cwd=SCRIPT.parent,
            env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": path, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        return loaded.parse(done.stdout, node)

    return seen


def test_what_is_remembered_is_what_is_there(see, tree):
    first = see("a")
    assert see("a") == first
    # Another library under the old name and with the old times: a package may bring just that.
    library = tree / "a/libmpi.so.12"
    kept, times = library.read_bytes(), library.stat()
    library.write_bytes(kept + b"x")
    os.utime(library, ns=(times.st_atime_ns, times.st_mtime_ns))
    changed = see("a")
    library.write_bytes(kept)
    assert changed.files["libmpi.so.12"].sha256 == hashlib.sha256(kept + b"x").hexdigest()
    assert see("a") == first


@pytest.mark.parametrize("of", ["another user", "a link"])
def test_nobody_else_says_what_is_remembered(see, tree, of):
    """Anybody may prepare a directory of that name in shared memory."""
    user = f"test-{os.getpid()}-{of[-4:]}"
    memory = Path("/dev/shm") / f"virtqual-3.{user}"
    if of == "another user" and os.geteuid() != 0:
        pytest.skip("only root can make a directory of another user")
    try:
        true = see("a", USER=user)
        (sums,) = memory.rglob("program.sums")
        false = sums.read_text().replace(true.files["binary"].sha256, "0" * 64)
        sums.write_text(false)
        # Our own memory is believed; that is what makes it worth forging.
        assert see("a", USER=user).files["binary"].sha256 == "0" * 64
        if of == "a link":
            elsewhere = shutil.move(memory, tree / user)
            memory.symlink_to(elsewhere)
        else:
            os.chown(memory, 12345, 12345)
        assert see("a", USER=user) == true
    finally:
        memory.unlink() if memory.is_symlink() else shutil.rmtree(memory, ignore_errors=True)


def test_the_same_libraries_are_the_same(see):
    software = see("a")
    assert loaded.compare(software, see("a", node="n2")) == []
    assert software.says["mpi"] == "MPICH Version: 4.0.2"
    assert software.says["openblas"] == "Haswell"
    assert software.files["libc.so.6"].path.startswith("/")
    assert len(software.files["binary"].sha256) == 64


def test_another_mpi_is_named(see, tree, tmp_path):
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    shutil.copy(tree / "b/libmpi.so.12", mixed)
    differences = loaded.compare(see("a"), see(str(mixed), "a"))
    assert [d.what for d in differences] == ["MPI library", "libmpi.so.12", "LD_LIBRARY_PATH"]
    assert differences[0] == SoftwareDifference("MPI library", "MPICH Version: 4.0.2", "MPICH Version: 5.0.2")
    assert str(tree / "a/libmpi.so.12") in differences[1].first
    assert str(mixed / "libmpi.so.12") in differences[1].second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("MVAPICH2 Version      :\t2.3.6\nMVAPICH2 Release date : March 29\n", "MVAPICH2 Version : 2.3.6"),
        ("MVAPICH2 Version      :\t2.3.7-1\nMVAPICH2 Device : ch3:mrail\n", "MVAPICH2 Version : 2.3.7-1"),
        ("MVAPICH Version:      4.1\nMVAPICH Release date: 04/2025\n", "MVAPICH Version: 4.1"),
        ("Intel(R) MPI Library 2021.11 for Linux* OS\n", "Intel(R) MPI Library 2021.11 for Linux* OS"),
        ("MPICH Version:      4.0.2\nMPICH Release date: Thu Apr 7\n", "MPICH Version: 4.0.2"),
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, May 26, 2022", "Open MPI v4.1.4"),
        ("", ""),
    ],
)
def test_every_mpi_library_says_its_version(text, said):
    assert seen_says.clause(text) == said


def test_an_mpi_library_whose_name_has_its_compiler_says_its_version(tree, tmp_path, capsys):
    library = shutil.copy(tree / "a/libmpi.so.12", tmp_path / "libmpi_gnu_91.so.12")
    seen_says.main(str(tree / "program"), str(library))
    assert f"{library}\tmpi\tMPICH Version: 4.0.2\n" in capsys.readouterr().out


def test_another_openblas_kernel_is_named(see):
    differences = loaded.compare(
        see("a", OPENBLAS_CORETYPE="Haswell"), see("a", OPENBLAS_CORETYPE="SkylakeX")
    )
    assert SoftwareDifference("OpenBLAS kernel", "Haswell", "SkylakeX") in differences
    # One that was set on one side only, and happens to be what the library chooses there, is named too.
    assert [d.what for d in loaded.compare(see("a"), see("a", OPENBLAS_CORETYPE="Haswell"))] == [
        "OPENBLAS_CORETYPE"
    ]


def test_every_difference_is_named_with_its_nodes(see):
    native, virtual = see("a"), see("b", node="vm1")
    differences = loaded.compare_all([("native", [native]), ("virtual", [native, virtual])])
    assert len(differences) == 5
    assert all("native node n1" in text and "virtual node vm1" in text for text in differences)


def test_the_environment_that_libraries_read_is_named(see):
    native = see("a", OMP_PROC_BIND="1", SECRET="s")
    virtual = see("a", node="vm1", OMP_PROC_BIND="2", UCX_TLS="it's rc,self")
    assert native.environment.keys() == {"OMP_PROC_BIND", "LD_LIBRARY_PATH"}
    assert loaded.compare(native, virtual) == [
        SoftwareDifference("OMP_PROC_BIND", "1", "2"),
        SoftwareDifference("UCX_TLS", "unset", "it's rc,self"),
    ]


def test_names_of_devices_and_numbers_of_threads_may_differ(see):
    names = (
        "UCX_NET_DEVICES",
        "OMP_NUM_THREADS",
        "FI_TCP_IFACE",
        "MV2_IBA_HCA",
        "OMPI_MCA_btl_tcp_if_include",
        "OMPI_MCA_orte_precondition_transports",
        "FI_CXI_COLL_JOB_ID",
    )
    assert loaded.compare(see("a", **dict.fromkeys(names, "x"), HOME="/x"), see("a")) == []


def test_a_library_that_is_not_found_or_not_loaded(see):
    differences = loaded.compare(see("a"), see("none"))
    assert {(d.what, d.second) for d in differences} >= {("libmpi.so.12", "not found")}
    assert ("MPI library", loaded.NOT_OBSERVABLE) in {(d.what, d.second) for d in differences}


def test_a_file_that_changes_is_read_again(see, tree, tmp_path):
    changing = tmp_path / "changing"
    shutil.copytree(tree / "a", changing)
    before = see(str(changing))
    shutil.copy(tree / "b/libmpi.so.12", changing)
    assert before.files["libmpi.so.12"] != see(str(changing)).files["libmpi.so.12"]


@pytest.mark.parametrize("cut", ["environment", "sha256", "real", "says"])
def test_an_incomplete_record_is_refused(cut):
    text = (
        "program /p\nflags avx2\ncoretype \nenvironment\nldd\nsha256\n" + "0" * 64 + "  /p\nreal\n/p\nsays\n"
    )
    assert loaded.parse(text, "n1").files["binary"].path == "/p"
    with pytest.raises(loaded.IncompleteRecordError, match="node n1's record"):
        loaded.parse(text[: text.index(f"\n{cut}\n")], "n1")


def run(side, *software):
    return made_run(side, 0, check="lammps", software=software)


def test_processors_are_left_to_preflight(see):
    native = see("a", OPENBLAS_CORETYPE="Haswell")
    guest = native.model_copy(update={"cpu": frozenset({"sse2"}), "node": "vm1"})
    runs = [run("virtual", guest), run("native", native)]
    assert list(other_software(runs)) == []
    other = see("b", OPENBLAS_CORETYPE="Haswell", node="vm1")
    differences = other_software([run("native", native), run("virtual", other)])
    assert [reason.split(":")[1].strip() for _, reason in differences] == [
        "MPI library",
        "libmpi.so.12",
        "libopenblas.so.0",
        "LD_LIBRARY_PATH",
    ]
    # A library that changes between two runs of one side is no less a difference.
    assert list(other_software([run("native", native), run("native", other)]))
