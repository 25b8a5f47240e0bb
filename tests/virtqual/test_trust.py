"""What others own or can write to is neither run nor believed, and each command says what helps."""

import os
import re
import shutil
from types import SimpleNamespace

import pytest

from calling import call
from virtqual import paths, trust
from virtqual.errors import InfrastructureError, UsageError
from virtqual.qualify import asking, between

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


LISTS = ("stacks/mine/manifest.json", "inputs/case/kept.json")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A site with each kind of file that is run or decides what passes, and a state directory."""
    site = tmp_path / "site"
    shutil.copytree(paths.root() / "site.example", site)
    for name in ("notify.yaml", "host.sh", "ask-hosts", "checks/deep/more.py", *LISTS):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).touch()
    for name in ("sessions", "outbox"):
        (tmp_path / "state" / name).mkdir(parents=True)
    for name in ("verified", "measuring-mysite.lock"):
        (tmp_path / "state" / name).touch(0o644)
    for path in (tmp_path / "state", site, *site.rglob("*")):
        path.chmod(0o755)
    monkeypatch.setenv("VIRTQUAL_SITE", str(site))
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    return tmp_path


COMMANDS = ("list", "show", "history", "status", "report", "compare", "preflight", "qualify", "propose")
EXECUTED = (
    "site",
    "site/systems",
    "site/systems/_example.py",
    "site/checks",
    "site/checks/deep",
    "site/checks/deep/more.py",
    "site/references/waivers.yaml",
    "site/notify.yaml",
    "site/host.sh",
    "site/ask-hosts",
    "site/stacks",
    "site/stacks/mine/manifest.json",
    "site/inputs/case",
    "site/inputs/case/kept.json",
)


BELIEVED = ("state", "state/sessions", "state/verified", "state/outbox", "state/measuring-mysite.lock")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["state", "site"])
def test_every_command_refuses_a_directory_that_others_can_write(place, command, name):
    (place / name).chmod(0o777)
    done = call(command, code=5)
    assert f"{place / name}: other users can write to it" in done.output
    assert f"run: chmod go-w {place / name}. VIRTQUAL_{name.upper()}_SHARED=1 allows it" in done.output
    done = call(command, **{f"VIRTQUAL_{name.upper()}_SHARED": "1"})
    assert "can write to it" not in done.output


@pytest.mark.parametrize("name", [*EXECUTED, *BELIEVED])
def test_each_file_that_is_run_or_believed_is_refused_if_others_can_write_it(place, name):
    assert call("list").exit_code == 5
    assert "no session yet" in call("list").output
    (place / name).chmod(0o666 if (place / name).is_file() else 0o777)
    done = call("list", code=5)
    assert re.search(rf"{re.escape(str(place / name))}: other users can write to it.*chmod go-w", done.output)
    done = call("check")
    assert f"{place / name}: other users can write to it; run: chmod go-w {place / name}\n" in done.output


@as_root
@pytest.mark.parametrize("name", [*EXECUTED, *BELIEVED])
def test_each_file_that_is_run_or_believed_is_refused_if_another_user_owns_it(place, name):
    os.chown(place / name, 12345, -1)
    done = call("list", code=5)
    assert f"{place / name}: it belongs to user 12345" in done.output
    assert f"if you trust what it says, run: chown root {place / name}" in done.output


@as_root
def test_many_files_are_counted(place):
    for file in ("ask-hosts", "host.sh", "notify.yaml"):
        os.chown(place / "site" / file, 12345, -1)
    assert "`virtqual check` lists 2 more" in call("list", code=5).output
    assert call("check").output.count("belongs to user 12345") == 3


@as_root
def test_root_of_an_nfs_client_is_told_why_its_files_are_of_nobody(place):
    os.chown(place / "state", STRANGER, -1)
    assert "run virtqual as another user than root" in call("list", code=5).output


@as_root
def test_the_owner_of_the_checkout_is_trusted(place, monkeypatch):
    """Its code runs already: in a container the checkout may be that of the user who started it."""
    checkout = place / "checkout"
    (checkout / "site").mkdir(parents=True)
    monkeypatch.setenv("VIRTQUAL_ROOT", str(checkout))
    for path in (checkout, place / "site", place / "site/ask-hosts", place / "state"):
        os.chown(path, 12345, -1)
    paths.check_directories()
    os.chown(place / "state", 12346, -1)
    with pytest.raises(InfrastructureError, match="belongs to user 12346"):
        paths.check_directories()


def test_a_directory_of_a_link_is_examined(place):
    """ReFrame loads what is there."""
    other = place / "other"
    other.mkdir()
    (other / "check.py").touch()
    (place / "site/checks/ours").symlink_to(other)
    (other / "loop").symlink_to(other)
    paths.check_directories()
    (other / "check.py").chmod(0o666)
    with pytest.raises(InfrastructureError, match=r"ours/check.py: other users can write to it"):
        paths.check_directories()


@pytest.mark.parametrize(
    ("name", "members", "is_private"),
    [("alice", [], True), ("alice", ["alice"], True), ("alice", ["bob"], False), ("hpcops", [], False)],
)
def test_a_group_of_this_user_alone_may_write(place, monkeypatch, name, members, is_private):
    """Such as with the umask 002 that many distributions have."""
    users = {os.geteuid(): SimpleNamespace(pw_name="alice")}
    group = SimpleNamespace(gr_name=name, gr_mem=members)
    monkeypatch.setattr(trust.pwd, "getpwuid", users.__getitem__)
    monkeypatch.setattr(trust.grp, "getgrgid", lambda gid: group)
    (place / "site/systems").chmod(0o775)
    faults = list(map(str, paths.find_site_faults()))
    path = place / "site/systems"
    assert faults == [f"{path}: other users can write to it (group {name}); run: chmod go-w {path}"] * (
        not is_private
    )


def test_a_group_that_nobody_knows_may_not_write(place, monkeypatch):
    monkeypatch.setattr(trust.grp, "getgrgid", {}.__getitem__)
    (place / "site").chmod(0o775)
    (fault,) = paths.find_site_faults()
    assert f"(group {(place / 'site').stat().st_gid})" in fault.reason


def test_an_access_control_list_that_lets_others_write_is_seen(place, monkeypatch):
    """Its mask is where the group's bits are."""
    monkeypatch.setattr(trust, "_is_private", lambda group, owners: True)
    monkeypatch.setattr(trust.os, "getxattr", lambda path, name: b"acl", raising=False)
    paths.check_directories()
    (place / "site/host.sh").chmod(0o775)
    with pytest.raises(InfrastructureError, match=r"by its access control list.*setfacl -b"):
        paths.check_directories()


