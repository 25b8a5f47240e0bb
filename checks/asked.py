"""The proof, by a program's own output, that it ran what it was asked for."""

from virtqual.programs.text import OutputError


def as_asked(program, **pairs):
    """Assert that a program ran what it was asked for.

    `pairs` holds by name (``ranks``, ``grid_points`` ...) the value in the output and the requested one.

    Raises
    ------
    OutputError
        The values differ; all that differ are named.

    Examples
    --------
    >>> as_asked("HPL", order=(480, 480), ranks=(4, 4))
    """
    differences = [
        f"{name.replace('_', ' ')} {_format(actual)}, asked for {_format(requested)}"
        for name, (actual, requested) in pairs.items()
        if actual != requested
    ]
    if differences:
        raise OutputError(program, f"not what was asked for: {'; '.join(differences)}")


def _format(value):
    return f"{value:g}" if isinstance(value, float) else repr(value)
