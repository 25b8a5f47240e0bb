"""docs/licensed-application.md, run from the page: every file in it, on the stand-in site."""

import importlib.util
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from virtqual.programs.text import OutputError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/licensed-application.md").read_text()
FILES = dict(re.findall(r"^`([\w./]+)`\n\n```\w+\n(.*?)```$", PAGE, re.M | re.S))
GOOD = """cells = 14000000
iterations = 25
processes = 16
residual of continuity = 1.25e-03
elapsed seconds = 200.0
rating per day = 432.0
run finished
"""


@pytest.fixture
def licensed(site):
    """The site after somebody followed the page."""
    for name, text in FILES.items():
        (site.path / name).parent.mkdir(parents=True, exist_ok=True)
        (site.path / name).write_text(text)
    # The page's path is of a machine that has the case.
    case, archive = site.path / "truck_poly_14m.cas", site.path / "truck_poly_14m.tar"
    case.write_text("made up")
    with tarfile.open(archive, "w") as tar:
        tar.add(case, case.name)
    inputs = site.path / "site/references/inputs/fluent.yaml"
    inputs.write_text(re.sub(r"file:\S+", archive.as_uri(), inputs.read_text()))
    solver = shutil.copy(ROOT / "tests/fakeslurm/solver", site.path)
    (site.path / "site/licensed.yaml").write_text(
        re.sub(r"program: \S+", f"program: {solver}", FILES["site/licensed.yaml"])
    )
    site.virtqual("stack", "register", "--modules", "site/licensed.yaml", code=0)
    return site


def reframe(site, *options, code=0):
    line = ("reframe", "--system", "testsite", *options, "-S", "scope=full")
    return site.run(*line, VIRTQUAL_PAIRS="0:1", code=code)


def test_the_page_from_input_to_verdict(licensed):
    assert set(FILES) == {
        "site/references/inputs/fluent.yaml",
        "site/licensed.yaml",
        "site/checks/fluent_output.py",
        "site/checks/fluent.py",
        "site/references/budgets/kvm.yaml",
    }
    assert "licensed" in licensed.virtqual("stack", "check").stdout
    fetch = "virtqual inputs fetch fluent-truck-poly-14m: fluent_truck"
    reason = f"the input fluent-truck-poly-14m is not here: {fetch}"
    assert reason in reframe(licensed, "-L").stdout
    done = licensed.virtqual("inputs", "fetch", "fluent-truck-poly-14m", code=4)
    line = re.search(r"add there: (sha256: \w+)", done.stderr)[1]
    inputs = licensed.path / "site/references/inputs/fluent.yaml"
    inputs.write_text(f"{inputs.read_text()}    {line}\n")
    licensed.virtqual("inputs", "fetch", "fluent-truck-poly-14m", code=0)
    done = reframe(licensed, "-r", "-n", "fluent_truck")
    assert "WITHIN fluent_rating@truck_poly_14m" in done.stdout
    assert "at most 3% slower (margin 3%)" in done.stdout
    licensed.fault("slow.cloud", "1")
    reframe(licensed, "-r", "-n", "fluent_truck", code=1)


def parse(text):
    spec = importlib.util.spec_from_loader("fluent_output", loader=None)
    module = importlib.util.module_from_spec(spec)
    exec(compile(FILES["site/checks/fluent_output.py"], "fluent_output.py", "exec"), module.__dict__)
    return module.parse(text)


def test_the_parser_of_the_page_refuses_what_is_not_whole():
    assert (parse(GOOD).cells, parse(GOOD).rating, parse(GOOD).continuity) == (14000000, 432.0, 1.25e-3)
    lines = GOOD.splitlines(keepends=True)
    for index in range(len(lines)):
        for damaged in ("".join(lines[:index]), GOOD + lines[index], GOOD.replace(lines[index], "")):
            with pytest.raises(OutputError):
                parse(damaged)
    with pytest.raises(OutputError, match=r"432.0 runs a day are not 20.0 s a run"):
        parse(GOOD.replace("200.0", "20.0"))
