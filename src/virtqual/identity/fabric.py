"""The RDMA ports of a node: which of them carry messages of MPI, and which one perftest's options name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from virtqual.identity.record import Hca, Identity, Nic, Port, seen

#: Link layers of AWS's EFA: Linux prints the first in /sys, and `ibv_devinfo` the second.
EFA_LAYERS = ("Unknown", "Unspecified")
#: Link layers, the likeliest network of MPI first. Where a node has InfiniBand, too, Ethernet (RoCE) serves
#: its storage.
LAYERS = ("InfiniBand", *EFA_LAYERS, "Ethernet")
#: perftest takes this port if no option names one.
DEFAULT_PORT = "1"


class RdmaPort(NamedTuple):
    """A port with its device."""

    hca: Hca
    port: Port

    @property
    def name(self) -> str:
        """Such as ``mlx5_0 port 1``."""
        return f"{self.hca.name} port {self.port.number}"

    @property
    def layer(self) -> str:
        """The link layer; empty if it is not seen."""
        return self.port.link_layer if seen(self.port.link_layer) else ""

    @property
    def kind(self) -> tuple[str, float]:
        """The link layer and the rate, by which ports of one network are equal."""
        return self.layer, self.port.gbit

    @property
    def is_efa(self) -> bool:
        """It is one of AWS's EFA, which has no reliable connections (RC), as the checks of RDMA use them."""
        return self.layer in EFA_LAYERS

    @property
    def options(self) -> list[str]:
        """The options by which perftest uses the port."""
        return ["-d", self.hca.name, "-i", self.port.number]


def list_ports(identity: Identity) -> list[RdmaPort]:
    """Return all ports of a node, in the order of its devices."""
    return [RdmaPort(hca, port) for hca in identity.hcas for port in hca.ports]


def list_active_ports(identity: Identity) -> list[RdmaPort]:
    """Return the ports that carry messages; those of software devices only if there are no others."""
    active = [port for port in list_ports(identity) if port.port.is_active]
    return [port for port in active if port.hca.kind != "software"] or active


def rank_kinds(ports: Iterable[RdmaPort]) -> list[tuple[str, float]]:
    """Return link layers with rates, those that MPI would use first."""

    def rank(kind: tuple[str, float]) -> tuple[int, float]:
        layer, gbit = kind
        return LAYERS.index(layer) if layer in LAYERS else len(LAYERS), -gbit

    return sorted({port.kind for port in ports}, key=rank)


def select_common_ports(native: Identity, virtual: Identity) -> tuple[list[RdmaPort], list[RdmaPort]]:
    """Return the active ports on either side of one network that both have.

    Each list has the rails of that network: they have one link layer and, if both sides have it, one rate.
    Both are empty if no link layer is on both sides.
    """
    ports = list_active_ports(native), list_active_ports(virtual)
    kinds = [rank_kinds(of_side) for of_side in ports]
    common = [kind for kind in kinds[0] if kind in kinds[1]]
    layers = [layer for layer, _ in kinds[0] if any(layer == other for other, _ in kinds[1])]
    if not layers:
        return [], []
    if common and common[0][0] == layers[0]:
        chosen = common[0], common[0]
    else:
        first, second = (next(kind for kind in of_side if kind[0] == layers[0]) for of_side in kinds)
        chosen = first, second
    native_ports, virtual_ports = (
        [port for port in of_side if port.kind == kind] for of_side, kind in zip(ports, chosen, strict=True)
    )
    return native_ports, virtual_ports


def parse_options(options: Sequence[str]) -> tuple[str, str]:
    """Return the device and the port that options of perftest name; an empty device if they name none.

    Examples
    --------
    >>> parse_options(["-d", "mlx5_1", "-i2"]), parse_options(["--ib-dev=mlx5_0"]), parse_options(["-x", "3"])
    (('mlx5_1', '2'), ('mlx5_0', '1'), ('', '1'))
    """
    values = {"-d": "", "-i": DEFAULT_PORT}
    long_names = {"--ib-dev": "-d", "--ib-port": "-i"}
    for word, next_word in zip_longest(options, options[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name in long_names:
            values[long_names[name]] = value if equals else next_word
        elif word[:2] in values:
            values[word[:2]] = word[2:] or next_word
    return values["-d"], values["-i"]


def find_port(identity: Identity, options: Sequence[str]) -> RdmaPort | None:
    """Return the port that options of perftest name; None if the node does not have it."""
    device, number = parse_options(options)
    ports = list_ports(identity)
    return next((p for p in ports if (p.hca.name, p.port.number) == (device, number)), None)


def use_port(identity: Identity, options: Sequence[str]) -> Identity:
    """Return the record with the port that options of perftest name, if they name a device."""
    device, number = parse_options(options)
    return identity.model_copy(update={"rdma_port": f"{device} port {number}"}) if device else identity


def select_ports(identity: Identity) -> list[RdmaPort]:
    """Return the ports that carry messages, active or not: the one that the system file names, or all."""
    ports = list_ports(identity)
    return [port for port in ports if port.name == identity.rdma_port] if identity.rdma_port else ports


def name_other_fabrics(identity: Identity) -> list[str]:
    """Return a clause for each high-speed network of a node that perftest does not measure as MPI uses it."""
    slingshot = [nic.name for nic in identity.nics if _is_slingshot(nic)]
    omni_path = [hca.name for hca in identity.hcas if _is_omni_path(hca)]
    clauses = []
    if slingshot:
        clauses.append(
            f"Slingshot ({', '.join(slingshot)}), which has no verbs: the feature rdma is not for it"
        )
    if omni_path:
        clauses.append(f"Omni-Path ({', '.join(omni_path)}), which MPI uses by PSM2 and perftest by verbs")
    if efa := [port.hca.name for port in list_ports(identity) if port.is_efa]:
        clauses.append(
            f"EFA ({', '.join(efa)}), which has no queue pairs of type RC: the feature rdma is not for it"
        )
    return clauses


def _is_slingshot(nic: Nic) -> bool:
    return seen(nic.driver) and nic.driver.startswith("cxi")


def _is_omni_path(hca: Hca) -> bool:
    # udev may name it opap129s0.
    return hca.name.startswith(("hfi1", "opa")) or (seen(hca.board) and "Omni-Path" in hca.board)
