# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.packages.stream.package import Stream as BuiltinStream

from spack.package import *


class Stream(BuiltinStream):
    """STREAM as upstream builds it, at one commit: upstream's recipe takes a branch's head.

    Spack verifies the archive of a mirror by its checksum; it has none for a clone.
    """

    version(
        "5.10",
        sha256="977651ffb22de4f5a2fc8a0d8d647b84f3f007c0a77bbdc36ce583872b203f67",
        url="https://github.com/jeffhammond/STREAM/archive/6703f7504a38a8da96b353cadafa64d3c2d7a2d3.tar.gz",
    )
