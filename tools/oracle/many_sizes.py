"""Steps of many sizes and targets: launches by arrays, kernels in a table a target."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import (
    Flags,
    Floats,
    Indices,
    Many,
    ManyError,
    SplitError,
    many,
    parted,
)
from perfc.ir import Kernel, PerfcError, Work
from perfc.passes import lowering
from perfc.passes.facts import SCHEDULE
from perfc.passes.memory import many_peaks, scratch_kernels
from perfc.passes.timing import sources
from perfc.tools import edits
from perfc.tools.models import Dimensions, bind_dimensions
from perfc.tools.oracle.columns import DIM, bind_of
from perfc.tools.oracle.costs import Costs
from perfc.tools.oracle.families import Family, MemberLags, Peaks, has_costs
from perfc.tools.oracle.many_prices import ManyPrices, Rows
from perfc.tools.oracle.setting import Lowered, Setting
from perfc.tools.oracle.solved import lags_s
from perfc.tools.oracle.state import State
from perfc.tools.oracle.step import Step
from perfc.tools.run import Run

FEWEST = 6
"""Sizes from which on they are looked at together."""
_MOST_LOWERED = 8
"""Settings of different tasks that are kept; more are found for several sizes only."""

_MOST_TRIED = 32
"""Settings of different tasks that are found at a time; other sizes are few then."""

_STRUCTURAL = frozenset({"capture-graph"})
"""Passes that change launches whatever their kernels are."""
_TIMED = frozenset({"kernel-cost", "overhead", "sustained-clock"})
"""Passes whose part in a duration is known here."""

_Value: TypeAlias = float | Floats
"""One number for all sizes, or one a size."""


class _ApartError(Exception):
    """Sizes have to be looked at one by one; why."""


def host_of(run: Run) -> Hashable:
    """Return a key that runs of one model share whose hosts take the same times."""
    host = run.target.host
    return run.asked_profile or host.overheads, host.speed


@attrs.define(eq=False)
class ManySizes:
    """A setting at many sizes, on one target or several that are lowered for alike.

    How many SMs they have, their hosts and their prices may differ.

    Attributes:
        state: The state of the oracle, whose durations stay set.
        bases: The setting on each target, at any sizes.
        which: The target of each member.
        sizes: The sizes, by name, one a member: `batch`, and dimensions.
        remarks: What is looked at one by one, and why.

    """

    state: State
    bases: Sequence[Setting]
    which: Indices
    sizes: Mapping[str, NDArray[np.int64]]
    remarks: list[str] = attrs.field(factory=list[str], init=False)
    _prices: ManyPrices = attrs.field(init=False)
    _over: Flags = attrs.field(init=False)
    """Members whose board may draw more than its cap."""
    _sites: dict[lowering.Settings, lowering.ManySites] = attrs.field(
        factory=dict["lowering.Settings", lowering.ManySites], init=False
    )
    _known: dict[int, tuple[lowering.Recipe, lowering.Repeated]] = attrs.field(
        factory=dict[int, "tuple[lowering.Recipe, lowering.Repeated]"], init=False
    )
    """Recipes at all sizes, by their identity."""

    def __attrs_post_init__(self) -> None:
        """Prepare to price kernels."""
        self._over = np.zeros(self._count, dtype=np.bool_)
        targets = [base.run.target for base in self.bases]
        self._prices = ManyPrices(targets, self.which, self.base.memory)

    def families(self) -> tuple[list[Family], list[int]]:
        """Return families of members, and the members that are in none."""
        try:
            self._check()
            return self._families()
        except _ApartError as error:
            self._apart(str(error))
        except PerfcError:  # which the size raises again whose error it is
            self._apart("not every size can be")
        return [], list(range(self._count))

    def _apart(self, why: str) -> None:
        self.remarks.append(f"sizes are looked at one by one: {why}")

    @property
    def base(self) -> Setting:
        """The setting on the first target."""
        return self.bases[0]

    @property
    def _count(self) -> int:
        return len(self.which)

    def _check(self) -> None:
        """Refuse a run whose launches or durations are not made as here."""
        run = self.base.run
        if run.model.late is not None:
            msg = "control flow depends on them"
            raise _ApartError(msg)
        schedules = [n for n, p in enumerate(run.passes) if SCHEDULE in p.provides]
        for number, p in enumerate(run.passes[: min(schedules, default=0)]):
            known = p.name in _TIMED or (p.name in _STRUCTURAL and number)
            if not (known or (type(p) is lowering.LowerKernels and not number)):
                msg = f"{p.name} may depend on them"
                raise _ApartError(msg)
        if any(rank.ops is None for rank in run.model.program.classes):
            msg = "launches are given"
            raise _ApartError(msg)

    def _families(self) -> tuple[list[Family], list[int]]:
        found: list[Family] = []
        left = np.arange(self._count)
        alike = np.zeros(self._count, dtype=np.intp)
        apart: list[int] = []
        known = [one for one in self.base.lowered if one.is_fresh]
        made = 0
        while len(left):
            at = -1
            if not known:
                # Those of the most common tasks are next, so that others have fewer.
                numbers_of, counts = np.unique(alike[left], return_counts=True)
                own = left[alike[left] == numbers_of[counts.argmax()]]
                at = int(own[len(own) // 2])
                alone = counts.max() == 1 and made >= _MOST_LOWERED
                if alone or made >= _MOST_TRIED:
                    self._apart("what is launched depends on them")
                    apart += left.tolist()
                    break
                known.append(self._lowered(at))
                del self.base.lowered[: 1 - _MOST_LOWERED]
                self.base.lowered.append(known[0])
                made += 1
            families, alike = self._of_tasks(known.pop(0), left)
            for family in families:
                left = left[~np.isin(left, family.members)]
            found += families
            held = (left == at) | self._over[left]
            apart += left[held].tolist()
            left = left[~held]
        for sites in self._sites.values():
            self.remarks += [
                f"{op} is lowered size by size: its kernels depend on them in ways "
                "of their own"
                for op in sorted(sites.one_by_one)
            ]
        return found, sorted(apart)

    def _lowered(self, member: int) -> Lowered:
        base = self.bases[self.which.item(member)]
        setting = base.made(self._bind(member)) if self.sizes else base
        return Lowered.of(setting, functools.partial(self._remember, member))

    def _remember(
        self, member: int, recipe: lowering.Recipe, kernels: Sequence[Kernel]
    ) -> None:
        """Remember what kernels of a member cost, that are priced with those of all."""
        target = self.bases[self.which.item(member)].run.target
        known = self.base.memory.prices_of(target)
        repeated = self._repeated(recipe)
        self._note([repeated])
        rows: list[int] = []
        for launches in repeated.kernels:
            (own,) = [noted for noted in launches[0] if member in noted[0]]
            row = np.broadcast_to(self._prices.of(own), len(own[0]))
            rows.append(row.item(int(np.searchsorted(own[0], member))))
        prices = self._prices.priced.prices(rows)
        known.update(zip(kernels, prices, strict=True))

    def _bind(self, member: int) -> edits.Bind:
        one = {name: values.item(member) for name, values in self.sizes.items()}
        return bind_of(one)

    @functools.cached_property
    def _numbers(self) -> Mapping[str, int | Many]:
        """Numbers of the symbols at all sizes."""
        model = self.base.run.model
        if not self.sizes:
            return model.program.bindings
        first = self._bind(0)
        asked = self.base.sizes.changed(first, model)
        sizes = {name: many(values) for name, values in self.sizes.items()}
        dims = {**asked.dims, **{n: sizes[f"{DIM}{n}"] for n in dict(first.dims)}}
        batch = sizes.get("batch", asked.batch)
        try:
            wanted = Dimensions(batch, asked.pooling, dims)
            return bind_dimensions(model.unbound, wanted, model.symbols).bindings
        except (ManyError, SplitError):
            return self._numbers_one_by_one()

    def _numbers_one_by_one(self) -> dict[str, int | Many]:
        model, sizes = self.base.run.model, self.base.sizes
        found: list[Mapping[str, int]] = []
        for member in range(self._count):
            asked = sizes.changed(self._bind(member), model)
            wanted = Dimensions(asked.batch, asked.pooling, asked.dims)
            bound = bind_dimensions(model.unbound, wanted, model.symbols)
            found.append(bound.bindings)
        return {
            name: many(np.array([bindings[name] for bindings in found], dtype=np.int64))
            for name in found[0]
        }

    def _of_tasks(
        self, lowered: Lowered, left: Indices
    ) -> tuple[list[Family], Indices]:
        """Return those of the members left whose tasks are those of a setting.

        They are parted by their hosts. And a number that members have in common whose
        sites have the same tasks.
        """
        if lowered.setting.step.shares:
            msg = "tasks slow each other down (contention)"
            raise _ApartError(msg)
        fits = np.zeros(self._count, dtype=np.bool_)
        fits[left] = True
        alike = np.zeros(self._count, dtype=np.intp)
        repeated: list[lowering.Repeated] = []
        for recipe in lowered.recipes:
            repeated.append(self._repeated(recipe))
            fits &= repeated[-1].fits
            both = alike * self._count + repeated[-1].alike
            _, alike = np.unique(both, return_inverse=True)
        if not fits.any():
            return [], alike
        self._note(repeated)
        rows = [self._of_kernels(each, fits) for each in repeated]
        found: list[Family] = []
        for host, targets in self._hosts.items():
            of_host = fits & np.isin(self.which, targets)
            setting = self._on_host(lowered, host, np.flatnonzero(of_host))
            if setting is not None:
                self._keep_within_cap(setting.step, rows, of_host)
                members = np.flatnonzero(of_host)
                found.append(self._family(setting, rows, members))
        return [family for family in found if family.members], alike

    @functools.cached_property
    def _hosts(self) -> Mapping[Hashable, Sequence[int]]:
        """The targets by their hosts."""
        found: dict[Hashable, list[int]] = {}
        for number, base in enumerate(self.bases):
            found.setdefault(host_of(base.run), []).append(number)
        return found

    def _on_host(
        self, lowered: Lowered, host: Hashable, members: Indices
    ) -> Setting | None:
        """Return a setting of the same tasks on a host; None where it is not known."""
        if not len(members) or host == host_of(lowered.setting.run):
            return lowered.setting if len(members) else None
        made = self._lowered(members.item(0))
        pairs = zip(made.recipes, lowered.recipes, strict=True)
        return made.setting if all(one is other for one, other in pairs) else None

    def _repeated(self, recipe: lowering.Recipe) -> lowering.Repeated:
        """Lower by a recipe at all sizes, on all targets."""
        found = self._known.get(id(recipe))
        if found is None:
            # The sites of a graph, on all targets.
            settings = attrs.evolve(recipe.settings, sm_count=0)
            if settings not in self._sites:
                sms = np.array(
                    [lowering.sm_count(base.run.target) for base in self.bases]
                )
                on_all = attrs.evolve(settings, sm_count=many(sms[self.which]))
                self._sites[settings] = lowering.ManySites(
                    self._count, self._numbers, on_all
                )
            repeated = self._sites[settings].repeat(recipe)
            found = self._known[id(recipe)] = recipe, repeated
        return found[1]

    def _note(self, repeated: Sequence[lowering.Repeated]) -> None:
        """Price kernels, and those of other tasks: a table of all takes least."""
        own = (
            noted
            for each in repeated
            for launches in each.kernels
            for parts in launches
            for noted in parts
        )
        others = (sites.noted for sites in self._sites.values())
        self._prices.note(itertools.chain(own, *others))

    def _of_kernels(self, repeated: lowering.Repeated, fits: Flags) -> list[Rows]:
        """Return the price of each kernel of a graph; note where launches disagree."""
        seconds = self._prices.priced.seconds
        found: list[Rows] = []
        for launches in repeated.kernels:
            each = [self._of_launch(parts) for parts in launches]
            for other in each[1:]:
                if other is not each[0]:
                    differs = np.not_equal(seconds[other], seconds[each[0]])
                    fits &= ~differs
            found.append(each[0])
        return found

    def _of_launch(self, parts: Sequence[lowering.Noted]) -> Rows:
        if len(parts) == 1 and len(parts[0][0]) == self._count:
            return self._prices.of(parts[0])
        found = np.zeros(self._count, dtype=np.intp)
        for noted in parts:
            found[noted[0]] = self._prices.of(noted)
        return found

    def _keep_within_cap(
        self, step: Step, rows: Sequence[Sequence[Rows]], fits: Flags
    ) -> None:
        """Drop members whose board may draw more than its cap: kernels get slower.

        As `sustained-clock` finds out; no schedule takes less than its busiest stream.
        """
        powers = [base.run.target.power for base in self.bases]
        if not any(powers):
            return
        watts = [np.inf if p is None else p.cap_watts - p.idle_watts for p in powers]
        own_s, own_j = self._prices.priced.seconds, self._prices.priced.joules
        least_s, most_j = np.zeros(self._count), np.zeros(self._count)
        for hosted, prices in zip(step.hosted, rows, strict=True):
            graph, found = hosted.graph, sources(hosted.graph)
            stated_s = np.nan_to_num(found.stated_s)
            stated_s[found.host] = hosted.host_s[found.host]
            resource = np.array(graph.resource)
            busy_s: list[_Value] = [*np.bincount(resource, stated_s).tolist()]
            drawn_j: Floats = np.zeros(self._count)
            tasks: list[int] = found.device.tolist()
            kernels: list[int] = found.kernel.tolist()
            for task, kernel in zip(tasks, kernels, strict=True):
                price = prices[kernel]
                busy_s[resource[task]] = busy_s[resource[task]] + own_s[price]
                np.add(drawn_j, own_j[price], out=drawn_j)
            for one_s in busy_s:
                least_s = np.maximum(least_s, one_s)
            most_j = np.maximum(most_j, drawn_j)
        over = most_j > np.array(watts)[self.which] * least_s * _SURELY
        if (over & fits).any():
            self._apart("the cap of the board's power holds some of them down")
            self._over |= over & fits
            fits &= ~over

    def _family(
        self,
        setting: Setting,
        rows: Sequence[Sequence[Rows]],
        members: Indices,
    ) -> Family:
        state, step = self.state.moved_to(setting), setting.step
        own_s = self._prices.priced.seconds
        found: list[_Value] = [*state.seconds]
        offsets, places = step.timeline.offsets, step.network.places
        for hosted, offset, prices in zip(step.hosted, offsets, rows, strict=True):
            chosen = [
                own_s[row[members]]
                if isinstance(row, np.ndarray)
                else float(own_s[row])
                for row in prices
            ]
            known = sources(hosted.graph)
            pairs = zip(known.device.tolist(), known.kernel.tolist(), strict=True)
            for task, kernel in pairs:
                if task + offset not in state.stated:
                    found[places[task + offset]] = chosen[kernel]
        family = Family(state, members.tolist(), found, lags=self._lags(step, members))
        if not has_costs(state):
            return family
        table = np.array([np.broadcast_to(row, self._count) for row in rows[0]])
        costs = Costs(self._prices.priced, table.reshape(-1, self._count)[:, members])
        peaks = functools.partial(self._peaks, step, costs, members)
        return attrs.evolve(family, costs=lambda: costs, peaks=peaks)

    def _lags(self, step: Step, members: Indices) -> MemberLags | None:
        """Return the lags between tasks, where targets differ in them."""
        if len(self.bases) == 1:
            return None
        lags = np.array([lags_s(base.run.target) for base in self.bases])
        each = lags[self.which[members]].T
        _, stream_s, graph_s, latency_s = (np.ascontiguousarray(one) for one in each)
        of_kind = {1: stream_s, 2: graph_s}
        gaps = {
            step.network.arrival(task): of_kind[kind]
            for task, kind in enumerate(step.gap_kinds)
            if kind
        }
        return MemberLags(gaps, latency_s)

    def _peaks(
        self,
        step: Step,
        costs: Costs,
        members: Indices,
    ) -> Peaks | None:
        """Return the peak of the memory of each member; None for one by one."""
        (rank,), graph = step.run.model.program.classes, step.hosted[0].graph
        targets = [base.run.target.device for base in self.bases]
        blas = np.array([*map(lowering.blas_workspace_bytes, targets)])[
            self.which[members]
        ]
        blas[~costs.of("is_blas").any(axis=0)] = 0
        written = costs.of("bytes_written").astype(np.int64)
        read = costs.of("bytes_read").astype(np.int64)
        assert rank.ops is not None  # noqa: S101 - `_check` has looked
        found = np.empty(len(members), dtype=np.int64)
        todo = [np.arange(len(members))]
        while todo:
            rows = todo.pop()
            own = {name: parted(n, members[rows]) for name, n in self._numbers.items()}
            kernels = [*graph.kernels]
            for number in scratch_kernels(graph):
                amounts = many(read[number, rows]), many(written[number, rows])
                work = Work(kernels[number].work.flops, *amounts)
                kernels[number] = attrs.evolve(kernels[number], work=work)
            launches = graph.with_kernels(kernels)
            try:
                found[rows] = many_peaks(rank.ops, launches, own, blas[rows])
            except SplitError as split:
                todo += rows[split.mask], rows[~split.mask]
            except ManyError:
                return None
        return found


_SURELY = 1 - 1e-9
"""Within rounding of the cap it is asked whether it is kept."""
