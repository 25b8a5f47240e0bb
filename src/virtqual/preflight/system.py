"""Rules on the operating system and its settings."""

from __future__ import annotations

from virtqual.identity.record import Identity, seen
from virtqual.preflight.rules import Found, Limits, differs, rule, sides


@rule("nodes", "kernel")
def kernel(native: Identity, virtual: Identity, limits: Limits) -> Found:
    """The studies ran one kernel on both sides."""
    yield from differs("the kernel", native.kernel.release, virtual.kernel.release)


@rule("nodes", "command-line", "ignored")
def command_line(native: Identity, virtual: Identity, limits: Limits) -> Found:
    """Parameters of the kernel that may change speed; where it boots from and logs to may differ."""

    def words(text: str) -> set[str]:
        # What stands after -- is for the first process.
        own = text.split(" -- ")[0].split()
        return {word for word in own if word.split("=")[0].split(".")[0] not in limits["ignored"]}

    here, there = native.kernel.command_line, virtual.kernel.command_line
    if not seen(here) or not seen(there):
        yield from differs("the kernel's command line", here, there)
    elif words(here) != words(there):
        only = [
            " ".join(sorted(own)) or "nothing"
            for own in (words(here) - words(there), words(there) - words(here))
        ]
        yield f"the kernel's command line has, only natively: {only[0]}; only in the VM: {only[1]}"


@rule("nodes", "tuned-profile")
def tuned_profile(native: Identity, virtual: Identity, limits: Limits) -> Found:
    """A profile sets governor, pages and scheduling together."""
    here, there = native.tuned_profile, virtual.tuned_profile
    if not seen(there):
        # Where neither has a profile there is nothing that could differ.
        if seen(here):
            yield f"the tuned profile is {here} natively, none is seen in the VM ({there.not_observable})"
    elif not seen(here):
        yield f"the tuned profile is {there} in the VM, none is seen natively ({here.not_observable})"
    else:
        yield from differs("the tuned profile", here, there)


@rule("nodes", "numa-balancing")
def numa_balancing(native: Identity, virtual: Identity, limits: Limits) -> Found:
    """The kernel moves pages between nodes, or not."""
    yield from differs("numa_balancing", native.kernel.numa_balancing, virtual.kernel.numa_balancing)


@rule("nodes", "locked-memory")
def locked_memory(native: Identity, virtual: Identity, limits: Limits) -> Found:
    """RDMA registers memory up to this limit, and MPI falls back beyond it."""
    yield from differs("the limit of locked memory", native.locked_memory, virtual.locked_memory)


@rule("nodes", "swap-configured")
def swap_configured(native: Identity, virtual: Identity, limits: Limits) -> Found:
    """A node that can swap may do so in a run."""
    for side, node in sides(native, virtual):
        if seen(node.memory.swap_mib) and node.memory.swap_mib:
            yield f"{side} has {node.memory.swap_mib} MiB of swap"
