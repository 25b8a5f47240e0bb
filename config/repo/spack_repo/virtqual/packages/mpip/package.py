# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

import sys

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Mpip(AutotoolsPackage):
    """Profiler of MPI calls, for its times alone: without what finds lines of source code.

    Upstream's recipe builds a Python for the script that writes the wrappers.
    """

    homepage = "https://github.com/LLNL/mpiP"

    license("BSD-3-Clause")

    version(
        "3.5",
        sha256="e366843d53fa016fb03903e51c8aac901aa5155edabe64698a8d6fa618a03bbd",
        url="https://github.com/LLNL/mpiP/releases/download/3.5/mpip-3.5.tgz",
    )

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build")
    depends_on("mpi")

    def setup_build_environment(self, env):
        # The script notes who has run it, and fails where nobody is logged in.
        env.set("LOGNAME", "spack")

    def configure_args(self):
        mpi = self.spec["mpi"]
        return [
            f"--with-cc={mpi.mpicc}",
            f"--with-cxx={mpi.mpicxx}",
            f"--with-f77={mpi.mpif77}",
            "--disable-bfd",
            "--disable-libunwind",
            # A program of this name is asked for, and may not be there; another is called below.
            "ac_cv_prog_HAVE_PYTHON=python",
        ]

    @property
    def build_targets(self):
        # The Python that runs Spack.
        return [f"PYTHON={sys.executable}"]
