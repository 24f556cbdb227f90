"""What `perfc place` is asked, and how its texts are read."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

import attrs

from perfc.costmodels import Target, load_target
from perfc.costmodels.machine import Tier
from perfc.costmodels.sheets import find_tier
from perfc.costmodels.tiers import MEAN, P99
from perfc.ir import UsageError
from perfc.ir.support import format_bytes
from perfc.planning.searches import TIME, LatencyTarget
from perfc.tools.request import Request
from perfc.tools.size_text import read_size

GREEDY, BY_SIZE = "greedy", "size"
PLANS = (GREEDY, BY_SIZE)
"""Plans to compare that are no name of a tier."""

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_TARGET = re.compile(r"(\w+)\s*=\s*(\d+(?:\.\d+)?)\s*(us|ms|s)")
_NUMBERED = re.compile(r"(.*?)(\d+)")
_MOST_DRIVES = 10_000


@attrs.frozen(kw_only=True)
class WantedTier:
    """A tier that tables may lie in, as a user says it.

    Attributes:
        name: As in a sheet.
        most_bytes: That tables may take of it, if not all.
        count: Drives or modules, if not as many as its sheet has.

    """

    name: str
    most_bytes: float | None = None
    count: int | None = None

    @classmethod
    def of(cls, text: str) -> WantedTier:
        """Read `NAME`, `NAME=SIZE` or `NAME=xCOUNT`."""
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or (equals and not value):
            msg = f"--tiers {text!r}: expected NAME, NAME=SIZE or NAME=xCOUNT"
            raise UsageError(msg)
        if not value.startswith("x"):
            size = read_size(f"--tiers {name}", value) if equals else None
            return cls(name=name, most_bytes=size)
        digits = value[1:]
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 5):  # noqa: PLR2004 - digits of the most
            digits = "0"
        if not 0 < int(digits) <= _MOST_DRIVES:
            msg = f"--tiers {text!r}: expected xCOUNT from x1 to x{_MOST_DRIVES}"
            raise UsageError(msg)
        return cls(name=name, count=int(digits))

    def find(self, target: Target) -> Tier:
        """Return the tier of a target."""
        tier = attrs.evolve(find_tier(target, self.name), name=self.name)
        if self.count is not None:
            tier = tier.with_count(self.count)
        if self.most_bytes is None:
            return tier
        if self.most_bytes > tier.capacity_bytes:
            msg = (
                f"--tiers {self.name}: {format_bytes(self.most_bytes)} are more than "
                f"the {format_bytes(tier.capacity_bytes)} that {target.name} has of it"
            )
            raise UsageError(msg)
        return attrs.evolve(tier, capacity_bytes=self.most_bytes)


def read_tiers(text: str) -> tuple[WantedTier, ...]:
    """Read a list of tiers."""
    found = tuple(WantedTier.of(part) for part in text.split(","))
    names = [tier.name for tier in found]
    if twice := [name for name in names if names.count(name) > 1]:
        msg = f"--tiers: {twice[0]} is named twice"
        raise UsageError(msg)
    return found


def read_latency_target(text: str) -> LatencyTarget:
    """Read `mean=10ms` or `p99=10ms`."""
    match = _TARGET.fullmatch(text.strip())
    if match is None or match[1] not in {MEAN, P99} or float(match[2]) <= 0:
        msg = f"--sla {text!r}: expected mean=TIME or p99=TIME, as p99=10ms or mean=2s"
        raise UsageError(msg)
    return LatencyTarget(seconds=float(match[2]) * _SECONDS[match[3]], which=match[1])


@attrs.frozen(kw_only=True)
class WantedPlan:
    """A plan to compare: `greedy`, `size`, or one tier alone, maybe of another target.

    Attributes:
        name: What it is called: `dram`, `dram@2s-skylake`.
        kind: `greedy`, `size`, or the name of a tier.
        target: Name of the target, if it is another one.

    """

    name: str
    kind: str
    target: str = ""

    @classmethod
    def of(cls, text: str) -> WantedPlan:
        """Read `NAME` or `TIER@TARGET`."""
        kind, at, target = (part.strip() for part in text.partition("@"))
        if not kind or (at and not target) or (at and kind in PLANS):
            msg = (
                f"--compare {text!r}: expected {', '.join(PLANS)}, a tier, or "
                "TIER@TARGET"
            )
            raise UsageError(msg)
        if target:
            load_target(target)
        return cls(name=text.strip(), kind=kind, target=target)


def read_plans(text: str) -> tuple[WantedPlan, ...]:
    """Read a list of plans, each once; `none` is no plan."""
    if text.strip() == "none":
        return ()
    return tuple(dict.fromkeys(WantedPlan.of(part) for part in text.split(",")))


@attrs.frozen(kw_only=True)
class Question:
    """What is asked.

    Attributes:
        request: The model, and what it computes in; its batch is the candidates.
        target: The machine.
        tiers: Where tables may lie.
        cache_bytes: Of the host's DRAM, for rows of slower tiers; None for what the
            sheets of tiers say.
        objective: What is wanted least: `time`, `power` or `cost`.
        users: Tables that are looked up once a query: names, ranges and patterns.
        candidates: How often a query looks up the others.
        queries_per_s: On one host.
        fleet_per_s: On all hosts; None for those of one.
        latency: How long a query may take.
        compare: Plans to compare; None for all tables in the target's own memory.
        in_flight: Reads that a query has under way at one drive; None for the usual.
        overlap: Whether dense layers and other lookups run beside reads of tiers.
        pooled_share: Share of lookups that a cache of pooled rows saves.

    """

    request: Request
    target: Target
    tiers: tuple[WantedTier, ...]
    cache_bytes: float | None = None
    objective: str = TIME
    users: tuple[str, ...] = ()
    candidates: int = 1
    queries_per_s: float = 1.0
    fleet_per_s: float | None = None
    latency: LatencyTarget | None = None
    compare: tuple[WantedPlan, ...] | None = None
    in_flight: float | None = None
    overlap: bool = True
    pooled_share: float = 0.0


def chosen_tables(names: Sequence[str], texts: Sequence[str]) -> frozenset[str]:
    """Return the tables that are meant by names, ranges as `t0-t60`, and patterns."""
    found: set[str] = set()
    for text in texts:
        meant = _meant(names, text)
        if not meant:
            some = ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
            msg = f"--users {text!r}: no table is called so; there are {some}"
            raise UsageError(msg)
        found |= meant
    return frozenset(found)


_SHOWN = 6


def _meant(names: Sequence[str], text: str) -> set[str]:
    if text in names:
        return {text}
    first, dash, last = text.partition("-")
    one, other = _NUMBERED.fullmatch(first), _NUMBERED.fullmatch(last)
    if not dash or one is None or other is None or one[1] != other[1]:
        return set(fnmatch.filter(names, text))
    low, high = int(one[2]), int(other[2])
    numbered = ((name, _NUMBERED.fullmatch(name)) for name in names)
    return {
        name
        for name, match in numbered
        if match is not None and match[1] == one[1] and low <= int(match[2]) <= high
    }
