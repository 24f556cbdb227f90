"""The pass `remove-syncs`."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Program
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import LAUNCHES
from perfc.passes.what_if.host_waits import waits_inside, without_waits


@attrs.frozen
class RemoveSyncs(Pass):
    """Let the host never wait for the device before the end of the iteration.

    What it read there, it reads later or on the device: `loss.item()` every hundredth
    step, `torch.where` in place of `if`. Copies from pageable memory are asynchronous
    then, as from pinned memory, but no faster.
    """

    name: ClassVar[str] = "remove-syncs"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Take the waits out of every rank class."""
        graphs = ctx.get(LAUNCHES, program)
        free = tuple(without_waits(graph, waits_inside(graph)) for graph in graphs)
        ctx.set(LAUNCHES, program, free)
