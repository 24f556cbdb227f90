"""The pass `tensor-parallel`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Node, Program, UsageError
from perfc.ir.program import RankClass
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import TYPED
from perfc.passes.parallel.tensor.tensor_layout import TensorLayout, is_of_experts
from perfc.passes.parallel.tensor.tensor_writer import TensorWriter
from perfc.passes.parallel.tensor.vocabulary_layout import VocabularyLayout
from perfc.passes.parallel.tensor.vocabulary_writer import VocabularyWriter
from perfc.passes.training import separate_vectors

AUTO = "auto"
_NAMED = 6
"""Modules that a remark names."""


@attrs.frozen
class TensorParallel(Transform):
    """Share the linear layers of a model among ranks, as Megatron-LM does.

    Of a pair of layers the first is split by columns, the second by rows; what lies
    between runs on parts: activations, attention head by head. The sums of the second
    are all-reduced in forward, and in backward the gradient of the first one's input.
    All else runs on every rank alike, as norms. The ranks are one replica of the model,
    and have one batch.

    A vocabulary is shared as by Megatron's `VocabParallelEmbedding`: each rank looks up
    the tokens of its part, the others are zeros, and the sums are all-reduced. Scores
    stay in parts up to the loss; where something else reads them they are gathered.

    It runs before `training` and before passes that make replicas.

    Attributes:
        ranks: How many ranks share the layers.
        vocabulary: Whether they share the table of tokens and the layer that scores
            them: `true`, `false`, or `auto`: if there are such, and tokens divide.

    """

    name: ClassVar[str] = "tensor-parallel"
    phase: ClassVar[Phase] = Phase.FORWARD
    shares: ClassVar[str] = "layers"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED})

    ranks: int
    vocabulary: str = AUTO

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        least = 2
        if self.ranks < least:
            msg = f"ranks={self.ranks} of {self.name}: expected at least {least}"
            raise UsageError(msg)
        if self.vocabulary not in (AUTO, "true", "false"):
            msg = (
                f"vocabulary={self.vocabulary!r} of {self.name}: expected auto, true "
                "or false"
            )
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> Program:
        """Share the layers of the one graph there is."""
        graph = graphs.forward_graph_of(program, self.name)
        separate_vectors(graph, ctx)
        layout = TensorLayout.of(graph)
        _check_heads(layout)
        if not layout.rows:
            msg = (
                f"{graph} has no linear layers that {self.name} could share: one "
                "split by columns, and after it one by rows"
            )
            raise UnsupportedModelError(msg)
        vocabulary = self._vocabulary(layout, ctx)
        # Say which layers are not shared.
        layers = sum(map(layout.is_layer, layout.graph))
        head = None if vocabulary is None else vocabulary.head
        left = [node for node in layout.whole if node is not head]
        shared = f"{layers - len(left)} of {layers} linear layers are shared"
        whole = f"; every rank has {listed(left)} whole" if left else ""
        ctx.note("shared-layers", shared + whole)
        TensorWriter(layout, self.ranks).write()
        if vocabulary is not None:
            VocabularyWriter(graph, vocabulary, self.ranks).write()
        made = RankClass(tuple(range(self.ranks)), ops=graph)
        return attrs.evolve(program, classes=(made,))

    def _vocabulary(
        self, layout: TensorLayout, ctx: PassContext
    ) -> VocabularyLayout | None:
        """Return the vocabulary that is shared, if one is."""
        if self.vocabulary == "false":
            return None
        found = VocabularyLayout.of(layout)
        if found is None or found.head in layout.rows:
            if self.vocabulary == AUTO:
                return None
            msg = (
                f"{layout.graph} has no vocabulary that {self.name} could share: "
                "expected a table that input tokens are looked up in, and a last layer "
                "with an output for each"
            )
            raise UnsupportedModelError(msg)
        if isinstance(found.size, int) and found.size % self.ranks == 0:
            return found
        named = listed([*found.lookups, found.head])
        msg = (
            f"{named}: {found.size} tokens do not divide by {self.ranks} ranks of "
            f"{self.name}"
        )
        if self.vocabulary != AUTO:
            raise UnsupportedModelError(msg)
        ctx.note(
            "whole-vocabulary",
            f"{msg}: every rank has all of them; Megatron-LM pads the vocabulary",
        )
        return None


def _check_heads(layout: TensorLayout) -> None:
    """Refuse attention and experts that every rank would run whole."""
    left = [*layout.whole_heads, *filter(is_of_experts, layout.whole)]
    if not left:
        return
    reason = layout.reason(left[0])
    why = "no layer before it can be split by columns"
    if reason is not None:
        where = reason.location.module or reason.name
        why = f"{reason.op} in {where} needs what all ranks have of them"
    msg = (
        f"{listed(left)}: tensor-parallel cannot share its heads or experts, which "
        f"every rank would compute whole: {why}"
    )
    raise UnsupportedModelError(msg)


def listed(nodes: Sequence[Node]) -> str:
    """Name modules; those that differ in their numbers only, once, with stars."""
    paths = (node.location.module or node.name for node in nodes)
    names = list(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.)", "*", p) for p in paths))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
