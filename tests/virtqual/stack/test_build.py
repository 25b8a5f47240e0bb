"""Building the stack: the plan, what is missing, what fails, and what stays in place."""

import hashlib
import json

import pytest
from fakespack import lock_of, provider
from ruamel.yaml import YAML

from virtqual.errors import InfrastructureError, UsageError
from virtqual.stack import build, jobs, lock, manifest, pins, plan, spack
from virtqual.stack.alone import alone
from virtqual.stack.environment import Choices


def silent(_line):
    pass


def test_a_build_writes_what_checks_read(fake, start, tmp_path):
    said = []
    made = build.build(start(), said.append)
    assert made.features == ["osu", "stream"]
    osu = provider(made, "osu")
    assert osu.mpi == "mpich 4.3.2"
    assert osu.launch == ("--mpi=pmi2",)
    assert osu.data["osu_bw"].is_file()
    assert "o" * 32 in osu.origin
    assert osu.libraries
    assert provider(made, "stream").mpi is None
    state = tmp_path / "stacks/spack"
    assert manifest.installed(tmp_path / "stacks") == [made]
    kept = json.loads((state / "provenance.json").read_text())
    assert kept["packages"]["commit"] == pins.stack(tmp_path / "checkout").packages.commit
    assert kept["lock_sha256"] == manifest.sha256(state / "spack.lock")
    assert any("[1/3]" in line for line in said)


@pytest.mark.parametrize(("mpi", "variable"), [("mvapich2", "MV2"), ("mvapich", "MVP")])
def test_an_mpi_library_that_binds_by_itself_leaves_that_to_slurm(fake, start, mpi, variable):
    fake.lock(json.loads(json.dumps(lock_of()).replace("mpich", mpi)))
    made = build.build(start(), silent)
    assert provider(made, "osu").mpi == f"{mpi} 4.3.2"
    assert provider(made, "osu").env == {f"{variable}_ENABLE_AFFINITY": "0"}
    assert provider(made, "stream").env == {}


@pytest.mark.parametrize("mpi", ["openmpi", "hpcx-mpi"])
def test_an_mpi_library_of_a_site_is_started_by_pmix(fake, start, mpi):
    fake.lock(json.loads(json.dumps(lock_of()).replace("mpich", mpi)))
    assert provider(build.build(start(), silent), "osu").launch == ("--mpi=pmix",)


def test_an_mpi_library_that_nobody_knows_to_start_is_refused(fake, start):
    fake.lock(json.loads(json.dumps(lock_of()).replace("mpich", "fujitsu-mpi")))
    with pytest.raises(InfrastructureError, match=r"osu-micro-benchmarks.* is linked with fujitsu-mpi"):
        build.build(start(), silent)


def test_a_program_that_has_changed_is_not_blessed(fake, start, tmp_path):
    good = build.build(start(), silent)
    program = provider(good, "stream").path
    whole = program.read_bytes()
    program.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InfrastructureError) as caught:
        build.build(start(), silent)
    assert f"stream: {program} has changed since the stack was set up" in str(caught.value)
    assert "spack uninstall --force /sssssss" in str(caught.value)
    assert manifest.installed(tmp_path / "stacks") == [good]
    # As it is told to: the package is built anew, and may be another one.
    store = program.parents[2]
    index = store / ".spack-db/index.json"
    content = json.loads(index.read_text())
    del content["database"]["installs"]["s" * 32]
    index.write_text(json.dumps(content))
    assert build.build(start(), silent) == good


def test_a_stack_of_an_older_virtqual_that_has_no_checksums_of_data_is_set_up_anew(fake, start, tmp_path):
    good = build.build(start(), silent)
    older = [program.model_copy(update={"sums": {}}) for program in good.programs]
    good.model_copy(update={"programs": tuple(older)}).write(tmp_path / "stacks/spack")
    assert build.build(start(), silent) == good


def test_a_failed_build_names_package_and_log_and_keeps_the_last_good_stack(fake, start, tmp_path):
    good = build.build(start(), silent)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/config.yaml").write_text("config: {}\n")
    changed = json.loads(json.dumps(lock_of()).replace("o" * 32, "p" * 32))
    fake.lock(changed)
    fake.breaks("osu-micro-benchmarks")
    job = start(choices=Choices(site=tmp_path / "site"))
    with pytest.raises(InfrastructureError) as caught:
        build.build(job, silent)
    told = str(caught.value)
    assert told.startswith("osu-micro-benchmarks@7.5.2/ppppppp could not be built; its log: ")
    assert "spack-build-out.txt" in told
    assert "no such thing" in told
    assert f"the last good stack ({good.hash}) is still in place" in told
    assert manifest.installed(tmp_path / "stacks") == [good]
    assert list(good.changed()) == []
    # Mended, it goes on where it stopped.
    (fake.path / "broken").unlink()
    assert "p" * 32 in provider(build.build(job, silent), "osu").origin


