"""The sites of a graph at many sizes at once, by the rules that lower them at one.

A rule runs on numbers that are many (`perfc.costmodels.kernels.Many`). Where it asks
what not all sizes answer alike, sizes are parted, and it runs for each part; what it
cannot do with many numbers it does size by size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels.kernels import (
    Flags,
    Indices,
    Many,
    ManyError,
    SplitError,
    many_of,
    parted,
)
from perfc.ir import Kernel
from perfc.passes.lowering.eager import Eager, Settings, Tensor
from perfc.passes.lowering.recipe import (
    COPY,
    Binding,
    Lowered,
    Recipe,
    SiteKey,
    Slot,
    Tasks,
)

_FEW = 3
"""Sizes that are looked at one by one sooner than together."""
_MOST_PARTS = 24
"""Parts of sizes, after which the rest of a site is looked at size by size."""

ManyKernels: TypeAlias = Kernel | Sequence[Kernel]
"""A kernel whose numbers may be many, or one kernel a size."""


@attrs.frozen(eq=False)
class Part:
    """What a site, or the copy of an input, becomes at some of the sizes.

    Attributes:
        rows: Which sizes, ascending.
        eager: Name, calls and tasks, layouts; of the kernels of one size, or of all.
        kernels: The kernels of each launch.

    """

    rows: Indices
    eager: Eager
    kernels: tuple[ManyKernels, ...]

    @property
    def tasks(self) -> Tasks:
        """All of it but the kernels."""
        return Lowered.tasks(self.eager.name, self.eager.launches, self.eager.layouts)


Lower: TypeAlias = Callable[[Binding], Eager]
"""How a site is lowered."""

Noted: TypeAlias = tuple[Indices, ManyKernels]
"""Some sizes, and a kernel at those."""


@attrs.frozen(eq=False)
class Repeated:
    """A recipe at many sizes.

    Attributes:
        fits: Whether the tasks are those of the recipe, at each size.
        kernels: By index of the kernel, what each launch has there: lists of sizes and
            kernels. All launches have to have the same, or the recipe does not fit.
        alike: A number that sizes have in common at which every site has the same
            tasks.

    """

    fits: Flags
    kernels: list[list[list[Noted]]]
    alike: Indices


@attrs.define(eq=False)
class ManySites:
    """The sites of a graph, each worked out at all sizes when it is first asked for.

    Attributes:
        count: How many sizes there are.
        numbers: Numbers of the symbols.
        settings: What is assumed of PyTorch and of the device; its SMs may be many
            numbers.
        one_by_one: Ops whose rules cannot be run at many sizes together.

    """

    count: int
    numbers: Mapping[str, int | Many]
    settings: Settings
    one_by_one: set[str] = attrs.field(factory=set[str], init=False)
    _fixed: dict[Slot, Tensor] = attrs.field(factory=dict["Slot", Tensor], init=False)
    _bindings: dict[bytes, Binding] = attrs.field(
        factory=dict[bytes, Binding], init=False
    )
    _parts: dict[SiteKey, list[Part]] = attrs.field(
        factory=dict["SiteKey", "list[Part]"], init=False
    )
    _copies: dict[Slot, list[Part]] = attrs.field(
        factory=dict["Slot", "list[Part]"], init=False
    )
    _varies: dict[Slot, bool] = attrs.field(factory=dict["Slot", bool], init=False)

    @functools.cached_property
    def every(self) -> Indices:
        """All sizes."""
        return np.arange(self.count)

    def repeat(self, recipe: Recipe) -> Repeated:
        """Lower by a recipe at all sizes, as `Recipe.repeat` does at one."""
        fits = np.ones(self.count, dtype=np.bool_)
        alike = np.zeros(self.count, dtype=np.intp)
        found = Repeated(fits, [[] for _ in recipe.graph.kernels], alike)
        for slot, copy in recipe.copies.items():
            lowered = copy or Lowered(COPY, ())
            _note(self.copies(slot), lowered, found)
        for key, lowered in recipe.sites.items():
            if self.site_varies(key):
                _note(self.site(key), lowered, found)
            else:
                _note([_as_it_is(lowered, self.every)], lowered, found)
        return found

    @property
    def noted(self) -> Iterator[Noted]:
        """All kernels of the sites that have been asked for, whoever launches them."""
        for parts in (*self._copies.values(), *self._parts.values()):
            for part in parts:
                yield from ((part.rows, kernel) for kernel in part.kernels)

    def site_varies(self, key: SiteKey) -> bool:
        """Whether what a site is depends on the sizes."""
        _, attributes, operands, results = key
        if many_of(self.settings.sm_count) is not None:
            return True
        return attributes.is_symbolic or any(map(self._slot_varies, operands + results))

    def _slot_varies(self, slot: Slot) -> bool:
        found = self._varies.get(slot)
        if found is None:
            varying = {n for n, number in self.numbers.items() if type(number) is Many}
            found = self._varies[slot] = not varying.isdisjoint(slot.type.symbols())
        return found

    def site(self, key: SiteKey) -> list[Part]:
        """Return the parts of a site."""
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = self._worked_out(
                key[0], lambda binding: binding.eager(key)
            )
        return found

    def copies(self, slot: Slot) -> list[Part]:
        """Return the parts of the copy of an input; of no kernels, where it is none."""

        def copied(binding: Binding) -> Eager:
            launch = binding.copy_kernel(slot)
            return Eager(COPY, () if launch is None else (launch,))

        known = self._copies.get(slot)
        if known is None:
            known = self._copies[slot] = self._worked_out(COPY, copied)
        return known

    def _worked_out(self, op: str, lower: Lower) -> list[Part]:
        """Lower at all sizes, parted where a rule asks what they answer otherwise."""
        found: list[Part] = []
        todo = [self.every]
        while todo:
            rows = todo.pop()
            if len(rows) <= _FEW or len(found) + len(todo) > _MOST_PARTS:
                found += self._apart(lower, rows)
                continue
            try:
                eager = lower(self._binding(rows))
            except SplitError as split:
                todo += rows[split.mask], rows[~split.mask]
            except ManyError:
                self.one_by_one.add(op)
                found += self._apart(lower, rows)
            else:
                kernels = tuple([launch.kernel for launch in eager.launches])
                found.append(Part(rows, eager, kernels))
        return found

    def _apart(self, lower: Lower, rows: Indices) -> Iterator[Part]:
        """Lower at each size; yield parts of the same calls and tasks."""
        groups: dict[Tasks, tuple[Eager, list[int], list[Sequence[Kernel]]]] = {}
        for at, row in enumerate(rows.tolist()):
            eager = lower(self._binding(rows[at : at + 1]))
            tasks = Lowered.tasks(eager.name, eager.launches, eager.layouts)
            _, members, kernels = groups.setdefault(tasks, (eager, [], []))
            members.append(row)
            kernels.append([launch.kernel for launch in eager.launches])
        for eager, members, kernels in groups.values():
            yield Part(np.array(members), eager, tuple(zip(*kernels, strict=True)))

    def _binding(self, rows: Indices) -> Binding:
        key = rows.tobytes()
        found = self._bindings.get(key)
        if found is None:
            numbers = {name: parted(n, rows) for name, n in self.numbers.items()}
            settings = self.settings
            if many_of(settings.sm_count) is not None:
                own = parted(settings.sm_count, rows)
                settings = attrs.evolve(settings, sm_count=own)
            found = Binding(numbers, settings, self._fixed)
            self._bindings[key] = found
        return found


def _note(parts: Sequence[Part], lowered: Lowered, found: Repeated) -> None:
    """Note the kernels of a site, and the sizes at which it is something else."""
    expected = lowered.own_tasks
    tasks = [part.tasks for part in parts]
    numbers = {own: number for number, own in enumerate(dict.fromkeys(tasks))}
    good: list[Part] = []
    for part, own in zip(parts, tasks, strict=True):
        if own == expected:
            good.append(part)
        else:
            found.fits[part.rows] = False
        if len(numbers) > 1:
            found.alike[part.rows] = (
                found.alike[part.rows] * len(numbers) + numbers[own]
            )
    if len(numbers) > 1:
        _, found.alike[:] = np.unique(found.alike, return_inverse=True)
    for place, index in enumerate(lowered.kernels):
        noted = [(part.rows, part.kernels[place]) for part in good]
        found.kernels[index].append(noted)


def _as_it_is(lowered: Lowered, rows: Indices) -> Part:
    eager = Eager(lowered.name, lowered.launches, lowered.layouts)
    return Part(rows, eager, tuple([launch.kernel for launch in lowered.launches]))
