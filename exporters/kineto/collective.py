"""What a trace tells of a collective, as PyTorch notes it on NCCL's kernels.

`torch/csrc/distributed/c10d/ParamCommsUtils.hpp`: what was called, with how many
elements, by how many ranks.
"""

from __future__ import annotations

from typing import Any

from perfc.ir import DTYPES, Kernel, Node
from perfc.passes import dtype_name

_CALLS = {
    "all_gather": "_allgather_base",
    "all_reduce": "allreduce",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "reduce_scatter": "_reduce_scatter_base",
    "send_recv": "send",
}
_SCALARS = {
    "u8": "Byte",
    "i8": "Char",
    "i16": "Short",
    "i32": "Int",
    "i64": "Long",
    "f16": "Half",
    "bf16": "BFloat16",
    "f32": "Float",
    "f64": "Double",
    "bool": "Bool",
}
"""Names of c10's scalar types."""

_WIDTHS = {dtype_name(DTYPES[name]): DTYPES[name].bits // 8 for name in _SCALARS}
_NAMES = {dtype_name(DTYPES[name]): scalar for name, scalar in _SCALARS.items()}


def meeting(group: str) -> dict[str, Any]:
    """Return by which name ranks know a collective, the same on all of them."""
    name, _, number = group.rpartition("#")
    if name and number.isdecimal():
        return {"Process Group Name": name, "Seq": int(number)}
    return {"Process Group Name": group, "Seq": 0}


def sent(kernel: Kernel, node: Node | None) -> dict[str, Any]:
    """Return the fields of what is sent, and among whom; none without a name in c10."""
    call, scalar = _CALLS.get(kernel.op), _NAMES.get(kernel.dtype)
    if call is None or scalar is None:
        return {}
    ranks = kernel.params.integer("ranks")
    count = kernel.params.integer("bytes") // _WIDTHS[kernel.dtype]
    part = count // ranks
    return {
        "Collective name": call,
        "dtype": scalar,
        "In msg nelems": part if kernel.op == "all_gather" else count,
        "Out msg nelems": part if kernel.op == "reduce_scatter" else count,
        "Group size": ranks,
        "Global rank stride": 1
        if node is None
        else node.attributes.integer("stride", 1),
    }
