# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Milc(MakefilePackage):
    """Lattice quantum chromodynamics of the MILC collaboration: generation of gauge fields.

    Of its many applications this installs ``su3_rhmd_hisq``, the one that benchmark suites run,
    for CPUs and without the SciDAC libraries.
    """

    homepage = "https://github.com/milc-qcd/milc_qcd"
    git = "https://github.com/milc-qcd/milc_qcd.git"

    license("GPL-2.0-or-later")

    # Upstream has had no release for years; its users build the development branch.
    version("7.8.1-develop", commit="6b9b8a06eec5746187bbfd197eac2629ab8d8e72")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("mpi")

    # Its makefile builds the libraries of other directories, from several targets at once.
    parallel = False

    @property
    def build_directory(self):
        return join_path(self.stage.source_path, "ks_imp_rhmc")

    @property
    def build_targets(self):
        return [
            "su3_rhmd_hisq",
            "MPP=true",
            "PRECISION=2",
            "COMPILER=gnu",
            "OPT=-O3",
            "WANTQIO=",
            "WANTQMP=",
            # Else it asks git, which knows nothing of an unpacked archive: MILC prints no version.
            f"GIT_VERSION={self.version}",
            f"CC={self.spec['mpi'].mpicc}",
            f"CXX={self.spec['mpi'].mpicxx}",
        ]

    def edit(self, spec, prefix):
        # Upstream's way: the common makefile is copied into the directory of the application.
        copy("Makefile", self.build_directory)

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        install(join_path(self.build_directory, "su3_rhmd_hisq"), prefix.bin)
