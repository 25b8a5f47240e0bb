"""`references/preflight.yaml`: every mistake names file, line and key, and nothing is silent."""

import re

import pytest

from virtqual import paths
from virtqual.files.datafile import DataError
from virtqual.preflight.policy import load_policy
from virtqual.preflight.rules import RULES, rule
from virtqual.session import judge as judging

FILE = paths.references() / "preflight.yaml"


def test_the_projects_own_policy_covers_every_rule():
    policy = judging.policy()
    assert set(policy.items) == set(RULES)


def test_a_second_rule_of_an_item_is_refused():
    with pytest.raises(ValueError, match="two rules have the item 'smt'"):
        rule("run", "smt")(lambda run, limits: iter(()))


@pytest.mark.parametrize(
    ("pattern", "instead", "says"),
    [
        (r"item: smt", "item: smtt", r"items\[\d+\].item: no rule 'smtt': did you mean smt"),
        (r"  - item: smt\n(.*\n){3}", "", "items: no entry for the rule 'smt': it would be silent"),
        (r"item: smt", "item: steal", r"\.item: 'steal' stands here twice"),
        (r"\[N17, N18\]", "[N17, N99]", "protects: unknown claim 'N99'"),
        (r"protects: \[D16, D07\]", "protects: []", r"items\[\d+\].protects"),
        (
            r"limits: \{share: 0.02\}",
            "limits: {shares: 0.02}",
            r"\.limits: the rule takes these limits: share\.",
        ),
        (r"limits: \{cpus: 0.5, cpu_seconds: 1.0\}", "limits: {}", "these limits: cpus, cpu_seconds\\."),
        (r"- item: caches\n", r"- item: caches\n    limits: {share: 1}\n", "takes these limits: none\\."),
        (
            r"\{default: refuse, emulated: report\}",
            "{emulated: report}",
            r"\.actions: needs `default: refuse` or `report`\.$",
        ),
        (r"emulated: report", "emulatd: report", "unknown class 'emulatd': did you mean emulated"),
        (r"emulated: report", "emulated: ignore", "actions.emulated"),
        (r"class: \{kvm-on", "class: {kvn-on", r"limits_by_class\.kvn-on-emulated-hosts: unknown class"),
        (
            r"\{share: 0.55\}",
            "{shar: 0.55}",
            r"limits_by_class.*shar: no limit 'shar' of this item: did",
        ),
    ],
)
def test_mistakes(tmp_path, references, pattern, instead, says):
    text, count = re.subn(pattern, instead, FILE.read_text(), count=1)
    assert count
    file = tmp_path / "preflight.yaml"
    file.write_text(text)
    with pytest.raises(DataError) as error:
        load_policy(file, references)
    assert re.search(rf"preflight.yaml:\d+: .*{says}", str(error.value)), error.value


def test_items_of_a_site_replace_those_of_the_project(tmp_path, references):
    (entry,) = re.findall(r"  - item: smt\n(?:.*\n){3}", FILE.read_text())
    site_file = tmp_path / "site.yaml"
    site_file.write_text(f"schema: virtqual-preflight/1\nitems:\n{entry.replace('refuse', 'report')}")
    project = judging.policy()
    assert load_policy(FILE, references, tmp_path / "none.yaml") == load_policy(FILE, references) == project
    policy = load_policy(FILE, references, site_file)
    assert policy.metrics == references.metrics
    assert project.finding("smt", "a reason", "kvm").text.endswith(" (claims at risk: N17, N18)")
    assert policy.without("smt") == project.without("smt")
    actions = [one.finding("smt", "a reason", "kvm").action for one in (project, policy)]
    assert actions == ["refuse", "report"]
    site_file.write_text(site_file.read_text().replace("smt", "smtt"))
    file = tmp_path / "preflight.yaml"
    file.write_text(FILE.read_text().replace("N17, N18", "N17, N99"))
    with pytest.raises(DataError, match=r"(?s)preflight.yaml:.* claim 'N99'.*site.yaml:3: .*no rule 'smtt'"):
        load_policy(file, references, site_file)
