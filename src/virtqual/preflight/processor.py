"""Rules on what runs instructions: the hypervisor, the processor, its clock and its frequency."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from virtqual.files.wording import list_names
from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import Identity, NotObservable, seen
from virtqual.preflight.rules import Found, differs, report_unseen, require, rule, sides
from virtqual.stack.manifest import ProcessorTarget


@rule("nodes", "hypervisor-stated")
def hypervisor_stated(native: Identity, virtual: Identity) -> Found:
    """The guest must show the hypervisor that its host, or the system file, states."""
    if virtual.hypervisor.present is False:
        yield "the CPU of the virtual node shows no hypervisor"
    host = require(virtual.host)
    shown, stated = require(virtual.hypervisor.accelerator), require(host.accelerator)
    if shown != stated:
        yield f"the guest shows the accelerator {shown}, {host.source} says {stated}"


@rule("nodes", "native-is-virtual")
def native_is_virtual(native: Identity, virtual: Identity) -> Found:
    """Native is the ground that is compared with."""
    if require(native.hypervisor.present):
        vendor = native.hypervisor.vendor
        yield f"the native node itself runs under a hypervisor ({vendor if seen(vendor) else 'unknown'})"


@rule("nodes", "native-is-emulated")
def native_is_emulated(native: Identity, virtual: Identity) -> Found:
    """A host that is emulated in software is the ground of such classes alone as say so."""
    if native.hypervisor.accelerator == "tcg":
        yield f"the native node's processor is emulated in software ({native.cpu.model})"


@rule("nodes", "cpu-model")
def cpu_model(native: Identity, virtual: Identity) -> Found:
    """Same vendor, family, model and stepping; the name only tells people."""
    models = f"({native.cpu.model} against {virtual.cpu.model})"
    for difference in differs("the CPU", native.cpu.signature, virtual.cpu.signature):
        yield f"{difference} {models}" if seen(difference) else difference


@rule("nodes", "cpu-features")
def cpu_features(native: Identity, virtual: Identity, *, features: Sequence[str]) -> Found:
    """Compare the features that compilers and mathematics libraries choose their code by."""

    def select_usable(names: set[str]) -> str:
        usable = (name for name in names if any(fnmatchcase(name, pattern) for pattern in features))
        return " ".join(sorted(usable))

    native_features, virtual_features = native.cpu.features, virtual.cpu.features
    yield from report_unseen("CPU features", native_features, virtual_features)
    if seen(native_features) and seen(virtual_features):
        # Most nodes have the same features, of which none is held against the patterns.
        native_names, virtual_names = set(native_features.split()), set(virtual_features.split())
        if names := select_usable(native_names - virtual_names):
            yield f"the VM's CPU lacks {names}"
        if names := select_usable(virtual_names - native_names):
            yield f"the VM's CPU has {names}, which the native CPU lacks"


@rule("stack", "stack-target")
def stack_target(native: Identity, virtual: Identity, targets: Sequence[ProcessorTarget]) -> Found:
    """A program ends by SIGILL at the first instruction that the processor lacks."""
    for side, node in sides(native, virtual):
        features = require(node.cpu.features).split()
        for target in targets:
            if lacking := sorted(set(target.features).difference(features)):
                yield (
                    f"{side} node {node.name} ({node.cpu.model}) cannot run the stack's programs for "
                    f"{target.name}: it lacks {list_names(lacking, 4)}"
                )


@rule("nodes", "cpu-count")
def cpu_count(native: Identity, virtual: Identity) -> Found:
    """Both sides must have the same number of CPUs to run on."""

    def count(node: Identity) -> int | NotObservable:
        used = node.topology.used if seen(node.topology.used) else node.topology.cpus
        return used if not seen(used) else len(cpu_list(used))

    yield from differs("the number of usable CPUs", count(native), count(virtual))


@rule("nodes", "clock-source")
def clock_source(native: Identity, virtual: Identity, *, fast: Sequence[str]) -> Found:
    """A clock that costs a system call, or an exit to the hypervisor, is in every measured latency."""
    yield from report_unseen("clock source", native.kernel.clock_source, virtual.kernel.clock_source)
    for side, node in sides(native, virtual):
        source = node.kernel.clock_source
        if seen(source) and source not in fast:
            yield f"{side} reads the time from {source}, which is none of {', '.join(fast)}"


@rule("nodes", "clock-differs")
def clock_differs(native: Identity, virtual: Identity) -> Found:
    """Two fast clocks still differ by some nanoseconds a reading."""
    yield from differs("the clock source", native.kernel.clock_source, virtual.kernel.clock_source)


@rule("nodes", "frequency")
def frequency(native: Identity, virtual: Identity) -> Found:
    """Governor and turbo: guests rarely see them, so the host's word counts where there is one."""
    host, governor, turbo = virtual.host, virtual.power.governor, virtual.power.turbo
    if seen(host):
        governor = governor if seen(governor) else host.governor
        turbo = turbo if seen(turbo) else host.turbo
    yield from differs("the frequency governor", native.power.governor, governor)
    yield from differs("turbo", native.power.turbo, turbo)
    if seen(native.power.governor) and native.power.governor != "performance":
        yield f"the frequency governor is {native.power.governor} natively, not performance"


def _are_mitigated_alike(native: str, virtual: str) -> bool:
    """Return whether two kernels mitigate alike, apart from what only a guest or only a host says.

    A guest does not know whether the host's other threads are trusted, nor what the host's microcode does.
    """
    if any(text.startswith(("Unknown: Dependent on hypervisor", "KVM: ")) for text in (native, virtual)):
        return True
    return re.sub(r"; SMT [^;]*", "", native) == re.sub(r"; SMT [^;]*", "", virtual)


@rule("nodes", "mitigations")
def mitigations(native: Identity, virtual: Identity) -> Found:
    """Mitigations cost differently by system call and context switch."""
    on_native, on_vm = native.kernel.mitigations, virtual.kernel.mitigations
    yield from report_unseen("mitigations", on_native, on_vm)
    if seen(on_native) and seen(on_vm):
        # A kernel that does not know a weakness yet says nothing of it: that is the kernel's difference.
        common = sorted(on_native.keys() & on_vm.keys())
        differences = [
            f"{name}: {on_native[name]!r} against {on_vm[name]!r}"
            for name in common
            if not _are_mitigated_alike(on_native[name], on_vm[name])
        ]
        if differences:
            yield f"mitigations differ ({list_names(differences, 2, '; ')})"
