"""What is left of an op's launches where the device is the host's own processor.

The rules of the other files say what PyTorch launches on a GPU. On a CPU each kernel
is a function that the op calls: nothing is copied to the device or waited for, and a
buffer is cleared by the function that uses it. Where a rule launches what only a GPU
needs (parts of a split GEMM, cuDNN's transforms, packs of tensors), the rule itself
asks `Settings.on_cpu`.
"""

from __future__ import annotations

import attrs

from perfc.costmodels import NEW, NEW_BYTES
from perfc.costmodels.cpu import IN_PLACE, makes_no_result
from perfc.passes.lowering.eager.site import MEMSET, Eager, Launch

FUNCTION = "function"
"""The call of a kernel on a CPU: no driver stands between."""


TRIMMED_BYTES = 128 * 2**10
"""Blocks of this size leave the heap when they are freed (`M_TRIM_THRESHOLD` and
`M_MMAP_THRESHOLD` of glibc, mallopt(3)); smaller ones fill its holes."""


def on_cpu(eager: Eager, *, training: bool = False) -> Eager:
    """Return the launches of an op on a CPU; *eager* is by rules that know it is one.

    In *training* results are held until their gradients are known, so that the heap
    grows and shrinks in every step: the pages of a large result are new. Those of one
    of `NEW_BYTES` are new each time.
    """
    launches = tuple(
        _placed(_called(launch), eager.name, training=training)
        for launch in eager.launches
        if _is_work(launch)
    )
    return attrs.evolve(eager, launches=launches)


def _placed(launch: Launch, name: str, *, training: bool) -> Launch:
    """Say where a large result is written: over an operand, or to new pages."""
    kernel = launch.kernel
    over = (launch.op or name).endswith("_")
    written = kernel.work.bytes_written
    if over and written >= TRIMMED_BYTES:
        place = IN_PLACE
    elif makes_no_result(kernel):
        return launch
    elif written >= (TRIMMED_BYTES if training else NEW_BYTES):
        place = NEW
    else:
        return launch
    params = kernel.params.updated(**{place: True})
    return attrs.evolve(launch, kernel=attrs.evolve(kernel, params=params))


def _is_work(launch: Launch) -> bool:
    between_memories = launch.detail in {"h2d", "d2h"}
    return launch.call != MEMSET and not between_memories


def _called(launch: Launch) -> Launch:
    return attrs.evolve(launch, call=FUNCTION, waits=False)
