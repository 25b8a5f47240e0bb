"""Continuous integration runs what was reviewed, and gives no privilege to what was not."""

import json
import re
import tomllib

import pytest
from ruamel.yaml import YAML

from virtqual.paths import root

TEMPLATES = sorted((root() / ".github/ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOWS = sorted((root() / ".github/workflows").glob("*.y*ml"))


def read(file):
    return YAML(typ="safe").load(file)


def list_jobs(*triggers):
    """Return the jobs of the workflows that one of some events starts, or of all."""
    workflows = {file.stem: read(file) for file in WORKFLOWS}
    return {
        f"{name}.{job}": keys
        for name, workflow in workflows.items()
        for job, keys in workflow["jobs"].items()
        if not triggers or set(triggers).intersection(workflow["on"])
    }


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_and_images_are_those_that_were_reviewed(file):
    """A tag can be moved to other code; a commit and a digest cannot."""
    text = file.read_text("utf-8")
    actions = re.findall(r"\buses: *(\S+)(.*)", text)
    assert actions
    for action, comment in actions:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action} lacks its version"
    for name, job in list_jobs().items():
        images = [job.get("container", {}).get("image", "none@sha256:" + "0" * 64)]
        images += [service["image"] for service in job.get("services", {}).values()]
        for image in images:
            assert re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image), f"{name}: {image}"


def test_no_pull_request_gets_a_privileged_container():
    assert not list_jobs("pull_request_target", "workflow_run"), "these run with the secrets of the project"
    jobs = list_jobs("pull_request")
    assert len(jobs) >= 3
    privileged = {name: job for name, job in jobs.items() if "privileged" in json.dumps(job)}
    assert privileged.keys() == {"test.whole"}
    for job in privileged.values():
        assert job["if"] == "github.event_name != 'pull_request'"


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_no_job_can_write_to_the_repository(file):
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job.get("permissions", {}).items() <= {"contents": "read", "security-events": "write"}.items()
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            # What others choose, such as the name of a branch, becomes no command.
            assert "${{" not in step.get("run", "")


def test_new_versions_of_all_that_is_pinned_are_proposed():
    entries = read(root() / ".github/dependabot.yml")["updates"]
    assert {entry["package-ecosystem"] for entry in entries} == {"pip", "github-actions"}
    rules = json.loads((root() / ".github/renovate.json").read_text("utf-8"))["packageRules"]
    assert ["docker"] in [rule.get("matchDatasources") for rule in rules if rule.get("pinDigests")]


def test_code_is_searched_for_weaknesses():
    """By the rules of Bandit in each run of ruff, and by CodeQL."""
    lint = tomllib.loads((root() / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    files = lint["per-file-ignores"].items()
    whole = [name for name, rules in files if "S" in rules]
    assert whole == ["tests/**"]
    assert "github/codeql-action/analyze@" in json.dumps(list_jobs("pull_request")["codeql.analyze"])


def test_readers_and_the_log_are_fuzzed_each_night():
    (job,) = list_jobs("schedule").keys() & {"nightly.fuzz"}
    text = json.dumps(list_jobs()[job])
    assert '"HYPOTHESIS_PROFILE": "nightly"' in text
    for name in re.search(r"tests/virtqual/\{(.*?)\}", text)[1].split(","):
        assert (root() / "tests/virtqual" / name).is_dir()


def test_each_form_of_an_issue_asks_for_what_is_needed_to_repeat_it():
    forms = {file.stem: read(file) for file in TEMPLATES if file.stem != "config"}
    assert set(forms) == {"bug", "outputs", "wrong-verdict"}
    for form in forms.values():
        assert {"name", "description", "body"} <= form.keys()
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert any(field.get("validations", {}).get("required") for field in fields)
        assert all(field["attributes"]["label"] for field in fields)
