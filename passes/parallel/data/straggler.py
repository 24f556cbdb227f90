"""The pass `straggler`."""

from __future__ import annotations

import difflib
import math
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Graph, Node, Program, Record, UsageError, node_kinds
from perfc.ir.copying import bound_copy
from perfc.ir.location import Location
from perfc.ir.opdef import Trait
from perfc.ir.program import RankClass
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import PassContext, Phase, Transform


@attrs.frozen
class Straggler(Transform):
    """Let the host of one rank stand still once a step, so that the others wait for it.

    The rank becomes a class of its own, with an op `host` that states its time. The
    time is exact: it is no estimate of perfc's. At the start of a step is after the
    copies of the inputs. The same again sets the time anew; several of them, for other
    ranks or before other ops, add up. Of `analyze` and `load` it runs after all
    that shares a model out among ranks.

    Attributes:
        rank: Which.
        us: How long, in microseconds.
        before: Before what: a node as reports call it, or the first op of this
            name, as `all_reduce`; if empty, at the start of the step.

    """

    name: ClassVar[str] = "straggler"
    phase: ClassVar[Phase] = Phase.LAST
    requires: ClassVar[frozenset[AnyKey]] = frozenset()

    rank: int
    us: float
    before: str = ""

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.rank < 0:
            msg = f"rank={self.rank} of {self.name}: expected 0 or more"
            raise UsageError(msg)
        if not 0 <= self.us < math.inf:
            msg = f"us={self.us:g} of {self.name}: expected 0 or more, and finite"
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> Program:
        """Make the rank a class of its own, and let it stand still."""
        classes = [
            part
            for ranks in program.classes
            for part in (self._split(ranks) if self.rank in ranks.ranks else [ranks])
        ]
        late = next((ranks for ranks in classes if ranks.ranks == (self.rank,)), None)
        if late is None:
            count = sum(len(ranks.ranks) for ranks in classes)
            of = f"ranks 0 to {count - 1}" if count > 1 else "rank 0 alone"
            msg = f"rank={self.rank} of {self.name}: {program.name} runs on {of}"
            raise UsageError(msg)
        if late.ops is None:
            msg = f"{program.name}: a launch graph has no ops to stand still between"
            raise UnsupportedModelError(msg)
        self._stand_still(late.ops)
        classes.sort(key=lambda part: part.ranks)
        return attrs.evolve(program, classes=tuple(classes))

    def _split(self, ranks: RankClass) -> list[RankClass]:
        """Return the class without the rank, and the rank alone with its own graph."""
        others = tuple(rank for rank in ranks.ranks if rank != self.rank)
        if not others or ranks.ops is None:
            return [ranks]
        late = RankClass((self.rank,), ops=bound_copy(ranks.ops, {}))
        rest = attrs.evolve(ranks, ranks=others)
        return [rest, late]

    def _stand_still(self, graph: Graph) -> None:
        """Write it down before the op, or change what is there already."""
        place = self._place(graph)
        name = f"{place.name}.{self.name}" if self.before else self.name
        for node in graph:
            if node_kinds.has_trait(node, Trait.HOST) and node.location.name == name:
                graph.set_attributes(node, us=float(self.us))
                return
        at = Location(name, place.location.module, phase=place.location.phase)

        def step(node: Node) -> None:
            if node is place:
                what = Record({"op": self.name, "us": float(self.us)})
                graph.add("host", (), (), what, location=at)

        graph.rewrite(step)

    def _place(self, graph: Graph) -> Node:
        """Return the op before which the host stands still."""
        nodes = list(graph)
        if not self.before and nodes:
            return nodes[0]
        named = (node for node in nodes if node.name == self.before)
        kind = (node for node in nodes if node.op == self.before)
        found = next(named, None) or next(kind, None)
        if found is None:
            raise UsageError(self._unknown(nodes))
        return found

    def _unknown(self, nodes: list[Node]) -> str:
        ops = sorted({node.op for node in nodes})
        names = [node.name for node in nodes]
        close = difflib.get_close_matches(self.before, [*ops, *names], n=1)
        has = graphs.listed(ops) if ops else "none"
        hint = f"did you mean {close[0]!r}?" if close else f"its ops are {has}"
        return f"rank {self.rank} has no op {self.before!r} to stand before; {hint}"
