"""Whatever a program prints, its reader returns numbers or an `OutputError`."""

import random
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import PARSERS, read

from fuzzing import FEW, MANY
from virtqual.programs.text import OutputError


def try_output(data):
    name = data.draw(st.sampled_from(sorted(PARSERS)))
    text = read(name)
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = rng.randrange(len(text) + 1)
        end = min(len(text), place + rng.choice((0, 1, 5, 80, 2000)))
        words = rng.choices(text.split() or ["x"], k=3)
        new = data.draw(
            st.one_of(st.text(max_size=9), st.sampled_from(words), st.just("-nan"), st.just("9" * 400))
        )
        text = text[:place] + new + text[end:]
    # It returns what it has read, or raises this one.
    with suppress(OutputError):
        assert PARSERS[name](text) is not None


@given(st.data())
@settings(FEW, max_examples=200)
def test_an_edited_output_is_read_or_refused_in_words(data):
    try_output(data)


@pytest.mark.parametrize("name", PARSERS)
def test_a_number_that_no_program_prints_is_read_or_refused_in_words(name):
    """Such as one of 400 digits, which no float holds."""
    text = read(name)
    places = [match.span() for match in re.finditer(r"\d+(\.\d+)?", text, re.ASCII)]
    for begin, end in random.Random(name).sample(places, min(len(places), 40)):
        for new in ("9" * 400, "-" + "9" * 30, "1e400", "0", "nan"):
            with suppress(OutputError):
                assert PARSERS[name](text[:begin] + new + text[end:]) is not None


@pytest.mark.slow
@given(st.data())
@MANY
def test_many_edited_outputs_are_read_or_refused_in_words(data):
    try_output(data)
