# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class VirtqualPrograms(Package):
    """The programs of this project, whose sources lie beside this recipe."""

    has_code = False

    license("BSD-3-Clause")

    version("1.0")

    # Spack's hash of a package covers this file alone: other sources must be another package.
    sources_sha256 = "0ae575a33185bc5d43ec62fad9f28c8ed699d79f87f8aeef4b27978554117bfc"

    depends_on("c", type="build")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        for name in ("fixed_work", "pointer_chase"):
            source = join_path(self.package_dir, f"{name}.c")
            Executable(spack_cc)("-O2", "-pthread", "-o", join_path(prefix.bin, name), source)
