"""Programs on more ranks: every rank as often as there are replicas of the model."""

from __future__ import annotations

import attrs

from perfc.ir import AttrValue, Program, UsageError
from perfc.ir.program import RankClass


@attrs.frozen
class Replicas:
    """Replicas of a model, each with a batch of its own.

    Attributes:
        program: On the ranks of all of them.
        count: How many there are.
        stride: How far apart ranks of neighbours are that do the same.

    """

    program: Program
    count: int
    stride: int

    @classmethod
    def of(cls, program: Program, count: int, who: str) -> Replicas:
        """Make *count* replicas of all ranks, if they are not there already.

        Ranks of one replica are neighbours; that of the next begins behind them.
        """
        if program.replicas == count:
            return cls(program, count, 1)
        if program.replicas > 1:
            msg = (
                f"{who}: {program} has {program.replicas} replicas already, "
                f"expected {count}"
            )
            raise UsageError(msg)
        world = sum(len(rank.ranks) for rank in program.classes)
        classes = tuple(repeated(rank, count, world) for rank in program.classes)
        made = attrs.evolve(program, classes=classes, replicas=count)
        return cls(made, count, world)

    def communicator(self, group: str, rank: RankClass) -> dict[str, AttrValue]:
        """Name the communicator of a rank and of those that do the same elsewhere.

        Classes of ranks that never meet name theirs differently.
        """
        if self.stride > 1 and len(self.program.classes) > 1:
            group = f"{group}.{rank.ranks[0]}"
        named: dict[str, AttrValue] = {"group": group, "ranks": self.count}
        return named if self.stride == 1 else {**named, "stride": self.stride}


def repeated(rank: RankClass, count: int, stride: int) -> RankClass:
    """Return a class of as many replicas, *stride* ranks apart."""
    ranks = [number + stride * copy for copy in range(count) for number in rank.ranks]
    return attrs.evolve(rank, ranks=tuple(sorted(ranks)))
