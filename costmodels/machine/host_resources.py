"""What ranks of a node share, as data: sockets, memory, uplinks, and its watts."""

from __future__ import annotations

import math

import attrs

from perfc.ir import PerfcError


@attrs.frozen(kw_only=True)
class HostResources:
    """Processors, memory and ways of one node's host, in SI units."""

    sockets: int
    cores_per_socket: int
    dram_bytes: float
    """Capacity of all sockets, whose rate is `dram_bytes_per_s`."""
    dram_bytes_per_s: float
    """Nominal rate of all channels."""
    inter_socket_bytes_per_s: float = math.inf
    """All links between sockets together, one direction; without end on one socket."""
    ranks_per_uplink: int = 1
    """GPUs behind one switch, which share its way to the host."""
    uplink_bytes_per_s: float = math.inf
    """Rate of that way, one direction; without end where GPUs have their own alone."""
    cpu: str = ""
    """The target that prices work on its cores; empty where the sheet names none."""

    @property
    def cores(self) -> int:
        """Cores of all sockets."""
        return self.sockets * self.cores_per_socket

    @property
    def remote_share(self) -> float:
        """Share of uniform accesses that go to the memory of another socket."""
        return (self.sockets - 1) / self.sockets


@attrs.frozen(kw_only=True)
class NodePower:
    """Watts of a node: of all of it, or of the host and of each accelerator."""

    accelerators: int
    accelerator_watts: float
    accelerator_idle_watts: float | None = None
    node_watts: float | None = None
    node_idle_watts: float | None = None
    host_watts: float | None = None
    """Watts of all that is no accelerator and no tier."""
    host_idle_watts: float | None = None

    def active(self, name: str) -> float:
        """Return the watts of a node that works.

        Args:
            name: Of the target, for the error.

        """
        found = self._watts(self.node_watts, self.host_watts, self.accelerator_watts)
        if found is None:
            msg = f"{name}: watts of a node are not known; add power.node_w, or power."
            raise PerfcError(msg + "host_w beside those of accelerators")
        return found

    def idle(self, name: str) -> float:
        """Return the watts of a node that waits; raises as `active` does."""
        found = self._watts(
            self.node_idle_watts, self.host_idle_watts, self.accelerator_idle_watts
        )
        if found is None:
            msg = f"{name}: idle watts of a node are not known; add power.node_idle_w, "
            raise PerfcError(msg + "or power.host_idle_w and power.idle_w")
        return found

    def _watts(
        self, node: float | None, host: float | None, each: float | None
    ) -> float | None:
        if node is not None or host is None:
            return node
        if not self.accelerators:
            return host
        return None if each is None else host + self.accelerators * each
