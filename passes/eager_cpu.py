"""What is left of an op's launches where the device is the host's own processor.

The rules of the other files say what PyTorch launches on a GPU. On a CPU each kernel
is a function that the op calls: nothing is copied to the device or waited for, and a
buffer is cleared by the function that uses it. Where a rule launches what only a GPU
needs (parts of a split product, cuDNN's transforms, packs of tensors), the rule itself
asks `Settings.on_cpu`.
"""

from __future__ import annotations

import attrs

from perfc.passes.eager import MEMSET, Eager, Launch

FUNCTION = "function"
"""The call of a kernel on a CPU: no driver stands between."""


def on_cpu(eager: Eager) -> Eager:
    """Return what an op runs on a CPU; *eager* is by rules that know it is one."""
    launches = eager.launches
    kept = tuple(_called(launch) for launch in launches if _is_work(launch))
    return attrs.evolve(eager, launches=kept)


def _is_work(launch: Launch) -> bool:
    between_memories = launch.detail in {"h2d", "d2h"}
    return launch.call != MEMSET and not between_memories


def _called(launch: Launch) -> Launch:
    return attrs.evolve(launch, call=FUNCTION, waits=False)
