"""A Spack environment becomes a manifest; packages that cannot be measured are refused."""

import shutil
from pathlib import Path

import pytest
from fakespack import FakeSpack, make_node

from calling import call
from virtqual.errors import InfrastructureError, UsageError
from virtqual.stack import manifest, spack
from virtqual.stack.spack import register


def find_program(stack, feature):
    (program,) = (program for program in stack.programs if feature in program.features)
    return program


def test_the_manifest_has_what_checks_read(fake, environment, tmp_path):
    stack = register(environment, tmp_path / "stacks/spack")
    assert stack.features == ["osu", "stream", "wrf", "wrf-ideal"]
    osu = find_program(stack, "osu")
    assert (osu.version, osu.mpi, osu.launch) == ("7.5.2", "mpich 4.3.2", ("--mpi=pmi2",))
    assert osu.data["osu_bw"].is_file()
    assert osu.origin == f"Spack package osu-micro-benchmarks@7.5.2/{'o' * 32}"
    assert osu.libraries
    assert osu.sums.keys() == osu.data.keys()
    assert find_program(stack, "stream").mpi is None
    assert manifest.load_all(tmp_path / "stacks") == [stack]
    files = {file.name for file in (tmp_path / "stacks/spack").iterdir()}
    assert files == {"manifest.json", "sbom.cdx.json", "spack.lock", "spack.yaml"}


def test_an_environment_may_lie_where_its_manifest_is_written(fake, environment):
    stack = register(environment, environment)
    assert manifest.load(environment / manifest.FILE) == stack


def test_libraries_of_other_programs_than_the_first_are_noted(fake, environment, tmp_path):
    osu_bw = fake.root / "store/osu-micro-benchmarks/libexec/osu-micro-benchmarks/mpi/pt2pt/osu_bw"
    shutil.copy("/usr/bin/grep", osu_bw)
    own, all_libraries = (set(manifest.find_libraries([Path(path)], {})) for path in ("/bin/true", osu_bw))
    assert own < all_libraries
    stack = register(environment, tmp_path / "stack")
    osu = find_program(stack, "osu")
    assert {Path(path) for path in osu.libraries} == all_libraries
    library = min(map(str, all_libraries - own))
    other = osu.model_copy(update={"libraries": {**osu.libraries, library: "0" * 64}})
    changed = stack.model_copy(update={"programs": (other,)})
    assert list(changed.find_changes()) == [f"osu: {library} has changed since the stack was set up"]
    assert changed.hash != stack.model_copy(update={"programs": (osu,)}).hash


@pytest.mark.parametrize(
    ("how", "is_same"),
    [
        ({"launch": ("--mpi=pmi2",)}, False),
        ({"env": {"OMP_NUM_THREADS": "2"}}, False),
        ({"env": {"LD_LIBRARY_PATH": "/elsewhere/lib"}}, True),
    ],
)
def test_a_stack_whose_programs_start_otherwise_is_another_one(fake, environment, tmp_path, how, is_same):
    stack = register(environment, tmp_path / "stack")
    osu = find_program(stack, "osu").model_copy(update={"launch": (), "env": {}})
    both = [
        stack.model_copy(update={"programs": (program,)}).hash
        for program in (osu, osu.model_copy(update=how))
    ]
    assert (both[0] == both[1]) == is_same


def test_the_target_says_which_instructions_are_needed(fake, environment, tmp_path, monkeypatch):
    monkeypatch.setattr(spack, "find_libraries", lambda *_: [Path("/bin/libopenblas.so.0")])
    monkeypatch.setattr(manifest, "compute_sha256", lambda _: "0" * 64)
    features = ["avx", "avx2", "avx512f", "clzero", "mwaitx"]
    fake.nodes[2]["arch"]["target"] = {"name": "zen4", "vendor": "AuthenticAMD", "features": features}
    fake.write()
    stack = register(environment, tmp_path / "stack")
    stream, osu = find_program(stack, "stream"), find_program(stack, "osu")
    assert stream.target == manifest.ProcessorTarget(name="zen4", features=("avx", "avx2", "avx512f"))
    assert osu.target.name == "x86_64_v3"
    assert {"avx2", "fma"} < set(osu.target.features)
    kernels = [program.env["OPENBLAS_CORETYPE"] for program in (stream, osu)]
    assert kernels == ["SkylakeX", "Haswell"]
    assert stack.targets == (stream.target, osu.target)


