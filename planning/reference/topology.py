"""What TorchRec's planner takes a machine to be: its bandwidths, its memory.

The figures are those of `torchrec/distributed/planner/constants.py`, in bytes and
seconds; a GiB is 1024**3 bytes.
"""

from __future__ import annotations

from typing import Literal, Protocol

import attrs

from perfc.ir import UsageError
from perfc.passes import World
from perfc.planning.plans import one_of, positive

GIB = 1024**3
"""Bytes of a GiB."""

DENSE, FUSED, FUSED_UVM = "dense", "fused", "fused_uvm"
FUSED_UVM_CACHING, KEY_VALUE = "fused_uvm_caching", "key_value"
QUANT, QUANT_UVM, QUANT_UVM_CACHING = "quant", "quant_uvm", "quant_uvm_caching"

IN_HOST_MEMORY = frozenset((FUSED_UVM, FUSED_UVM_CACHING, QUANT_UVM, QUANT_UVM_CACHING))
"""Kernels whose rows lie in the memory of the host."""

CACHED = frozenset((FUSED_UVM_CACHING, QUANT_UVM_CACHING, KEY_VALUE))
"""Kernels that keep a part of the rows on the device."""

CACHE_LOAD_FACTOR = 0.2
"""The part of its rows that a cached table keeps on the device, if nothing is said."""

_ZERO_COPY = 10
"""Factor by which reads of single rows over the link are slower than the link."""

Collective = Literal["all_to_all", "reduce_scatter", "all_gather", "all_reduce"]


class Network(Protocol):
    """How fast collectives are."""

    def bytes_per_s(self, collective: Collective, ranks: int, per_node: int) -> float:
        """Return the speed among *ranks* ranks, of which a node has *per_node*."""
        ...


@attrs.frozen(kw_only=True)
class TwoTierNetwork:
    """Links inside a node, and one network card for each rank between nodes.

    An all-reduce takes all cards of a node, even where it stays inside the node: so
    does TorchRec.
    """

    intra_bytes_per_s: float = attrs.field(default=600.0 * GIB, validator=positive)
    inter_bytes_per_s: float = attrs.field(default=12.5 * GIB, validator=positive)

    def bytes_per_s(self, collective: Collective, ranks: int, per_node: int) -> float:
        """Return the speed among *ranks* ranks, of which a node has *per_node*."""
        if collective == "all_reduce":
            return self.inter_bytes_per_s * per_node
        within = ranks <= per_node
        return self.intra_bytes_per_s if within else self.inter_bytes_per_s


@attrs.frozen(kw_only=True)
class CollectiveNetwork:
    """A speed for each collective, whichever ranks take part, as measured."""

    all_to_all_bytes_per_s: float = attrs.field(validator=positive)
    reduce_scatter_bytes_per_s: float = attrs.field(validator=positive)
    all_gather_bytes_per_s: float = attrs.field(validator=positive)
    all_reduce_bytes_per_s: float = attrs.field(validator=positive)

    def bytes_per_s(self, collective: Collective, ranks: int, per_node: int) -> float:
        """Return the speed of *collective*."""
        return {
            "all_to_all": self.all_to_all_bytes_per_s,
            "reduce_scatter": self.reduce_scatter_bytes_per_s,
            "all_gather": self.all_gather_bytes_per_s,
            "all_reduce": self.all_reduce_bytes_per_s,
        }[collective]


def _whole_nodes(_: object, __: object, world: World) -> None:
    if world.ranks > 0 and world.per_node > 0 and world.ranks % world.per_node == 0:
        return
    found = f"{world.ranks} ranks, {world.per_node} a node"
    msg = f"topology: expected whole nodes of ranks, found {found}"
    raise UsageError(msg)


def _a_device(_: object, __: object, device: str) -> None:
    one_of("device", device, ("cuda", "cpu"))


