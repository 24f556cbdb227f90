"""How a graph was lowered, and lowering it again at other sizes.

Ops are lowered *site* by site: an op applied to operands of given types and
layouts. Types are kept as the graph has them, symbols included, so the sites of
a graph are the same at every batch. A `Recipe` remembers them; at other sizes it
works out their kernels again and, where every site still launches what it did,
puts them into the launch graph that it has.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.ir import AnnotationKey, Graph, Kernel, LaunchGraph, Record, TensorType
from perfc.ir.copying import bind_record
from perfc.ir.types import MemorySpace
from perfc.passes.lowering.eager import (
    Eager,
    Launch,
    Layout,
    Settings,
    Site,
    Tensor,
    dtype_name,
    eager_launches,
    input_launch,
)

Tasks: TypeAlias = tuple[str, tuple[object, ...], tuple[Layout, ...]]
"""Name of an op for the host, its calls and tasks, and how its results lie."""

COPY = "aten::to"
"""Name of the copy of an input."""

Slot: TypeAlias = Tensor
"""What is known of a value at every size: a tensor whose type may have symbols."""


@attrs.define(eq=False)
class Binding:
    """The numbers of the symbols, and what tensors and records become by them.

    Attributes:
        numbers: Symbol and number.
        settings: What is assumed of PyTorch and of the device.
        fixed: Tensors without symbols, the same at every binding.
        shared: Whether sites are asked for more than once: by several graphs, or by
            several recipes in turn.

    """

    numbers: Mapping[str, int]
    settings: Settings
    fixed: dict[Slot, Tensor] = attrs.field(factory=dict[Slot, Tensor])
    shared: bool = False
    _eagers: dict[SiteKey, Eager] = attrs.field(
        factory=dict["SiteKey", Eager], init=False
    )
    _known: dict[SiteKey, Eager] | None = attrs.field(default=None, init=False)
    _types: dict[TensorType, TensorType] = attrs.field(
        factory=dict[TensorType, TensorType], init=False
    )
    _tensors: dict[Slot, Tensor] = attrs.field(factory=dict[Slot, Tensor], init=False)
    _copies: dict[TensorType, Launch] = attrs.field(
        factory=dict[TensorType, Launch], init=False
    )

    def type(self, type_: TensorType) -> TensorType:
        """Return *type_* with numbers for symbols."""
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = type_.bind(self.numbers)
        return found

    def tensor(self, slot: Slot) -> Tensor:
        """Return the tensor of a slot, as the rules know it."""
        found = self.fixed.get(slot) or self._tensors.get(slot)
        if found is None:
            type_ = self.type(slot.type)
            found = Tensor(type_, slot.layout, slot.parameter, slot.known)
            tensors = self.fixed if type_ is slot.type else self._tensors
            tensors[slot] = found
        return found

    def copy_kernel(self, slot: Slot) -> Launch | None:
        """Return the copy of an input, or None if there is nothing to copy."""
        found = self._copies.get(slot.type)
        if found is None:
            type_ = self.type(slot.type)
            nbytes = type_.nbytes
            if type_.space is not MemorySpace.DEVICE or not nbytes:
                return None
            dtype = dtype_name(type_.dtype)
            found = input_launch(nbytes, dtype, self.settings.inputs)
            self._copies[slot.type] = found
        return found

    def eager(self, key: SiteKey) -> Eager:
        """Return the launches of eager PyTorch at a site, at these sizes."""
        if not self.shared:
            return eager_launches(self._site(key))
        found = self._eagers.get(key)
        if found is None:
            found = self._eagers[key] = eager_launches(self._site(key))
        return found

    def known_eager(self, key: SiteKey) -> Eager:
        """Return the launches at a site that other graphs may have had, too.

        One that is edited has the sites that it had, but for some.
        """
        if self._known is None:
            self._known = _known_launches(self.settings, tuple(self.numbers.items()))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_SITES:
                self._known.clear()
            found = self._known[key] = eager_launches(self._site(key))
        return found

    def _site(self, key: SiteKey) -> Site:
        op, attributes, operands, results = key
        return Site(
            op,
            bind_record(attributes, self.numbers),
            tuple([self.tensor(slot) for slot in operands]),
            tuple([self.type(slot.type) for slot in results]),
            self.settings,
        )


@functools.lru_cache(8)
def _known_launches(
    settings: Settings, numbers: tuple[tuple[str, int], ...]
) -> dict[SiteKey, Eager]:
    return {}


_MOST_SITES = 2048


@functools.lru_cache(4096)
def slot_of(
    type_: TensorType,
    layout: Layout = Layout.CONTIGUOUS,
    *,
    parameter: bool = False,
    known: bool = False,
) -> Slot:
    """Return a slot: equal ones are one object, which lookups find equal at once."""
    return Slot(type_, layout, parameter, known)


SiteKey: TypeAlias = tuple[str, Record, tuple[Slot, ...], tuple[Slot, ...]]
"""Op, attributes, operands, results."""


@attrs.frozen(eq=False)
class Lowered:
    """What a site, or the copy of an input, became.

    Attributes:
        name: Name of the op for the host.
        launches: What it launches.
        kernels: Index of the kernel of each launch.
        layouts: How its results lie in memory.

    """

    name: str
    launches: tuple[Launch, ...]
    kernels: tuple[int, ...] = ()
    layouts: tuple[Layout, ...] = ()

    @functools.cached_property
    def own_tasks(self) -> Tasks:
        """Its name, calls and tasks, and layouts: all but its kernels."""
        return self.tasks(self.name, self.launches, self.layouts)

    @staticmethod
    def tasks(
        name: str, launches: Sequence[Launch], layouts: tuple[Layout, ...]
    ) -> Tasks:
        """Return all of what a site becomes but its kernels."""
        each = [
            (a.call, a.kind, a.detail, a.waits, a.op, a.stream, a.after, a.awaited)
            for a in launches
        ]
        return name, tuple(each), layouts


_MOST_DEVICES = 16
"""Devices whose launch graphs a recipe keeps."""


@attrs.frozen(eq=False)
class Recipe:
    """How a graph was lowered: enough to lower it again at other sizes.

    Attributes:
        graph: The launch graph that was made.
        numbers: The numbers of the symbols it was made for.
        settings: What was assumed of PyTorch and of the device.
        copies: Inputs and their copies, None for one that is not copied.
        sites: Sites and what they became.
        fixed: Tensors without symbols.
        version: Version of the op graph.

    """

    graph: LaunchGraph
    numbers: Mapping[str, int]
    settings: Settings
    copies: Mapping[Slot, Lowered | None]
    sites: Mapping[SiteKey, Lowered]
    fixed: dict[Slot, Tensor]
    version: int
    _devices: dict[Settings, LaunchGraph] = attrs.field(
        factory=dict["Settings", LaunchGraph], init=False, repr=False
    )
    """Launch graphs of the same sizes on other devices."""

    @functools.cached_property
    def _alike(
        self,
    ) -> tuple[Mapping[int, Kernel], Sequence[tuple[SiteKey, Lowered]]]:
        """Kernels of sites that are the same at all sizes, and the other sites."""
        kernels: dict[int, Kernel] = {}
        others: list[tuple[SiteKey, Lowered]] = []
        for key, lowered in self.sites.items():
            if _has_symbols(key):
                others.append((key, lowered))
            else:
                kernels.update((n, self.graph.kernels[n]) for n in lowered.kernels)
        return kernels, others

    def repeat(self, binding: Binding) -> LaunchGraph | None:
        """Return the launch graph at other sizes; None if its tasks are others.

        Of what is assumed of the device, SMs alone may be others.
        """
        same = binding.settings is self.settings or binding.settings == self.settings
        if binding.numbers == self.numbers and same:
            return self.graph
        resized = binding.numbers != self.numbers
        if not resized and binding.settings in self._devices:
            return self._devices[binding.settings]
        binding.fixed = self.fixed
        found = dict(self._alike[0])
        if not (self._copy(binding, found) and self._apply(binding, found)):
            return None
        kernels = [found[i] for i in range(len(found))]
        if _any_alike(kernels):
            return None  # signatures that differed no longer do
        made = self.graph.with_kernels(kernels)
        if not resized and len(self._devices) < _MOST_DEVICES:
            self._devices[binding.settings] = made
        return made

    def _copy(self, binding: Binding, found: dict[int, Kernel]) -> bool:
        """Note the copies' kernels; False if others are copied than before."""
        for slot, copy in self.copies.items():
            launch = binding.copy_kernel(slot)
            if (launch is None) != (copy is None):
                return False
            if launch and copy and not _note(found, copy, Eager(COPY, (launch,))):
                return False
        return True

    def _apply(self, binding: Binding, found: dict[int, Kernel]) -> bool:
        """Note the sites' kernels; False if one launches something else."""
        for key, lowered in self._alike[1]:
            eager = binding.eager(key)
            if not _note(found, lowered, eager):
                return False
        return True


