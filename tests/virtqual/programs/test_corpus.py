"""Other people's outputs are read as a careful reader reads them, or are refused with the reason.

The table of versions in docs/checks.md comes from the corpus: run this file by Python to write it.
"""

import re
from pathlib import Path

import pytest
from corpus import ENTRIES, FOLDERS, INDEXES, KEYS, READ, REFUSED, find_differences
from samples import read

from virtqual.programs.text import OutputError

DOCUMENT = Path(__file__).parents[3] / "docs" / "checks.md"
BEGIN, END = (
    "<!-- versions: written by tests/virtqual/programs/test_corpus.py -->\n",
    "<!-- end of versions -->\n",
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_index_has_each_file_of_its_folder(folder):
    files = {path.name for path in folder.iterdir()} - {"index.yaml"}
    assert files == set(INDEXES[folder.name]["outputs"])


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_has_a_version_a_source_and_what_is_right(name):
    entry = ENTRIES[name]
    assert set(entry) <= KEYS
    assert all(isinstance(entry[key], str) and entry[key] for key in ("version", "build", "source"))
    assert ("reads" in entry) != ("refused" in entry)
    assert "why" not in entry or "refused" in entry
    assert re.match(re.escape(entry["version"].replace(" ", "-")) + r"-.+\.(out|json|yaml)$", Path(name).name)


@pytest.mark.parametrize("name", READ)
def test_an_output_is_read_as_a_careful_reader_reads_it(name):
    result = READ[name](read(name))
    assert list(find_differences(ENTRIES[name]["reads"], result)) == []


@pytest.mark.parametrize("name", REFUSED)
def test_an_output_is_refused_with_the_reason(name):
    with pytest.raises(OutputError) as error:
        REFUSED[name](read(name))
    assert ENTRIES[name]["refused"] in str(error.value)


def test_a_difference_is_found():
    reads = {"a": 1, "b": {2: 0.5}, "c": [1, 2]}
    assert not list(find_differences(reads, {"a": 1, "b": {2: 0.5, 3: 1}, "c": (1, 2)}))
    assert list(find_differences(reads, {"a": 2, "b": {2: 0.6}, "c": (1,)})) == [
        ".a: 2, not 1",
        ".b.2: 0.6, not 0.5",
        ".c: (1,), not [1, 2]",
    ]


def list_builds(entries):
    """Return each version with its builds."""
    builds = {}
    for entry in entries:
        builds.setdefault(entry["version"], {})[entry["build"]] = None
    return ", ".join(f"{version} ({'; '.join(names)})" for version, names in builds.items())


def list_row(index):
    entries = index["outputs"].values()
    refused = {}
    for entry in entries:
        if "why" in entry:
            refused.setdefault((entry["build"], entry["why"]), {})[entry["version"]] = None
    cells = (
        index["program"],
        list_builds(entry for entry in entries if "reads" in entry),
        index.get("code", ""),
        "; ".join(f"{', '.join(versions)} ({build}): {why}" for (build, why), versions in refused.items()),
        ", ".join(sorted({entry["source"] for entry in entries}, key=str.lower)),
    )
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |")


def list_versions():
    head = (
        "| program | outputs that are read: version (builds) | source code that was read | refused | from |\n"
    )
    rows = sorted((list_row(index) for index in INDEXES.values()), key=str.lower)
    return head + "|---|---|---|---|---|\n" + "".join(rows)


def test_the_documented_versions_are_those_of_the_corpus():
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    assert before
    assert rest.partition(END)[0] == list_versions()


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + list_versions() + END + rest.partition(END)[2], encoding="utf-8")
