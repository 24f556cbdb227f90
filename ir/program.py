"""A program: one graph per class of ranks that run the same thing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from perfc.ir.core import Graph
from perfc.ir.launch import LaunchGraph
from perfc.ir.support import Diagnostic, VerifyError, brief

MAX_RANKS = 1_000_000
"""More are a mistake, and would not fit in a report."""

MAX_MICROBATCHES = 4096
"""More are a mistake: every one has its nodes."""


@attrs.frozen(eq=False)
class RankClass:
    """Ranks that run the same graph.

    Attributes:
        ranks: The ranks, ascending.
        ops: Their op graph, if there is one.
        launches: Their launch graph, if the source is one (a trace, a test).

    """

    __repr__ = brief

    ranks: tuple[int, ...]
    ops: Graph | None = None
    launches: LaunchGraph | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse a class with no ranks or no graph."""
        if not self.ranks or (self.ops is None and self.launches is None):
            msg = "a rank class needs at least one rank and one graph"
            raise VerifyError(msg)
        if self.ranks != tuple(sorted(set(self.ranks))) or self.ranks[0] < 0:
            msg = f"ranks {list(self.ranks)} are not ascending numbers from 0"
            raise VerifyError(msg)


def _sorted(bound: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(bound))


@attrs.frozen(eq=False)
class Program:
    """What is analysed: graphs of rank classes, and the bound dimensions.

    Attributes:
        name: Name of the model.
        classes: Rank classes; a program for one GPU has one.
        bound: Symbol and number, sorted; symbols of the graphs' shapes.
        diagnostics: What the frontend has to say about the model.
        sha256: Digest of the model file, or "".
        types_are_hints: Whether inference may overrule the shapes that the source
            declares, which then is reported, instead of refusing them.
        recorded: Whether the source says call by call what runs. Then nothing is
            raised, folded or dropped, not even what nobody reads.
        replicas: How many of its ranks have a batch of their own; the batch is that of
            one. The other ranks share one's work.
        divided: Symbols that are divided into microbatches, and into how many.
        microbatches: How many microbatches each rank computes one after another, where
            symbols have the sizes of one; the batch of a step is that of all.

    """

    __repr__ = brief

    name: str
    classes: tuple[RankClass, ...]
    bound: tuple[tuple[str, int], ...] = attrs.field(default=(), converter=_sorted)
    diagnostics: tuple[Diagnostic, ...] = ()
    sha256: str = ""
    types_are_hints: bool = False
    recorded: bool = False
    replicas: int = 1
    divided: tuple[tuple[str, int], ...] = ()
    microbatches: int = 1

    @property
    def bindings(self) -> dict[str, int]:
        """Bound symbols as a dictionary."""
        return dict(self.bound)

    def __str__(self) -> str:
        return f"program {self.name}"

    def bind(self, bindings: Mapping[str, int]) -> Program:
        """Return a program of the same graphs with more symbols bound."""
        bound = {**self.bindings, **bindings}
        for name, parts in self.divided:
            if bound.get(name, 0) % parts:
                msg = (
                    f"{name}={bound[name]} does not divide into {parts} microbatches: "
                    f"expected a multiple of {parts}"
                )
                raise VerifyError(msg)
        return attrs.evolve(self, bound=tuple(bound.items()))


def single(graph: Graph | LaunchGraph) -> Program:
    """Wrap one graph as the program of rank 0."""
    if isinstance(graph, Graph):
        rank = RankClass((0,), ops=graph)
    else:
        rank = RankClass((0,), launches=graph)
    return Program(graph.name, (rank,))
