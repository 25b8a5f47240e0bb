import pytest

from virtqual.verdict import Design


def test_the_levels_of_all_looks_add_up_to_the_error_rates():
    design = Design()
    looks = range(len(design.looks))
    assert sum(design.over_level(look) for look in looks) == pytest.approx(0.0085)
    assert sum(91 * design.over_level(look, 91) for look in looks) == pytest.approx(0.0085)
    assert sum(design.within_level(look) for look in looks) == pytest.approx(0.05)


def test_in_a_session_the_looks_that_can_convict_share_all_of_the_rate():
    design = Design().in_session(screen=2, family=4)
    levels = [design.over_level(look) for look in range(len(design.looks))]
    assert levels[:2] == [0, 0]
    assert sum(levels) == pytest.approx(0.0085 / 4)
    assert [design.looks[look] for look in range(7) if design.confirms(look)] == [4, 6, 8, 12, 18]


@pytest.mark.parametrize(
    ("pairs", "look", "following", "confirming"),
    [
        (0, None, 2, 4),
        (1, None, 2, 4),
        (2, 0, 3, 4),
        (3, 1, 4, 4),
        (5, 2, 6, 6),
        (18, 6, None, None),
        (99, 6, None, None),
    ],
)
def test_looks(pairs, look, following, confirming):
    design = Design().in_session(screen=2, family=1)
    assert design.look(pairs) == look
    assert design.next_look(pairs) == following
    assert design.next_look(pairs, confirming=True) == confirming


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.0}, "error rates"),
        ({"beta": 0.5}, "error rates"),
        ({"looks": ()}, "looks must rise"),
        ({"looks": (1, 3, 4, 6, 8, 12, 18)}, "looks must rise"),
        ({"looks": (2, 4, 3, 6, 8, 12, 18)}, "looks must rise"),
        ({"looks": (2, 2, 3, 6, 8, 12, 18)}, "looks must rise"),
        ({"looks": (2, 3)}, "one share for each of the 2 looks"),
        ({"over_shares": (0.5,) * 7}, "over_shares must add up to 1"),
        ({"within_shares": (-0.2, 1.2, 0, 0, 0, 0, 0)}, "within_shares must add up to 1"),
        ({"clip": 0}, "clip"),
        ({"screen": -1}, "screen"),
        ({"family": 0}, "family"),
    ],
)
def test_what_is_no_design_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Design(**change)


def test_fewer_pairs_keep_the_error_rates():
    design = Design().up_to(6)
    assert design.looks == (2, 3, 4, 6)
    assert sum(design.over_level(look) for look in range(4)) == pytest.approx(design.alpha)
    assert sum(design.within_level(look) for look in range(4)) == pytest.approx(design.beta)
    assert Design().up_to(99).looks == Design().looks
    assert Design().up_to(18).over_shares == pytest.approx(Design().over_shares)
    with pytest.raises(ValueError, match="2 pairs decide nothing: at least 3 are needed"):
        Design().up_to(2)