def test_every_file_that_checks_run_or_read_has_a_checksum(fake, start, tmp_path):
    made = build.build(start(), silent)
    bench = tmp_path / "bench"
    (bench / "sub").mkdir(parents=True)
    (bench / "sub/in.lj").write_text("run 100")
    stream, osu = provider(made, "stream"), provider(made, "osu")
    sums = {"bench": manifest.checksum(bench)}
    stream = stream.model_copy(update={"data": {"bench": bench}, "sums": sums})
    made = made.model_copy(update={"programs": (stream, osu)})
    assert list(made.changed()) == []
    # A program that is not the one that names the package, and an input in a directory.
    osu.data["osu_bw"].write_bytes(b"another")
    (bench / "sub/in.lj").write_text("run 101")
    assert list(made.changed()) == [
        f"stream: {bench} has changed since the stack was set up",
        f"osu: {osu.data['osu_bw']} has changed since the stack was set up",
    ]
    other = stream.model_copy(update={"sums": {"bench": manifest.checksum(bench)}})
    assert made.model_copy(update={"programs": (other, osu)}).hash != made.hash
    # One that an older virtqual wrote can be read, but does not pass.
    older = made.model_copy(update={"programs": (stream.model_copy(update={"sums": {}}),)})
    assert list(older.changed()) == [f"stream: {bench} has no checksum: an older virtqual set it up"]


def test_a_manifest_of_another_virtqual_does_not_stand_in_the_way(fake, start, tmp_path):
    good = build.build(start(), silent)
    file = tmp_path / "stacks/spack/manifest.json"
    file.write_text('{"schema": "virtqual-stack/0"}')
    with pytest.raises(InfrastructureError, match=r"ci/build-stack sets the stack up again"):
        manifest.installed(tmp_path / "stacks")
    assert build.build(start(), silent) == good


@pytest.mark.parametrize(
    ("breaks", "what", "log"),
    [
        (["mpich"], "mpich@4.3.2/mmmmmmm", "spack-stage-mpich-4.3.2-"),
        # The last log is another's.
        (["stream", "osu-micro-benchmarks"], "stream@5.10/sssssss", "spack-stage-stream-5.10-"),
        (["mpich", "nolog"], "mpich@4.3.2/mmmmmmm", "-install.log"),
    ],
    ids=["a dependency", "two", "before it has a log"],
)
def test_the_package_that_failed_is_named_with_its_own_log(fake, start, breaks, what, log):
    fake.breaks(*breaks)
    with pytest.raises(InfrastructureError) as caught:
        build.build(start(), silent)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"{what} could not be built; its log: /")
    assert log in first


def test_two_at_once_are_refused(fake, start, tmp_path):
    state = tmp_path / "stacks/spack"
    job = start()
    with (
        alone(state),
        pytest.raises(InfrastructureError, match=f"another `virtqual stack` is at work in {state}"),
    ):
        build.build(job, silent)
    assert not state.exists()
    assert build.build(job, silent)


def test_a_build_of_nothing_is_refused_and_keeps_the_last_good_stack(fake, start, tmp_path):
    good = build.build(start(), silent)
    kept = (tmp_path / "stacks/spack/spack.lock").read_bytes()
    with pytest.raises(UsageError, match="leaves nothing of the set 'micro'"):
        start(without=("stream", "osu-micro-benchmarks", "hpl", "perftest"))
    with pytest.raises(UsageError, match=r"lock\.json is a lock without lammps.*--without lammps"):
        build.build(
            start(set="apps", without=("npb", "milc", "mpip", "wrf", "namd"), lock=fake.path / "lock.json"),
            silent,
        )
    assert manifest.installed(tmp_path / "stacks") == [good]
    assert (tmp_path / "stacks/spack/spack.lock").read_bytes() == kept


def test_two_runs_in_one_second_have_a_log_each(tmp_path, monkeypatch):
    monkeypatch.setattr(spack.time, "strftime", lambda form: "20260101-000000")
    logs = [spack.log_file(tmp_path, "install") for _ in range(3)]
    assert [log.name.removeprefix("20260101-000000-install") for log in logs] == [".log", "-2.log", "-3.log"]


