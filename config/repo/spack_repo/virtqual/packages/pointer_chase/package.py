# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class PointerChase(Package):
    """Time of a dependent load over working sets of rising size; the source lies beside this recipe."""

    has_code = False

    license("BSD-3-Clause")

    version("1.0")

    depends_on("c", type="build")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        source = join_path(self.package_dir, "pointer_chase.c")
        Executable(spack_cc)("-O2", "-o", prefix.bin.pointer_chase, source)
