"""Rules on the operating system and its settings."""

from __future__ import annotations

from collections.abc import Sequence

from virtqual.identity.record import Identity, seen
from virtqual.preflight.rules import Found, differs, report_unseen, rule, sides


@rule("nodes", "kernel")
def kernel(native: Identity, virtual: Identity) -> Found:
    """The studies ran one kernel on both sides."""
    yield from differs("the kernel", native.kernel.release, virtual.kernel.release)


@rule("nodes", "command-line")
def command_line(native: Identity, virtual: Identity, *, ignored: Sequence[str]) -> Found:
    """Parameters of the kernel that may change speed; where it boots from and logs to may differ."""

    def select_words(text: str) -> set[str]:
        # Arguments after -- are for the first process.
        own = text.split(" -- ")[0].split()
        return {word for word in own if word.split("=")[0].split(".")[0] not in ignored}

    native_line, virtual_line = native.kernel.command_line, virtual.kernel.command_line
    yield from report_unseen("the kernel's command line", native_line, virtual_line)
    if seen(native_line) and seen(virtual_line):
        native_words, virtual_words = select_words(native_line), select_words(virtual_line)
        if native_words != virtual_words:
            native_only = " ".join(sorted(native_words - virtual_words)) or "nothing"
            virtual_only = " ".join(sorted(virtual_words - native_words)) or "nothing"
            yield (
                f"the kernel's command line has, only natively: {native_only}; only in the VM: {virtual_only}"
            )


@rule("nodes", "tuned-profile")
def tuned_profile(native: Identity, virtual: Identity) -> Found:
    """A profile sets governor, pages and scheduling together."""
    native_profile, virtual_profile, name = native.tuned_profile, virtual.tuned_profile, "the tuned profile"
    if seen(native_profile):
        if seen(virtual_profile):
            yield from differs(name, native_profile, virtual_profile)
        else:
            reason = virtual_profile.not_observable
            yield f"{name} is {native_profile} natively, none is seen in the VM ({reason})"
    elif seen(virtual_profile):
        reason = native_profile.not_observable
        yield f"{name} is {virtual_profile} in the VM, none is seen natively ({reason})"


@rule("nodes", "numa-balancing")
def numa_balancing(native: Identity, virtual: Identity) -> Found:
    """The kernel moves pages between nodes, or not."""
    yield from differs("numa_balancing", native.kernel.numa_balancing, virtual.kernel.numa_balancing)


@rule("nodes", "locked-memory")
def locked_memory(native: Identity, virtual: Identity) -> Found:
    """RDMA registers memory up to this limit, and MPI falls back beyond it."""
    yield from differs("the limit of locked memory", native.locked_memory, virtual.locked_memory)


@rule("nodes", "swap-configured")
def swap_configured(native: Identity, virtual: Identity) -> Found:
    """A node that can swap may do so in a run."""
    for side, node in sides(native, virtual):
        if seen(node.memory.swap_mib) and node.memory.swap_mib:
            yield f"{side} has {node.memory.swap_mib} MiB of swap"
