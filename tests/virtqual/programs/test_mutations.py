"""No damaged output yields another number without an error."""

import random
import re
from itertools import count

import pytest
from mutations import MUTATIONS, sibling
from samples import PARSERS, numbers, parse, read

from virtqual.programs.text import OutputError

TOTAL = 10_000
EACH = -(-TOTAL // len(PARSERS))

# Lines with a number, or with digits, that are printed once and in no column: of a lost digit nothing tells.
# (hpcc's summary has two digits more than the sections that say the same.)
SAID_ONCE = {
    "hpcc.out": "MPIFFT_|HPL_Tflops",
    "lammps.chain.out": "% CPU use",
    "lammps.chain-no-openmp.out": "% CPU use",
    "lammps.lj.out": "% CPU use",
    "lammps.rhodo.out": "% CPU use",
    "milc.su3_rhmd_hisq.out": "^n[xyzt] |^warms|^traj",
    "milc.su3_rmd.out": "^n[xyzt] |^warms|^traj",
    "osu.mbw_mr.out": "window size",
    "stress-ng.0-19.out": "max-rss",
    "stress-ng.fork.out": "max-rss",
    "stress-ng.vm.out": "max-rss",
}


def damaged(name, seeds):
    """Yield (seed, kind of damage, damaged text), every kind in turn."""
    text = read(name)
    for seed, number in zip(seeds, count()):
        rng = random.Random(f"{name} {seed}")
        mutate = MUTATIONS[number % len(MUTATIONS)]
        yield seed, mutate.__name__, mutate(rng, text, sibling(rng, text))


def leaks(name, parser, seeds):
    """Return the damages after which a parser returns other numbers, and how many it refused."""
    whole = list(numbers(parser(read(name))))
    once = SAID_ONCE.get(name)
    found, refused = [], 0
    for seed, kind, text in damaged(name, seeds):
        if kind == "dropped" and once and _lines(read(name), once) != _lines(text, once):
            continue
        try:
            got = list(numbers(parser(text)))
        except OutputError:
            refused += 1
            continue
        if got != whole:
            found.append(f"{kind}, seed {seed}")
    return found, refused


def _lines(text, part):
    return [line for line in text.split("\n") if re.search(part, line)]


@pytest.mark.parametrize("name", PARSERS)
def test_no_damage_yields_another_number(name):
    """Damage every output in many ways; 10,000 in all.

    What cannot be detected in principle is left out, and nothing else: a character of a number that became
    another character that a number may hold (``mutations.GARBAGE`` has none of them), and a digit lost from a
    number that is printed once and in no column (`SAID_ONCE`).
    """
    found, refused = leaks(name, PARSERS[name], range(EACH))
    assert found == []
    # The damage is real: half of it hits lines that the parser does not read.
    assert refused > EACH / 4


def naive(name):
    """Return the parser that most scripts have: whatever begins with a digit is a row."""

    def parse(text):
        rows = [line.split() for line in text.splitlines() if line[:1].isdigit()]
        found = {}
        for row in rows:
            try:
                found[int(row[0])] = float(row[1])
            except (ValueError, IndexError):
                continue
        if not found:
            raise OutputError("naive", "no rows")
        return found

    return parse


@pytest.mark.parametrize("name", ["osu.latency.out", "osu.bw.out", "osu.allreduce.out"])
def test_the_damage_shows_in_a_naive_parser(name):
    """The control: the same damage, a parser without these refusals."""
    assert list(naive(name)(read(name)).values()) == list(next(iter(parse(name).columns.values())).values())
    found, _ = leaks(name, naive(name), range(EACH))
    kinds = {entry.partition(",")[0] for entry in found}
    assert {"truncated", "lost_lines", "interrupted", "two_runs", "localised", "dropped"} <= kinds


def test_every_kind_of_damage_changes_the_text():
    text = read("osu.latency.out")
    for mutate in MUTATIONS:
        rng = random.Random(mutate.__name__)
        assert any(mutate(rng, text, sibling(rng, text)) != text for _ in range(5)), mutate.__name__


@pytest.mark.parametrize(
    ("name", "line", "last_digits"),
    [
        ("npb.is.out", r"Time in seconds = +(\S+)", 1),
        ("npb.is-3-4-2.out", r"Time in seconds = +(\S+)", 1),
        ("npb.cg.out", r"Time in seconds = +(\S+)", 1),
        ("npb.is.out", r"Mop/s total     = +(\S+)", 3),
    ],
)
def test_a_digit_of_a_number_that_is_said_twice_is_missed_nowhere(name, line, last_digits):
    """A digit for a digit is what no text format tells, and what the output itself tells here."""
    text = read(name)
    match = re.search(line, text)
    unit = 10.0 ** -len(match[1].partition(".")[2])
    for place in range(match.start(1), match.end(1)):
        for digit in "0123456789":
            damaged = f"{text[:place]}{digit}{text[place + 1 :]}"
            if text[place] in (digit, "."):
                continue
            other = float(damaged[match.start(1) : match.end(1)])
            if abs(other - float(match[1])) > (last_digits + 0.5) * unit:
                with pytest.raises(OutputError):
                    PARSERS[name](damaged)


@pytest.mark.parametrize("name", ["milc.su3_rmd.out", "milc.su3_rhmd_hisq.out"])
def test_a_time_longer_than_the_program_ran_is_refused(name):
    text = read(name)
    match = re.search(r"^Time = (\S+) seconds", text, re.M)
    longest = {"milc.su3_rmd.out": 36, "milc.su3_rhmd_hisq.out": 9}[name]
    tried = 0
    for place in range(match.start(1), match.end(1)):
        for character in "0123456789":
            damaged = f"{text[:place]}{character}{text[place + 1 :]}"
            try:
                other = float(damaged[match.start(1) : match.end(1)])
            except ValueError:
                continue
            if other > longest:
                tried += 1
                with pytest.raises(OutputError):
                    PARSERS[name](damaged)
    assert tried > 20
