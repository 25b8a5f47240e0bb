"""No damaged output yields another number without an error."""

import random
import re

import pytest
from mutations import MUTATIONS, sibling
from samples import ALL_PARSERS, PARSERS, numbers, parse, read

from virtqual.programs.text import OutputError

# Of each own sample, and of each output of the corpus.
DAMAGES_EACH, DAMAGES_EACH_OTHER = 25 * len(MUTATIONS), 10 * len(MUTATIONS)


def leaks(name, parser, damages=DAMAGES_EACH):
    """Return the damages after which a parser returns other numbers, and how many it refused."""
    text = read(name)
    intact = list(numbers(parser(text)))
    leaked, refused = [], 0
    for seed in range(damages):
        rng = random.Random(f"{name} {seed}")
        mutate = MUTATIONS[seed % len(MUTATIONS)]
        try:
            result = list(numbers(parser(mutate(rng, text, sibling(rng, text)))))
        except OutputError:
            refused += 1
            continue
        if result != intact:
            leaked.append(f"{mutate.__name__}, seed {seed}")
    return leaked, refused


@pytest.mark.parametrize("name", ALL_PARSERS)
def test_no_damage_yields_another_number(name):
    """Damage every output in many ways; more than 10,000 in all."""
    damages = DAMAGES_EACH if name in PARSERS else DAMAGES_EACH_OTHER
    leaked, refused = leaks(name, ALL_PARSERS[name], damages)
    assert leaked == []
    # The damage is real: half of it hits lines that the parser does not read.
    assert refused > damages / 4


@pytest.mark.parametrize("name", ALL_PARSERS)
def test_decimal_commas_are_refused(name):
    """A locale with decimal commas makes other numbers of 1.50: 1, 50 or 150."""
    text = re.sub(r"(?<=\d)\.(?=\d)", ",", read(name), flags=re.ASCII)
    assert text != read(name)
    with pytest.raises(OutputError):
        ALL_PARSERS[name](text)


def naive(text):
    """Parse as most scripts do: each line that begins with a digit is a row."""
    values = {}
    for row in (line.split() for line in text.splitlines() if line[:1].isdigit()):
        try:
            values[int(row[0])] = float(row[1])
        except (ValueError, IndexError):
            continue
    if not values:
        raise OutputError("naive", "no rows")
    return values


@pytest.mark.parametrize("name", ["osu.latency.out", "osu.bw.out", "osu.allreduce.out"])
def test_the_damage_shows_in_a_naive_parser(name):
    """The control: the same damage, a parser without these refusals."""
    assert list(naive(read(name)).values()) == list(next(iter(parse(name).columns.values())).values())
    leaked, _ = leaks(name, naive)
    kinds = {entry.partition(",")[0] for entry in leaked}
    assert {"truncated", "lost_lines", "merged", "two_runs", "localised", "not_a_number"} <= kinds


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_every_kind_of_damage_changes_the_text(mutate):
    text = read("osu.latency.out")
    rng = random.Random(mutate.__name__)
    assert any(mutate(rng, text, sibling(rng, text)) != text for _ in range(5))
