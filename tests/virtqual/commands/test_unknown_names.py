"""What a message says of a name, a date or a number that is not valid: what is meant, and what would be."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from calling import call
from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.wording import suggest
from virtqual.harness.catalogue import Entry, explain_unknown_words
from virtqual.qualify.forecast import _assume_features
from virtqual.references import load_references
from virtqual.site import systems

WAIVER = """schema: virtqual-waivers/1
waivers:
  - metric: hpl
    gate: overhead
    up_to: 8%
    class: kvm
    build: "6.1"
    owner: the operators
    reason: until the next release
    {key}: {day}
"""


def words(text):
    return " ".join(text.split())


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))


@pytest.mark.parametrize(
    ("name", "known", "says"),
    [
        ("until", ["build", "expires", "owner"], "did you mean expires? Known are build, expires, owner."),
        ("valid until", ["build", "expires"], "did you mean expires? Known are build, expires."),
        ("Until", ["expires"], "did you mean expires? Known are expires."),
        ("baseline", ["native", "virtual"], "did you mean native? Known are native, virtual."),
        ("budgit", ["budget", "margin"], "did you mean budget? Known are budget, margin."),
        ("xyz", ["budget", "margin"], "known are budget, margin."),
        ("xyz", [], "known are none."),
        ("budgit", ["budget", *map(str, range(20))], "did you mean budget?"),
    ],
)
def test_what_is_meant_goes_before_what_is_spelt_alike_and_all_are_listed(name, known, says):
    assert suggest(name, known) == says


@pytest.mark.parametrize(
    ("key", "day", "says"),
    [
        (
            "until",
            "2027-01-31",
            "waivers[0].until: is not a key of this kind of entry: did you mean expires?",
        ),
        (
            "expires",
            "2026-13-45",
            ":10: holds '2026-13-45', which is not a date that exists: write YYYY-MM-DD",
        ),
        ("expires", "31.1.2027", "is no date: write YYYY-MM-DD"),
    ],
)
def test_a_waiver_with_another_key_or_date(tmp_path, key, day, says):
    (tmp_path / "waivers.yaml").write_text(WAIVER.format(key=key, day=day), encoding="utf-8")
    with pytest.raises(UsageError) as error:
        load_references(paths.references(), tmp_path)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("run",), "qualify?"),
        (("measure",), "there is no command 'measure': did you mean"),
        (("trend",), "did you mean history?"),
        (("system", "list"), "system has no command 'list': known are check, init."),
        (("system", "chek", "x"), "system has no command 'chek': did you mean check? Known are check, init."),
        (("inputs", "get"), "inputs has no command 'get': did you mean fetch? Known are check, fetch, list."),
        (("stack", "add"), "stack has no command 'add': did you mean register? Known are check, register."),
        (("site", "new"), "site has no command 'new': did you mean init? Known are"),
    ],
)
def test_an_unknown_command(line, says):
    assert says in words(call(*line, code=2).output.translate(dict.fromkeys(map(ord, "│╭╮╰╯─"), " ")))


def test_a_stack_without_anything_named_says_what_can_be(monkeypatch):
    monkeypatch.delenv("SPACK_ROOT", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    said = words(call("stack", "register", code=2).output)
    assert "--modules FILE takes the modules of programs" in said
    assert "--spack DIRECTORY an installed Spack environment" in said


def test_an_unknown_stack_is_told_those_that_there_are(monkeypatch, tmp_path):
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"no stack 'foo' is set up: known are registry, spack\. Another one:"
    ):
        _assume_features("foo")


def test_a_pattern_of_a_whole_name_is_told_what_a_name_is():
    entries = [
        Entry(name="hpl", description="d", tags=()),
        Entry(name="lammps problem=lj", description="", tags=()),
    ]
    said = explain_unknown_words(entries, ["^hpl$"], ())
    assert said == (
        "no check has a name that matches '^hpl$': a name has its parameters in it, such as hpl%sample=0N; "
        "write '^hpl(%|$)'"
    )
    assert explain_unknown_words(entries, ["^hpl(%|$)"], ()) is None
    assert "such as lammps%sample=0N%problem=lj" in explain_unknown_words(entries, ["lammps$"], ())


def test_a_class_that_does_not_fit_names_those_that_do(site):
    hypervisor = {"vendor": "VMware", "build": "1", "accelerator": "vmware"}
    done = site.qualify("-n", "lj", code=4, FAKE_EXTRAS_cloud=json.dumps({"hypervisor": hypervisor}))
    said = site.words(done)
    assert "'vmware'; no class is for this accelerator; there are emulated (tcg), esxi (esxi), kvm" in said
    hypervisor["accelerator"] = "esxi"
    done = site.qualify("-n", "lj", code=4, FAKE_EXTRAS_cloud=json.dumps({"hypervisor": hypervisor}))
    assert "accelerator 'esxi'; classes for this accelerator: esxi, production" in site.words(done)


def test_the_example_of_a_system_file_without_a_user_names_the_variable(tmp_path, monkeypatch):
    file = shutil.copy(paths.root() / "site.example/systems/_example.py", tmp_path / "mysite.py")
    monkeypatch.delenv("USER")
    assert "'/scratch/virtqual-$USER' names a variable that is not set: USER; set it" in str(
        systems.read(file).content
    )
    monkeypatch.setenv("USER", "alice")
    assert "a variable that is not set" not in str(systems.read(file).content)


def test_a_machine_without_slurm_is_told_the_whole_command_for_a_template(monkeypatch, tmp_path):
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    said = words(call("system", "init", "mysite", code=5).output)
    template = "virtqual system init mysite --offline --native PARTITION --virtual PARTITION"
    assert template in said
    assert "`virtqual pair`" in said
    call(*template.split()[1:-3], "bm", "--virtual", "vm", code=0)
    assert (tmp_path / "systems/mysite.py").is_file()


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        ("500 ms", "'500 ms' has a unit: write the number alone, in the unit of this key, not in ms"),
        ("2h", "'2h' has a unit: write the number alone, in the unit of this key, not in h"),
        ("2026-11-29T12:00:00", "is a date, not a number: write seconds"),
        ("soon", "'soon' is no number"),
    ],
)
def test_a_number_with_a_unit(site, seconds, says):
    done = site.qualify("--plan", code=2, FAKE_EXTRAS_bare=json.dumps({"run_seconds": seconds}))
    assert says in site.words(done)
