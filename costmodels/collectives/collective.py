"""Collectives: from the links of a system, corrected where it was measured."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.collectives import time
from perfc.costmodels.collectives.links import Links
from perfc.costmodels.collectives.rows import (
    CollectiveRows,
    collective_rows,
    collective_rows_of,
)
from perfc.costmodels.collectives.sizes import Collectives
from perfc.costmodels.collectives.terms import CollectiveParameters
from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import SOFTWARE, Estimate, Floats, KernelTable, Provenance
from perfc.costmodels.machine import COLLECTIVES, PCIE, System, Target
from perfc.costmodels.sheets import assumed_system, load_target, usual_topology
from perfc.ir import PerfcError

FILE = "collectives"

MAKERS_SYSTEMS: Mapping[str, str] = {
    "a100-sxm-40g": "nd96asr-a100-v4",
    "a100-sxm-80g": "dgx-a100",
    "b200-sxm-180g": "dgx-b200",
    "gb200": "gb200-nvl72",
    "h100-sxm-80g": "dgx-h100",
    "h200-sxm-141g": "dgx-h200",
    "v100-sxm2-16g": "dgx-v100",
    "v100-sxm2-32g": "dgx-v100",
}
"""Whose network a GPU that was named without a system is taken to have, where members
are on several nodes."""


def joins_nodes(target: Target) -> bool:
    """Whether collectives of several nodes can be priced."""
    named = target.system is not None and bool(target.system.fabric)
    return named or (target.system is None and target.device.name in MAKERS_SYSTEMS)


@attrs.frozen
class Installation:
    """A system whose collectives were measured.

    Attributes:
        device: Of which GPUs.
        software: Who measured, with which NCCL.
        fabric: Between its nodes; empty where one node was measured.
        ll_by_peer: How its NCCL chooses: see `Links`.
        rows: What was measured.

    """

    device: str
    software: str
    fabric: str
    ll_by_peer: bool
    rows: CollectiveRows

    @property
    def links(self) -> Links:
        """Links as the model sees them, with which the rows were compared."""
        return _links_of(self.device, bool(self.fabric), self.ll_by_peer)

    def far(self, c: Collectives) -> Floats:
        """Return how far collectives across nodes lie from its rows, 0 to 1, (rows,).

        Smaller ones than any, by four octaves, go by LL, which no row there does; on
        four times as many nodes NCCL may choose another algorithm.
        """
        if not self.fabric:
            return np.zeros(len(c))
        octaves = np.log2(time.LEAST_ACROSS / np.maximum(c.bytes, 1.0)) / 4
        doublings = np.log2(c.nodes / self.rows.rows.nodes.max()) / 2
        found: Floats = np.clip(np.maximum(octaves, doublings), 0.0, 1.0)
        return found


@functools.cache
def _links_of(device: str, several: bool, ll_by_peer: bool) -> Links:
    target = load_target(MAKERS_SYSTEMS.get(device, device))
    links = collective_links(target, several=several)
    return attrs.evolve(links, ll_by_peer=ll_by_peer)


@functools.cache
def collective_parameters() -> CollectiveParameters:
    """Return those of the package."""
    return CollectiveParameters(**fitted(FILE)["parameters"])


@functools.cache
def installations() -> tuple[Installation, ...]:
    """Return the systems that were measured; of a device the first is the default."""
    return tuple(
        Installation(
            entry["device"],
            entry["software"],
            entry["fabric"],
            entry["ll_by_peer"],
            collective_rows_of(entry["rows"]),
        )
        for entry in fitted(FILE)["installation"].values()
    )


@attrs.frozen
class CollectiveModel:
    """The fastest protocol on the system's links, times what its rows say."""

    name: str = "collective"
    priority: int = 60
    ops: frozenset[str] = frozenset(COLLECTIVES)
    measured: bool = True
    """Whether to take what rows of installations say, or the bare model."""
    parameters: CollectiveParameters | None = None
    """Parameters of the model; those of the package if none."""

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim collectives of at least two members with bytes to send."""
        found: NDArray[np.bool_] = kernels.param("bytes") > 0
        return found & (kernels.param("ranks") >= 2)  # noqa: PLR2004 - a pair

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        c = Collectives.of(kernels)
        system = _system(target, several=bool((c.nodes > 1).any()))
        links = Links.of(target, system)
        p = self.parameters or collective_parameters()
        seconds = time.collective_seconds(c, links, p)
        known = np.zeros(len(c), dtype=np.bool_)
        seen, told, far = known.copy(), known.copy(), np.ones(len(c))
        for part, one in self._installed(c, kernels.text(SOFTWARE), target, system):
            # The factor compares rows with the model on the links where they were
            # measured. It is carried over to other links, but does not make them
            # measured ones.
            asked, chosen = c.take(part), attrs.evolve(links, ll_by_peer=one.ll_by_peer)
            factor = np.exp(one.rows.isotonic_log_factor(asked, one.links, p))
            seconds[part] = time.collective_seconds(asked, chosen, p) * factor
            if chosen.link_bytes_per_s == one.links.link_bytes_per_s:
                known[part] |= one.rows.covers(asked)
                seen[part] = told[part] = True
                far[part] = one.far(asked)
        if self.measured and target.collectives:
            mine = collective_rows(target.collectives)
            # Held once: times that a profile changes rise already. Its few rows are no
            # more than a hint where they do not lie.
            # The links that a profile's rows were weighed with.
            # Those of a system with a network, if any of them are of several nodes.
            if (mine.rows.nodes <= 1).all() or links.nics:
                here = links
            else:
                here = collective_links(target, several=True)
            held = mine.isotonic_log_factor(c, here, p)
            free = mine.log_factor(c, here, p)
            seconds *= np.exp(np.where(told, free, held))
            known |= mine.covers(c)
            told[:] = True
        # No fitted system joins its GPUs in this way, so that prices are less certain.
        foreign = (system.topology == PCIE) | (c.nodes > 1)
        away = np.where(seen, np.where(known, 0.0, far), foreign)
        switched = time.near_switch(c, links, p) & ~known
        shared, own = _sigmas(known, seen, away, switched)
        return Estimate(
            seconds,
            shared,
            own,
            [self.name] * len(c),
            [Provenance.FITTED if s else Provenance.ANALYTIC for s in told.tolist()],
        )

    def _installed(
        self,
        c: Collectives,
        software: NDArray[np.str_],
        target: Target,
        system: System,
    ) -> list[tuple[NDArray[np.intp], Installation]]:
        """Return which rows an installation that was measured knows something of."""
        found: list[tuple[NDArray[np.intp], Installation]] = []
        # What was measured over a switch says nothing of GPUs joined otherwise.
        if not self.measured or system.topology != usual_topology(target):
            return found
        network = Links.of(target, system).network_of_node
        for nodes, fabric in ((c.nodes <= 1, ""), (c.nodes > 1, system.fabric)):
            mine = [
                i
                for i in installations()
                if i.device == target.device.name
                and i.fabric == fabric
                # Nor what was measured on other NICs, or for other shares of them.
                and (not fabric or i.links.network_of_node == network)
            ]
            named = {i.software for i in mine}
            default = ~np.isin(software, list(named))
            for number, one in enumerate(mine):
                at = nodes & ((software == one.software) | (default & (number == 0)))
                if at.any():
                    found.append((np.flatnonzero(at), one))
        return found


def collective_links(target: Target, *, several: bool) -> Links:
    """Return the links that collectives see of a target: of one node, or several."""
    if target.device.synchronous:
        message = (
            f"collectives on {target.name}: only GPUs that NCCL joins are modelled; "
            "choose a GPU or a system of them (`perfc targets`)"
        )
        raise PerfcError(message)
    return Links.of(target, _system(target, several=several))


def _system(target: Target, *, several: bool) -> System:
    system = assumed_system(target)
    if not several or system.fabric:
        return system
    if not joins_nodes(target):
        message = (
            f"{target.name} has no network: name a system, as dgx-h100, for ranks on "
            "several nodes (`perfc targets` lists them)"
        )
        raise PerfcError(message)
    return assumed_system(load_target(MAKERS_SYSTEMS[target.device.name]))


def _sigmas(
    known: NDArray[np.bool_],
    seen: NDArray[np.bool_],
    away: Floats,
    switched: NDArray[np.bool_],
) -> tuple[Floats, Floats]:
    """Return shared and own uncertainty of each.

    On a curve that was measured; of a measured system elsewhere; on a system that was
    not. Where the switch may add up and nobody has measured it, and, bit by bit, what
    lies *away* from all that was measured, 0 to 1, as where members are joined in a way
    that no fitted system has, wider.
    """
    stated: Mapping[str, Any] = fitted(FILE)["sigma"]
    shared, own = (
        np.select(
            [known, seen],
            [float(stated[name][part]) for name in ("known", "seen")],
            float(stated["unseen"][part]),
        )
        for part in (0, 1)
    )
    switch = np.where(switched, float(stated["switch"]), 0.0)
    wide = away * float(stated["other_links"])
    found: Floats = np.maximum.reduce((shared, switch, wide))
    return found, own


COLLECTIVE = CollectiveModel()
"""The built-in instance."""
