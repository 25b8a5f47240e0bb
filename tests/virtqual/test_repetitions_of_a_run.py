"""What a run of several repetitions has measured."""

import pytest

from virtqual.identity.record import NotObservable
from virtqual.runs import Answer, MeasuredValues, Result


def scalars(*values, **more):
    return [MeasuredValues((Result.scalar("memory_triad", "1 thread", value, **more),)) for value in values]


@pytest.mark.parametrize(
    ("values", "typical"),
    [
        ((3.0,), 3.0),
        ((1.0, 9.0, 2.0), 2.0),
        ((1.0, 9.0, 2.0, 3.0), 2.5),
        # A mean has finer steps than the clock.
        ((0.2, 0.21, 0.2, 0.2), 0.2025),
        # A stalled repetition does not count, of times and of rates.
        ((0.2, 0.21, 0.9, 0.2, 0.2), 0.2025),
        ((50.0, 48.0, 10.0, 50.0, 52.0), 50.0),
        ((0.0, 0.0, 0.0), 0.0),
    ],
)
def test_the_value_is_the_mean_of_the_repetitions_that_did_not_stall(values, typical):
    (result,) = MeasuredValues.average(scalars(*values)).results
    assert (result.series, result.values) == ("memory_triad@1 thread", (pytest.approx(typical),))


def test_a_curve_is_averaged_size_by_size():
    curves = [
        MeasuredValues(
            (Result.curve("mpi_latency", "same node", dict(zip((1.0, 2.0), values, strict=True))),)
        )
        for values in ((1.0, 20.0), (3.0, 10.0), (2.0, 90.0))
    ]
    (result,) = MeasuredValues.average(curves).results
    assert (result.points, result.values) == ((1.0, 2.0), (2.0, 20.0))


def test_a_repetition_that_is_invalid_makes_the_run_so_with_its_reason():
    good, bad = scalars(1.0, 2.0), scalars(3.0, 4.0, invalid=("disturbed",))
    (result,) = MeasuredValues.average([*good, *bad]).results
    assert result.invalid == ("2 of 4 repetitions: disturbed",)
    assert MeasuredValues.average(good).results[0].invalid == ()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            MeasuredValues((Result.scalar("memory_triad", "2 threads", 1.0),)),
            "repetition 2 measured memory_triad@2",
        ),
        (MeasuredValues((Result.curve("memory_triad", "1 thread", {4: 1.0}),)), "memory_triad@1 thread at 4"),
        (MeasuredValues(()), "0 or 1 results"),
        (
            MeasuredValues(scalars(1.0)[0].results, (Answer(name="E", value=1, tolerance=0.1),)),
            "0 or 1 answers",
        ),
    ],
)
def test_repetitions_that_measured_something_else_are_refused(other, says):
    with pytest.raises(ValueError, match=says):
        MeasuredValues.average([*scalars(1.0), other])


def answering(*values, name="energy"):
    result = scalars(1.0)[0].results
    return [MeasuredValues(result, (Answer(name=name, value=value, tolerance=0.01),)) for value in values]


def test_all_repetitions_must_have_the_same_answers():
    assert MeasuredValues.average(answering(-100.0, -100.9, -100.5)).answers[0].value == -100.0
    # Each is near the first one, but not near each other.
    with pytest.raises(ValueError, match=r"energy is -100\.8, energy is -99.2, 0.01 is allowed"):
        MeasuredValues.average(answering(-100.0, -100.8, -99.2))
    with pytest.raises(ValueError, match="repetitions differ"):
        MeasuredValues.average([*answering(1.0), *answering(1.0, name="norm")])


def test_the_share_of_communication_is_their_median_where_it_was_seen():
    why = NotObservable(not_observable="no report")
    result = scalars(1.0)[0].results
    shares = [MeasuredValues(result, communication=share) for share in (0.1, 0.5, None, 0.2, why)]
    assert MeasuredValues.average(shares).communication == 0.2
    assert MeasuredValues.average([shares[2], shares[4]]).communication == why
    assert MeasuredValues.average(shares[2:3]).communication is None
