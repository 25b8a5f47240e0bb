"""Generated inputs say what the programs read out of them."""

import math

import pytest

from virtqual.errors import InfrastructureError
from virtqual.programs import hpcc, hpl, lattice, namd, water, wrf

EDGE = 15


def test_water_is_what_a_real_run_of_namd_read():
    """Recorded in tests/outputs/namd.water.out: 10125 atoms, 60802 amu, no charge, 0.9978 g/cm3."""
    lines = water.structure(EDGE).splitlines()
    rows = [line.split() for line in lines if " TIP3 " in line]
    assert len(rows) == water.atoms(EDGE) == 10125
    assert round(sum(float(row[7]) for row in rows)) == 60802
    assert sum(float(row[6]) for row in rows) == pytest.approx(0, abs=1e-6)
    assert [line for line in lines if line.endswith(("bonds", "angles"))] == [
        "    6750 !NBOND: bonds",
        "    3375 !NTHETA: angles",
    ]
    volume = (EDGE * water.SPACING) ** 3
    assert 60802 / volume * 1.66054 == pytest.approx(0.9978, abs=1e-3)


def test_water_binds_two_atoms_of_hydrogen_to_each_of_oxygen():
    text, oxygens = water.structure(2), range(1, 25, 3)
    assert [int(line.split()[0]) for line in text.splitlines() if " TIP3 " in line] == [*range(1, 25)]

    def read_table(title):
        rows = [
            [*map(int, row.split())]
            for row in text.partition(f"!{title}\n")[2].partition("\n\n")[0].splitlines()
        ]
        return len(rows[0]), [atom for row in rows for atom in row]

    assert read_table("NBOND: bonds") == (8, [atom for o in oxygens for h in (1, 2) for atom in (o, o + h)])
    assert read_table("NTHETA: angles") == (9, [atom for o in oxygens for atom in (o + 1, o, o + 2)])


def test_every_water_has_the_geometry_of_tip3p():
    rows = [line for line in water.coordinates(4).splitlines() if line.startswith("ATOM")]
    places = [tuple(float(row[i : i + 8]) for i in (30, 38, 46)) for row in rows]
    assert len(places) == water.atoms(4)
    # The cell's centre is the origin.
    assert [sum(axis) for axis in zip(*places[::3], strict=True)] == pytest.approx([0, 0, 0], abs=1e-6)
    for oxygen, first, second in zip(places[::3], places[1::3], places[2::3], strict=True):
        assert math.dist(oxygen, first) == pytest.approx(0.9572, abs=2e-3)
        assert math.dist(first, second) == pytest.approx(2 * 0.9572 * math.sin(math.radians(52.26)), abs=2e-3)
    # No two molecules touch.
    for index, one in enumerate(places):
        assert all(math.dist(one, other) > 1.2 for other in places[index - index % 3 + 3 :])


def test_water_configuration():
    text = water.configuration(EDGE, 400)
    assert "cellBasisVector1   46.5990 0 0" in text
    assert "PMEGridSizeX       40" in text
    assert text.endswith("run                400\n")


CASE = """ &time_control
 run_days = 5,
 run_hours = 0,
 run_minutes = 0,
 run_seconds = 0,
 history_interval = 360, 360,
 restart = .true.,
 restart_interval = 9,
 /
 &domains
 time_step = 600,
 /
"""


@pytest.mark.parametrize("entry", ["", " use_netcdf_classic = .false.,\n"])
def test_a_namelist_has_the_hours_asked_for_and_classic_netcdf_and_else_what_the_case_has(entry):
    text = CASE.replace(" restart_", f"{entry} restart_")
    assert wrf.namelist(text, wrf.hours(3, 72)).splitlines() == [
        " &time_control",
        " use_netcdf_classic = .true.,",
        " run_days = 0,",
        " run_hours = 3,",
        " run_minutes = 0,",
        " run_seconds = 0,",
        " history_interval = 180, 360,",
        " restart = .false.,",
        " restart_interval = 9,",
        " /",
        " &domains",
        " time_step = 72,",
        " /",
    ]


def test_a_few_steps_write_no_history_but_the_first():
    entries = wrf.steps(12, 600)
    assert entries == {**wrf.hours(0, 600), "run_seconds": 7200, "history_interval": 180}


def test_a_namelist_without_an_entry_or_a_group_is_refused():
    with pytest.raises(InfrastructureError, match="0 entries e_we"):
        wrf.namelist(CASE, {"e_we": 41})
    with pytest.raises(InfrastructureError, match="0 groups &time_control"):
        wrf.namelist(CASE.replace("time_control", "time"), {})


def test_linpack_input():
    lines = hpl.configuration(29184, 192, 2, 4).splitlines()
    values = "HPL.out 6 1 29184 1 192 0 1 2 4 16.0 1 2 1 4 1 2 1 1 1 1 1 1 2 64 0 0 1 8"
    assert [line.split()[0] for line in lines[2:]] == values.split()
    assert hpcc.configuration(480, 80, 1, 2).splitlines()[3].split()[0] == "8"


@pytest.mark.parametrize(("order", "more"), [(640, ["320"] * 8), (41280, [])])
def test_a_short_transposition_is_tried_several_times(order, more):
    count, sizes = hpcc.configuration(order, 80, 1, 2).splitlines()[-4:-2]
    assert (int(count.split()[0]), sizes.split()) == (len(more), more)


def test_namd_configuration_changes_what_is_asked_and_nothing_else():
    text = "# numsteps of old\nnumsteps            500\noutputName  /usr/tmp/stmv-output\n"
    changed = namd.configuration(text, {"outputName": "out", "numsteps": 20})
    assert changed == "# numsteps of old\nnumsteps            20\noutputName  out\n"
    with pytest.raises(InfrastructureError, match="2 entries numsteps"):
        namd.configuration(text + "numsteps 1\n", {"numsteps": 20})


def test_milc_reads_as_many_residues_and_poles_as_it_is_told():
    lines = [line.split() for line in lattice.rationals().splitlines()]
    orders = {line[0][-2:]: int(line[1]) for line in lines if line[0].startswith("order_")}
    assert orders == {"MD": 1, "GR": lattice.TERMS, "FA": lattice.TERMS}
    for tag, order in orders.items():
        for what in ("res", "pole"):
            assert len([line for line in lines if line[0] == f"{what}_{tag}"]) == order + 1
    # The algorithm needs that the force's function is the inverse of the square of the heat bath's.
    assert ["pole_MD", f"{4 * lattice.MASS**2:.15e}"] in lines
    for x in (0.0, 0.3, 20.0, lattice.LARGEST):
        root = lattice.root()(x)
        assert root**2 / (x + 4 * lattice.MASS**2) == pytest.approx(1, abs=1e-9)
        assert root * lattice.inverse_root()(x) == pytest.approx(1, abs=1e-9)
    assert "nx 4\nny 6\nnz 8\nnt 10\n" in lattice.parameters((4, 6, 8, 10), 2, 4)
