"""What PyTorch calls for collectives: one kernel of NCCL each, on a stream of its own.

`ProcessGroupNCCL` makes the communication stream wait for the compute stream (an event
recorded there), launches NCCL's kernel, and records an event after it, which whoever
reads the result makes the compute stream wait for. `passes/lowering/launch_graph.py`
puts these around the launch that the rules here describe.

Kernel signatures have the parameters of measured rows: `bytes` as nccl-tests count
them, `ranks`, and how the communicator lies on nodes (`nodes`, `gpus_per_node`).
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import Kernel, Record, TaskKind
from perfc.ir.ops.collective import communicator_ranks
from perfc.ir.support import UnsupportedModelError
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    dtype_name,
    elementwise_launch,
)

LAUNCH_COLLECTIVE = "cudaLaunchKernelExC"

_CALLS: Mapping[str, str] = {
    "all_reduce": "c10d::allreduce_",
    "all_gather": "c10d::_allgather_base_",
    "reduce_scatter": "c10d::_reduce_scatter_base_",
    "all_to_all": "c10d::alltoall_base_",
    "broadcast": "c10d::broadcast_",
    "send": "c10d::send",
    "recv": "c10d::recv_",
}
"""What the host calls, by op."""

_PAIRS = frozenset({"send", "recv"})


def _collective(site: Site) -> Eager:
    ranks = communicator_ranks(site.attributes)
    nodes, per_node = _members(site, ranks)
    params = Record(
        {
            "bytes": _bytes(site),
            "ranks": ranks,
            "nodes": nodes,
            "gpus_per_node": per_node,
        }
    )
    name = "send_recv" if site.op in _PAIRS else site.op
    tensors = (*(operand.type for operand in site.operands), *site.results)
    kernel = Kernel(name, dtype_name(tensors[0].dtype), "", params, site.work)
    launch = Launch(kernel, call=LAUNCH_COLLECTIVE, kind=TaskKind.COLLECTIVE)
    return Eager(_CALLS[site.op], (launch,))


def _members(site: Site, ranks: int) -> tuple[int, int]:
    """Return on how many nodes the members are, and how many are on one."""
    settings = site.settings
    if settings.on_cpu:
        msg = (
            f"{site.op} of {ranks} ranks on a CPU: only GPUs that NCCL joins are "
            "modelled; choose a GPU or a system of them"
        )
        raise UnsupportedModelError(msg)
    if settings.system is None:
        return 1, ranks
    return settings.system.members(ranks, site.attributes.integer("stride", 1))


def _bytes(site: Site) -> int:
    """Return the size as nccl-tests count it.

    That is the whole input or result, whichever is larger. Where ranks exchange parts
    of other sizes, the rank that sends or receives most decides.
    """
    sent = sum(operand.nbytes for operand in site.operands)
    received = sum(result.nbytes for result in site.results)
    return site.attributes.integer("bytes", max(sent, received))


def _pack(site: Site) -> Eager:
    """`mul_out` into a view of the bucket: `Reducer::mark_variable_ready_dense`."""
    x = site.operands[1]
    launch = elementwise_launch("mul", (x,), Tensor(x.type), x.numel)
    return Eager("aten::mul", (launch,))


RULES: Mapping[str, Rule] = {**dict.fromkeys(_CALLS, _collective), "pack": _pack}
"""Rules by op name."""
