"""Which build made it slower: named with its neighbours, what changed with it, and what to measure next."""

from datetime import date, timedelta

import numpy as np
import pytest
from made_nights import made_verdict, night

from in_a_browser import assert_fit_for_people
from virtqual.history.builds import compare_facts, describe_changes, make_place
from virtqual.references.marks import Mark
from virtqual.report import page


def facts(build, kvm="npt=Y", microcode="0x1"):
    return {"hypervisor build": build, "hypervisor details kvm": kvm, "native microcode": microcode}


def nights(step=0.2, at=5, builds=8, each=3, **more):
    """Eight builds of three nights; from the fifth on pages are slower, others are not."""
    rng = np.random.default_rng(3)
    found = []
    for number in range(builds * each):
        build = number // each
        logs = 0.05 + rng.normal(0, 0.01, 2) + np.array([step * (build >= at), 0.0])
        found.append(
            night(
                number,
                {},
                hypervisor=f"QEMU 9.{build}",
                facts=facts(f"9.{build}", **{key: value(build) for key, value in more.items()}),
                verdicts=(made_verdict("page_touch_time", logs[0]), made_verdict("fork_time", logs[1])),
            )
        )
    return found


def test_the_build_is_named_with_what_changed_and_what_to_do():
    place = make_place("site", "kvm", nights(microcode=lambda build: "0x2" if build >= 5 else "0x1"))
    first, second = place.metrics
    assert (first.metric, second.metric) == ("page_touch_time", "fork_time")
    assert second.changes.steps == ()
    (step,) = first.changes.steps
    assert abs(step.size - 0.2) < 1.96 * step.error
    (one,) = describe_changes(place, [Mark(date=date(2026, 1, 16), what="new BIOS")])
    assert one.where == "between QEMU 9.4 and QEMU 9.5"
    ((name, size),) = one.metrics
    assert name == "page_touch_time s"
    assert size == "1.22x slower (1.21-1.23)"
    assert one.notes[:2] == (
        "changed with it: native microcode: 0x1 -> 0x2",
        "marked between them: new BIOS, 2026-01-16",
    )
    assert one.notes[2].startswith("test next: a build from between these two")
    assert first.summary == first.outcome == "1 step"
    assert second.outcome.startswith("none >= 1.0")


def test_metrics_that_changed_at_one_place_are_told_together():
    given = nights(microcode=lambda build: "0x2" if build >= 5 else "0x1")
    both = [
        row.model_copy(
            update={
                "verdicts": (
                    row.verdicts[0],
                    made_verdict("fork_time", 0.3 * (number >= 15) + 0.001 * number % 3),
                )
            }
        )
        for number, row in enumerate(given)
    ]
    (one,) = describe_changes(make_place("site", "kvm", both), [])
    assert [name for name, _ in one.metrics] == ["fork_time s", "page_touch_time s"]
    assert len(one.notes) == 2


