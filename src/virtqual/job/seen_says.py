"""Print the versions that a program and its libraries state, under any Python 3 of a node.

A line has the file, the question and the answer, separated by tabs.
"""

import ctypes
import json
import re
import sys
from pathlib import Path


def compiler(path: str) -> str:
    """Return the compilers of a program's objects."""
    pattern = rb"(?:GCC: \([^)]*\)|clang version|Intel\(R\)[^\0]*Version) [\w.]+"
    names = re.findall(pattern, Path(path).read_bytes())
    return ", ".join(sorted({name.decode(errors="replace") for name in names}))


def mpi(path: str) -> str:
    """Return name and version of an MPI library; MPI need not be initialised."""
    text, length = ctypes.create_string_buffer(16384), ctypes.c_int()
    ctypes.CDLL(path).MPI_Get_library_version(text, ctypes.byref(length))
    return clause(text.value.decode(errors="replace"))


def clause(text: str) -> str:
    """Return the first line up to its first comma: name and version, without date and place of the build."""
    return " ".join(text.strip().partition("\n")[0].partition(",")[0].split())


def openblas(path: str) -> str:
    """Return OpenBLAS's kernel for this processor."""
    ask = ctypes.CDLL(path).openblas_get_corename
    ask.restype = ctypes.c_char_p
    return str(ask().decode())


def glibc(path: str) -> str:
    """Return the version of the C library."""
    ask = ctypes.CDLL(path).gnu_get_libc_version
    ask.restype = ctypes.c_char_p
    return str(ask().decode())


def spack(path: str) -> str:
    """Return the Spack package with its DAG hash."""
    package = json.loads(Path(path).read_text(encoding="utf-8"))["spec"]["nodes"][0]
    return f"{package['name']}@{package['version']}/{package['hash']}"


#: By the file's name: the question to it.  The first path is the program, which is asked for its compilers.
QUESTIONS = (
    # The names of Cray MPICH's libraries have the compiler: libmpi_gnu_91.so.12.
    (r"libmpi(ch)?(_\w+)?\.so", mpi),
    (r"lib(open)?blas.*\.so", openblas),
    (r"libc\.so", glibc),
    (r"spec\.json$", spack),
)


def main(program: str, *paths: str) -> None:
    """Print the answers of a program, and of its libraries and its package."""
    questions = [(program, compiler)]
    questions += [(path, ask) for path in paths for name, ask in QUESTIONS if re.match(name, Path(path).name)]
    for path, ask in questions:
        try:
            answer = ask(path)
        except (OSError, AttributeError, ValueError, KeyError):
            continue
        if answer:
            print(path, ask.__name__, answer, sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
