"""A stand-in for Spack: it concretises to a small lock, and installs programs that do nothing.

What it says of failures is what Spack 1.1.0 says.
"""

import json
import stat

from virtqual.stack import environment


def entry(name, version, hash_, needs=(), external="", **parameters):
    found = {
        "name": name,
        "version": version,
        "arch": {"platform": "linux", "platform_os": environment.host_system(), "target": "x86_64_v3"},
        "parameters": parameters,
        "dependencies": [
            {
                "name": {"m": "mpich"}.get(need[0], "any"),
                "hash": need,
                "parameters": {"deptypes": ["build", "link"], "virtuals": ["mpi"] * (need[0] == "m")},
            }
            for need in needs
        ],
        "hash": hash_,
    }
    return found | ({"external": {"path": external, "extra_attributes": {}}} if external else {})


def provider(manifest, feature):
    """Return the program of a manifest that has a feature."""
    (program,) = (program for program in manifest.programs if feature in program.features)
    return program


def lock_of(external="/usr"):
    packages = [
        entry("gcc", "12.2.0", "g" * 32, external=external),
        entry("mpich", "4.3.2", "m" * 32, ["g" * 32]),
        entry("stream", "5.10", "s" * 32, ["g" * 32]),
        entry("osu-micro-benchmarks", "7.5.2", "o" * 32, ["m" * 32]),
        entry("namd", "2.14", "n" * 32, ["m" * 32]),
        entry("wrf", "4.6.1", "w" * 32, ["m" * 32], compile_type="em_b_wave"),
        entry("wrf", "4.6.1", "v" * 32, ["m" * 32], compile_type="em_real"),
    ]
    return {
        "spack": {"version": "1.1.0"},
        "roots": [
            {"hash": p["hash"], "spec": p["name"]} for p in packages if p["name"] not in ("gcc", "mpich")
        ],
        "concrete_specs": {p["hash"]: p for p in packages},
    }


FAKE_SPACK = r"""#!/usr/bin/env python3
import json, os, shutil, sys
from pathlib import Path
here = Path(__file__).parents[1]
if sys.argv[1] == "--version":
    sys.exit(print((here / "version").read_text()))
env, command, *rest = sys.argv[2:]
with (here / "asked").open("a") as asked:
    print(command, *rest, file=asked)
env = Path(env)
if command == "concretize":
    shutil.copy(here / "lock.json", env / "spack.lock")
if command == "install":
    lock = json.loads((env / "spack.lock").read_text())
    store = env.parent / "store"
    index = store / ".spack-db/index.json"
    index.parent.mkdir(parents=True, exist_ok=True)
    installs = json.loads(index.read_text())["database"]["installs"] if index.exists() else {}
    broken = (here / "broken").read_text().split() if (here / "broken").exists() else []
    failed = []
    roots = [lock["concrete_specs"][word[1:]] for word in rest if word.startswith("/")]
    for package in roots:
        for each in [*package["dependencies"], package]:
            one = lock["concrete_specs"][each["hash"]]
            name = "{name}-{version}-{hash}".format(**one)
            if "external" in one:
                print("[+]", one["external"]["path"], f"(external {name})")
                continue
            if one["hash"] in installs or name in failed:
                continue
            needed = ["{name}-{version}-{hash}".format(**lock["concrete_specs"][d["hash"]])
                      for d in one["dependencies"]]
            if lacking := [need for need in needed if need in failed]:
                print(f"==> Warning: Skipping build of {name} since {lacking[0]} failed")
                failed.append(name)
                continue
            print("==> Installing", name, "[2/3]", flush=True)
            if one["name"] in broken:
                failed.append(name)
                log = env.parent / f"stage/root/spack-stage-{name}/spack-build-out.txt"
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(f"{one['name']}.c:1: fatal error: no such thing\n")
                print("==> Error: ProcessError: Command exited with status 2:\n    '/usr/bin/make' '-j1'\n")
                if "nolog" not in broken:
                    print("1 error found in build log:\n  >> 437    make: *** [all] Error 1\n")
                    print(f"See build log for details:\n  {log}\n")
                continue
            paths = ["bin/stream_c.exe"] + ["libexec/osu-micro-benchmarks/mpi/pt2pt/osu_" + w
                     for w in ("latency", "bw")]
            for path in paths:
                (store / name / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy("/bin/true", store / name / path)
            installs[one["hash"]] = {"installed": True}
    for package in roots:
        if package["hash"] not in installs:
            print("==> Error: {name}-{version}-{hash}: Package was not installed".format(**package))
    if failed:
        print("==> Error: Installation request failed.  Refer to reported errors for failing package(s).")
    index.write_text(json.dumps({"database": {"installs": installs}}))
    sys.exit(bool(failed))
"""


class FakeSpack:
    """Where the stand-in is, and how it is told what to do."""

    def __init__(self, path):
        self.path = path
        (path / "bin").mkdir(parents=True)
        program = path / "bin/spack"
        program.write_text(FAKE_SPACK, encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.version("1.1.0")
        self.lock(lock_of())

    def version(self, text):
        (self.path / "version").write_text(text, encoding="utf-8")

    def lock(self, content):
        (self.path / "lock.json").write_text(json.dumps(content), encoding="utf-8")

    def breaks(self, *names):
        """Have packages fail; with ``nolog`` among them, before they have a log."""
        (self.path / "broken").write_text(" ".join(names), encoding="utf-8")
