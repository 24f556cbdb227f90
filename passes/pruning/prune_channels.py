"""The pass `prune-channels`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, AttrValue, Graph, Node, Program, UsageError
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.graphs import is_training_step
from perfc.passes.pruning.channel_groups import CHANNELS, ChannelGroups

UNIFORM, RANDOM = CRITERIA = ("uniform", "random")


@attrs.frozen
class PruneChannels(Transform):
    """Take away channels of convolutions, and all that reads or makes them.

    As structured pruning leaves a network: filters, the channels of the batch norms and
    depthwise convolutions behind them, and the inputs of later layers are gone.
    Channels that are added to each other, as around a residual block, go together. At
    least one channel of each convolution stays; logits stay whole.

    Attributes:
        share: Share of the channels to take away, from 0 to less than 1.
        criterion: `uniform` takes the share of each convolution, rounded down; `random`
            takes it of the network, evenly at random.
        seed: Of `random`.
        multiple: What is left of a group is rounded up to a multiple of so many
            channels, as far as it has them: libraries take longer for channels that
            do not fill their tiles.

    """

    name: ClassVar[str] = "prune-channels"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    share: float = 0.5
    criterion: str = UNIFORM
    seed: int = 0
    multiple: int = 1

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if not 0 <= self.share < 1:
            msg = f"share={self.share:g} of {self.name}: expected 0 or more, below 1"
            raise UsageError(msg)
        if self.criterion not in CRITERIA:
            expected = " or ".join(CRITERIA)
            msg = f"criterion={self.criterion!r} of {self.name}: expected {expected}"
            raise UsageError(msg)
        if self.multiple < 1:
            msg = f"multiple={self.multiple} of {self.name}: expected 1 or more"
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Prune every op graph."""
        for rank in program.classes:
            if rank.ops is None:
                continue
            if is_training_step(rank.ops):
                msg = (
                    f"{rank.ops}: is a training step already, and {self.name} comes "
                    "before its backward pass: prune the forward graph"
                )
                raise UsageError(msg)
            if self.share:
                self._prune(rank.ops, ctx)

    def _prune(self, graph: Graph, ctx: PassContext) -> None:
        groups = ChannelGroups(graph)
        before = groups.prunable
        if not before:
            msg = f"{self.name}: {graph} has no convolution whose channels may go"
            raise UsageError(msg)
        # How many channels of each group are left.
        if self.criterion == UNIFORM:
            gone = {g: int(self.share * n + 1e-9) for g, n in before.items()}
        else:
            every = [group for group, n in before.items() for _ in range(n)]
            count = int(self.share * len(every) + 1e-9)
            chance = random.Random(self.seed)  # noqa: S311 - no secret
            gone = Counter(chance.sample(every, count))
        after = {group: self._rounded(n, gone[group]) for group, n in before.items()}
        weights = _weights(graph)
        _shrink(graph, groups, after)
        channels = f"{sum(after.values()):,} of {sum(before.values()):,} channels"
        ctx.note(
            "pruned",
            f"{self.name}: {channels} in {len(before)} groups are left, and "
            f"{_weights(graph):,} of {weights:,} parameters and statistics",
        )

    def _rounded(self, channels: int, gone: int) -> int:
        left = max(channels - gone, 1)
        return min(-(-left // self.multiple) * self.multiple, channels)


def _weights(graph: Graph) -> int:
    sizes = (p.type.numel for p in graph.parameters if p.type)
    return sum(n for n in sizes if isinstance(n, int))


def _shrink(graph: Graph, groups: ChannelGroups, left: Mapping[int, int]) -> None:
    """Give values, depthwise convolutions and reshapes the channels that are left."""
    for value, axes in groups.axes.items():
        if value.type is None:
            continue
        sizes = list(value.type.shape)
        for axis, runs in axes.items():
            sizes[axis] = groups.length(runs, left)
        value.type = attrs.evolve(value.type, shape=tuple(sizes))
    for node in groups.depthwise:
        made = groups.runs_of(node.results[0])
        if made is not None:
            graph.set_attributes(node, groups=groups.length(made, left))
    for node in groups.flattened:
        _resize(graph, node)


def _resize(graph: Graph, node: Node) -> None:
    """Let a reshape to rows ask for the features that its result has now."""
    sizes, result = node.operands[1], node.results[0].type
    if sizes.producer is None or sizes.type is None or result is None:
        return
    samples, features = sizes.producer.attributes.dims("elements")
    if features == -1:  # it is solved for
        return
    elements = (samples, result.shape[CHANNELS])
    attributes: Mapping[str, AttrValue] = {
        "dtype": sizes.type.dtype,
        "shape": (2,),
        "elements": elements,
    }
    made = (f"{node.name}.pruned", sizes.type)
    graph.set_operand(node, 1, graph.insert(node, "constant", (), made, attributes))
