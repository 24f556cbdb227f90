"""Calls of PyTorch that launch the kernels of a graph, as cases that are measured.

A call may launch several kernels: a convolution turns layouts, a GEMM joins the
parts of a sum, `coalesce` sorts. Those are one case, timed at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import attrs

from perfc.ir import AttrValue, Kernel, Record
from perfc.measure.case import Case
from perfc.measure.families import triangle_side
from perfc.measure.suites import runs
from perfc.measurements import bytes_of
from perfc.tools import Report

Params: TypeAlias = dict[str, AttrValue]
"""Parameters of a case."""

_BACKWARD = "backward"
_INDEX_BYTES = 8

_BESIDE = frozenset(
    {
        *("winograd", "nchw_to_nhwc", "nhwc_to_nchw", "offsets", "clear", "memset"),
        "join_parts",
    }
)
"""Kinds of the kernels that cuDNN and cuBLAS launch around a GEMM."""

_WHOLE: Mapping[str, str] = MappingProxyType(
    {
        "aten::_scaled_dot_product_efficient_attention_backward": "attention",
        "aten::_scaled_dot_product_flash_attention_backward": "attention",
        "aten::coalesce": "coalesce",
        "aten::embedding_dense_backward": "embedding_backward",
        "aten::index_put_": "index_put",
        "aten::max_pool2d_with_indices_backward": "pool",
        "aten::native_layer_norm_backward": "layer_norm",
        "aten::nll_loss_backward": "nll_loss",
    }
)
"""Ops that are one call of several kernels, and the case's op."""


@attrs.frozen
class Call:
    """A call of one iteration.

    Attributes:
        case: What runs it alone; nothing where no call of PyTorch does.
        kernels: What it launches, of which the case is the first.
        seconds: What the kernels are predicted to take together.

    """

    case: Case | None
    kernels: tuple[Kernel, ...]
    seconds: float

    @property
    def name(self) -> str:
        """What it is, in two words."""
        kernel = self.kernels[0]
        return f"{kernel.op} {kernel.params.get('kind', '')}".strip()


@attrs.frozen
class _Launched:
    """A kernel as one op launches it."""

    kernel: Kernel
    seconds: float

    @property
    def kind(self) -> object:
        return self.kernel.params.get("kind")

    @property
    def beside(self) -> int:
        """How many kernels its library launches around it."""
        return self.kernel.params.integer("beside", 0)


def calls_of(report: Report, samples: int) -> list[Call]:
    """Return the calls of one iteration, in order of issue.

    Args:
        report: Of a model that one GPU runs.
        samples: In its batch: how many parts a gradient with holes has.

    """
    graph = report.results.hosted[0].graph
    seconds = report.results.costs[0].seconds
    by_op: dict[int, list[_Launched]] = {}
    for op, number in zip(graph.op, graph.kernel, strict=True):
        if number >= 0:
            launched = _Launched(graph.kernels[number], float(seconds[number]))
            by_op.setdefault(op, []).append(launched)
    calls: list[Call] = []
    for op, launches in by_op.items():
        name = graph.ops[op].name if op >= 0 else ""
        calls += _calls(name, launches, samples)
    return calls


def _calls(name: str, launches: Sequence[_Launched], samples: int) -> Iterator[Call]:
    if name in _WHOLE:
        before = [one for one in launches if _is_apart(one)]
        rest = [one for one in launches if not _is_apart(one)]
        for one in before:
            yield _call(_case(name, one.kernel, samples), [one])
        yield _call(_whole(name, [one.kernel for one in rest]), rest)
        return
    for group in _groups(launches):
        main = next(one for one in group if len(group) == 1 or one.beside)
        yield _call(_case(name, main.kernel, samples), [main, *_without(group, main)])


def _is_apart(one: _Launched) -> bool:
    """Whether a kernel is no part of the call: it brings operands, or makes copies."""
    copies = one.kernel.op == "elementwise" and one.kind == "copy"
    brought = one.kernel.op == "memcpy" and one.kind == "h2d"
    return brought or (copies and "scattered" in one.kernel.params)


def _without(group: Sequence[_Launched], main: _Launched) -> list[_Launched]:
    return [one for one in group if one is not main]