def test_a_changed_program_of_the_same_package_is_refused(fake, environment, tmp_path):
    stack = register(environment, tmp_path / "stacks/spack")
    program = find_program(stack, "stream").path
    content = program.read_bytes()
    program.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        InfrastructureError, match=rf"{program}: changed since .*--overwrite.*remove .*manifest"
    ):
        register(environment, tmp_path / "stacks/spack")
    assert manifest.load_all(tmp_path / "stacks") == [stack]
    # Files outside Spack's store, such as those of the C library, may change.
    program.write_bytes(content)
    library = next(iter(find_program(stack, "stream").libraries))
    older = [program.model_copy(update={"libraries": {library: "0" * 64}}) for program in stack.programs]
    stack.model_copy(update={"programs": tuple(older)}).write(tmp_path / "stacks/spack")
    assert register(environment, tmp_path / "stacks/spack") == stack
    (tmp_path / "stacks/spack/manifest.json").write_text("{}")
    assert register(environment, tmp_path / "stacks/spack") == stack


@pytest.mark.parametrize(
    ("mpi", "launch", "env"),
    [
        ("mvapich2", "--mpi=pmi2", {"MV2_ENABLE_AFFINITY": "0"}),
        ("mvapich", "--mpi=pmi2", {"MVP_ENABLE_AFFINITY": "0"}),
        ("openmpi", "--mpi=pmix", {}),
        ("hpcx-mpi", "--mpi=pmix", {"OPAL_PREFIX": "{store}/hpcx-mpi"}),
    ],
)
def test_an_mpi_library_has_its_own_launch_options(environment, tmp_path, monkeypatch, mpi, launch, env):
    root = FakeSpack(tmp_path / "spack", mpi).root
    monkeypatch.setenv("SPACK_ROOT", str(root))
    stack = register(environment, tmp_path / "stack")
    osu = find_program(stack, "osu")
    assert (osu.mpi, osu.launch) == (f"{mpi} 4.3.2", (launch,))
    assert osu.env == {key: value.format(store=root / "store") for key, value in env.items()}
    assert find_program(stack, "stream").env == {}


def test_an_unknown_mpi_library_is_refused(environment, tmp_path, monkeypatch):
    monkeypatch.setenv("SPACK_ROOT", str(FakeSpack(tmp_path / "spack", "fujitsu-mpi").root))
    with pytest.raises(InfrastructureError, match=r"osu-micro-benchmarks.* is linked with fujitsu-mpi"):
        register(environment, tmp_path / "stack")


def test_variables_of_a_program_may_name_its_directories(fake, environment, tmp_path, monkeypatch):
    prefix = fake.root / "store/openfoam"
    programs = prefix / "platforms/linux64GccDPInt32-spack/bin"
    programs.mkdir(parents=True)
    for name in ("icoFoam", "blockMesh", "decomposePar"):
        shutil.copy("/bin/true", programs / name)
    fake.nodes.append(make_node("openfoam", "2506", "f", [fake.nodes[1]]) | {"prefix": str(prefix)})
    fake.write()
    # The linker finds the libraries of its MPI by such a variable.
    variables = []
    find_libraries = spack.find_libraries

    def note_variables(files, env):
        variables.append(env)
        return find_libraries(files, env)

    monkeypatch.setattr(spack, "find_libraries", note_variables)
    openfoam = find_program(register(environment, tmp_path / "stack"), "openfoam")
    assert openfoam.env["WM_PROJECT_DIR"] == str(prefix)
    assert openfoam.env["LD_LIBRARY_PATH"].startswith(
        f"{programs.parent}/lib/mpi-user:{programs.parent}/lib/"
    )
    assert variables[-1].items() >= openfoam.env.items()
    assert set(openfoam.data) == {"blockMesh", "decomposePar"}


