"""A placement, and all that is said of it."""

from __future__ import annotations

import functools
import math

import attrs

from perfc.costmodels import tiers
from perfc.costmodels import tiers as tier_models
from perfc.costmodels.constants import constants
from perfc.ir import PerfcError
from perfc.ir.support import US, brief
from perfc.passes.timing import TimeErrors
from perfc.planning.searches import COST, POWER, TierSetting, TierTask
from perfc.tools.placing.site import Site
from perfc.tools.reports import PricedPlan

_SIGMA = constants("tiers").number("tier_sigma")
_Z = constants("kernels").number("z90")
"""95th percentile of the standard normal distribution."""


@attrs.frozen(eq=False, kw_only=True)
class PlacedPlan:
    """Tables in tiers.

    Attributes:
        name: What the plan is called.
        site: The machine.
        task: Tables, tiers, cache.
        places: Of each table, the number of its tier.
        memory_hosts: Hosts that hold what one has no room for, for each that answers.

    """

    __repr__ = brief

    name: str
    site: Site
    task: TierTask
    places: tuple[int, ...]
    memory_hosts: int = 0

    @property
    def setting(self) -> TierSetting:
        """What placements there have in common."""
        return self.task.setting

    @functools.cached_property
    def costs(self) -> list[tiers.TableCost]:
        """What each table costs where it lies."""
        return self.task.costs(self.places)

    @functools.cached_property
    def demands(self) -> list[tiers.TierDemand]:
        """What is asked of each tier for a query."""
        return self.task.demands(self.costs, self.places)

    @functools.cached_property
    def native_share(self) -> float:
        """Share of the bytes looked up that lies in the device's own memory."""
        return self.task.native_share(self.places)

    def check(self) -> None:
        """Refuse a placement that cannot be."""
        _ = self.uses
        if self.setting.lateness(self.demands, self.native_share):
            which = self.setting.target
            msg = (
                f"no placement that was found is within {which}: a query takes "
                f"{self._late_s * 1e3:.4g} ms"
            )
            raise PerfcError(msg)

    @property
    def _late_s(self) -> float:
        target = self.setting.target
        which = tier_models.MEAN if target is None else target.which
        waits = self.setting.waits(self.demands, which)
        return self.setting.base_s + self.setting.exposed_s(waits, self.native_share)

    @functools.cached_property
    def waits(self) -> tiers.Busy:
        """How long a query waits for each tier."""
        busy = self.setting.waits(self.demands)
        return (
            busy
            if not self.memory_hosts
            else tiers.Busy({**busy.parts, **self._remote})
        )

    @property
    def _remote(self) -> dict[str, float]:
        """What other hosts that hold tables take for a query."""
        held = self.memory_hosts
        share, site = held / (held + 1), self.site
        nic, service = site.nic_bytes_per_s or math.inf, self.setting.service
        rows = share * service.dram_bytes / service.dram_bytes_per_s
        work = tiers.RemoteLookups(
            sent_bytes=0.0,
            received_bytes=share * site.model.pooled_bytes,
            server_s=rows,
        )
        cluster = tiers.Cluster(
            trainers=1,
            servers=held,
            trainer_nic_bytes_per_s=nic,
            server_nic_bytes_per_s=nic,
        )
        return {
            "memory hosts": tiers.RPC_S + tiers.remote_lookups(cluster, work).seconds
        }

    @property
    def exposed_s(self) -> float:
        """Part of the waits that nothing hides."""
        return self.setting.exposed_s(self.waits, self.native_share)

    @property
    def time_s(self) -> float:
        """Time of a query."""
        return self.setting.base_s + self.exposed_s

    @functools.cached_property
    def uses(self) -> list[tiers.TierUse]:
        """Use of each tier by one host."""
        return self.setting.uses(self.demands)

    @functools.cached_property
    def rates(self) -> tiers.Rates:
        """Queries a second of a host, by what allows them."""
        return self.setting.rates(self.demands, self.native_share)

    @functools.cached_property
    def groups(self) -> list[tiers.HostGroup]:
        """Hosts that serve the fleet's load: answering ones, and those with tables."""
        watts = self.setting.host_watts(self.uses)
        held = self._holding
        groups = [tiers.HostGroup(hosts=self.answering, host_watts=watts)]
        return (
            [*groups, tiers.HostGroup(hosts=held, host_watts=watts)] if held else groups
        )

    @property
    def answering(self) -> int:
        """Hosts that answer queries."""
        return self.setting.hosts(self.demands, self.native_share)

    @property
    def _holding(self) -> int:
        """Hosts that hold tables for others: of one copy, or as many as reads need."""
        if not self.memory_hosts:
            return 0
        service, held = self.setting.service, self.memory_hosts
        asked = self.setting.fleet_per_s * service.dram_bytes * held / (held + 1)
        busy = math.ceil(asked / service.dram_bytes_per_s)
        return max(held, busy)

    @property
    def hosts(self) -> int:
        """Hosts in all."""
        return self.answering + self._holding

    @functools.cached_property
    def watts(self) -> float | None:
        """Watts of all hosts; None where nobody knows them."""
        try:
            return math.fsum(group.watts for group in self.groups)
        except PerfcError:
            return None

    @functools.cached_property
    def usd(self) -> float | None:
        """Price of the memory that tables take in all hosts; None if unknown."""
        try:
            return self.hosts * self.setting.host_usd(self.demands)
        except PerfcError:
            return None

    @property
    def energy_j(self) -> float | None:
        """Joules of a query, where all hosts have as much to do as they can."""
        rate = self.answering * self.rates.per_s
        return None if self.watts is None or math.isinf(rate) else self.watts / rate

    @property
    def amount(self) -> float:
        """What it has of the objective."""
        objective = self.setting.objective
        amount = {POWER: self.watts, COST: self.usd}.get(objective, self.time_s)
        return math.inf if amount is None else amount

    @property
    def fits(self) -> bool:
        """Whether a host has room for all of its tables."""
        return not self.memory_hosts

    @property
    def peak_memory_bytes(self) -> float | None:
        """Peak of the device, without the tables that lie elsewhere."""
        peak = self.site.base.report.summary["peak_memory_bytes"]
        if peak is None:
            return None
        pairs = zip(self.task.tables, self.places, strict=True)
        native = self.task.native
        away = sum(table.nbytes for table, place in pairs if place != native)
        return max(float(peak) - away, 0.0)

    @property
    def priced(self) -> PricedPlan:
        """What all verbs say of a plan."""
        low_us, high_us = self.site.base.report.interval_us
        exposed_us, off = self.exposed_s * US, math.exp(_Z * _SIGMA)
        return PricedPlan(
            name=self.name,
            time_us=self.site.base.report.time_us + exposed_us,
            time_us_p05=low_us + exposed_us / off,
            time_us_p95=high_us + exposed_us * off,
            energy_j=self.energy_j,
            peak_memory_bytes=self.peak_memory_bytes,
        )

    @property
    def errors(self) -> TimeErrors | None:
        """What its time is off; None if a host has no room for it."""
        if not self.fits:
            return None
        of, part = self.site.base.report.errors, self.exposed_s / self.time_s
        shared = {key: sigma * (1 - part) for key, sigma in of.shared.items()}
        for name in self.waits.parts if part else ():
            if name == self.waits.bound:
                shared["tier", name] = _SIGMA * part
        return TimeErrors(self.time_s, shared, of.alone * (1 - part))
