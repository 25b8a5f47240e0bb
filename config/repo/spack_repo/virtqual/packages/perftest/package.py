# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Perftest(AutotoolsPackage):
    """Latency and bandwidth of RDMA operations, straight over verbs."""

    homepage = "https://github.com/linux-rdma/perftest"

    license("GPL-2.0-only OR BSD-2-Clause")

    version(
        "25.10.0-0.128",
        sha256="750bc48b1d9362996de1d2bbe36d3b25f067b5077177d39c2faeb472bd5a7194",
        url="https://github.com/linux-rdma/perftest/releases/download/25.10.0-0.128/perftest-25.10.0-0.128.gd01b183.tar.gz",
    )

    depends_on("c", type="build")
    depends_on("rdma-core")
    # Without it the package has neither library nor header.
    depends_on("pciutils+shared")
