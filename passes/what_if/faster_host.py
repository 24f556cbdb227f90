"""The pass `faster-host`."""

from __future__ import annotations

from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir import AnyKey, LaunchGraph, PerfcError, Program, TaskKind
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import DATA_LOADING, HOSTED
from perfc.passes.timing import detail_mask, task_mask

_WORK = frozenset({TaskKind.HOST, TaskKind.CALL})
_NO_WORK = frozenset({"straggler", DATA_LOADING})


def host_work(graph: LaunchGraph) -> NDArray[np.bool_]:
    """Return which tasks a faster host does in less time: T1 to T5 and calls.

    It waits for the device, and stands still, as long as before.
    """
    return task_mask(graph, _WORK) & ~detail_mask(graph, _NO_WORK)


@attrs.frozen
class FasterHost(Pass):
    """Let the host's own work take less: another CPU, another PyTorch, less Python.

    It is a question, not another machine: nothing gets less certain, and waits for the
    device take no less, nor does a rank that stands still (`straggler`). `host.speed`
    of a target describes a machine.

    Attributes:
        times: How many times as fast.

    """

    name: ClassVar[str] = "faster-host"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({HOSTED})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({HOSTED})

    times: float = 2.0

    def run(self, program: Program, ctx: PassContext) -> None:
        """Divide the seconds of host tasks."""
        if not self.times > 0:
            msg = f"faster-host: times = {self.times:g}; expected a number above 0"
            raise PerfcError(msg)
        hosted = tuple(
            attrs.evolve(
                one,
                host_s=np.where(
                    host_work(one.graph),
                    one.host_s / self.times,
                    one.host_s,
                ),
            )
            for one in ctx.get(HOSTED, program)
        )
        ctx.set(HOSTED, program, hosted)
