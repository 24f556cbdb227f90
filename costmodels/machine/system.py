"""Machines of many GPUs: nodes, the links in a node, the network between nodes."""

from __future__ import annotations

import attrs

from perfc.ir import PerfcError

NVSWITCH, CUBE_MESH, MESH, PCIE = "nvswitch", "cube-mesh", "mesh", "pcie"

TOPOLOGIES: tuple[str, ...] = (NVSWITCH, CUBE_MESH, MESH, PCIE)
"""How the GPUs of a node are joined.

By a switch that gives each pair all links; as the hybrid cube mesh of eight V100, where
pairs have one or two links or none; each to each by its share of the links; or through
the host's PCIe only.
"""

FABRICS: tuple[str, ...] = ("infiniband", "roce", "efa", "ethernet", "slingshot")
"""What joins nodes."""


@attrs.frozen(kw_only=True)
class System:
    """How GPUs of one kind are put together.

    A node is what the links between GPUs join: a server, or a rack of NVL72.
    """

    name: str
    gpus_per_node: int
    topology: str
    """One of `TOPOLOGIES`."""
    link: str
    """What the way between GPUs of a node is called: `NVLink 3`, `PCIe 4 x16`."""
    link_bytes_per_s: float
    """Nominal rate from one GPU to its peers, one direction, all its links together."""
    fabric: str = ""
    """One of `FABRICS`; empty for a system of one node."""
    nics_per_node: int = 0
    nic_bytes_per_s: float = 0.0
    """One direction, nominal."""
    network_latency_s: float | None = None
    """Latency from node to node, where the sheet says it."""
    host: str = ""
    """Processors of a node."""
    multicast: bool = False
    """Whether the switch in the node adds up and copies (NVLS: NVSwitch of Hopper and
    later)."""
    assumed: bool = False
    """Whether nobody has named it: the node that a GPU of its kind is sold in."""

    def members(self, ranks: int, stride: int = 1) -> tuple[int, int]:
        """Return how a communicator lies on nodes: (nodes, GPUs on a node).

        Args:
            ranks: How many members, the first of which is the first GPU of a node.
            stride: Distance of neighbours in the numbering of all ranks, which goes
                through one node after the other.

        """
        if ranks < 1 or stride < 1:
            msg = f"{ranks} ranks {stride} apart: expected at least 1 of both"
            raise PerfcError(msg)
        if stride >= self.gpus_per_node:
            nodes = ranks
        else:
            nodes = (ranks - 1) * stride // self.gpus_per_node + 1
        if nodes > 1 and not self.fabric:
            msg = (
                f"{self.name} is one node of {self.gpus_per_node} GPUs; {ranks} ranks "
                f"need {nodes} nodes: name a system with a network, as dgx-h100 "
                "(`perfc targets` lists them)"
            )
            raise PerfcError(msg)
        return nodes, -(-ranks // nodes)