def test_a_case_is_told_by_its_variant(fake, environment, tmp_path):
    fake.nodes[-1]["parameters"] = {"compile_type": ["em_real"]}
    fake.write()
    stack = register(environment, tmp_path / "stack")
    assert [program.name for program in stack.programs] == ["stream", "osu", "wrf-real"]


def test_a_package_without_its_program_is_refused(fake, environment, tmp_path):
    (fake.root / "store/stream/bin/stream_c.exe").unlink()
    with pytest.raises(InfrastructureError, match=r"stream_c\.exe is missing.*`spack uninstall /sssssss"):
        register(environment, tmp_path / "stack")


def test_a_lock_of_another_operating_system_is_refused(fake, environment, tmp_path):
    fake.nodes[2]["arch"]["platform_os"] = "rocky9"
    fake.write()
    with pytest.raises(InfrastructureError, match=r"is for rocky9, and this machine is debian12"):
        register(environment, tmp_path / "stack")


def test_an_environment_that_is_not_installed_is_refused(fake, environment, tmp_path):
    fake.nodes = []
    fake.write()
    with pytest.raises(InfrastructureError, match=r"no program is installed: run `spack -e .* install`"):
        register(environment, tmp_path / "stack")
    (environment / "spack.lock").unlink()
    with pytest.raises(UsageError, match=r"spack\.lock is missing: run `spack -e .* concretize`"):
        register(environment, tmp_path / "stack")


@pytest.mark.parametrize("root", ["/nonexistent", ""])
def test_spack_is_needed(environment, tmp_path, monkeypatch, root):
    monkeypatch.setenv("SPACK_ROOT", root)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no program spack .*setup-env\.sh"):
        register(environment, tmp_path / "stack")


def test_changed_files_are_named(fake, environment, tmp_path):
    stack = register(environment, tmp_path / "stack")
    bench = tmp_path / "bench"
    (bench / "sub").mkdir(parents=True)
    (bench / "sub/in.lj").write_text("run 100")
    stream, osu = find_program(stack, "stream"), find_program(stack, "osu")
    stream = stream.model_copy(update={"data": {"bench": bench}, "sums": {"bench": manifest.checksum(bench)}})
    stack = stack.model_copy(update={"programs": (stream, osu)})
    assert list(stack.find_changes()) == []
    osu.data["osu_bw"].write_bytes(b"another")
    (bench / "sub/in.lj").write_text("run 101")
    assert list(stack.find_changes()) == [
        f"stream: {bench} has changed since the stack was set up",
        f"osu: {osu.data['osu_bw']} has changed since the stack was set up",
    ]
    osu.data["osu_bw"].unlink()
    assert f"osu: {osu.data['osu_bw']} is gone" in list(stack.find_changes())
    other = stream.model_copy(update={"sums": {"bench": manifest.checksum(bench)}})
    assert stack.model_copy(update={"programs": (other, osu)}).hash != stack.hash
    without = stream.model_copy(update={"sums": {}})
    stack = stack.model_copy(update={"programs": (without,)})
    assert list(stack.find_changes()) == [f"stream: {bench} has no checksum in the manifest"]


def test_the_commands(fake, environment, tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path))

    def start(*arguments, code=0):
        return call("stack", *arguments, code=code).output

    missing = " ".join(start("check", code=5).split())
    assert (
        "no stack is set up: ci/build-stack builds one, `virtqual stack register --modules FILE`" in missing
    )
    stack_hash = start("register", "--spack", str(environment)).split()[2].rstrip(":")
    assert f"spack {stack_hash} (the default)\n  stream 5.10: stream\n" in start("check")
    (fake.root / "store/stream/bin/stream_c.exe").write_bytes(b"another")
    output = start("check", code=5)
    assert "stream_c.exe has changed" in output
    assert (
        "`virtqual stack register` (ci/build-stack, if files of Spack itself have changed) sets it up"
        in output
    )
    (tmp_path / "stacks/spack/manifest.json").write_text('{"schema": "virtqual-stack/0"}')
    assert "ci/build-stack sets the stack up again" in start("check", code=5)
