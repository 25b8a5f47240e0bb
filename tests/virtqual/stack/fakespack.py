"""A stand-in for Spack, which has installed programs that do nothing."""

import json
import shutil

from made_programs import write_program

PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
root = pathlib.Path(__file__).parents[1]
packages = json.loads((root / "packages.json").read_text())
arguments = sys.argv[3:] if sys.argv[1] == "-e" else sys.argv[1:]
if arguments[0] == "arch":
    print("debian12")
elif arguments == ["find", "--json"]:
    print(json.dumps(packages))
elif arguments[:2] == ["find", "--format"]:
    print(*(f"{node['hash']} {node['prefix']}" for node in packages), sep="\\n")
"""


def make_node(name, version, letter, needs=(), **parameters):
    """Return the entry of a package, whose hash is of one letter."""
    dependencies = [
        {
            "name": need["name"],
            "hash": need["hash"],
            "parameters": {
                "deptypes": ["build", "link"],
                "virtuals": [] if need["name"] == "gcc" else ["mpi"],
            },
        }
        for need in needs
    ]
    arch = {"platform": "linux", "platform_os": "debian12", "target": "x86_64_v3"}
    node = {"name": name, "version": version, "hash": letter * 32, "arch": arch}
    return node | {"parameters": parameters, "dependencies": dependencies}


class FakeSpack:
    """The stand-in in a directory, with the packages of a small environment."""

    def __init__(self, root, mpi="mpich"):
        self.root = root
        write_program(root / "bin/spack", PROGRAM)
        gcc = make_node("gcc", "12.2.0", "g") | {"external": {"path": "/usr"}}
        library = make_node(mpi, "4.3.2", "m", [gcc])
        self.nodes = [
            gcc,
            library,
            make_node("stream", "5.10", "s", [gcc]),
            make_node("osu-micro-benchmarks", "7.5.2", "o", [library]),
            make_node("wrf", "4.6.1", "w", [library], compile_type="em_b_wave"),
        ]
        for node in self.nodes:
            node["prefix"] = "/usr" if "external" in node else f"{root}/store/{node['name']}"
        for path in (
            "stream/bin/stream_c.exe",
            "osu-micro-benchmarks/libexec/osu-micro-benchmarks/mpi/pt2pt/osu_latency",
            "osu-micro-benchmarks/libexec/osu-micro-benchmarks/mpi/pt2pt/osu_bw",
            "wrf/main/wrf.exe",
        ):
            (root / "store" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy("/bin/true", root / "store" / path)
        self.write()

    def write(self):
        (self.root / "packages.json").write_text(json.dumps(self.nodes), encoding="utf-8")