def test_places_are_told_in_the_order_of_builds():
    given = nights(step=0.4, at=6)
    two = [
        row.model_copy(update={"verdicts": (row.verdicts[0], made_verdict("fork_time", 0.2 * (number >= 9)))})
        for number, row in enumerate(given)
    ]
    place = make_place("site", "kvm", two)
    assert [one.metric for one in place.metrics] == ["page_touch_time", "fork_time"]
    assert [one.where for one in describe_changes(place, [])] == [
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
    assert list(compare_facts(before, after)) == [
        ("hypervisor machine, hypervisor host hardware", "pc-9.0", "pc-9.1"),
        ("hypervisor details sha256", "a" * 12, "b" * 12),
        ("hypervisor details kvm", "kvm.halt_poll_ns=0", "kvm.halt_poll_ns=1"),
        ("native command line", "nohz=off", "nothing"),
        ("guest memory mib", "2048", "4096"),
    ]
    assert list(compare_facts(before, before)) == []


def test_settings_in_another_order_are_told_as_they_stand():
    one, other = (night(0, {}, facts={"native command line": line}) for line in ("a=1 b=2", "b=2 a=1"))
    assert list(compare_facts(one, other)) == [("native command line", "a=1 b=2", "b=2 a=1")]


def test_a_setting_of_one_build_is_a_build_of_its_own():
    """As `npt=0` is: the same version, and another hypervisor."""
    given = nights(at=5, each=3)
    one = [
        row.model_copy(
            update={"hypervisor": "QEMU 9", "facts": facts("9", "npt=N" if number // 3 == 5 else "npt=Y")}
        )
        for number, row in enumerate(given)
    ]
    place = make_place("site", "kvm", one)
    assert place.builds == ("QEMU 9 [npt=Y]", "QEMU 9 [npt=N]")


def test_a_step_of_which_the_place_is_not_sure_has_a_build_to_measure_next():
    rng = np.random.default_rng(1)
    rows = []
    for number in range(20):
        # Two builds in the middle are hardly known.
        spread = 0.5 if number in (9, 10, 11) else 0.02
        log = 0.2 * (number >= 10) + rng.normal(0, spread / 2)
        one = made_verdict("page_touch_time", log).model_copy(update={"spread": spread})
        rows.append(
            night(number, {}, hypervisor=f"QEMU 9.{number}", facts=facts(f"9.{number}"), verdicts=(one,))
        )
    place = make_place("site", "kvm", rows)
    (step,) = place.metrics[0].changes.steps
    assert step.last - step.first >= 1
    (one,) = describe_changes(place, [])
    assert one.notes[-1].startswith("test next: QEMU 9.")


def test_an_old_build_that_is_measured_again_stands_with_its_own():
    given = nights(at=4, builds=6)
    again = [
        one.model_copy(update={"created": given[-1].created.replace(hour=23), "session": f"again-{k}"})
        for k, one in enumerate(given[:2])
    ]
    place = make_place("site", "kvm", [*given, *again])
    assert [place.number(one) for one in place.sessions] == sorted(
        place.number(one) for one in place.sessions
    )
    (one,) = describe_changes(place, [])
    assert one.where == "between QEMU 9.3 and QEMU 9.4"


def test_what_changed_with_it_is_that_of_the_builds_that_are_named_and_nearest_in_time():
    """An old build that is measured again after new firmware says nothing of the step before."""
    given = nights(at=4, builds=6)
    again = [
        one.model_copy(
            update={
                "created": given[-1].created + timedelta(days=1 + k),
                "session": f"again-{k}",
                "facts": one.facts | {"native microcode": "0x9"},
            }
        )
        for k, one in enumerate(given[9:12])
    ]
    place = make_place("site", "kvm", [*given, *again])
    (one,) = describe_changes(place, [Mark(date=again[0].created.date(), what="new firmware")])
    assert one.where == "between QEMU 9.3 and QEMU 9.4"
    assert not [note for note in one.notes if "microcode" in note or "firmware" in note]


def test_a_session_that_measured_nothing_is_no_build_of_its_own():
    given = nights()
    broken = given[4].model_copy(update={"facts": {}, "verdicts": (), "hypervisor": "unknown"})
    place = make_place("site", "kvm", [*given[:4], broken, *given[5:]])
    assert len(place.builds) == 8
    assert len(place.sessions) == len(given) - 1
    assert make_place("site", "kvm", [broken]).builds == ("unknown",)


def test_what_was_refused_is_no_part_of_it():
    given = nights(step=0.0)
    spoilt = given[4].model_copy(
        update={"verdicts": (made_verdict("page_touch_time", 3.0, outcome="INVALID"),)}
    )
    place = make_place("site", "kvm", [*given[:4], spoilt, *given[5:]])
    by_name = {one.metric: one for one in place.metrics}
    assert len(by_name["page_touch_time"].sessions) == len(given) - 1
    assert not any(one.summary for one in place.metrics)


@pytest.mark.parametrize("builds", [3, 4])
def test_of_builds_measured_once_it_is_said_that_they_are_too_few(builds):
    """Where 400 metrics share the error rate, not even a change by a factor of a million would show."""
    many = tuple(made_verdict(f"metric_{i}", 0.0) for i in range(400))
    given = [one.model_copy(update={"verdicts": many}) for one in nights()[: 3 * builds : 3]]
    place = make_place("site", "kvm", given)
    assert {one.outcome for one in place.metrics} == {"too few sessions"}
    assert "There are too few sessions to show a change" in page.render_history([place], [], [])


def test_a_drift_is_told_with_its_rate_and_since_when():
    rng = np.random.default_rng(5)
    rows = [
        night(n, {}, facts=facts("9"), verdicts=(made_verdict("fork_time", 0.002 * n + rng.normal(0, 0.01)),))
        for n in range(60)
    ]
    place = make_place("site", "kvm", rows)
    (one,) = describe_changes(place, [])
    assert one.where.startswith("a drift since night-")
    ((_, size),) = one.metrics
    assert "% (standard error" in size
    assert size.endswith("slower a session")
    assert place.metrics[0].summary == "a drift"


def test_builds_of_one_name_are_named_by_what_not_all_of_them_have():
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
    rows = [one.model_copy(update={"hypervisor": f"{one.hypervisor} {text}"}) for one in nights()]
    written = page.render_history([make_place("site", "kvm", rows)], [], [text])
    assert text not in written
    assert written.count('class="step"') == 2


def test_its_page_is_fit_for_people(browser, tmp_path):
    file = tmp_path / "history.html"
    place = make_place("site", "kvm", nights(microcode=lambda build: "0x2" if build >= 5 else "0x1"))
    marks = [Mark(date=date(2026, 1, 16), what="new BIOS")]
    quiet = make_place("other", "kvm", nights(0.0))
    file.write_text(page.render_history([place, quiet], marks, ["an old session"]), encoding="utf-8")
    assert_fit_for_people(browser, file)