@attrs.frozen(kw_only=True)
class Topology:
    """Ranks, and what each of them can do.

    Attributes:
        world: The ranks, and how many of them a node has.
        device: What looks rows up, `cuda` or `cpu`.
        network: How fast collectives are.
        hbm_bytes_per_s: Speed of a device's memory.
        ddr_bytes_per_s: Speed of a host's memory.
        host_link_bytes_per_s: Speed between the two.
        ssd_bytes_per_s: Speed at which rows come that lie in a key-value store. The
            link's by default; newer versions of TorchRec take 100 MiB/s.
        hbm_bytes: Memory of a device.
        ddr_bytes: Memory of the host for each rank.
        backward_multiplier: How often the time of forward backward takes.
        weighted_backward_multiplier: How often that, where lookups are weighted.

    """

    world: World = attrs.field(validator=_whole_nodes)
    device: str = attrs.field(default="cuda", validator=_a_device)
    network: Network = TwoTierNetwork()
    hbm_bytes_per_s: float = attrs.field(default=897.0 * GIB, validator=positive)
    ddr_bytes_per_s: float = attrs.field(default=51.0 * GIB, validator=positive)
    host_link_bytes_per_s: float = attrs.field(default=32.0 * GIB, validator=positive)
    ssd_bytes_per_s: float = attrs.field(default=32.0 * GIB, validator=positive)
    hbm_bytes: float = attrs.field(default=32.0 * GIB, validator=positive)
    ddr_bytes: float = attrs.field(default=128.0 * GIB, validator=positive)
    backward_multiplier: float = attrs.field(default=2.0, validator=positive)
    weighted_backward_multiplier: float = attrs.field(default=1.0, validator=positive)

    @property
    def kernels(self) -> tuple[str, ...]:
        """What can look rows up, as TorchRec spells it."""
        return tuple(self._speeds(CACHE_LOAD_FACTOR))

    def lookup_bytes_per_s(
        self,
        kernel: str,
        load_factor: float | None = None,
        *,
        prefetch: bool = False,
    ) -> float:
        """Return how fast *kernel* reads and writes rows.

        Args:
            kernel: A compute kernel, as TorchRec spells it.
            load_factor: The part of the rows that a cache keeps on the device.
            prefetch: Whether missing rows are fetched while the batch before runs.

        """
        known = self._speeds(CACHE_LOAD_FACTOR if load_factor is None else load_factor)
        one_of("compute kernel", kernel, known)
        if prefetch and kernel == FUSED_UVM_CACHING:
            return known[FUSED]
        return known[kernel]

    def _speeds(self, load_factor: float) -> dict[str, float]:
        if self.device == "cpu":
            ddr = self.ddr_bytes_per_s
            return {DENSE: 0.5 * ddr, FUSED: ddr, QUANT: ddr}
        hbm, link = self.hbm_bytes_per_s, self.host_link_bytes_per_s
        cached = (load_factor * hbm + (1 - load_factor) * link) / _ZERO_COPY
        return {
            DENSE: 0.5 * hbm,
            FUSED: hbm,
            FUSED_UVM: link / _ZERO_COPY,
            FUSED_UVM_CACHING: cached,
            QUANT: hbm,
            QUANT_UVM: link / _ZERO_COPY,
            QUANT_UVM_CACHING: cached,
            KEY_VALUE: self.ssd_bytes_per_s,
        }

    def free_hbm_bytes(
        self, dense_bytes: float = 0.0, input_bytes: float = 0.0
    ) -> float:
        """Return a device's bytes for tables, after TorchRec's usual reserve.

        Args:
            dense_bytes: Of the parameters that are not embedding tables. Six times as
                much is kept for them: parameters, gradients, states and activations.
            input_bytes: Of the indices of a rank's batch, of which 20 times are kept.

        """
        kept = _RESERVED * self.hbm_bytes
        return self.hbm_bytes - kept - _DENSE * dense_bytes - _INPUTS * input_bytes


_RESERVED, _DENSE, _INPUTS = 0.15, 6, 20
"""What `HeuristicalStorageReservation` keeps free."""
