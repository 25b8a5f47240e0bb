"""Options of Slurm's ``sbatch`` and ``srun``, as `access` and `extras.session_access` state them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from typing import Annotated

from pydantic import AfterValidator

from virtqual.files import execute

#: Long names of short options that take a value.
_LONG_OPTIONS = {
    "-p": "--partition",
    "-M": "--clusters",
    "-w": "--nodelist",
    "-x": "--exclude",
    "-C": "--constraint",
    "-F": "--nodefile",
    "-A": "--account",
    "-L": "--licenses",
    "-q": "--qos",
    "-N": "--nodes",
    "-t": "--time",
    "-m": "--distribution",
    "-S": "--core-spec",
    "-c": "--cpus-per-task",
    "-n": "--ntasks",
    "-G": "--gpus",
    "-J": "--job-name",
    "-b": "--begin",
    "-d": "--dependency",
}


def parse_options(words: Sequence[str]) -> dict[str, str]:
    """Return the options with their values, under their long names; Slurm, too, takes the last of each.

    Examples
    --------
    >>> parse_options(["-pvm", "-N2", "--account", "hpcops", "--time=8:00:00"])
    {'--partition': 'vm', '--nodes': '2', '--account': 'hpcops', '--time': '8:00:00'}
    """
    return dict(read_options(words))


def lengthen_options(text: str) -> list[str]:
    """Return the options of a shell's text as single words in their long form.

    Examples
    --------
    >>> lengthen_options("-C 'bare&hdr' --reservation r1 --exclusive")
    ['--constraint=bare&hdr', '--reservation=r1', '--exclusive']

    Raises
    ------
    ValueError
        A word is no option, or quotes are not closed.
    """
    words = shlex.split(text)
    options = read_options(words)
    if words and not words[0].startswith("-"):
        raise ValueError(f"{words[0]!r} is no option of Slurm: write such as --constraint=bare")
    if unknown := [word for word in words if re.match(r"-[^-]", word) and word[:2] not in _LONG_OPTIONS]:
        raise ValueError(f"{unknown[0]!r} is not known: write the long form of this option")
    return [f"{option}={value}" if value else option for option, value in options]


def read_options(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return each option by its long name, with its value; the value of an option without one is empty."""
    options: list[tuple[str, str]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if word.startswith("--"):
            has_value = bool(equals)
        elif long_option := _LONG_OPTIONS.get(word[:2]):
            option, value = long_option, word[2:]
            has_value = bool(value)
        else:
            continue
        if not has_value and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        options.append((option, value))
    return options


#: Options that ``sbatch`` takes, and ``srun`` refuses.
_SBATCH_ONLY = {
    "--batch",
    "--export-file",
    "--get-user-env",
    "--ignore-pbs",
    "--no-requeue",
    "--parsable",
    "--requeue",
}


def list_srun_options(words: Sequence[str]) -> list[str]:
    """Return the words of a job's options that ``srun`` takes, too.

    Examples
    --------
    >>> list_srun_options(["--partition=vm", "--get-user-env=60L", "--requeue"])
    ['--partition=vm']
    """
    return [word for word in words if word.partition("=")[0] not in _SBATCH_ONLY]


#: Options that virtqual adds to jobs, by name, each with the options that replace it where they are stated.
#: A run gets all memory of its nodes and no variable of the user's shell; repeated by Slurm it would be two.
ADDED_OPTIONS = {
    "--mem": ("--mem=0", {"--mem", "--mem-per-cpu", "--mem-per-gpu"}),
    "--no-requeue": ("--no-requeue", {"--requeue", "--no-requeue"}),
    "--export": (f"--export={','.join(sorted(execute.BASE_VARIABLES))}", {"--export"}),
}


def list_added_options(stated: Collection[str], omitted: Collection[str]) -> list[str]:
    """Return the options that virtqual adds to a job besides the `stated` ones, given by their long names.

    `omitted` names those of `ADDED_OPTIONS` that a site's Slurm refuses.

    Examples
    --------
    >>> list_added_options({"--mem-per-cpu"}, {"--export"})
    ['--no-requeue']
    """
    return [
        option
        for name, (option, replacements) in ADDED_OPTIONS.items()
        if name not in omitted and replacements.isdisjoint(stated)
    ]


def parse_minutes(time: str) -> float:
    """Return a time limit of Slurm in minutes, rounded up as Slurm does; infinity if there is no limit.

    Raises
    ------
    ValueError
        Slurm does not take the text for a time.

    Examples
    --------
    >>> [parse_minutes(time) for time in ("90", "90:30", "8:00:00", "2-12", "1-00:30:00", "infinite")]
    [90.0, 91.0, 480.0, 3600.0, 1470.0, inf]
    """
    if time.lower() in ("infinite", "unlimited"):
        return float("inf")
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time)
    if not match:
        raise ValueError(
            f"{time!r} is no time of Slurm: write minutes, hours:minutes:seconds (8:00:00) or days-hours"
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:
        # One number is minutes, two are minutes and seconds.
        numbers = [0, *numbers]
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    return float(int(days or 0) * 1440 + hours * 60 + minutes + (seconds > 0))


def format_minutes(minutes: float) -> str:
    """Return a time limit as Slurm takes it.

    Examples
    --------
    >>> format_minutes(90), format_minutes(float("inf"))
    ('1:30:00', 'UNLIMITED')
    """
    if minutes == float("inf"):
        return "UNLIMITED"
    return f"{int(minutes) // 60}:{int(minutes) % 60:02}:00"


def _split_words(options: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word for option in options for word in shlex.split(option))
    values = parse_options(words)
    if "--time" in values:
        parse_minutes(values["--time"])
    return words


#: Single words, such as ``-p`` and ``vm``; a system file may state several in one text.
Options = Annotated[tuple[str, ...], AfterValidator(_split_words)]