def test_a_directory_above_in_which_everybody_can_replace_names_is_refused(place):
    place.chmod(0o777)
    with pytest.raises(InfrastructureError, match=rf"{place}: everybody can replace state in it.*chmod o-w"):
        paths.check_directories()
    # As /tmp is.
    place.chmod(0o1777)
    paths.check_directories()


def test_directories_above_the_checkout_are_not_looked_at(place, monkeypatch):
    """Its code runs already; a runner of containers may have made them for everybody."""
    monkeypatch.setenv("VIRTQUAL_ROOT", str(place))
    place.chmod(0o777)
    paths.check_directories()


def test_a_check_of_one_session_is_refused_as_well(place):
    (place / "state").chmod(0o777)
    assert "other users can write to it, and" in call("check", "last", code=5).output


def test_the_help_of_a_command_is_always_to_be_had(place):
    (place / "state").chmod(0o777)
    assert "The exit code is 4" in call("check", "--help", code=0).output
    assert "List the sessions" in call("list", "--help", code=0).output


def test_plain_reframe_refuses_a_site_that_others_can_write(site):
    (site.path / "site/systems/testsite.py").chmod(0o666)
    done = site.run("reframe", "-l", "--system", "testsite", code=1)
    assert re.search(r"testsite\.py: other users can write to it.*chmod go-w", done.stdout + done.stderr)


@pytest.mark.parametrize("command", [["{file}", "now"], ["sh", "{file}"]])
def test_commands_of_a_system_file_are_not_run_if_others_can_change_them(place, command):
    file = place / "recreate"
    file.write_text("#!/bin/sh\n", encoding="utf-8")
    file.chmod(0o777)
    command = [word.format(file=file) for word in command]
    extras = SimpleNamespace(recreate_vms=command, ask_hosts=command, host=None)
    system = SimpleNamespace(name="mysite", virtual_extras=extras)
    for check in (between.check_command, asking.ask_hosts):
        with pytest.raises(InfrastructureError, match=r"recreate: other users can write to it.*chmod go-w"):
            check(system)


def test_the_working_directory_is_never_taken_for_the_checkout(tmp_path, monkeypatch):
    """A wheel has no checks, and those of the working directory would be run."""
    package = tmp_path / "lib/site-packages/virtqual"
    package.mkdir(parents=True)
    (tmp_path / "checks").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTQUAL_ROOT", raising=False)
    monkeypatch.setattr(paths, "_PACKAGE", package)
    with pytest.raises(UsageError, match="set VIRTQUAL_ROOT to its directory"):
        paths.root()
    monkeypatch.setenv("VIRTQUAL_ROOT", str(tmp_path))
    assert paths.root() == tmp_path
