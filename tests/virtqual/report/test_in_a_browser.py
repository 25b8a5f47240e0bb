"""Reports in a real browser: no request, no message, no barrier."""

import subprocess

import pytest
from made_reports import DECLARED, make_broken_session, make_session, session_slow_by
from test_page import HOSTILE

from in_a_browser import assert_fit_for_people
from virtqual.report import page
from virtqual.runs import Result

SIZES = (1.0, 64.0, 4096.0, 65536.0)


def of_curves(times):
    """A session with a curve of which studies claim something."""

    def results(side, number):
        factor = times if side == "virtual" else 1.0
        values = {size: factor * (1 + size / 1e4) * (1 + 0.002 * number) for size in SIZES}
        return (Result.curve("mpi_latency", "two nodes", values),)

    return make_session(results, pairs=8)


def hostile():
    def results(side, number):
        return tuple(
            Result.scalar("x", text, 1.5 if side == "virtual" else 1.0, declared=DECLARED)
            for text in (*HOSTILE.values(), "x" * 10_000)
        )

    text = "".join(HOSTILE.values()) + "y" * 10_000
    identity = {"virtual": {"hypervisor": {"vendor": text, "build": text, "details": {text: text}}}}
    return make_session(results, pairs=4, label=text[:200], identity=identity)


PAGES = {
    "within": lambda: page.render(session_slow_by(1.0, pairs=12)),
    "over": lambda: page.render(session_slow_by(1.5, pairs=12)),
    "refused": lambda: page.render(session_slow_by(0.3, pairs=12)),
    "curves": lambda: page.render(of_curves(1.2)),
    "without a run": lambda: page.render(make_broken_session()),
    "hostile": lambda: page.render(hostile()),
    "side by side": lambda: page.render_comparison([session_slow_by(1.0, pairs=8), of_curves(1.1)]),
}


@pytest.mark.parametrize("made", PAGES.values(), ids=PAGES)
def test_it_is_fit_for_people(browser, made, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(made(), encoding="utf-8")
    assert_fit_for_people(browser, file)


@pytest.mark.usefixtures("browser")
def test_it_is_read_where_no_network_is(tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page.render(session_slow_by(1.5, pairs=8)), encoding="utf-8")
    alone = ["unshare", "--net", "--map-root-user", "chromium", "--headless", "--no-sandbox"]
    line = [*alone, f"--user-data-dir={tmp_path}/profile", "--dump-dom", file.as_uri()]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Hypervisor qualification" in done.stdout


def test_what_a_study_claims_stands_beside_what_was_measured():
    text = page.render(of_curves(1.2))
    assert "20.0% slower, 2 to 128: ESXi 6.0u1" in text
    assert "ESXi 6.0u1 build 2781041 (R08; RDMA and HPC applications in virtual machines" in text
    assert '<polyline class="study"' in text
