"""Reductions, scans, softmax, pools and losses in eager PyTorch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import attrs

from perfc.ir import AttrValue, TensorType, Work
from perfc.ir.dims import Dim
from perfc.ir.ops.reduction import reduced_axes
from perfc.passes.lowering.eager.elementwise import over_rows
from perfc.passes.lowering.eager.movement import memcpy_launch
from perfc.passes.lowering.eager.site import (
    BYTE,
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    dtype_name,
    elementwise_launch,
    made_contiguous,
    vector_launch,
)

_NAMES = {
    "max": "aten::amax",
    "min": "aten::amin",
    "l1": "aten::linalg_vector_norm",
    "l2": "aten::linalg_vector_norm",
    "sum_square": "aten::sum",
    "log_sum": "aten::sum",
    "log_sum_exp": "aten::logsumexp",
}
"""PyTorch's names of reductions that are not `aten::` and the kind."""


def _reduce(site: Site) -> Eager:
    kind = site.attributes.text("kind")
    name = _NAMES.get(kind, f"aten::{kind}")
    if kind == "log_sum_exp":
        return Eager(name, _log_sum_exp(site))
    x, out = site.operands[0], site.out
    launches = [_reduction(site, "sum" if kind in _AROUND else kind)]
    if kind == "sum_square":
        launches.insert(0, elementwise_launch("pow", (x,), x, x.numel))
    if kind == "log_sum":
        launches.append(elementwise_launch("log", (out,), out, 3 * out.numel))
    return Eager(name, tuple(launches))


_AROUND = ("sum_square", "log_sum")
"""Sums with another kernel before or after."""


def _reduction(site: Site, kind: str) -> Launch:
    x = site.operands[0]
    axes: Collection[int] = ()
    if len(site.operands) > 1:  # over axes that are not known: the results tell
        rows = site.out.numel
        columns = x.numel // rows if rows else 0
    else:
        axes = reduced_axes(site.attributes, x.type.rank)
        columns = math.prod(x.shape[axis] for axis in axes)
        rows = math.prod(n for axis, n in enumerate(x.shape) if axis not in axes)
    work = Work(x.numel, x.nbytes, site.out.nbytes)
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns, "kind": kind}
    if axes and x.type.rank - 1 not in axes:
        params["axis"] = 0  # the elements of a result lie apart
    return vector_launch("reduction", x.type.dtype, params, work)


def _log_sum_exp(site: Site) -> tuple[Launch, ...]:
    """`amax`, infinities replaced, subtract, `exp`, sum, `log`, add (ATen)."""
    x, out = site.operands[0], site.out
    row_wise = [
        elementwise_launch(k, (out,), out) for k in ("abs", "eq", "masked_fill")
    ]
    whole = [
        elementwise_launch("sub", (x, out), x, x.numel),
        elementwise_launch("exp", (x,), x, 3 * x.numel),
    ]
    ends = [elementwise_launch(kind, (out,), out) for kind in ("log", "add")]
    largest, total = _reduction(site, "max"), _reduction(site, "sum")
    return (largest, *row_wise, *whole, total, *ends)


def _softmax(site: Site) -> Eager:
    """The last axes are one row where they are flattened."""
    x = site.operands[0]
    axis = site.attributes.integer("axis")
    columns = x.shape[axis]
    if site.attributes.flag("flat"):
        columns = math.prod(x.shape[axis % x.type.rank :])
    rows = x.numel // columns if columns else 0
    launches = (*made_contiguous((x,)), over_rows(site, "softmax", rows, columns))
    return Eager(f"aten::{site.op}", launches)


def _histogram(site: Site) -> Eager:
    """Zeros, then one kernel that counts (`cuda/SummaryOps.cu`).

    Where no limits are given, the host reads both extremes first.
    """
    x, out = site.operands[0], site.out
    counted = over_rows(site, "histogram", 1, x.numel)
    launches = (elementwise_launch("fill", (), out), counted)
    if site.attributes.flag("limits"):
        return Eager("aten::histc", launches)
    dtype = dtype_name(x.type.dtype)
    item = x.type.dtype.bits // BYTE
    read = memcpy_launch(item, "d2h", pinned=False, dtype=dtype)
    extremes = (
        over_rows(site, "reduction", 1, x.numel, kind=kind) for kind in ("min", "max")
    )
    found = (launch for extreme in extremes for launch in (extreme, read))
    return Eager("aten::histc", (*found, *launches))


