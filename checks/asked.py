"""Whether a program ran what it was asked for, as its own output says it."""

from virtqual.programs.text import OutputError


def as_asked(program, **pairs):
    """Assert that a program ran what it was asked for.

    Parameters
    ----------
    program
        Name of the program in messages.
    pairs
        By what it is (``ranks``, ``grid_points`` ...): what the output says, and what was asked for.

    Raises
    ------
    OutputError
        Naming everything that differs.

    Examples
    --------
    >>> as_asked("HPL", order=(480, 480), ranks=(4, 4))
    """
    wrong = [
        f"{name.replace('_', ' ')} {_text(ran)}, asked for {_text(asked)}"
        for name, (ran, asked) in pairs.items()
        if ran != asked
    ]
    if wrong:
        raise OutputError(program, f"not what was asked for: {'; '.join(wrong)}")


def _text(value):
    return f"{value:g}" if isinstance(value, float) else repr(value) if isinstance(value, str) else str(value)