def test_nothing_to_do_needs_no_spack_run(fake, start):
    build.build(start(), silent)
    fake.breaks("stream")
    build.build(start(), silent)


def test_what_a_person_must_supply_is_said_before_anything_is_built(fake, start, tmp_path, monkeypatch):
    with pytest.raises(InfrastructureError) as caught:
        build.build(start(set="apps", without=("lammps", "npb", "milc", "mpip", "wrf")), silent)
    assert "NAMD_2.14_Source.tar.gz" in str(caught.value)
    assert "sha256 34044d85" in str(caught.value)
    place = tmp_path / "stacks/spack/by-hand/NAMD_2.14_Source.tar.gz"
    assert str(place) in str(caught.value)
    place.parent.mkdir()
    place.write_text("another")
    job = start(set="apps", without=("lammps", "npb", "milc", "mpip", "wrf"))
    (entry,) = build.planned(job, jobs.known_lock(job)).by_hand
    assert not entry.supplied  # a wrong checksum is none


def test_a_mirror_may_have_what_a_person_supplied(fake, start, tmp_path, monkeypatch):
    content = b"stands in for NAMD's sources"
    sha256 = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(pins.programs()["by-hand"]["namd"], "sha256", sha256)
    place = tmp_path / f"mirror/sources/_source-cache/archive/{sha256[:2]}/{sha256}.tar.gz"
    place.parent.mkdir(parents=True)
    (tmp_path / "mirror/mirror.json").write_text("{}")
    job = start(set="apps", without=("lammps", "npb", "milc", "mpip", "wrf"), mirror=tmp_path / "mirror")
    locked = lock.load(fake.path / "lock.json")
    for text, supplied in ((b"another", False), (content, True)):
        place.write_bytes(text)
        (entry,) = build.planned(job, locked).by_hand
        assert entry.supplied == supplied


def test_a_plan_says_what_building_took_where_it_was_tried(fake, start):
    planned = build.planned(start(), lock.load(fake.path / "lock.json"))
    known = pins.programs()["tried"]
    assert set(planned.tried) == {p.name for p in planned.build} & set(known)
    assert planned.tried["stream"] == plan.Tried(**known["stream"])
    locked = lock.load(fake.path / "lock.json")
    assert plan.make(locked, ["stream"], fake.path / "store", only_install=True).tried == {}


def test_a_command_that_only_one_package_needs(fake, start, monkeypatch):
    monkeypatch.setattr(plan.shutil, "which", lambda name: None if name == "csh" else f"/bin/{name}")
    locked = lock.load(fake.path / "lock.json")
    assert build.planned(start(), locked).missing == ()
    (told,) = build.planned(
        start(set="apps", without=("lammps", "npb", "milc", "mpip", "wrf")), locked
    ).missing
    assert told == "namd needs csh (Debian: apt-get install tcsh)"


def test_a_machine_that_lacks_a_compiler(fake, start):
    said = lock_of()
    said["concrete_specs"]["g" * 32]["external"]["extra_attributes"] = {"compilers": {"c": "/none/gcc"}}
    fake.lock(said)
    with pytest.raises(InfrastructureError, match=r"the c compiler of gcc@12\.2\.0 is not at /none/gcc"):
        build.build(start(), silent)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        pytest.param("12.2.0", (), id="the same"),
        pytest.param(
            "13.1.0",
            ("-dumpfullversion says that it is 13.1.0, the lock has gcc@12.2.0: state yours in config/site",),
            id="another",
        ),
        pytest.param("", ("-dumpfullversion says no version, the lock has gcc@12.2.0",), id="none"),
    ],
)
def test_a_compiler_of_the_machine_is_held_against_the_lock(fake, start, tmp_path, said, told):
    compiler = tmp_path / "gcc"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = -dumpfullversion ] && echo "{said}"\n')
    compiler.chmod(0o755)
    content = lock_of()
    content["concrete_specs"]["g" * 32]["external"]["extra_attributes"] = {"compilers": {"c": str(compiler)}}
    fake.lock(content)
    found = build.planned(start(), lock.load(fake.path / "lock.json")).missing
    assert len(found) == len(told), found
    assert all(words in sentence for words, sentence in zip(told, found, strict=True))


def test_what_is_taken_from_a_place_that_is_not_there(fake, start, tmp_path):
    fake.lock(lock_of(external=str(tmp_path / "gone")))
    (told,) = build.planned(start(), lock.load(fake.path / "lock.json")).missing
    assert told.startswith(f"gcc is taken from {tmp_path}/gone, which is not there: say in config/site")