def _has_symbols(key: SiteKey) -> bool:
    _, attributes, operands, results = key
    if attributes.is_symbolic:
        return True
    return any(slot.type.symbols() for slot in (*operands, *results))


def _any_alike(kernels: Sequence[Kernel]) -> bool:
    """Whether two kernels are equal; few are even where their work is."""
    works = {(k.op, k.work.flops, k.work.bytes_read) for k in kernels}
    return len(works) < len(kernels) and len(set(kernels)) < len(kernels)


def _note(found: dict[int, Kernel], lowered: Lowered, eager: Eager) -> bool:
    """Note the new kernels; False if tasks differ, or two kernels want one place."""
    tasks = lowered.tasks(eager.name, eager.launches, eager.layouts)
    if tasks != lowered.own_tasks:
        return False
    for launch, index in zip(eager.launches, lowered.kernels, strict=True):
        kernel = found.setdefault(index, launch.kernel)
        if kernel is not launch.kernel and kernel != launch.kernel:
            return False
    return True


def recipe_of(known: Recipes, graph: LaunchGraph) -> Recipe:
    """Return the recipe that a launch graph was made by.

    Args:
        known: `RECIPES` of the op graph.
        graph: What `lower-kernels` has just made of that.

    """
    for recipes in known.values():
        for recipe in recipes:
            if recipe.graph is graph.structure:
                return recipe
    msg = f"{graph} was made by no recipe"
    raise LookupError(msg)


Recipes: TypeAlias = Mapping[object, tuple[Recipe, ...]]
"""How a graph was lowered, by the options and settings, the last ones first.

SMs are no part of those: they decide on few kernels.
"""

RECIPES: AnnotationKey[Recipes] = AnnotationKey(
    "launch.recipes", Graph, per_scenario=False
)
"""How a graph was lowered."""