def _groups(launches: Sequence[_Launched]) -> Iterator[list[_Launched]]:
    """Yield each kernel with those that its library launches before and after."""
    group: list[_Launched] = []
    wanted = 0
    for one in launches:
        if one.kernel.op == "elementwise" and one.kind in _BESIDE:
            group.append(one)
        elif one.beside:
            group.append(one)
            wanted = one.beside + 1
        else:
            yield [one]
        if wanted and len(group) == wanted:
            yield group
            group, wanted = [], 0
    if group:
        msg = f"{group[0].kernel} belongs to no kernel"
        raise LookupError(msg)


def _call(case: Case | None, launches: Sequence[_Launched]) -> Call:
    kernels = tuple(one.kernel for one in launches)
    return Call(case, kernels, math.fsum(one.seconds for one in launches))


# -- calls of several kernels ---------------------------------------------------------


def _whole(name: str, kernels: Sequence[Kernel]) -> Case:
    op = _WHOLE[name]
    main = next(kernel for kernel in kernels if _is_main(kernel))
    return Case(op, _dtype(main), Record(_OF_SEVERAL[op](main, kernels)))


def _is_main(kernel: Kernel) -> bool:
    kinds = {"coalesce", "sum_and_scatter", "nll_loss"}
    if kernel.op == "gather":
        return kernel.params.get("kind") in kinds
    return kernel.op in {*_WHOLE.values(), "index_add"}


def _attention(main: Kernel, kernels: Sequence[Kernel]) -> Params:
    """What is read beside queries, keys, values and results is a mask."""
    case = Case("attention", main.dtype, main.params)
    masked = main.work.bytes_read > case.work.bytes_read
    return {**main.params, **({"masked": True} if masked else {})}


def _layer_norm_backward(main: Kernel, kernels: Sequence[Kernel]) -> Params:
    return {**_sizes(main, "rows", "cols"), "phase": _BACKWARD}


def _embedding_backward(main: Kernel, kernels: Sequence[Kernel]) -> Params:
    """Few indices are added up as they are; many are numbered, and sorted."""
    if main.op == "embedding_backward":
        return _sizes(main, "rows", "dim", "lookups")
    rows, dim = main.params.integers("shape")
    numbers = next(k for k in kernels if k.params.get("kind") == "arange")
    lookups = numbers.params.integer("rows") * numbers.params.integer("cols")
    return {"rows": rows, "dim": dim, "lookups": lookups}


def _index_put(main: Kernel, kernels: Sequence[Kernel]) -> Params:
    sizes = _sizes(main, "indices", "outer")
    return {**sizes, "side": triangle_side(main.params.integer("indices"))}


def _nll_loss_backward(main: Kernel, kernels: Sequence[Kernel]) -> Params:
    """The gradient is filled with zeros first: that tells its columns."""
    zeros = next(k for k in kernels if k.params.get("kind") == "fill")
    return {**_sizes(zeros, "rows", "cols"), "phase": _BACKWARD}


def _coalesce(main: Kernel, kernels: Sequence[Kernel]) -> Params:
    lookups, *dim = main.params.integers("shape")
    (distinct,) = main.params.integers("indices")
    return {"lookups": lookups, "dim": math.prod(dim), "distinct": distinct}


def _pool(main: Kernel, kernels: Sequence[Kernel]) -> Params:
    """The kernel states one of both images; how much it moves tells the other."""
    planes, pixels = map(main.params.integer, ("rows", "cols"))
    window, kind = main.params.integers("window")[0], main.params.text("kind")
    backward = main.params.get("phase") == _BACKWARD
    item = int(bytes_of(main.dtype))
    places = _INDEX_BYTES if kind == "max" and backward else 0
    others = main.work.bytes_read // (planes * (item + places))
    side, out = map(math.isqrt, (pixels, others) if backward else (others, pixels))
    stride, padding = _steps(side, out, window)
    params: Params = {"kind": kind, "planes": planes, "size": side, "out": out}
    params |= {"window": window, "stride": stride, "padding": padding}
    return params | ({"phase": _BACKWARD} if backward else {})


