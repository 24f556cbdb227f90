"""Channels of a convolutional network, in the groups that are pruned together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.ir import Graph, Node, Value, node_kinds
from perfc.ir.dims import Dim, product
from perfc.ir.opdef import Trait

CHANNELS = 1
"""Axis of the channels of images [n, c, h, w], and of the features of rows [n, c]."""


@attrs.frozen
class Run:
    """Consecutive elements of an axis: the channels of one group.

    Attributes:
        group: Which.
        repeat: Elements of a channel: the pixels of an image that was flattened.

    """

    group: int
    repeat: int = 1


Runs = tuple[Run, ...]


@attrs.define(eq=False)
class ChannelGroups:
    """The channels that convolutions make, in groups that are pruned as one.

    A convolution makes a group. Channels that meet, as in a residual addition, are one
    group; a depthwise convolution has the group of its input. Channels that somebody
    reads who needs all of them stay: results of the graph, inputs of grouped
    convolutions and of ops that are not known here.

    Attributes:
        graph: A forward graph with types.
        axes: Runs of the axes of values that have channels.
        depthwise: Convolutions with as many groups as channels.
        flattened: Reshapes of images to rows whose shape is an operand.

    """

    graph: Graph
    axes: dict[Value, dict[int, Runs]] = attrs.field(
        factory=dict[Value, dict[int, Runs]], init=False
    )
    depthwise: list[Node] = attrs.field(factory=list[Node], init=False)
    flattened: list[Node] = attrs.field(factory=list[Node], init=False)
    _sizes: list[int] = attrs.field(factory=list[int], init=False)
    _parents: list[int] = attrs.field(factory=list[int], init=False)
    _kept: set[int] = attrs.field(factory=set[int], init=False)
    _passed: set[Node] = attrs.field(factory=set[Node], init=False)
    """Views and casts of parameters, whose channels are those of the parameter."""

    def __attrs_post_init__(self) -> None:
        """Follow the channels through the graph."""
        others = [node for node in self.graph if not self._follow(node)]
        for node in others:
            if node not in self._passed:
                self._keep(node.operands)
        self._keep(self.graph.outputs)

    def group_of(self, run: Run) -> int:
        """Return the number of the group that a run has become part of."""
        group = run.group
        while self._parents[group] != group:
            group = self._parents[group]
        return group

    @property
    def prunable(self) -> Mapping[int, int]:
        """Channels of each group that may be pruned."""
        kept = {self.group_of(Run(group)) for group in self._kept}
        roots = (g for g, parent in enumerate(self._parents) if parent == g)
        return {group: self._sizes[group] for group in roots if group not in kept}

    def length(self, runs: Runs, channels: Mapping[int, int]) -> int:
        """Return the length of an axis once some groups have so many *channels*."""
        found = 0
        for run in runs:
            group = self.group_of(run)
            found += channels.get(group, self._sizes[group]) * run.repeat
        return found

    def _follow(self, node: Node) -> bool:
        """Note the channels of a node's results; False where that is not known."""
        rule: Rule | None
        if all(operand not in self.axes for operand in node.operands):
            rule = _conv if node_kinds.is_convolution(node) else None
        elif node_kinds.has_trait(node, Trait.ELEMENTWISE):
            rule = _elementwise
        elif node_kinds.has_trait(node, Trait.KEEPS_ORDER):
            rule = _flatten
        else:
            rule = _RULES.get(node.op)
        return rule is not None and rule(self, node)

    def runs_of(self, value: Value, axis: int = CHANNELS) -> Runs | None:
        """Return the channels of an axis, if they are followed."""
        return self.axes.get(value, {}).get(axis)

    def fresh(self, size: int) -> Runs:
        """Return the run of a new group."""
        group = len(self._sizes)
        self._sizes.append(size)
        self._parents.append(group)
        return (Run(group),)

    def mark(self, value: Value, axis: int, runs: Runs) -> None:
        """Note the channels of an axis of a parameter, or of a view or cast of one.

        The channels stay where it is no parameter, or is computed of one.
        """
        before = self.axes.setdefault(value, {}).setdefault(axis, runs)
        self.unite(before, runs)
        producer = value.producer
        if producer is None or not (
            node_kinds.permutation(producer) is not None
            or node_kinds.has_trait(producer, Trait.CONVERTS)
        ):
            if value not in self.graph.parameters:
                self.keep(runs)
            return
        self._passed.add(producer)
        if producer.op == "transpose":
            axis = producer.attributes.integers("perm")[axis]
        self.mark(producer.operands[0], axis, runs)

    def unite(self, first: Runs, second: Runs) -> None:
        """Let channels that meet be the same groups; all stay where they do not fit."""
        if self._form(first) != self._form(second):
            self.keep((*first, *second))
            return
        for one, other in zip(first, second, strict=True):
            self._parents[self.group_of(other)] = self.group_of(one)

    def _form(self, runs: Runs) -> Sequence[tuple[int, int]]:
        return [(self._sizes[self.group_of(run)], run.repeat) for run in runs]

    def keep(self, runs: Iterable[Run]) -> None:
        """Let these channels stay."""
        self._kept.update(run.group for run in runs)

    def _keep(self, values: Iterable[Value]) -> None:
        for value in values:
            for runs in self.axes.get(value, {}).values():
                self.keep(runs)


