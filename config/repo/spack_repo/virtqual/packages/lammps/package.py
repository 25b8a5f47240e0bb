# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.packages.lammps.package import Lammps as BuiltinLammps

from spack.package import *


class Lammps(BuiltinLammps):
    """LAMMPS as upstream builds it, with the benchmarks that its sources bring along."""

    @run_after("install")
    def install_benchmarks(self):
        install_tree(join_path(self.stage.source_path, "bench"), self.prefix.share.lammps.bench)
