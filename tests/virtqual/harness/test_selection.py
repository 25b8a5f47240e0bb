"""The checks that `-n` and `-t` select, and the message if there are none."""

from types import SimpleNamespace

import pytest
from reframe.frontend.filters import have_any_name

from virtqual.harness.catalogue import Entry, explain_empty_selection, group_missing, select

ENTRIES = [
    Entry(name=name, description="d", tags=tags, feature=feature, hashes={"0N": name[::-1]})
    for name, tags, feature in (
        ("mpi_latency_node", ("mpi", "quick"), "mpi"),
        ("mpi_latency_nodes", ("mpi", "quick"), "mpi"),
        ("lammps problem=lj", ("app", "quick"), "lammps"),
        ("lammps problem=rhodo", ("app", "full"), "lammps"),
    )
]


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("mpi_latency_node", 2),
        ("^mpi_latency_node%", 1),
        ("mpi_latency_node$", 0),
        ("^lammps%", 2),
        ("lammps.*lj$", 1),
        ("/edon_ycnetal_ipm", 1),
        ("a^", 0),
    ],
)
def test_entries_are_selected_as_reframe_selects_its_tests(pattern, count):
    selected = select(ENTRIES, [pattern], ())
    assert len(selected) == count
    for entry in ENTRIES:
        name, *parameters = entry.name.split(" ")
        display_name = " %".join([name, "sample=0N", *parameters])
        check = SimpleNamespace(display_name=display_name, hashcode=entry.hashes["0N"])
        assert bool(have_any_name([pattern])(SimpleNamespace(check=check))) == (entry in selected)


@pytest.mark.parametrize(
    ("names", "tags", "message"),
    [
        (("lamps",), (), "no check has a name that matches 'lamps': did you mean lammps?"),
        (("lammps", "mpi_latency_nod$"), (), "'mpi_latency_nod$': did you mean mpi_latency_node or"),
        ((), ("quikc",), "no check has a tag that matches 'quikc': did you mean quick?"),
        (("lammps", "lamps"), (), "no check has a name that matches 'lamps'"),
        (("mpi_latency_nodes",), (), "cannot run here: no program in the stack for: mpi_latency_nodes (mpi)"),
        (("lammps",), ("mpi",), "no check that matches -n lammps has all of the tags: mpi"),
        ((), ("app", "mpi"), "no check has all of the tags: app, mpi"),
    ],
)
def test_a_name_or_tag_that_selects_nothing_is_named_with_similar_ones(names, tags, message):
    assert message in explain_empty_selection(ENTRIES, names, tags, {"lammps"}, 2)


def test_a_selection_of_which_one_check_can_run_has_no_reason_against_it():
    assert explain_empty_selection(ENTRIES, ["lammps", "mpi"], ["quick"], {"lammps"}, 2) is None


def test_checks_that_cannot_run_are_listed_once_for_each_reason():
    entries = [
        Entry(name=name, description="d", tags=(), feature=feature, lacks=lacks)
        for name, feature, lacks in (
            ("namd n=1", "namd", ""),
            ("namd n=2", "namd", ""),
            ("milc_2 n=1", "milc", ""),
            ("milc_2 n=2", "milc", ""),
            ("milc_2 n=3", "", ""),
            ("stream_vms", "", "needs 2 VMs"),
            ("namd_vms", "", "needs 2 VMs"),
        )
    ]
    assert group_missing(entries, (), 1) == [
        "no program in the stack for: namd (2 cases), milc_2 (2 of 3 cases, milc)",
        "needs 2 VMs: stream_vms, namd_vms",
    ]
