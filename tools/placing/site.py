"""A machine as a site of tables: its tiers, its cache, what a host does and draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from perfc.costmodels import Target
from perfc.costmodels import tiers as tier_models
from perfc.costmodels.constants import constants
from perfc.costmodels.machine import Tier
from perfc.costmodels.sheets import DRAM, HBM, find_tier
from perfc.costmodels.tiers import RANDOM_SHARE, TieredTable, row_reads
from perfc.ir import PerfcError
from perfc.ir.support import brief, format_bytes
from perfc.planning import searches
from perfc.tools.placing.base import BaseStep, QueriedModel
from perfc.tools.placing.question import Question, WantedTier

IN_FLIGHT = constants("tiers").number("query_in_flight")
"""Reads that a query has under way at one drive, unless said otherwise."""


@attrs.frozen(eq=False, kw_only=True)
class Site:
    """A machine that answers queries of a model.

    Attributes:
        question: What is asked.
        model: The model and its tables.
        target: The machine.
        base: A query there with all tables in the memory that it works from.

    """

    __repr__ = brief

    question: Question
    model: QueriedModel
    target: Target
    base: BaseStep

    @classmethod
    def of(cls, model: QueriedModel, target: Target) -> Site:
        """Analyze the model there."""
        base = model.base(target)
        return cls(question=model.question, model=model, target=target, base=base)

    @property
    def native(self) -> str:
        """Name of the memory that the device works from."""
        return DRAM if self.target.device.synchronous else HBM

    def task(self, wanted: Sequence[WantedTier]) -> searches.TierTask:
        """Return the tables and tiers as a search takes them."""
        found = [tier.find(self.target) for tier in wanted]
        tiers = sorted(found, key=self._slowness)
        cached = [tier.name not in {HBM, DRAM} for tier in tiers]
        cache = self._cache_bytes(tiers, cached)
        tiers = [
            attrs.evolve(tier, capacity_bytes=max(tier.capacity_bytes - cache, 1))
            if tier.name == DRAM
            else tier
            for tier in tiers
        ]
        # Refuse an objective that nobody knows the numbers for.
        objective = self.question.objective
        if objective == searches.POWER:
            self.watts(required=True)
        for tier in tiers:
            if objective == searches.POWER and tier.name not in {HBM, DRAM}:
                tier_models.tier_watts(tier)
            if objective == searches.COST and tier.usd_per_byte is None:
                msg = (
                    f"tier {tier.name}: its price is not known; add usd_per_gb to its "
                    "sheet"
                )
                raise PerfcError(msg)
        setting = self._setting(tuple(tiers))
        return searches.TierTask(
            setting=setting,
            tables=self.model.tables,
            cached=tuple(cached),
            cache_bytes=cache,
            pooled_share=self.question.pooled_share,
        )

    def _slowness(self, tier: Tier) -> tuple[bool, float, float]:
        """Return the order of a tier: the device's own memory is the fastest."""
        away = tier.name != self.native
        return away, tier.read_latency_s, -tier.read_bytes_per_s

    def _cache_bytes(self, tiers: Sequence[Tier], cached: Sequence[bool]) -> float:
        """Return the bytes of the cache, which lies in the host's DRAM."""
        asked = self.question.cache_bytes
        if not any(cached):
            return 0.0
        size = math.fsum(tier.cache_bytes for tier in tiers) if asked is None else asked
        if size:
            known = [tier for tier in tiers if tier.name == DRAM]
            memory = known[0] if known else find_tier(self.target, DRAM)
            tier_models.check_cache(size, memory.capacity_bytes)
        return size

    def watts(self, *, required: bool = False) -> float | None:
        """Return the watts of a host; None where they are not known, nor required."""
        power = self.target.node_power
        if power is not None and not required:
            try:
                return power.active(self.target.name)
            except PerfcError:
                return None
        if power is None and required:
            msg = (
                f"{self.target.name}: watts of a node are not known; add power.host_w "
                "to its sheet"
            )
            raise PerfcError(msg)
        return None if power is None else power.active(self.target.name)

    def _setting(self, tiers: tuple[Tier, ...]) -> searches.TierSetting:
        asked, base = self.question, self.base
        fleet = asked.fleet_per_s
        return searches.TierSetting(
            tiers=tiers,
            native=self.native,
            base_s=base.time_s,
            dense_s=base.dense_s,
            lookup_s=base.lookup_s,
            overlap=asked.overlap,
            queries_per_s=asked.queries_per_s,
            in_flight=asked.in_flight or IN_FLIGHT,
            away_s_per_byte=self._away_s_per_byte,
            target=asked.latency,
            objective=asked.objective,
            fleet_per_s=asked.queries_per_s if fleet is None else fleet,
            service=self._service,
        )

    @property
    def _away_s_per_byte(self) -> float:
        """What a byte of the host takes to get to the device."""
        target = self.target
        if target.device.synchronous:
            return 0.0
        link = target.host_link.h2d_bytes_per_s
        if target.resources is None:
            return 1 / link
        return row_reads(target.resources, link, 1, 1.0).seconds

    @property
    def _service(self) -> searches.HostService:
        target = self.target
        power, resources = target.node_power, target.resources
        devices = power.accelerators if power is not None else 0
        compute_s, watts = self.base.time_s / max(devices, 1), self.watts()
        if self.native != DRAM or resources is None:
            return searches.HostService(compute_s=compute_s, watts=watts)
        return searches.HostService(
            compute_s=compute_s,
            dram_bytes=math.fsum(t.lookups * t.row_bytes for t in self.model.tables),
            dram_bytes_per_s=RANDOM_SHARE * resources.dram_bytes_per_s,
            watts=watts,
        )

    @property
    def nic_bytes_per_s(self) -> float | None:
        """Rate of a host's network, one direction; None where the sheet has none."""
        gbits = self.target.fields.get("network.nic_gbit_per_s")
        if gbits is None:
            return None
        return float(self.target.fields.get("network.nics", 1)) * float(gbits) * 1e9 / 8


def check_room(task: searches.TierTask) -> None:
    """Refuse tables that have no room."""
    tiers = task.setting.tiers
    for table in task.tables:
        _check_table(table, tiers)
    need = float(task.amounts[0].min(axis=1).sum())
    room = math.fsum(tier.capacity_bytes for tier in tiers)
    if need > room:
        names = ", ".join(tier.name for tier in tiers)
        msg = (
            f"{len(task.tables):,} tables of {format_bytes(need)} do not fit into "
            f"{names}, which have {format_bytes(room)} for them: "
            f"{format_bytes(need - room)} are missing"
        )
        raise PerfcError(msg)


def _check_table(table: TieredTable, tiers: Sequence[Tier]) -> None:
    try:
        tier_models.fastest_that_fits(table.nbytes, tiers)
    except PerfcError as error:
        msg = f"table {table.name}: {error}"
        raise PerfcError(msg) from error


def one_tier(question: Question, name: str) -> WantedTier:
    """Return a tier as the question wants it, or as the target has it."""
    for tier in question.tiers:
        if tier.name == name:
            return tier
    return WantedTier(name=name)
