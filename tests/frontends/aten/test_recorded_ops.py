"""Ops of traces, each on its own, become ops of a graph, or it is said why not."""

from __future__ import annotations

import pytest

from perfc.frontends.aten import NotRecordedError, RecordedGraph
from perfc.frontends.aten.recorded_layouts import memory_order
from perfc.ir import DTYPES, Graph
from perfc.traces import RecordedArgument, RecordedOp, RecordedTensor
from perfc.traces.inputs import UNRECORDED

F32, BF16 = DTYPES["f32"], DTYPES["bf16"]


def _tensor(*shape: int) -> RecordedTensor:
    return RecordedTensor(shape, F32)


def _graph(*ops: RecordedOp, default: str = "f32") -> Graph:
    made = RecordedGraph("trace", DTYPES[default])
    for op in ops:
        made.add(op)
    (rank,) = made.program().classes
    assert rank.ops is not None
    return rank.ops


def _op(name: str, *arguments: RecordedArgument) -> RecordedOp:
    return RecordedOp(f"aten::{name}", arguments)


X, W, B = _tensor(16, 8), _tensor(8, 4), _tensor(4)
WEIGHT = _tensor(8)
STATISTICS = _tensor(16, 1)


@pytest.mark.parametrize(
    ("op", "written"),
    [
        (_op("mm", X, W), "matmul: f32[16,4]"),
        (_op("addmm", B, X, W, UNRECORDED, UNRECORDED), "linear: f32[16,4]"),
        (_op("baddbmm", _tensor(2, 3, 5), _tensor(2, 3, 4), _tensor(2, 4, 5), 0.0, 1),
         "matmul: f32[2,3,5]"),
        (_op("add_", X, _tensor(1, 8), UNRECORDED), "add: f32[16,8]"),
        (_op("mul", X, RecordedTensor((), DTYPES["f64"])), "mul: f32[16,8]"),
        (_op("gt", X, UNRECORDED), "greater: bool[16,8]"),
        (_op("sum", X, (0,), True, None), "reduce: f32[1,8]"),
        (_op("fill_", X, UNRECORDED), "overwrite: f32[16,8]"),
        (_op("cat", (_tensor(2, 3), _tensor(4, 3)), 0), "concat: f32[6,3]"),
        (_op("native_layer_norm", X, UNRECORDED, WEIGHT, WEIGHT, UNRECORDED),
         "layer_norm: f32[16,8]"),
        (_op("native_layer_norm_backward", X, X, UNRECORDED, STATISTICS, STATISTICS,
             WEIGHT, WEIGHT, UNRECORDED), "layer_norm_backward: f32[16,8]"),
        (_op("native_batch_norm", _tensor(2, 4, 8, 8), *[B] * 4, True, 0.1, 1e-5),
         "batch_norm: f32[2,4,8,8]"),
        (_op("threshold_backward", X, X, UNRECORDED), "relu_backward: f32[16,8]"),
        (_op("nan_to_num", X, UNRECORDED, UNRECORDED, UNRECORDED, X),
         "nan_to_num: f32[16,8]"),
        (_op("_foreach_add_", (X, B), (X, B), 1), "foreach"),
        (_op("cudnn_convolution", _tensor(2, 3, 8, 8), _tensor(4, 3, 3, 3), (1, 1),
             (2, 2), (1, 1), 1, False, False, True), "conv: f32[2,4,4,4]"),
    ],
)  # fmt: skip
def test_what_it_returns_follows(op: RecordedOp, written: str) -> None:
    """The op's rule says what a trace does not; numbers that hardly matter may lack."""
    *_, node = _graph(op)

    name, _, type_ = written.partition(": ")
    assert node.op == name
    assert not type_ or type_ == str(node.results[0].type)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (RecordedOp("fbgemm::permute", (X,)), "perfc does not know it"),
        (_op("mm", X, W, X, X), "perfc does not know it"),
        (_op("sum", X, UNRECORDED, UNRECORDED, UNRECORDED), "'dim' is not recorded"),
        (_op("cat", UNRECORDED, UNRECORDED), "'tensors' is not recorded"),
        (_op("cat", (_tensor(), _tensor()), 0), "have no axis 0"),
        (_op("cat", (_tensor(2, 3), _tensor(3)), 1), "have no axis 1"),
        (_op("max_pool2d_with_indices", _tensor(1, 2, 8, 8), *[UNRECORDED] * 5),
         "'kernel_size' is not recorded"),
        (_op("mm", X, X), "what it returns is not recorded"),
        (_op("zeros_like", X), "what it returns is not recorded"),
        (RecordedOp("fbgemm::f", (X,), "default", (X,), ("x",)), "perfc has no op"),
    ],
)  # fmt: skip
def test_what_cannot_be_told(op: RecordedOp, why: str) -> None:
    """Nothing is guessed that decides what is launched."""
    with pytest.raises(NotRecordedError, match=why):
        RecordedGraph("trace", F32).add(op)


def test_lists_have_the_type_of_the_trace() -> None:
    """A list whose element type is not told has that of most tensors."""
    parts = (RecordedTensor((2,), None), RecordedTensor((3,), None))

    *_, node = _graph(_op("cat", parts, 0), default="bf16")

    assert str(node.results[0].type) == "bf16[5]"


def test_a_matmul_reads_what_was_transposed() -> None:
    """Strides say that a matrix lies column by column: a view of another."""
    turned = RecordedTensor((8, 4), F32, (1, 8))

    nodes = [*_graph(_op("mm", X, turned))]

    assert ["transpose", "matmul"] == [node.op for node in nodes]
    assert str(nodes[0].operands[0].type) == "f32[4,8]"


