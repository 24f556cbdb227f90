"""The pass `pin-copies`."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Program
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import LAUNCHES
from perfc.passes.what_if.host_waits import waits_for_inputs, without_waits


@attrs.frozen
class PinCopies(Pass):
    """Copy to the device from pinned memory, and go on without waiting.

    As `tensor.pin_memory()` and `to(device, non_blocking=True)` do. Copies to the host
    stay as they are: what reads them has to wait.
    """

    name: ClassVar[str] = "pin-copies"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Pin the copies of every rank class."""
        graphs = ctx.get(LAUNCHES, program)
        pinned = tuple(
            without_waits(graph, waits_for_inputs(graph), pinned=True)
            for graph in graphs
        )
        ctx.set(LAUNCHES, program, pinned)
