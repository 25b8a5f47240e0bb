# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class VirtqualEvents(Package):
    """The web application of this project, whose sources lie beside this recipe; Maven fetches its libraries."""

    has_code = False

    license("BSD-3-Clause")

    version("1.0")

    # Spack's hash of a package covers this file alone: other sources must be another package.
    sources_sha256 = "b8a7a06a14054d9d3c03f78cc6cbe303615f05803949a319bf75d6663ce3a46a"

    depends_on("openjdk@17", type=("build", "run"))
    depends_on("maven", type="build")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        bash = Executable("bash")
        bash(join_path(self.package_dir, "build.sh"), join_path(prefix.bin, "virtqual_events"))