def _steps(side: int, out: int, window: int) -> tuple[int, int]:
    """Return the smallest stride, then padding, that makes *out* of *side* pixels."""
    for stride in range(1, side + 1):
        for padding in range(window // 2 + 1):
            if (side + 2 * padding - window) // stride + 1 == out:
                return stride, padding
    msg = f"no stride pools {side} to {out} pixels with a window of {window}"
    raise LookupError(msg)


def _sizes(kernel: Kernel, *names: str) -> Params:
    return {name: kernel.params[name] for name in names}


_OF_SEVERAL: Mapping[str, Callable[[Kernel, Sequence[Kernel]], Params]] = (
    MappingProxyType(
        {
            "attention": _attention,
            "coalesce": _coalesce,
            "embedding_backward": _embedding_backward,
            "index_put": _index_put,
            "layer_norm": _layer_norm_backward,
            "nll_loss": _nll_loss_backward,
            "pool": _pool,
        }
    )
)
"""Parameters of the cases, by op, from the kernel that names it and all others."""

# -- calls of one kernel --------------------------------------------------------------


def _case(name: str, kernel: Kernel, samples: int) -> Case | None:
    """Return the case of a kernel; nothing where no family runs it."""
    of_op = _OF_ONE.get(kernel.op, _as_it_is)
    params = of_op(name, kernel, samples)
    case = Case(kernel.op, _dtype(kernel), Record(params))
    if kernel.op == "memcpy":
        case = attrs.evolve(case, dtype="fp32")  # bytes have no type
    return case if runs(case) else None


def _dtype(kernel: Kernel) -> str:
    gemm_like = {"gemm", "conv2d", "attention"}
    return "tf32" if kernel.op in gemm_like and kernel.math == "tf32" else kernel.dtype


def _as_it_is(name: str, kernel: Kernel, samples: int) -> Params:
    return dict(kernel.params)


def _gemm(name: str, kernel: Kernel, samples: int) -> Params:
    """Leave out what the library decides."""
    decided = {"algorithm", "beside", "beside_bytes"}
    return {key: v for key, v in kernel.params.items() if key not in decided}


def _softmax(name: str, kernel: Kernel, samples: int) -> Params:
    params = _sizes(kernel, "rows", "cols")
    if "log_softmax" in name:
        params["kind"] = "log"
    backward = kernel.params.get("kind") == _BACKWARD
    return params | ({"phase": _BACKWARD} if backward else {})


def _memcpy(name: str, kernel: Kernel, samples: int) -> Params:
    across = kernel.params.text("kind") != "d2d"
    return _sizes(kernel, "bytes", "kind", *(["pinned"] if across else []))


def _elementwise(name: str, kernel: Kernel, samples: int) -> Params:
    """Say of how many samples operands are that have holes, or lie turned."""
    params = dict(kernel.params)
    whole = kernel.params.integer("rows") % samples == 0
    if "scattered" in params and "bytes" not in params and whole:
        params["batch"] = samples
    return params


def _batch_norm(name: str, kernel: Kernel, samples: int) -> Params:
    """Say of how many images: libraries choose by it."""
    return {**kernel.params, "batch": samples}


def _foreach(name: str, kernel: Kernel, samples: int) -> Params:
    elements = kernel.params.integer("elements")
    lists = kernel.work.bytes_read // (elements * int(bytes_of(kernel.dtype)))
    return {**kernel.params, "lists": lists, "in_place": name.endswith("_")}


def _attention_forward(name: str, kernel: Kernel, samples: int) -> Params:
    return _attention(kernel, ())


def _pool_forward(name: str, kernel: Kernel, samples: int) -> Params:
    return _pool(kernel, ())


_OF_ONE: Mapping[str, Callable[[str, Kernel, int], Params]] = MappingProxyType(
    {
        "attention": _attention_forward,
        "batch_norm": _batch_norm,
        "conv2d": _gemm,
        "elementwise": _elementwise,
        "foreach": _foreach,
        "gemm": _gemm,
        "memcpy": _memcpy,
        "pool": _pool_forward,
        "softmax": _softmax,
    }
)
"""Parameters of the cases, by op, from the op that launches the kernel, the kernel and
the samples in the batch.
"""