def _conv(groups: ChannelGroups, node: Node) -> bool:
    """Make a group; a depthwise convolution goes on with its input's."""
    x, weight = node.operands[:2]
    count, runs = node.attributes.integer("groups", 1), groups.runs_of(x)
    channels_out, channels_in = _sizes(weight)[:2]
    if not isinstance(channels_out, int):
        return False
    is_depthwise = count == channels_out and channels_in == 1 and count > 1
    made = runs if is_depthwise and runs else groups.fresh(channels_out)
    if is_depthwise and runs:
        groups.depthwise.append(node)
    elif count > 1:
        groups.keep((*made, *(runs or ())))
    elif runs:
        groups.mark(weight, 1, runs)
    for parameter in node.operands[1:]:
        groups.mark(parameter, 0, made)
    groups.axes[node.results[0]] = {CHANNELS: made}
    return True


def _elementwise(groups: ChannelGroups, node: Node) -> bool:
    """Unite the channels of operands that have as many."""
    result = node.results[0]
    shape = _sizes(result)
    wide = [o for o in node.operands if _sizes(o)[:2] == shape[:2]]
    found = next(filter(None, map(groups.runs_of, wide)), None)
    if found is None:
        return False
    for operand in node.operands:
        sizes = _sizes(operand)
        at = len(sizes) - len(shape) + CHANNELS
        if at < 0 or sizes[at] == 1:
            continue  # the same number for all channels
        if operand in groups.axes:
            groups.unite(found, groups.axes[operand].get(at, ()))
        else:
            groups.mark(operand, at, found)
    groups.axes[result] = {CHANNELS: found}
    return True


def _per_channel(groups: ChannelGroups, node: Node) -> bool:
    """Go on with the channels of operand 0; others are statistics of each channel."""
    runs = groups.runs_of(node.operands[0])
    if runs is None:
        return False
    channels = _sizes(node.operands[0])[CHANNELS]
    for parameter in node.operands[1:]:
        if _sizes(parameter) == (channels,):
            groups.mark(parameter, 0, runs)
    for result in node.results:
        statistic = _sizes(result) == (channels,)
        groups.axes[result] = {0 if statistic else CHANNELS: runs}
    return True


def _reduce(groups: ChannelGroups, node: Node) -> bool:
    """Go on with the channels where only pixels are reduced."""
    runs, rank = groups.runs_of(node.operands[0]), len(_sizes(node.operands[0]))
    axes = {axis % rank for axis in node.attributes.integers("axes") or range(rank)}
    if runs is None or not all(axis > CHANNELS for axis in axes):
        return False
    groups.axes[node.results[0]] = {CHANNELS: runs}
    return True


def _flatten(groups: ChannelGroups, node: Node) -> bool:
    """Go on with features: each channel has its pixels behind each other."""
    runs = groups.runs_of(node.operands[0])
    before, after = _sizes(node.operands[0]), _sizes(node.results[0])
    if runs is None or len(after) <= CHANNELS:
        return False
    if before == after:
        groups.axes[node.results[0]] = {CHANNELS: runs}
        return True
    pixels = product(before[CHANNELS + 1 :])
    is_flat = len(after) == CHANNELS + 1 and after[CHANNELS] == pixels * before[1]
    if not is_flat or after[0] != before[0] or not isinstance(pixels, int):
        return False
    wide = tuple(Run(run.group, run.repeat * pixels) for run in runs)
    groups.axes[node.results[0]] = {CHANNELS: wide}
    if node.operands[1:]:
        groups.flattened.append(node)
        return node_kinds.is_constant(node.operands[1].producer)
    return True


def _concat(groups: ChannelGroups, node: Node) -> bool:
    """Put channels behind each other."""
    rank = len(_sizes(node.results[0]))
    found = [groups.runs_of(operand) for operand in node.operands]
    if node.attributes.integer("axis") % rank != CHANNELS or None in found:
        return False
    runs = tuple(run for some in found if some for run in some)
    groups.axes[node.results[0]] = {CHANNELS: runs}
    return True


def _linear(groups: ChannelGroups, node: Node) -> bool:
    """End: features that a linear layer makes all stay."""
    runs = groups.runs_of(node.operands[0])
    if runs is None or len(_sizes(node.operands[0])) != CHANNELS + 1:
        return False
    axis = 0 if node.attributes.flag("weight_is_kn") else 1
    groups.mark(node.operands[1], axis, runs)
    return True


def _sizes(value: Value) -> tuple[Dim, ...]:
    return () if value.type is None else value.type.shape


Rule: TypeAlias = Callable[[ChannelGroups, Node], bool]
"""Notes the channels of a node's results; False where that is not known."""

_RULES: Mapping[str, Rule] = {
    "conv": _conv,
    "batch_norm": _per_channel,
    "pool": _per_channel,
    "dropout": _per_channel,
    "resize": _per_channel,
    "reduce": _reduce,
    "concat": _concat,
    "linear": _linear,
}