def _hardmax(site: Site) -> Eager:
    """`argmax`, zeros, and a one scattered into each row."""
    x, out = site.operands[0], site.out
    columns = x.shape[site.attributes.integer("axis")]
    rows = x.numel // columns if columns else 0
    found = over_rows(site, "reduction", rows, columns, kind="argmax")
    places = Work(0, 8 * rows, rows * (out.nbytes // out.numel) if rows else 0)
    shape: dict[str, AttrValue] = {"kind": "scatter_elements", "shape": x.shape}
    scattered = vector_launch("gather", x.type.dtype, shape, places)
    zeros = elementwise_launch("fill", (), out)
    return Eager("aten::one_hot", (found, zeros, scattered))


def _arg_reduce(site: Site) -> Eager:
    x = site.operands[0]
    columns = x.shape[site.attributes.integer("axis")]
    rows = x.numel // columns if columns else 0
    return Eager(
        f"aten::{site.op}", (over_rows(site, "reduction", rows, columns, kind=site.op),)
    )


def _scan(site: Site) -> Eager:
    x = site.operands[0]
    columns = x.shape[site.attributes.integer("axis", -1)] if x.shape else 1
    rows = x.numel // columns if columns else 0
    launch = over_rows(site, "scan", rows, columns, kind=site.op)
    if site.attributes.flag("reverse"):  # PyTorch has no such option
        flip = elementwise_launch("copy", (x,), x)
        return Eager("aten::flip", (flip, launch, flip))
    return Eager(f"aten::{site.op}", (*made_contiguous((x,)), launch))


_POOLS = {"max": "max", "average": "avg", "lp": "avg"}


def _pool(site: Site) -> Eager:
    x = site.operands[0]
    window = site.attributes.integers("window")
    kind = site.attributes.text("kind")
    out = site.out.shape
    params: dict[str, AttrValue] = {
        "kind": _POOLS.get(kind, kind),
        "rows": math.prod(out[:2]),
        "cols": math.prod(out[2:]),
        "window": window,
    }
    pool = vector_launch("pool", x.type.dtype, params, site.work)
    if kind == "lp":
        return Eager(f"aten::lp_pool{len(window)}d", _lp_pool(site, pool))
    name = f"aten::{params['kind']}_pool{len(window)}d"
    return Eager(name, (*made_contiguous((x,)), pool))


def _lp_pool(site: Site, pool: Launch) -> tuple[Launch, ...]:
    """`torch.nn.functional.lp_pool2d`: around an average pool, in single steps."""
    x, out = site.operands[0], site.out
    power = elementwise_launch("pow", (x,), x, x.numel)
    steps = ("sign", "abs", "relu", "mul", "mul", "pow")
    after = [elementwise_launch(kind, (out,), out, out.numel) for kind in steps]
    return (power, pool, *after)


def _max_unpool(site: Site) -> Eager:
    """Zeros, then each maximum into its place."""
    x, places = site.operands[:2]
    work = Work(0, x.nbytes + places.nbytes, x.nbytes)
    shape: dict[str, AttrValue] = {"kind": "max_unpool", "shape": site.out.shape}
    moved = vector_launch("gather", x.type.dtype, shape, work)
    zeros = elementwise_launch("fill", (), site.out)
    return Eager("aten::max_unpool2d", (zeros, moved))


def _dropout(site: Site) -> Eager:
    """One kernel writes the result and the mask."""
    x = site.operands[0]
    mask = Tensor(site.results[1]) if len(site.results) > 1 else None
    launch = elementwise_launch("dropout", (x,), site.out, 3 * x.numel)
    if mask is not None:
        work = launch.kernel.work
        written = work.bytes_written + mask.nbytes
        work = Work(work.flops, work.bytes_read, written)
        params = launch.kernel.params.updated(bytes=work.bytes)
        launch = Launch(attrs.evolve(launch.kernel, params=params, work=work))
    return Eager("aten::native_dropout", (launch,))


def _nll_loss(site: Site) -> Eager:
    scores = site.operands[0]
    flat = scores.type.rank == 2  # a row of classes per label
    rows = scores.numel // scores.shape[1] if scores.shape[1] else 0
    launch = over_rows(site, "nll_loss", rows, scores.shape[1])
    return Eager(f"aten::nll_loss{'' if flat else '2d'}", (launch,))


def _local_response_norm(site: Site) -> Eager:
    """`torch.nn.functional.local_response_norm`: seven steps, one of them two."""
    x = site.operands[0]
    size = site.attributes.integer("size")
    channels: tuple[Dim, ...] = (x.shape[0], x.shape[1] + size - 1, *x.shape[2:])
    padded = Tensor(TensorType(x.type.dtype, channels))
    params: dict[str, AttrValue] = {
        "kind": "avg",
        "rows": x.shape[0],
        "cols": math.prod(x.shape[1:]),
        "window": (size, 1, 1),
    }
    pooled = Work(size * x.numel, padded.nbytes, x.nbytes)
    steps = [
        elementwise_launch("mul", (x,), x, x.numel),
        elementwise_launch("fill", (), padded),
        elementwise_launch("copy", (x,), x),
        vector_launch("pool", x.type.dtype, params, pooled),
        *(elementwise_launch(k, (x,), x, x.numel) for k in ("mul", "add", "pow")),
        elementwise_launch("div", (x, x), x, x.numel),
    ]
    return Eager("aten::local_response_norm", tuple(steps))


RULES: Mapping[str, Rule] = {
    "reduce": _reduce,
    "argmax": _arg_reduce,
    "argmin": _arg_reduce,
    "cumsum": _scan,
    "cumprod": _scan,
    "softmax": _softmax,
    "log_softmax": _softmax,
    "hardmax": _hardmax,
    "histogram": _histogram,
    "pool": _pool,
    "max_unpool": _max_unpool,
    "dropout": _dropout,
    "nll_loss": _nll_loss,
    "local_response_norm": _local_response_norm,
}
"""Rules of the ops that join elements, by op name."""
