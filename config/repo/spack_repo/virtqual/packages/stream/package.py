# Copyright the virtqual authors.
#
# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.packages.stream.package import Stream as BuiltinStream

from spack.package import *


class Stream(BuiltinStream):
    """STREAM as upstream builds it, at one commit: upstream's recipe takes a branch's head."""

    version("5.10", commit="6703f7504a38a8da96b353cadafa64d3c2d7a2d3")
