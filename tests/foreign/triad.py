"""Checks as ReFrame's tutorial teaches them, which know nothing of virtqual."""

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import fixture


@rfm.simple_test
class triad(rfm.RegressionTest):
    descr = "a triad over arrays of our own"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    build_system = "SingleSource"
    sourcepath = "triad.c"
    elements = parameter([100_000, 200_000])

    @run_before("compile")
    def optimize(self):
        self.build_system.cflags = ["-O2"]

    @run_before("run")
    def choose_size(self):
        self.executable_opts = [str(self.elements)]

    @sanity_function
    def validate(self):
        return sn.assert_found(r"Solution Validates", self.stdout)

    @run_before("performance")
    def name_values(self):
        rate = sn.extractsingle(r"Triad:\s+(\S+)", self.stdout, 1, float)
        self.perf_variables = {"triad_bw": sn.make_performance_function(rate, "MB/s")}


class build_triad(rfm.CompileOnlyRegressionTest):
    build_system = "SingleSource"
    sourcepath = "triad.c"
    executable = "triad.x"


@rfm.simple_test
class triad_built_once(rfm.RunOnlyRegressionTest):
    descr = "a triad that is built once a partition, by a fixture"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    built = fixture(build_triad, scope="environment")

    @run_after("setup")
    def run_what_was_built(self):
        self.executable = f"{self.built.stagedir}/triad.x"

    @sanity_function
    def validate(self):
        return sn.assert_found(r"Solution Validates", self.stdout)

    @performance_function("MB/s", perf_key="Triad")
    def extract_rate(self):
        return sn.extractsingle(r"Triad:\s+(\S+)", self.stdout, 1, float)


@rfm.simple_test
class triad_by_patterns(rfm.RunOnlyRegressionTest):
    descr = "the same by ReFrame's older way to name values"
    valid_systems = ["elsewhere:gpu"]
    valid_prog_environs = ["gnu"]
    executable = "./triad.sh"
    reference = {"*": {"triad_bw": (1e9, -0.1, None, "MB/s")}}

    @run_after("init")
    def set_patterns(self):
        self.sanity_patterns = sn.assert_found(r"Solution Validates", self.stdout)
        self.perf_patterns = {"triad_bw": sn.extractsingle(r"Triad:\s+(\S+)", self.stdout, 1, float)}
