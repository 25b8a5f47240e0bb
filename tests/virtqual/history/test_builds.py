"""Which build made it slower: named with its neighbours, what changed with it, and what to measure next."""

import time
from datetime import date, timedelta

import numpy as np
import pytest
from made_nights import made_verdict, night

from in_a_browser import assert_fit_for_people
from virtqual.history.builds import compare_facts, describe_changes, describe_notes, make_place
from virtqual.references.marks import Mark
from virtqual.report import page
from virtqual.verdict.waiver import Waiver


def facts(build, microcode="0x1"):
    return {"hypervisor build": build, "native microcode": microcode}


def build_night(number, build, *verdicts, **more):
    """A night of a build of QEMU."""
    fields = {"hypervisor": f"QEMU 9.{build}", "facts": facts(f"9.{build}"), "verdicts": verdicts, **more}
    return night(number, {}, **fields)


def nights(step=0.2, at=5, builds=8, new_microcode=False):
    """Builds of three nights; from one of them on pages are slower, and forks are not."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(builds * 3):
        build = number // 3
        logs = 0.05 + rng.normal(0, 0.01, 2) + np.array([step * (build >= at), 0.0])
        verdicts = made_verdict("page_touch_time", logs[0]), made_verdict("fork_time", logs[1])
        microcode = "0x2" if new_microcode and build >= at else "0x1"
        rows.append(build_night(number, build, *verdicts, facts=facts(f"9.{build}", microcode=microcode)))
    return rows


def change_forks(rows, log):
    """Return nights whose forks have an overhead by their number."""
    return [
        row.model_copy(update={"verdicts": (row.verdicts[0], made_verdict("fork_time", log(number)))})
        for number, row in enumerate(rows)
    ]


def test_the_build_is_named_with_what_changed_and_what_to_do():
    marks = [
        Mark(date=date(2026, 1, 16), what="new BIOS"),
        Mark(date=date(2026, 1, 16), what="new switch", system="other"),
    ]
    place = make_place("site", "kvm", nights(new_microcode=True), marks)
    first, second = place.metrics
    assert (first.name, second.name) == ("page_touch_time s", "fork_time s")
    assert second.changes.steps == ()
    (step,) = first.changes.steps
    assert abs(step.size - 0.2) < 1.96 * step.error
    (change,) = describe_changes(place)
    assert change.where == "between QEMU 9.4 and QEMU 9.5"
    ((name, size),) = change.metrics
    assert name == "page_touch_time s"
    assert size == "21.7% slower (20.6% to 22.8%)"
    assert change.notes[:2] == (
        "changed with it: native microcode: 0x1 -> 0x2",
        "marked between them: new BIOS, 2026-01-16",
    )
    assert change.notes[2].startswith("test next: a build from between these two")
    assert first.summary == first.outcome == "1 step"
    assert second.outcome.startswith("none above 3.1%")


def test_metrics_that_changed_at_one_place_are_told_together():
    rows = change_forks(nights(new_microcode=True), lambda n: 0.3 * (n >= 15) + 0.001 * n % 3)
    (change,) = describe_changes(make_place("site", "kvm", rows))
    assert [name for name, _ in change.metrics] == ["fork_time s", "page_touch_time s"]
    assert len(change.notes) == 2


def test_places_are_told_in_the_order_of_builds():
    place = make_place("site", "kvm", change_forks(nights(step=0.4, at=6), lambda n: 0.2 * (n >= 9)))
    assert [metric.name for metric in place.metrics] == ["page_touch_time s", "fork_time s"]
    assert [change.where for change in describe_changes(place)] == [
        "between QEMU 9.2 and QEMU 9.3",
        "between QEMU 9.5 and QEMU 9.6",
    ]


def test_facts_that_changed_are_told_as_people_compare_them():
    before, after = (
        night(
            number,
            {},
            facts={
                "label": f"night {number}",
                "hypervisor build": build,
                "hypervisor host build": build,
                "hypervisor machine": machine,
                "hypervisor host hardware": machine,
                "hypervisor details sha256": digit * 64,
                "hypervisor details kvm": f"kvm.halt_poll_ns={number} kvm_amd.avic=N kvm_amd.npt=Y",
                "native command line": line,
                "native hosts": "host1",
                "guest memory mib": str(2048 * (1 + number)),
            },
        )
        for number, build, machine, digit, line in [
            (0, "9.0", "pc-9.0", "a", "quiet nohz=off"),
            (1, "9.1", "pc-9.1", "b", "quiet"),
        ]
    )
    assert list(compare_facts(before.facts, after.facts)) == [
        ("hypervisor machine, hypervisor host hardware", "pc-9.0", "pc-9.1"),
        ("hypervisor details sha256", "a" * 12, "b" * 12),
        ("hypervisor details kvm", "kvm.halt_poll_ns=0", "kvm.halt_poll_ns=1"),
        ("native command line", "nohz=off", "nothing"),
        ("guest memory mib", "2048", "4096"),
    ]
    assert list(compare_facts(before.facts, before.facts)) == []


def test_settings_in_another_order_are_told_as_they_stand():
    first, second = (night(0, {}, facts={"native command line": line}) for line in ("a=1 b=2", "b=2 a=1"))
    assert list(compare_facts(first.facts, second.facts)) == [("native command line", "a=1 b=2", "b=2 a=1")]


def test_a_step_of_which_the_place_is_not_sure_has_a_build_to_measure_next():
    rng = np.random.default_rng(1)
    rows = []
    for number in range(20):
        # Two builds in the middle are hardly known.
        spread = 0.5 if number in (9, 10, 11) else 0.02
        log = 0.2 * (number >= 10) + rng.normal(0, spread / 2)
        verdict = made_verdict("page_touch_time", log).model_copy(update={"spread": spread})
        rows.append(build_night(number, number, verdict))
    place = make_place("site", "kvm", rows)
    (step,) = place.metrics[0].changes.steps
    assert step.last - step.first >= 1
    (change,) = describe_changes(place)
    assert change.notes[-1].startswith("test next: QEMU 9.")


def test_an_old_build_that_is_measured_again_stands_with_its_own():
    rows = nights(at=4, builds=6)
    again = [
        row.model_copy(update={"created": rows[-1].created.replace(hour=23), "session": f"again-{k}"})
        for k, row in enumerate(rows[:2])
    ]
    place = make_place("site", "kvm", [*rows, *again])
    numbers = place.metrics[0].history.builds.tolist()
    assert numbers == sorted(numbers)
    assert place.sessions[0][-1].session == "again-1"
    (change,) = describe_changes(place)
    assert change.where == "between QEMU 9.3 and QEMU 9.4"


def test_notes_are_of_the_sessions_of_both_builds_that_are_nearest_in_time():
    """An old build that is measured again after new firmware says nothing of the step before."""
    rows = nights(at=4, builds=6)
    again = [
        row.model_copy(
            update={
                "created": rows[-1].created + timedelta(days=1 + k),
                "session": f"again-{k}",
                "facts": row.facts | {"native microcode": "0x9"},
            }
        )
        for k, row in enumerate(rows[9:12])
    ]
    marks = [Mark(date=again[0].created.date(), what="new firmware")]
    (change,) = describe_changes(make_place("site", "kvm", [*rows, *again], marks))
    assert change.where == "between QEMU 9.3 and QEMU 9.4"
    assert not [note for note in change.notes if "microcode" in note or "firmware" in note]


def test_a_session_that_measured_nothing_is_no_build_of_its_own():
    rows = nights()
    broken = rows[4].model_copy(update={"facts": {}, "verdicts": (), "hypervisor": "unknown"})
    place = make_place("site", "kvm", [*rows[:4], broken, *rows[5:]])
    assert len(place.builds) == 8
    assert sum(map(len, place.sessions)) == len(rows) - 1
    assert make_place("site", "kvm", [broken]).builds == ("unknown",)


def test_what_was_refused_is_no_part_of_it():
    rows = nights(step=0.0)
    refused = made_verdict("page_touch_time", 3.0, outcome="INVALID")
    rows[4] = rows[4].model_copy(update={"verdicts": (refused,)})
    metrics = {metric.name: metric for metric in make_place("site", "kvm", rows).metrics}
    assert len(metrics["page_touch_time s"].sessions) == len(rows) - 1
    assert not any(metric.summary for metric in metrics.values())


@pytest.mark.parametrize("builds", [3, 4])
def test_of_builds_measured_once_it_is_said_that_they_are_too_few(builds):
    """Where 400 metrics share the error rate, not even a change by a factor of a million would show."""
    many = tuple(made_verdict(f"metric_{i}", 0.0) for i in range(400))
    rows = [row.model_copy(update={"verdicts": many}) for row in nights()[: 3 * builds : 3]]
    place = make_place("site", "kvm", rows)
    assert {metric.outcome for metric in place.metrics} == {"too few sessions"}
    assert "There are too few sessions to show a change" in page.render_history([place], [])


def test_a_drift_is_told_with_its_rate_and_since_when():
    rng = np.random.default_rng(5)
    rows = [
        night(n, {}, facts=facts("9"), verdicts=(made_verdict("fork_time", 0.002 * n + rng.normal(0, 0.01)),))
        for n in range(60)
    ]
    place = make_place("site", "kvm", rows)
    (change,) = describe_changes(place)
    assert change.where.startswith("a drift since night-")
    ((_, size),) = change.metrics
    assert "% (standard error" in size
    assert size.endswith("slower a session")
    assert place.metrics[0].summary == "a drift"


def test_builds_of_one_name_are_named_by_what_not_all_of_them_have():
    """As `npt=0` is: the same version, and another hypervisor."""
    rows = [
        night(
            n,
            {"a": "WITHIN"},
            facts={"hypervisor host module parameters": f"kvm_amd.npt={npt} kvm_amd.avic={avic}"},
        )
        for n, (npt, avic) in enumerate([("Y", "Y"), ("Y", "N"), ("N", "Y"), ("N", "N")])
    ]
    place = make_place("site", "kvm", [*rows, rows[0].model_copy(update={"session": "again"})])
    assert len(set(place.builds)) == 4
    assert place.builds[1] == "QEMU 9 [kvm_amd.npt=Y kvm_amd.avic=N]"


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "\N{RIGHT-TO-LEFT OVERRIDE}x"])
def test_a_page_of_it_is_text(text):
    rows = [row.model_copy(update={"hypervisor": f"{row.hypervisor} {text}"}) for row in nights()]
    written = page.render_history([make_place("site", "kvm", rows)], [text])
    assert text not in written
    assert written.count('class="step"') == 2


def test_its_page_is_fit_for_people(browser, tmp_path):
    file = tmp_path / "history.html"
    marks = [Mark(date=date(2026, 1, 16), what="new BIOS")]
    place = make_place("site", "kvm", nights(new_microcode=True), marks)
    quiet = make_place("other", "kvm", nights(0.0))
    file.write_text(page.render_history([place, quiet], ["an old session"]), encoding="utf-8")
    assert_fit_for_people(browser, file)


@pytest.mark.parametrize("zone", ["UTC-14", "UTC+12"])
def test_a_waiver_ends_with_the_local_day_as_in_a_session(monkeypatch, zone):
    """At any time, the date of one of both zones is not that of UTC."""
    waiver = {"metric": "fork_time", "gate": "overhead", "up_to": "8%", "class": "kvm", "build": "9.5"}
    waiver |= {"owner": "ops", "reason": "known"}
    with monkeypatch.context() as context:
        context.setenv("TZ", zone)
        time.tzset()
        days = date.today() - timedelta(days=1), date.today()
        waivers = [Waiver.model_validate({**waiver, "expires": day}) for day in days]
        place = make_place("site", "kvm", nights())
        notes = list(describe_notes(place, waivers))
    time.tzset()
    assert ["expired" in note for note in notes] == [True, False]
