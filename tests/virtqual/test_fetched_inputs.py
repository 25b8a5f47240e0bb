"""Inputs to download: brought once over a loopback server, verified each time, refused when they changed."""

import hashlib
import io
import os
import re
import shutil
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ruamel.yaml import YAML

from calling import call
from virtqual.errors import InfrastructureError, RefusedError
from virtqual.files.datafile import DataError
from virtqual.inputs import declarations, fetched

MEMBERS = {"case/a.dat": b"alpha\n" * 99, "case/sub/b.dat": b"beta\n"}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if "short" not in self.path:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"half")
        return None


def archive(members=MEMBERS, kind=tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.size = kind, len(content)
            entry.linkname = "/etc/passwd"
            tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A loopback server with one archive, and a site that declares what the test says."""
    web, references = tmp_path / "web", tmp_path / "site/references"
    web.mkdir()
    (references / "inputs").mkdir(parents=True)
    (web / "case.tar.gz").write_bytes(archive())
    monkeypatch.setenv("VIRTQUAL_ROOT", str(tmp_path))
    monkeypatch.delenv("VIRTQUAL_SITE")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(web)))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    declarations.load_all.cache_clear()
    yield Place(web, references / "inputs", f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()
    declarations.load_all.cache_clear()


class Place:
    def __init__(self, web, directory, url):
        self.web, self.directory, self.url = web, directory, url

    def declare(self, name="case", file="case.tar.gz", sha256="own", **more):
        if sha256 == "own":
            sha256 = hashlib.sha256((self.web / file).read_bytes()).hexdigest()
        entry = {"name": name, "description": "a case", "url": f"{self.url}/{file}", **more}
        if sha256:
            entry |= {"sha256": sha256, "checksum_from": "the test"}
        with (self.directory / f"{name}.yaml").open("w") as text:
            YAML().dump({"schema": "virtqual-inputs/1", "inputs": [entry]}, text)
        declarations.load_all.cache_clear()
        return declarations.find_input(name)

    def run(self, *arguments):
        declarations.load_all.cache_clear()
        return call("inputs", *arguments)


def test_an_input_is_fetched_once_and_its_files_are_found(place):
    case = place.declare()
    assert "virtqual inputs fetch case" in fetched.explain_missing(case)
    done = place.run("fetch")
    assert done.exit_code == 0, done.output
    assert fetched.explain_missing(case) is None
    verified = fetched.verify(case)
    assert verified.sha256 == case.sha256
    assert verified.file("sub/b.dat").read_bytes() == b"beta\n"
    with pytest.raises(InfrastructureError, match=r"no file 'c\.dat'"):
        verified.file("c.dat")
    # What is here is not fetched again.
    (place.web / "case.tar.gz").unlink()
    assert place.run("fetch").exit_code == 0
    assert "here, 2 files, as fetched" in place.run("list").output


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.unlink(), "a.dat is gone"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "a.dat has 593 bytes, not 594"),
        (lambda path: path.write_bytes(path.read_bytes().upper()), "a.dat was written to"),
    ],
)
def test_a_changed_file_is_refused_before_a_run(place, damage, says):
    case = place.declare()
    fetched.fetch(case)
    path = fetched.verify(case).file("a.dat")
    path.chmod(0o644)
    damage(path)
    with pytest.raises(InfrastructureError, match=says):
        fetched.verify(case)
    assert place.run("check").exit_code == InfrastructureError.exit_code


def test_what_size_and_time_do_not_show_is_found_by_reading(place, monkeypatch):
    case = place.declare()
    fetched.fetch(case)
    path = fetched.verify(case).file("a.dat")
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().upper())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fetched.verify(case).sha256
    monkeypatch.setattr(fetched, "_names_read", set())
    with pytest.raises(InfrastructureError, match=r"a\.dat has another checksum"):
        fetched.verify_for_run(case)
    done = place.run("check", "case")
    assert done.exit_code == InfrastructureError.exit_code
    assert "a.dat has another checksum" in done.output


def test_every_file_is_read_once_a_look_and_looked_at_before_each_run(place, monkeypatch):
    monkeypatch.setattr(fetched, "_names_read", set())
    case = place.declare()
    fetched.fetch(case)
    read = []
    digest = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, kind: read.append(file.name) or digest(file, kind)
    )
    path = fetched.verify_for_run(case).file("a.dat")
    fetched.verify_for_run(case)
    assert sorted(name.rpartition("/")[2] for name in read) == ["a.dat", "b.dat"]
    os.utime(path, ns=(0, 0))
    with pytest.raises(InfrastructureError, match=r"a\.dat was written to"):
        fetched.verify_for_run(case)


def test_another_checksum_is_refused_and_nothing_is_kept(place):
    case = place.declare(sha256="0" * 64)
    with pytest.raises(RefusedError, match=f"not {'0' * 64}"):
        fetched.fetch(case)
    assert fetched.explain_missing(case)
    assert list((place.directory.parents[1] / "inputs").iterdir()) == []
    # An input whose checksum was corrected afterwards is no longer what is here.
    fetched.fetch(place.declare())
    with pytest.raises(InfrastructureError, match="now it must have 000"):
        fetched.verify(place.declare(sha256="0" * 64))


def test_an_input_without_a_checksum_is_refused_with_the_line_to_add(place):
    case = place.declare(sha256="")
    done = place.run("fetch", "case")
    assert done.exit_code == RefusedError.exit_code
    assert fetched.explain_missing(case)
    file = place.directory / "case.yaml"
    assert f"{file}, line 3, states no checksum" in done.output
    line = re.search(r"add there: (sha256: \w+)", done.output)[1]
    file.write_text(f"{file.read_text()}  {line}\n")
    assert place.run("fetch", "case").exit_code == 0
    # From now on another file is refused.
    (place.web / "case.tar.gz").write_bytes(archive({"case/a.dat": b"other"}))
    assert place.run("fetch", "case").exit_code == RefusedError.exit_code
    assert fetched.verify(declarations.find_input("case")).file("a.dat").read_bytes() == MEMBERS["case/a.dat"]


@pytest.mark.parametrize("name", ["short.tar.gz", "nothing.tar.gz"])
def test_what_does_not_arrive_whole_is_no_input(place, name):
    case = place.declare(file=name, sha256="0" * 64)
    with pytest.raises(InfrastructureError, match=f"{name}: .*--from FILE"):
        fetched.fetch(case)


@pytest.mark.parametrize("given", ["", "brought.tar.gz"])
def test_a_download_that_is_too_large_ends_before_its_checksum_is_compared(place, tmp_path, given):
    """It would fill the disk of the site."""
    size = len((place.web / "case.tar.gz").read_bytes())
    shutil.copy(place.web / "case.tar.gz", tmp_path / "brought.tar.gz")
    options = ["--from", str(tmp_path / given)] if given else []
    place.declare(max_gib=(size - 1) / 2**30)
    done = place.run("fetch", "case", *options)
    assert (done.exit_code, "it is larger than" in done.output) == (5, True)
    assert "state a larger `max_gib`" in done.output
    assert not (place.directory.parents[1] / "inputs/case").exists()
    place.declare(max_gib=size / 2**30)
    assert place.run("fetch", "case", *options).exit_code == 0


@pytest.mark.parametrize(
    ("name", "kind"), [("../out", tarfile.REGTYPE), ("/out", tarfile.REGTYPE), ("case/a", tarfile.SYMTYPE)]
)
def test_an_archive_writes_nothing_but_files_below_its_place(place, name, kind):
    # The bytes of an archive have the time in them, so a test's name has none of them: see
    # https://pytest-xdist.readthedocs.io/en/stable/known-limitations.html
    (place.web / "evil.tar.gz").write_bytes(archive({name: b""}, kind))
    case = place.declare(file="evil.tar.gz")
    with pytest.raises(InfrastructureError, match="is no ordinary file below it"):
        fetched.fetch(case)
    assert fetched.explain_missing(case)


def test_a_file_brought_by_hand_is_verified_too(place, tmp_path):
    case = place.declare(file="case.tar.gz")
    good, bad = tmp_path / "case.tar.gz", tmp_path / "bad.tar.gz"
    good.write_bytes((place.web / "case.tar.gz").read_bytes())
    bad.write_bytes(archive({"a": b"b"}))
    (place.web / "case.tar.gz").unlink()
    assert place.run("fetch", "case", "--from", str(bad)).exit_code == RefusedError.exit_code
    assert place.run("fetch", "case", "--from", str(good)).exit_code == 0
    assert fetched.verify(case).files.keys() == {"a.dat", "sub/b.dat"}


def test_mistakes_in_the_data_name_file_line_and_key(place):
    place.declare()
    (place.directory / "again.yaml").write_text((place.directory / "case.yaml").read_text())
    with pytest.raises(DataError) as error:
        declarations.load(place.directory)
    (problem,) = error.value.problems
    assert problem.key == "inputs[0].name"
    assert problem.message == f"'case' stands already at {place.directory}/again.yaml:3."


def test_the_inputs_of_the_studies_have_checksums():
    inputs = declarations.load(declarations.Path(__file__).parents[2] / "references/inputs")
    assert {"namd-stmv", "wrf-conus12km"} <= inputs.keys()
    assert all(declared.sha256 and declared.checksum_from for declared in inputs.values())
