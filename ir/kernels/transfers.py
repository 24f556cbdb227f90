"""Copies between memories, and collectives between devices."""

from __future__ import annotations

from perfc.ir.kernels.definition import KernelDef, named
from perfc.ir.kernels.spelling import COUNT, FLAG, WORD, kernel, param


def _collective(name: str, summary: str) -> KernelDef:
    return kernel(
        name,
        summary,
        param("bytes", COUNT, "its size, as nccl-tests counts it", unit="bytes"),
        param("ranks", COUNT, "devices that take part", unit="devices"),
        param("nodes", COUNT, "nodes that they are on", unit="nodes", default=1),
        param(
            "gpus_per_node",
            COUNT,
            "devices of a node that take part; 0: as many on each",
            unit="devices",
            default=0,
        ),
        by="collectives rows",
    )


KERNELS = named(
    kernel(
        "memcpy",
        "copy within the device, or between it and the host",
        param("bytes", COUNT, "what is copied", unit="bytes"),
        param("kind", WORD, "from where to where", choices="h2d d2h d2d"),
        param("pinned", FLAG, "whether the host's pages are locked", default=True),
        by="copies rows",
    ),
    _collective("all_reduce", "the sum over ranks, on each"),
    _collective("all_gather", "the parts of all ranks, on each"),
    _collective("reduce_scatter", "a part of the sum over ranks, on each"),
    _collective("all_to_all", "a part from each rank, on each"),
    _collective("broadcast", "what one rank has, on each"),
    _collective("send_recv", "what one rank sends another"),
)
"""Kernels that this module declares, by name."""
