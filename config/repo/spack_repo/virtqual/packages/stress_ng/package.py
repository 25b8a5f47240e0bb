# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class StressNg(MakefilePackage):
    """stress-ng with the C library alone, for its stressors of pages and forks.

    Upstream's recipe has eight libraries for other stressors, and names no compiler.
    """

    homepage = "https://github.com/ColinIanKing/stress-ng"
    url = "https://github.com/ColinIanKing/stress-ng/archive/refs/tags/V0.19.04.tar.gz"

    license("GPL-2.0-or-later")

    version("0.19.04", sha256="3761ae901b2a81dcdb3f5363b8d98f288c03ae320a697b6d7ffef01a48845f05")

    depends_on("c", type="build")

    # Its makefile links each of these that the machine has.
    build_targets = [
        f"LIB_{library}="
        for library in (
            "ACL AIO APPARMOR BSD CRYPT EGL GBM GLES2 GMP IPSEC_MB JPEG JUDY KMOD LZMA MD MPFR SCTP XXHASH Z"
        ).split()
    ]

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        install("stress-ng", prefix.bin)
