"""The key of those who run sessions starts one program on a KVM host, which only root can change there."""

import os
import re
import shutil
import subprocess
from itertools import pairwise

import pytest

from calling import call
from made_programs import write_program
from virtqual.errors import UsageError
from virtqual.identity.host import read_libvirt
from virtqual.paths import root

EXAMPLE = root() / "site.example"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMadeUpForThisTest alice@login1"
#: Stand-ins: `sudo` does what the rule allows, and `ssh` what the key is bound to, whatever it is asked.
PROGRAMS = {
    "useradd": """#!/bin/sh
echo "$*" > "$DESTDIR/useradd"
echo 'virtqual:*:990:990::/home/virtqual:/bin/sh' >> "$DESTDIR/etc/passwd"
""",
    "sudo": """#!/bin/sh
[ $# = 2 ] && [ "$1" = -n ] || exit 9
grep -qxF "virtqual ALL=(root) NOPASSWD: $2 \\"\\"" "$DESTDIR/etc/sudoers.d/virtqual-host" || exit 8
exec "$DESTDIR$2"
""",
    "ssh": """#!/bin/sh
for last; do :; done
[ "$last" = virtqual@kvm01 ] || exit 255
keys=$DESTDIR/home/virtqual/.ssh/authorized_keys
sh -c "$(sed -n 's/^command="\\([^"]*\\)",restrict ssh-.*/\\1/p' "$keys")"
""",
}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to root")


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The files of a host, and what the installation needs."""
    for name, text in PROGRAMS.items():
        write_program(tmp_path / "bin" / name, text)
    (tmp_path / "host/etc").mkdir(parents=True)
    (tmp_path / "host/etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="utf-8")
    (tmp_path / "virtqual-host").write_text(call("host", "--script", code=0).output, encoding="utf-8")
    (tmp_path / "key.pub").write_text(f"{KEY}\n", encoding="utf-8")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("DESTDIR", str(tmp_path / "host"))
    return tmp_path / "host"


def install(directory, script="virtqual-host", key="key.pub"):
    line = ["sh", EXAMPLE / "install-on-host", directory / script, directory / key]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


@as_root
def test_the_key_runs_the_installed_program_and_nothing_else(host, tmp_path):
    for _ in range(2):
        done = install(tmp_path)
        assert done.returncode == 0, done.stderr
    program = host / "usr/local/sbin/virtqual-host"
    keys, rule = host / "home/virtqual/.ssh/authorized_keys", host / "etc/sudoers.d/virtqual-host"
    modes = [(path.stat().st_uid, path.stat().st_mode & 0o777) for path in (program, keys, rule, keys.parent)]
    assert modes == [(0, 0o755), (0, 0o644), (0, 0o440), (0, 0o755)]
    assert keys.read_text() == f'command="sudo -n /usr/local/sbin/virtqual-host",restrict {KEY}\n'
    assert (host / "etc/passwd").read_text().count("virtqual:*") == 1
    assert (host / "useradd").read_text().startswith(f"--prefix {host} --system --password *")
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(EXAMPLE / "ask-hosts", site)
    text = (site / "ask-hosts").read_text().replace("hosts='kvm01 kvm02'", "hosts='kvm01'")
    (site / "ask-hosts").write_text(text)
    subprocess.run([site / "ask-hosts"], check=True, timeout=60)
    assert [file.name for file in (site / "hosts").iterdir()] == ["kvm01.txt"]
    assert '"schema": "virtqual-host/' in call("host", "--from", site / "hosts/kvm01.txt", code=0).output
    # A host that gives no answer leaves the last record, which is then too old.
    before = (site / "hosts/kvm01.txt").read_text()
    rule.write_text("")
    done = subprocess.run([site / "ask-hosts"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, "kvm01 gave no answer\n")
    assert [file.read_text() for file in (site / "hosts").iterdir()] == [before]


@as_root
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("key.pub", "-----BEGIN OPENSSH PRIVATE KEY-----\n", "has more than one line|no public key"),
        ("key.pub", f"{KEY}\n{KEY}\n", "has more than one line"),
        ("key.pub", "", "is no public key of SSH"),
        ("key.pub", f'command="sh" {KEY}\n', "is no public key of SSH"),
        ("virtqual-host", "#!/bin/sh\nid\n", "is not from: virtqual host --script"),
    ],
)
def test_nothing_is_installed_from_wrong_files(host, tmp_path, name, content, says):
    (tmp_path / name).write_text(content, encoding="utf-8")
    done = install(tmp_path)
    assert done.returncode == 2
    assert re.search(says, done.stderr)
    assert [path.name for path in host.rglob("*")] == ["etc", "passwd"]


def test_the_installation_says_what_it_needs():
    line = ["sh", EXAMPLE / "install-on-host"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "sh install-on-host virtqual-host virtqual-hosts.pub" in done.stdout) == (
        2,
        True,
    )


def test_the_page_shows_the_example():
    """`virtqual site init` copies the one, and people read the other."""
    page = (root() / "docs/add-kvm-hosts.md").read_text("utf-8")
    (shown,) = re.findall(r"^`site/ask-hosts`\n\n```sh\n(.*?)```$", page, re.M | re.S)
    example = (EXAMPLE / "ask-hosts").read_text("utf-8")
    assert re.sub("(?m)^hosts=.*", "", shown) == re.sub("(?m)^hosts=.*", "", example)
    assert "sudo sh install-on-host virtqual-host virtqual-hosts.pub" in page


@pytest.mark.parametrize("page", ["add-kvm-hosts.md", "add-esxi-hosts.md"])
def test_no_command_of_a_page_starts_a_shell_of_root_on_hosts(page):
    """Who could write the shell's input would be root on all hypervisors."""
    text = (root() / "docs" / page).read_text("utf-8")
    (ask,) = re.findall(r"^`site/ask-hosts`\n\n```sh\n(.*?)```$", text, re.M | re.S)
    (line,) = [line for line in ask.replace("\\\n", " ").splitlines() if line.lstrip().startswith("ssh ")]
    assert re.search(r'"?(virtqual|root)@\S+ +> ', line), "ssh takes a command from here"
    assert "-nT" in line
    assert text.index("restrict") < text.index("look at the VMs")


def test_a_description_of_a_vm_that_expands_without_bounds_is_refused():
    """The parser ends it: the owner of a VM writes parts of its description."""
    entities = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise("abcdefghij"))
    text = f'<!DOCTYPE d [<!ENTITY a "{"x" * 10}">{entities}]><domain><vcpu>1</vcpu><name>&j;</name></domain>'
    with pytest.raises(UsageError, match="libvirt: the domain is not XML: limit on input amplification"):
        read_libvirt(text)
