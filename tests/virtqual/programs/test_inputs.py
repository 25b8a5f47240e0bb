"""The inputs that the project writes for programs are those of tests/outputs/inputs.txt.

Another input makes other numbers, which cannot be compared with those of earlier versions.  If inputs change,
run this file by Python, read the difference, and say in CHANGELOG.md which numbers are new.
"""

from samples import OUTPUTS

from virtqual.programs import hpcc, hpl, lattice, openfoam, water

INPUTS = OUTPUTS / "inputs.txt"


def list_inputs() -> str:
    files = {
        "HPL.dat": hpl.configuration(29184, 192, 2, 4),
        "hpccinf.txt": hpcc.configuration(480, 80, 1, 2),
        **openfoam.write_case(128, 40, 12),
        "water.namd": water.configuration(15, 400),
        "water.psf": water.structure(2),
        "water.pdb": water.coordinates(2),
        "milc.in": lattice.parameters((4, 6, 8, 10), 2, 4),
        "rationals": lattice.rationals(),
    }
    return "".join(f"== {name}\n{text}" for name, text in files.items())


def test_inputs_are_those_of_earlier_versions():
    assert list_inputs() == INPUTS.read_text(encoding="utf-8")


if __name__ == "__main__":
    INPUTS.write_text(list_inputs(), encoding="utf-8")