def test_an_execution_trace_tells_overload_and_results() -> None:
    """Then neither signatures nor rules are asked."""
    made = _tensor(5, 8)
    op = RecordedOp("aten::relu", (made,), "default", (made,), ("self",))

    (node,) = _graph(op)

    assert ("relu", "f32[5,8]") == (node.op, str(node.results[0].type))


def test_signatures_are_those_of_pytorch() -> None:
    """Names of arguments are PyTorch's, in its order; ops that it has no more apart."""
    torch = pytest.importorskip("torch")
    schemas = torch._C._jit_get_all_schemas()  # there is no other way
    known = {
        (s.name, s.overload_name or "default"): tuple(a.name for a in s.arguments)
        for s in schemas
    }

    from perfc.frontends.aten.signatures import signatures

    for name, overloads in signatures().items():
        for one in overloads:
            overload = one.target.rpartition(".")[2]
            if overload != "1_9":
                assert one.names == known[name, overload], one.target


CONVOLUTION = _op(
    "cudnn_convolution",
    _tensor(2, 3, 224, 224),
    _tensor(64, 3, 7, 7),
    *[UNRECORDED] * 7,
)
GRADIENT = _op(
    "cudnn_convolution_backward",
    *(_tensor(2, 3, 224, 224), _tensor(2, 64, 112, 112), _tensor(64, 3, 7, 7)),
    *[UNRECORDED] * 8,
)


def test_gradients_tell_the_stride_of_convolutions() -> None:
    """Shapes of the gradient are those of the result: stride 2 and padding 3 here."""
    made = RecordedGraph("trace", F32)
    with pytest.raises(NotRecordedError, match="is not recorded"):
        made.add(CONVOLUTION)

    made.learn(GRADIENT)
    made.add(CONVOLUTION)
    made.add(GRADIENT)

    (rank,) = made.program().classes
    assert rank.ops is not None
    forward, backward = rank.ops
    assert ("conv", "conv_backward") == (forward.op, backward.op)
    assert str(forward.results[0].type) == "f32[2,64,112,112]"
    assert (2, 2) == forward.attributes.integers("stride")
    assert (3, 3, 3, 3) == forward.attributes.integers("padding")


def test_gradients_tell_that_batches_are_normalised_in_training() -> None:
    """Older traces do not say so."""
    image, channels = _tensor(2, 64, 8, 8), _tensor(64)
    norm = _op("cudnn_batch_norm", image, *[channels] * 4, *[UNRECORDED] * 3)
    given: list[RecordedArgument] = [image, image, *[channels] * 5]
    gradient = _op("cudnn_batch_norm_backward", *given, UNRECORDED, _tensor(0))
    made = RecordedGraph("trace", F32)
    with pytest.raises(NotRecordedError, match="'training' is not recorded"):
        made.add(norm)

    made.learn(gradient)
    made.add(norm)

    (rank,) = made.program().classes
    assert rank.ops is not None
    *_, node = rank.ops
    assert node.attributes.flag("training")


HEADS = RecordedTensor((2, 4, 3, 8), F32, (96, 8, 32, 1))
"""Axes 1 and 2 have changed places."""

CHANNELS_LAST = RecordedTensor((2, 4, 3, 8), F32, (96, 1, 32, 4))

HALVES = RecordedTensor((2, 4, 3, 4), F32, (96, 24, 8, 1))
"""Half of each row."""

IN_LINE = RecordedTensor((2, 4, 3, 8), F32, (96, 24, 8, 1))


@pytest.mark.parametrize(
    ("op", "views"),
    [
        (_op("copy_", IN_LINE, HEADS, UNRECORDED), ["transpose"]),
        (_op("copy_", HEADS, IN_LINE, UNRECORDED), ["transpose"]),
        (_op("copy_", IN_LINE, IN_LINE, UNRECORDED), []),
        (_op("add", IN_LINE, HEADS, 1), ["transpose"]),
        (_op("add", HEADS, HEADS, 1), []),
        (_op("neg", HEADS), []),
        (_op("neg", HALVES), ["view"]),
        (_op("cat", (HALVES, HALVES), 3), ["view", "view"]),
        (_op("cat", (HEADS, IN_LINE), 3), ["transpose"]),
        (_op("cat", (HEADS, HEADS), 3), ["transpose", "transpose"]),
        (_op("cat", (CHANNELS_LAST, CHANNELS_LAST), 1), []),
        (_op("cat", (CHANNELS_LAST, IN_LINE), 1), ["transpose"]),
        (_op("cat", (IN_LINE, _tensor(0)), 1), []),
        (_op("mul", RecordedTensor((2, 4), F32, (1, 0)),
             RecordedTensor((2, 4), F32, (4, 1))), []),
        (_op("mm", RecordedTensor((16, 8), F32, (1, 16)), W), ["transpose"]),
        (_op("sum", HALVES, (0,), False, None), []),
    ],
)  # fmt: skip
def test_operands_that_lie_unlike_each_other(op: RecordedOp, views: list[str]) -> None:
    """They are views of what lies in line, where that changes what is launched."""
    graph = _graph(op)

    *found, node = graph
    assert views == [view.op for view in found]
    shapes = [t.shape for t in op.arguments if isinstance(t, RecordedTensor)]
    if shapes and op.name != "aten::mm":
        assert shapes[0] == node.operands[0].type.shape  # type: ignore[union-attr]


def test_strides_in_the_order_of_memory() -> None:
    """Axes from the slowest to the fastest; those of one element stay."""
    assert (0, 2, 1, 3) == memory_order(HEADS)
    assert memory_order(HALVES) is None
    assert (0, 1, 2) == memory_order(RecordedTensor((4, 1, 2), F32, (2, 77, 1)))
    assert (2, 1, 0) == memory_order(RecordedTensor((4, 1, 2), F32, (1, 5, 4)))
