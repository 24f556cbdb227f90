"""Steps of many sizes: their launches by arrays, their kernels in one table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import KernelTable, Target, draws_of, find_cost_models
from perfc.costmodels.kernels import (
    Flags,
    Floats,
    Indices,
    Many,
    column_table,
    has_many,
    kernels_of,
    many,
    token,
)
from perfc.costmodels.pricing import price_table
from perfc.ir import Kernel, PerfcError
from perfc.passes.facts import SCHEDULE
from perfc.passes.lowering import (
    LowerKernels,
    ManyKernels,
    ManySites,
    Noted,
    Repeated,
    Settings,
)
from perfc.passes.timing import sources
from perfc.tools.models import Dimensions, bind_dimensions
from perfc.tools.oracle import edits
from perfc.tools.oracle.columns import DIM, bind_of
from perfc.tools.oracle.families import Family
from perfc.tools.oracle.memory import Memory
from perfc.tools.oracle.setting import Lowered, Setting
from perfc.tools.oracle.state import State
from perfc.tools.oracle.step import Step

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


@attrs.define(eq=False)
class ManySizes:
    """A setting at many sizes.

    Attributes:
        state: The state of the oracle, whose durations stay set.
        base: The setting, at any sizes.
        sizes: The sizes, by name, one a member: `batch`, and dimensions.
        remarks: What is looked at one by one, and why.

    """

    state: State
    base: Setting
    sizes: Mapping[str, NDArray[np.int64]]
    remarks: list[str] = attrs.field(factory=list[str], init=False)
    _prices: _Prices = attrs.field(init=False)
    _over: Flags = attrs.field(init=False)
    """Members whose board may draw more than its cap."""
    _sites: dict[Settings, ManySites] = attrs.field(
        factory=dict["Settings", ManySites], init=False
    )

    def __attrs_post_init__(self) -> None:
        """Prepare to price kernels."""
        self._over = np.zeros(self._count, dtype=np.bool_)
        self._prices = _Prices(self.base.run.target, self.base.memory)

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
    def _count(self) -> int:
        return len(next(iter(self.sizes.values())))

    def _check(self) -> None:
        """Refuse a run whose launches or durations are not made as here."""
        run = self.base.run
        if run.model.late is not None:
            msg = "control flow depends on them"
            raise _ApartError(msg)
        schedules = [n for n, p in enumerate(run.passes) if SCHEDULE in p.provides]
        for number, p in enumerate(run.passes[: min(schedules, default=0)]):
            known = p.name in _TIMED or (p.name in _STRUCTURAL and number)
            if not (known or (type(p) is LowerKernels and not number)):
                msg = f"{p.name} may depend on them"
                raise _ApartError(msg)
        if any(rank.ops is None for rank in run.model.program.classes):
            msg = "launches are given"
            raise _ApartError(msg)

    def _families(self) -> tuple[list[Family], list[int]]:
        numbers = self._numbers()
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
                made += 1
            family, alike = self._family(known.pop(0), numbers, left)
            if family is not None:
                found.append(family)
                left = left[~np.isin(left, family.members)]
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
        """Return the setting of a member, lowered."""
        made = Lowered.of(self.base.made(self._bind(member)))
        del self.base.lowered[: 1 - _MOST_LOWERED]
        self.base.lowered.append(made)
        return made

    def _bind(self, member: int) -> edits.Bind:
        """Return the edit that leads to the size of a member."""
        one = {name: values.item(member) for name, values in self.sizes.items()}
        return bind_of(one)

    def _numbers(self) -> Mapping[str, int | Many]:
        """Return the numbers of the symbols at all sizes.

        Raises:
            PerfcError: as `perfc.analyze` of one of the sizes.

        """
        model, first = self.base.run.model, self._bind(0)
        asked = self.base.sizes.changed(first, model)
        sizes = {name: many(values) for name, values in self.sizes.items()}
        dims = {**asked.dims, **{n: sizes[f"{DIM}{n}"] for n in dict(first.dims)}}
        batch = sizes.get("batch", asked.batch)
        try:
            wanted = Dimensions(batch, asked.pooling, dims)
            return bind_dimensions(model.unbound, wanted, model.symbols).bindings
        except Exception:  # noqa: BLE001 - of many numbers: one by one will tell
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

    def _family(
        self, lowered: Lowered, numbers: Mapping[str, int | Many], left: Indices
    ) -> tuple[Family | None, Indices]:
        """Return those of the members left whose tasks are those of a setting.

        And a number that members have in common whose sites have the same tasks.
        """
        setting = lowered.setting
        if setting.step.shares:
            msg = "tasks slow each other down (contention)"
            raise _ApartError(msg)
        fits = np.zeros(self._count, dtype=np.bool_)
        fits[left] = True
        alike = np.zeros(self._count, dtype=np.intp)
        repeated: list[Repeated] = []
        for settings, recipe in lowered.recipes:
            if settings not in self._sites:
                self._sites[settings] = ManySites(self._count, numbers, settings)
            repeated.append(self._sites[settings].repeat(recipe))
            fits &= repeated[-1].fits
            both = alike * self._count + repeated[-1].alike
            _, alike = np.unique(both, return_inverse=True)
        if not fits.any():
            return None, alike
        self._prices.note(
            noted
            for each in repeated
            for launches in each.kernels
            for parts in launches
            for noted in parts
        )
        seconds = [self._of_kernels(each, fits, 0) for each in repeated]
        if self.base.run.target.power is not None:
            joules = [self._of_kernels(each, fits, 1) for each in repeated]
            self._keep_within_cap(setting.step, seconds, joules, fits)
        if not fits.any():
            return None, alike
        members = np.flatnonzero(fits)
        return self._with_seconds(setting, seconds, members), alike

    def _of_kernels(self, repeated: Repeated, fits: Flags, which: int) -> list[_Value]:
        """Return a number of each kernel of a graph; note where launches disagree."""
        found: list[_Value] = []
        for launches in repeated.kernels:
            each = [self._of_launch(parts, which) for parts in launches]
            for other in each[1:]:
                if other is not each[0]:
                    differs = np.not_equal(other, each[0])
                    fits &= ~differs
            found.append(each[0])
        return found

    def _of_launch(self, parts: Sequence[Noted], which: int) -> _Value:
        if len(parts) == 1 and len(parts[0][0]) == self._count:
            return self._prices.of(parts[0])[which]
        found = np.zeros(self._count)
        for noted in parts:
            found[noted[0]] = self._prices.of(noted)[which]
        return found

    def _keep_within_cap(
        self,
        step: Step,
        seconds: Sequence[Sequence[_Value]],
        joules: Sequence[Sequence[_Value]],
        fits: Flags,
    ) -> None:
        """Drop members whose board may draw more than its cap: kernels get slower.

        As `sustained-clock` finds out; no schedule takes less than its busiest stream.
        """
        power = self.base.run.target.power
        assert power is not None  # noqa: S101 - for types
        least_s, most_j = np.zeros(self._count), np.zeros(self._count)
        for hosted, own_s, own_j in zip(step.hosted, seconds, joules, strict=True):
            graph, found = hosted.graph, sources(hosted.graph)
            stated_s = np.nan_to_num(found.stated_s)
            stated_s[found.host] = hosted.host_s[found.host]
            resource = np.array(graph.resource)
            busy_s: list[_Value] = [*np.bincount(resource, stated_s).tolist()]
            drawn_j: Floats = np.zeros(self._count)
            tasks: list[int] = found.device.tolist()
            kernels: list[int] = found.kernel.tolist()
            for task, kernel in zip(tasks, kernels, strict=True):
                busy_s[resource[task]] = busy_s[resource[task]] + own_s[kernel]
                np.add(drawn_j, own_j[kernel], out=drawn_j)
            for one_s in busy_s:
                least_s = np.maximum(least_s, one_s)
            most_j = np.maximum(most_j, drawn_j)
        over = most_j > (power.cap_watts - power.idle_watts) * least_s * _SURELY
        if (over & fits).any():
            self._apart("the cap of the board's power holds some of them down")
            self._over |= over & fits
            fits &= ~over

    def _with_seconds(
        self, setting: Setting, seconds: Sequence[Sequence[_Value]], members: Indices
    ) -> Family:
        state, step = self.state.moved_to(setting), setting.step
        found: list[_Value] = [*state.seconds]
        offsets, places = step.timeline.offsets, step.network.places
        for hosted, offset, own in zip(step.hosted, offsets, seconds, strict=True):
            chosen = [s[members] if isinstance(s, np.ndarray) else s for s in own]
            known = sources(hosted.graph)
            pairs = zip(known.device.tolist(), known.kernel.tolist(), strict=True)
            for task, kernel in pairs:
                if task + offset not in state.stated:
                    found[places[task + offset]] = chosen[kernel]
        return Family(state, members.tolist(), found)


_SURELY = 1 - 1e-9
"""Within rounding of the cap it is asked whether it is kept."""


@attrs.define(eq=False)
class _Prices:
    """What kernels take and draw, each worked out once.

    Attributes:
        target: The target.
        memory: What was worked out before.

    """

    target: Target
    memory: Memory
    _known: dict[Hashable, tuple[_Value, _Value]] = attrs.field(
        factory=dict["Hashable", "tuple[_Value, _Value]"], init=False
    )
    _keys: dict[int, tuple[ManyKernels, Hashable]] = attrs.field(
        factory=dict[int, "tuple[ManyKernels, Hashable]"], init=False
    )
    """Kernels by their identity, which they keep as long as they stand here."""

    def of(self, noted: Noted) -> tuple[_Value, _Value]:
        """Return the seconds of a kernel, and its joules above an idle board's."""
        return self._known[self._key(noted)]

    def note(self, all_noted: Iterable[Noted]) -> None:
        """Price kernels, those that are many all in one table.

        Raises:
            PerfcError: as pricing does.

        """
        columns: dict[Hashable, Noted] = {}
        single: dict[Hashable, Sequence[Kernel]] = {}
        for noted in all_noted:
            key = self._key(noted)
            if key in self._known:
                continue
            rows, kernel = noted
            if not isinstance(kernel, Kernel):
                single[key] = kernel
            elif kernel is key:
                single[key] = [kernel]
            elif kernel.known:
                columns[key] = noted
            else:
                single[key] = [*kernels_of(kernel, len(rows))]
        self._price_one_by_one(single)
        self._price_columns(columns)

    def _key(self, noted: Noted) -> Hashable:
        rows, kernel = noted
        found = self._keys.get(id(kernel))
        if found is None:
            key: Hashable = id(kernel)
            if isinstance(kernel, Kernel):
                key = (rows.tobytes(), token(kernel)) if has_many(kernel) else kernel
            found = self._keys[id(kernel)] = kernel, key
        return found[1]

    def _price_one_by_one(self, single: Mapping[Hashable, Sequence[Kernel]]) -> None:
        every = [kernel for kernels in single.values() for kernel in kernels]
        if not every:
            return
        self.memory.note([(self.target, every)])
        prices = self.memory.prices_of(self.target)
        seconds = np.array([prices[kernel][0][0] for kernel in every])
        joules = self._joules(KernelTable(every), seconds)
        first = 0
        for key, kernels in single.items():
            rows = slice(first, first := first + len(kernels))
            alone = isinstance(key, Kernel)
            self._known[key] = (
                (float(seconds[rows][0]), float(joules[rows][0]))
                if alone
                else (seconds[rows], joules[rows])
            )

    def _price_columns(self, columns: Mapping[Hashable, Noted]) -> None:
        if not columns:
            return
        kernels = [cast("Kernel", kernel) for _, kernel in columns.values()]
        counts = [len(rows) for rows, _ in columns.values()]
        table, places = column_table(kernels, counts)
        models, _ = find_cost_models()
        seconds = price_table(table, self.target, models).seconds
        joules = self._joules(table, seconds)
        for key, rows in zip(columns, places, strict=True):
            self._known[key] = seconds[rows], joules[rows]

    def _joules(self, table: KernelTable, seconds: Floats) -> Floats:
        power = self.target.power
        if power is None:
            return np.zeros(len(seconds))
        at = draws_of(table, seconds, self.target, power).at(power.burst_watts)
        joules: Floats = seconds * at.watts * at.slowdown
        return joules
