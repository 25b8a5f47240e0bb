# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class FixedWork(Package):
    """How much longer a fixed piece of work takes now and then; the source lies beside this recipe."""

    has_code = False

    license("BSD-3-Clause")

    version("1.0")

    depends_on("c", type="build")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        source = join_path(self.package_dir, "fixed_work.c")
        Executable(spack_cc)("-O2", "-pthread", "-o", prefix.bin.fixed_work, source)