def test_two_cases_of_one_program(fake, start, tmp_path):
    locked = lock.load(fake.path / "lock.json")
    (ideal,) = [p for p in locked.of(["wrf"]) if p.variant("compile_type") == "em_b_wave"]
    assert ideal.hash == "w" * 32
    assert plan.make(locked, ["wrf"], tmp_path / "store").installed == 0


def test_a_set_is_added_to_what_is_there(fake, start):
    first = build.build(start(without=("hpl", "perftest", "osu-micro-benchmarks")), silent)
    assert first.features == ["stream"]
    job = start(without=("hpl", "perftest", "stream"))
    assert job.names == ("osu-micro-benchmarks",)
    job = start(set="apps", without=("lammps", "npb", "namd", "milc", "mpip"))
    assert job.names == ("wrf", "stream")
    whole = build.build(start(without=("hpl", "perftest")), silent)
    assert whole.features == ["osu", "stream"]


@pytest.mark.parametrize("version", ["0.23.1", "1.0.2", "2.0.0", ""])
def test_a_spack_of_another_form_is_refused(fake, start, version):
    fake.version(version)
    with pytest.raises(InfrastructureError, match=r"v1\.1\.0 is supported"):
        build.build(start(), silent)


@pytest.mark.parametrize("unsigned", [False, True], ids=["signed", "unsigned"])
def test_a_build_cache_is_signed_unless_the_user_says_otherwise(fake, start, unsigned):
    url = "https://cache.example/stack"
    job = start(buildcache=url, unsigned=unsigned)
    build.build(job, silent)
    written = YAML(typ="safe").load((job.made.directory / "spack.yaml").read_text(encoding="utf-8"))
    assert written["spack"]["mirrors"]["buildcache"] == {"url": url, "source": False, "signed": not unsigned}


@pytest.mark.parametrize("scheme", ["http", "HTTP", "ftp", "oci+http"])
def test_an_unsigned_build_cache_is_refused_over_a_network_without_encryption(start, scheme):
    with pytest.raises(UsageError, match="without signatures packages can be replaced on the way"):
        start(buildcache=f"{scheme}://cache.example/stack", unsigned=True)


def test_a_build_cache_in_a_registry_of_containers_counts_as_unsigned(start):
    with pytest.raises(UsageError, match="Add --unsigned if you vouch"):
        start(buildcache="oci://cache.example/stack")
    assert start(buildcache="oci://cache.example/stack", unsigned=True)


def test_what_is_not_there_is_refused_before_anything_is_done(fake, start, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"mirror\.json is not there.*`virtqual stack mirror` has filled"):
        start(mirror=tmp_path)
    with pytest.raises(UsageError, match="neither a URL nor a directory"):
        start(buildcache=str(tmp_path / "none"))
    assert start(buildcache="https://cache.example/stack")
    with pytest.raises(UsageError, match="--unsigned is an option for --buildcache"):
        start(unsigned=True)
    (tmp_path / "mirror.json").write_text("[]")
    with pytest.raises(UsageError, match=r"mirror\.json: not what `virtqual stack mirror` writes"):
        start(mirror=tmp_path)
    (tmp_path / ".spack-db").mkdir()
    (tmp_path / ".spack-db/index.json").write_text("{}")
    with pytest.raises(InfrastructureError, match=r"index\.json: no database of Spack 1\.x"):
        lock.installed(tmp_path)
    monkeypatch.setenv("SPACK_ROOT", "/nonexistent")
    with pytest.raises(
        UsageError, match=r"SPACK_ROOT is /nonexistent, but .* unset it to have v1\.1\.0 brought"
    ):
        build.build(start(), silent)
    monkeypatch.setenv("SPACK_ROOT", str(fake.path))
    (fake.path / "bin/spack").chmod(0o644)
    with pytest.raises(InfrastructureError, match=r"does not run: .*Permission denied; unset SPACK_ROOT"):
        build.build(start(), silent)


def test_no_network_and_no_mirror_changes_nothing(checkout, tmp_path, monkeypatch):
    monkeypatch.delenv("SPACK_ROOT", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "none")
    job = jobs.make(jobs.BuildRequest(set="micro"), checkout, tmp_path / "stacks")
    with pytest.raises(InfrastructureError, match=r"does not answer.*Nothing was changed.*registry stack"):
        build.build(job, silent)
    assert not (tmp_path / "stacks").exists()


def test_offline_lets_nothing_out(tmp_path):
    env = spack.variables(tmp_path, offline=True)
    assert env["GIT_ALLOW_PROTOCOL"] == "file"
    assert env["https_proxy"].startswith("http://127.0.0.1:")
