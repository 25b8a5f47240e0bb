"""What the machines of both sides are: one script is run by the prefix of each side."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib.resources import files

from pydantic import BaseModel

from virtqual.errors import InfrastructureError

#: Time for the note script, with the start of ssh or srun.
NOTE_LIMIT_S = 120.0
#: What is compared, in the order in which it is shown.
FACTS = {
    "node": "host name",
    "boot": "boot",
    "cpu": "CPU",
    "cpus": "CPUs",
    "usable_cpus": "CPUs usable",
    "memory_mib": "memory, MiB",
    "virtualisation": "virtualisation",
    "container": "container",
    "product": "machine",
    "kernel": "kernel",
    "os": "operating system",
    "arch": "architecture",
    "governor": "CPU governor",
}


class Note(BaseModel, extra="forbid", frozen=True):
    """What a machine says of itself; empty if it does not say."""

    node: str = ""
    boot: str = ""
    kernel: str = ""
    arch: str = ""
    os: str = ""
    cpu: str = ""
    cpus: str = ""
    usable_cpus: str = ""
    memory_mib: str = ""
    governor: str = ""
    #: The hypervisor, or that there is none.
    virtualisation: str = ""
    container: str = ""
    product: str = ""

    @property
    def is_bare_metal(self) -> bool:
        """It is surely not a virtual machine."""
        return self.virtualisation == "none"


def take_note(prefix: str) -> Note:
    """Run the note script by a prefix such as ``ssh bm1``; an empty one is this machine.

    Raises
    ------
    InfrastructureError
        The script could not be run.
    """
    script = files("virtqual.pair").joinpath("notes.sh").read_text(encoding="utf-8")
    command = f"{prefix} sh -s"
    try:
        completed = subprocess.run(
            ["/bin/sh", "-c", command],
            input=script,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=NOTE_LIMIT_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"--note {prefix!r}: no end after {NOTE_LIMIT_S:.0f} s") from None
    notes = parse_notes(completed.stdout)
    if not notes:
        said = (completed.stderr.strip() or completed.stdout.strip()).splitlines()
        why = said[-1] if said else "it printed nothing"
        raise InfrastructureError(
            f"--note {prefix!r}: `{command}` ended with {completed.returncode}: {why}; it must run the "
            "script that it gets on standard input, as `ssh HOST` does"
        )
    return join_notes(notes)


def parse_notes(text: str) -> list[Note]:
    """Return the notes in an output: one for each task if the prefix starts several."""
    notes = []
    for part in text.split("begin=virtqual-note\n")[1:]:
        body, _, rest = part.partition("end=virtqual-note")
        if rest or part.endswith("end=virtqual-note"):
            said = dict(line.split("=", 1) for line in body.splitlines() if "=" in line)
            notes.append(_make_note(said))
    return notes


def _make_note(said: dict[str, str]) -> Note:
    virtualisation, flag = said.get("virt", ""), said.get("hypervisor_flag", "")
    if flag == "yes" and virtualisation in ("", "none"):
        virtualisation = "a hypervisor (the CPU's flag)"
    elif flag == "no" and not virtualisation:
        virtualisation = "none"
    container = said.get("container", "")
    product = " ".join(text for text in (said.get("vendor", ""), said.get("product", "")) if text)
    facts = {key: said[key] for key in Note.model_fields if key in said}
    facts |= {"virtualisation": virtualisation, "product": product}
    return Note(**facts | {"container": "" if container == "none" else container})


def join_notes(notes: Sequence[Note]) -> Note:
    """Return the notes of several nodes as one, with different values joined by ``+``."""
    return Note(
        **{
            key: "+".join(dict.fromkeys(value for note in notes if (value := getattr(note, key))))
            for key in Note.model_fields
        }
    )


def describe_fact(note: Note, key: str) -> str:
    """Return a fact as people read it."""
    value: str = getattr(note, key)
    # A boot has a random name: its beginning tells it from another one.
    return value[:8] if key == "boot" else value


def list_differences(notes: tuple[Note, Note]) -> list[tuple[str, str, str]]:
    """Return what differs between the sides: the name of the fact, and its value on each side."""
    reference, candidate = notes
    return [
        (text, describe_fact(reference, key) or "not known", describe_fact(candidate, key) or "not known")
        for key, text in FACTS.items()
        if getattr(reference, key) != getattr(candidate, key)
    ]


def find_hosts(notes: tuple[Note, Note]) -> tuple[str, str]:
    """Return the machine below each side, as far as it is certain; else empty.

    Bare metal is its own host. Two sides of one boot share their kernel, and so their host.
    """
    reference, candidate = notes
    if reference.boot and reference.boot == candidate.boot:
        return reference.node, reference.node
    return reference.node * reference.is_bare_metal, candidate.node * candidate.is_bare_metal


def list_changes(names: tuple[str, str], taken: Sequence[tuple[Note, Note]]) -> list[str]:
    """Return what changed on a side while the measurement went on."""
    if len(taken) < 2:
        return []
    changes = []
    for index, name in enumerate(names):
        first, last = taken[0][index], taken[-1][index]
        for key in ("node", "boot", "kernel", "cpus", "virtualisation"):
            if getattr(first, key) != getattr(last, key):
                before, after = (describe_fact(note, key) or "not known" for note in (first, last))
                changes.append(f"{name} changed while it was measured: {FACTS[key]} {before}, then {after}.")
    return changes
