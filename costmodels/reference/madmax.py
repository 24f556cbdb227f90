"""The machine and the models of MAD-Max, as its own model of training sees them.

Source: Hsia et al., "MAD-Max Beyond Single-Node: Enabling Large Machine Learning Model
Acceleration on Distributed Systems", ISCA 2024. A machine is four rates; a model is
square layers below and above an interaction that costs nothing, and tables. Sizes and
rates of the published studies are in `madmax.toml`.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from perfc.ir import UsageError

T = TypeVar("T")

_FILE = Path(__file__).parents[1] / "madmax.toml"
_LAYER_ELEMENT_BYTES = 4
_TABLE_ELEMENT_BYTES = 2


@attrs.frozen(kw_only=True)
class MadMaxModel:
    """A recommendation model.

    Attributes:
        name: Its name in the studies.
        layer_width: Every layer is a product with a square matrix of this width.
        bottom_layers: Layers before the interaction.
        top_layers: Layers after it.
        tables: Tables, all alike.
        rows: Rows of each.
        dim: Elements of a row, 16 bits each.
        pooling: Rows that a sample looks up in each table.

    """

    name: str
    layer_width: int
    bottom_layers: int
    top_layers: int
    tables: int
    rows: int
    dim: int
    pooling: int

    @property
    def layer_flops(self) -> int:
        """FLOPs of one layer and one sample, forward."""
        return 2 * self.layer_width**2

    @property
    def layer_bytes(self) -> int:
        """Weights of one layer, and their gradient."""
        return self.layer_width**2 * _LAYER_ELEMENT_BYTES

    @property
    def output_bytes(self) -> int:
        """What a layer makes of one sample."""
        return self.layer_width * _LAYER_ELEMENT_BYTES

    @property
    def lookup_bytes(self) -> int:
        """What one sample reads of all tables."""
        return self.tables * self.pooling * self.dim * _TABLE_ELEMENT_BYTES

    @property
    def table_bytes(self) -> int:
        """All tables."""
        return self.tables * self.rows * self.dim * _TABLE_ELEMENT_BYTES


@attrs.frozen(kw_only=True)
class MadMaxSystem:
    """A machine: what one of its GPUs reaches, in bytes/s one way and in FLOP/s.

    Attributes:
        name: Its name in the studies.
        gpu: Which GPU.
        gpus_per_node: GPUs of a node.
        memory_bytes: Memory of a GPU.
        flops_per_s: Products.
        memory_bytes_per_s: Memory.
        link_bytes_per_s: To the GPUs of its node.
        nic_bytes_per_s: To other nodes.
        all_reduce_share_in_node: Share of an all-reduce across nodes that stays in a
            node.

    """

    name: str
    gpu: str
    gpus_per_node: int
    memory_bytes: float
    flops_per_s: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    nic_bytes_per_s: float
    all_reduce_share_in_node: float

    def check_ranks(self, ranks: int) -> None:
        """Refuse a number of GPUs that leaves a node half used."""
        if ranks > self.gpus_per_node and ranks % self.gpus_per_node:
            msg = (
                f"{ranks} ranks on {self.name}: expected a multiple of the "
                f"{self.gpus_per_node} GPUs of a node"
            )
            raise UsageError(msg)

    def all_to_all_bytes_per_s(self, ranks: int, *, across: bool) -> float:
        """Return the rate of an all-to-all of a level of *ranks* GPUs in all.

        Args:
            ranks: GPUs of the whole machine that is used.
            across: Whether it is the level across nodes.

        """
        if across and ranks > self.gpus_per_node:
            return self.nic_bytes_per_s
        return self.link_bytes_per_s

    def all_reduce_bytes_per_s(self, ranks: int, *, across: bool) -> float:
        """Return the rate of an all-reduce; gathers and scatters are twice as fast."""
        if not across or ranks <= self.gpus_per_node:
            return self.link_bytes_per_s
        share = self.all_reduce_share_in_node
        return share * self.link_bytes_per_s + (1 - share) * self.nic_bytes_per_s


@functools.cache
def _tables() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def madmax_models() -> Mapping[str, MadMaxModel]:
    """Return the models of the studies by name."""
    models = _tables()["models"]
    return {name: MadMaxModel(name=name, **sizes) for name, sizes in models.items()}


def madmax_systems() -> Mapping[str, MadMaxSystem]:
    """Return the machines of the studies by name."""
    systems = _tables()["systems"]
    return {name: _system(name, fields) for name, fields in systems.items()}


def madmax_model(name: str) -> MadMaxModel:
    """Return a model of the studies."""
    return _named("model", name, madmax_models())


def madmax_system(name: str) -> MadMaxSystem:
    """Return a machine of the studies."""
    return _named("system", name, madmax_systems())


def _named(what: str, name: str, known: Mapping[str, T]) -> T:
    found = {_plain(key): value for key, value in known.items()}.get(_plain(name))
    if found is None:
        msg = f"MAD-Max has no {what} {name!r}; it has {', '.join(known)}"
        raise UsageError(msg)
    return found


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _system(name: str, fields: Mapping[str, Any]) -> MadMaxSystem:
    def reached(part: str, unit: str) -> float:
        rate: float = fields[part][f"peak_{unit}_per_s"] * fields[part]["utilisation"]
        return rate

    return MadMaxSystem(
        name=name,
        gpu=fields["gpu"],
        gpus_per_node=fields["gpus_per_node"],
        memory_bytes=fields["memory_gb"] * 1e9,
        flops_per_s=reached("products", "tflop") * 1e12,
        memory_bytes_per_s=reached("memory", "gb") * 1e9,
        link_bytes_per_s=reached("link", "gb") * 1e9,
        nic_bytes_per_s=reached("nic", "gb") * 1e9,
        all_reduce_share_in_node=fields["all_reduce_share_in_node"],
    )
