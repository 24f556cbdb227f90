"""What the kernels of DLRM's training computed: shapes, by where an op stands.

Rows of `dlrm_traces` name an op and a kernel; few name shapes. `MODELS` and `RULES` say
what they follow from: Lin et al., arXiv 2201.07821, batch 2048.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from perfc.frontends.workloads.dlrm import CRITEO_ROWS
from perfc.ir import AttrValue, Kernel, Record, Work
from perfc.measurements import Measurement, kernel_of

BATCH = 2048
ITEM = 4
TARGET = "v100-sxm2-16g"


@attrs.frozen(kw_only=True)
class Model:
    """What was trained.

    Attributes:
        bottom: Widths of the bottom MLP.
        top: Widths of the top MLP.
        rows: Rows of each table.
        pooling: Lookups a bag.

    """

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    rows: tuple[int, ...]
    pooling: int

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return self.bottom[-1]

    @property
    def vectors(self) -> int:
        """Vectors that interact."""
        return len(self.rows) + 1

    @property
    def pairs(self) -> int:
        """Numbers below the diagonal of their products."""
        return self.vectors * (self.vectors - 1) // 2

    @property
    def parameters(self) -> list[tuple[int, int]]:
        """Shapes of the parameters of both MLPs: each weight and its bias."""
        joined = self.dim + self.pairs
        widths = (*self.bottom, joined, *self.top)
        layers = [
            (widths[i + 1], widths[i])
            for i in range(len(widths) - 1)
            if i != len(self.bottom) - 1
        ]
        return [shape for n, k in layers for shape in ((n, k), (n, 1))]


MODELS: Mapping[str, Model] = {
    "default": Model(
        bottom=(512, 512, 64),
        top=(1024, 1024, 1024, 1),
        rows=(1_000_000,) * 8,
        pooling=100,
    ),
    "mlperf": Model(
        bottom=(13, 512, 256, 128),
        top=(1024, 1024, 512, 256, 1),
        rows=CRITEO_ROWS,
        pooling=1,
    ),
}
"""Models, by the word in a file's name. The tables of DLRM_MLPerf were smaller than
these, which need 96 GB; by how much is not known, nor which rows are popular."""


Row: TypeAlias = Mapping[str, str]


@attrs.frozen(eq=False)
class Place:
    """A row, and what stands around it.

    Attributes:
        model: What was trained.
        row: Columns of the file.
        layer: Rows, inputs and outputs of the layer that the row belongs to.
        turn: How many rows of this op and kernel came before, in any layer.

    """

    model: Model
    row: Row
    layer: tuple[int, int, int]
    turn: int


Found: TypeAlias = tuple[str, tuple[Kernel, ...]] | None
Rule: TypeAlias = Callable[[Place], Found]


def what(place: Place) -> Found:
    """Return the family of a row and its kernels; None if it does not say."""
    if place.row["kernel"].startswith("Memset"):
        return None
    for start, rule in RULES.items():
        if place.row["op"].startswith(start):
            return rule(place)
    return None


def made(op: str, **params: AttrValue) -> Kernel:
    """Return the signature of a row of `perfc.measurements/1`."""
    return kernel_of(
        Measurement(
            target=TARGET,
            op=op,
            dtype="fp32",
            params=Record(params),
            latency_us=1.0,
            timing="kernel",
            source="owensgroup/ml_perf_model",
        )
    )


def elementwise(
    rows: int, cols: int, inputs: int, kind: str = "add", **more: AttrValue
) -> Kernel:
    """Return a kernel over a matrix."""
    params = {"kind": kind, "rows": rows, "cols": cols, "tensor_inputs": inputs}
    return made("elementwise", **params, **more)


def _copy(place: Place) -> Found:
    """Inputs in the order of the loop: indices, offsets, dense features; the label."""
    model, row = place.model, place.row
    bags = BATCH * len(model.rows)
    inputs = (bags * model.pooling, bags + 1, BATCH * model.bottom[0])
    pinned = "Pinned" in row["kernel"]
    if "DtoH" in row["kernel"]:
        elements = 1 if place.turn == 0 else BATCH
        return "copy d2h", (made("memcpy", bytes=ITEM * elements, kind="d2h"),)
    if row["module"].endswith("interaction"):
        nbytes = 8 * model.pairs
    elif "loss" in row["module"]:
        nbytes = ITEM * BATCH
    else:
        nbytes = ITEM * inputs[place.turn]
    copied = made("memcpy", bytes=nbytes, kind="h2d", pinned=pinned)
    return "copy h2d", (copied,)


def _linear(place: Place) -> Found:
    m, k, n = place.layer
    if "elementwise" in place.row["kernel"]:
        moved = ITEM * (n + m * n)
        bias = elementwise(m, n, 1, "copy", bytes=moved, scattered=True)
        return "elementwise", (bias,)
    return "product forward", (made("gemm", b=1, m=m, n=n, k=k, layout="nt"),)


def _activation(inputs: int) -> Rule:
    def rule(place: Place) -> Found:
        m, _, n = place.layer
        return "elementwise", (elementwise(m, n, inputs),)

    return rule


def _lookup(place: Place) -> Found:
    backward = place.row["op"].endswith("Backward")
    model = place.model
    tables = tuple(
        Record({"rows": rows, "dim": model.dim, "pooling": model.pooling})
        for rows in model.rows
    )
    params: dict[str, AttrValue] = {
        "batch": BATCH,
        "tables": tables,
        "popularity": "uniform",
        "weighted": False,
        "index_bytes": 4,
    }
    if not backward:
        return "embedding bag", (made("embedding_bag", **params),)
    params |= {"phase": "backward", "optimizer": "sgd", "algorithm": "atomic"}
    return "embedding bag + SGD", (made("embedding_bag", **params),)


def _concat(place: Place) -> Found:
    model = place.model
    widths = (
        (model.dim, len(model.rows) * model.dim)
        if place.turn == 0
        else (model.dim, model.pairs)
    )
    shapes = tuple((BATCH, width) for width in widths)
    return "concat", (made("concat", axis=1, shapes=shapes),)


def _interaction(place: Place) -> Found:
    t, d = place.model.vectors, place.model.dim
    sizes = {"b": BATCH, "m": t, "n": t, "k": d, "layout": "nt"}
    return "product batched", (made("gemm", **sizes),)


def _interaction_backward(place: Place) -> Found:
    t, d = place.model.vectors, place.model.dim
    if place.turn == 0 and place.row["kernel"].endswith("_nt"):
        sizes = {"b": BATCH, "m": d, "n": t, "k": t, "layout": "tn"}
    else:
        sizes = {"b": BATCH, "m": t, "n": d, "k": t, "layout": "nn"}
    return "product batched", (made("gemm", **sizes),)


def _index(place: Place) -> Found:
    model = place.model
    if not place.row["kernel"].startswith("index_elementwise"):
        return None
    moved = BATCH * model.pairs
    params: dict[str, AttrValue] = {
        "kind": "index",
        "axis": 1,
        "shape": (BATCH, model.vectors, model.vectors),
        "indices": (model.pairs, 2),
    }
    work = Work(0, ITEM * moved + 16 * model.pairs, ITEM * moved)
    return "gather", (Kernel("gather", "fp32", "fp32", Record(params), work),)


def _index_backward(place: Place) -> Found:
    """Zeros, small ops on indices, a sort, and the kernel that adds."""
    model, name = place.model, place.row["kernel"]
    whole = model.vectors**2
    if name.startswith("vectorized"):
        small = elementwise(1, model.pairs, 2)
        zeros = (elementwise(BATCH, whole, 0, "fill"),) if place.turn == 0 else (small,)
        others = int(place.row["kernel_launches"]) - 1
        return "elementwise", (*zeros, *(small,) * others)
    if name.startswith("unrolled"):
        cut = elementwise(BATCH, model.pairs, 1, "copy", scattered=True)
        return "elementwise", (cut,)
    if not name.startswith("indexing_backward"):
        return None
    params: dict[str, AttrValue] = {
        "kind": "index_put",
        "indices": model.pairs,
        "outer": BATCH,
        "inner": 1,
    }
    moved = ITEM * BATCH * model.pairs
    work = Work(BATCH * model.pairs, moved + 16 * model.pairs, moved)
    return "index add", (Kernel("index_add", "fp32", "fp32", Record(params), work),)


def _slice_backward(place: Place) -> Found:
    whole = BATCH * place.model.vectors**2
    if "Memcpy" in place.row["kernel"]:
        return "copy d2d", (made("memcpy", bytes=ITEM * whole, kind="d2d"),)
    return "elementwise", (elementwise(1, whole, 0, "fill"),)


def _add(place: Place) -> Found:
    model = place.model
    cols = (model.vectors if place.turn == 0 else 1) * model.dim
    return "elementwise", (elementwise(BATCH, cols, 2, scattered=True),)


def _of_loss(place: Place) -> Found:
    """Reading both, or the gradient, of a few kilobytes; a mean; a gradient of one."""
    name = place.row["kernel"]
    if "Memcpy" in name:
        return "copy d2d", (made("memcpy", bytes=ITEM, kind="d2d"),)
    if name.startswith("reduce"):
        mean = made("reduction", rows=1, cols=BATCH, kind="mean")
        return "reduction", (mean,)
    if name.startswith("unrolled"):  # the gradient of one number, for all
        return "elementwise", (elementwise(BATCH, 1, 3, scattered=True),)
    reads = 0 if place.row["op"] == "MseLossBackward" else 2
    return "elementwise", (elementwise(BATCH, 1, reads),)


def _sum(place: Place) -> Found:
    m, _, n = place.layer
    columns = made("reduction", rows=n, cols=m, kind="sum", axis=0 if n > 1 else 1)
    return "reduction", (columns,)


def _accumulated(place: Place) -> Found:
    """The bias's gradient, then the weight's, each added to what is there."""
    _, k, n = place.layer
    cols = 1 if place.turn % 2 == 0 else k
    return "optimizer", (elementwise(n, cols, 2),)


def _parameters(inputs: int) -> Rule:
    """All parameters, one kernel each, or those of one shape that the row names."""

    def rule(place: Place) -> Found:
        shapes = place.model.parameters
        named = re.match(r"\(\((\d+),(?: (\d+))?\)", place.row["caller_input_shapes"])
        if named:
            n, k = int(named[1]), int(named[2] or 1)
            shapes = [(n, k)] * int(place.row["kernel_launches"])
        return "optimizer", tuple(elementwise(n, k, inputs) for n, k in shapes)

    return rule


def _linear_backward(place: Place) -> Found:
    """The gradient of the input (`nn`), then of the weight; a split's second kernel.

    The first layer has no gradient of its input.
    """
    m, k, n = place.layer
    name = place.row["kernel"]
    if name.startswith("void splitK"):
        return "join", ()
    to_weight = name.endswith("_nt") or "gemvNSP" in name
    if to_weight:
        sizes = {"b": 1, "m": n, "n": k, "k": m, "layout": "tn"}
    else:
        sizes = {"b": 1, "m": m, "n": k, "k": n, "layout": "nn"}
    return "product backward", (made("gemm", **sizes),)


RULES: Mapping[str, Rule] = {
    "LookupFunction": _lookup,
    "Optimizer.zero_grad": _parameters(0),
    "Optimizer.step": _parameters(2),
    "torch::autograd::AccumulateGrad": _accumulated,
    "aten::to": _copy,
    "aten::linear": _linear,
    "aten::relu": _activation(1),
    "aten::sigmoid": _activation(1),
    "ReluBackward": _activation(2),
    "SigmoidBackward": lambda _: ("elementwise", (elementwise(BATCH, 1, 2),)),
    "aten::cat": _concat,
    "aten::bmm": _interaction,
    "BmmBackward": _interaction_backward,
    "aten::index": _index,
    "IndexBackward": _index_backward,
    "SliceBackward": _slice_backward,
    "aten::add": _add,
    "aten::mse_loss": _of_loss,
    "aten::binary_cross_entropy": _of_loss,
    "MseLossBackward": _of_loss,
    "BinaryCrossEntropyBackward": _of_loss,
    "aten::ones_like": lambda _: ("elementwise", (elementwise(1, 1, 0, "fill"),)),
    "AddmmBackward": _linear_backward,
    "aten::sum": _sum,
}
"""Rules, by how the op's name begins; of two that fit, the first."""
