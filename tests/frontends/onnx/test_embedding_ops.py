"""Embedding bags that an exporter wrote as one op."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.frontends.onnx.onnx_models import info, model, weight

import perfc
from perfc.ir import Node
from perfc.ir.ops import BUILTIN_OPS

FIXTURES = Path(__file__).parents[2] / "fixtures"
CUSTOM = FIXTURES / "custom_op" / "dlrm_small_custom_op.onnx"
LOOPS = FIXTURES / "onnx" / "dlrm_small_dynamo_op20_dynbatch.onnx"


def _bags(path: Path, batch: int | None = None) -> list[Node]:
    graph = perfc.load(path, batch=batch).program.classes[0].ops
    assert graph is not None
    assert "unknown" not in {node.op for node in graph}
    return [node for node in graph if node.op == "embedding_bag"]


def _work(path: Path) -> dict[str, int]:
    """Return flops and bytes at a batch of 6 and 5 lookups a bag."""
    loaded = perfc.load(path, batch=6, pooling=5)
    graph = loaded.program.classes[0].ops
    assert graph is not None
    total = {"flops": 0, "bytes": 0}
    for node in graph:
        bound = loaded.program.bindings
        types = [[v.type for v in side] for side in (node.operands, node.results)]
        sides = [[t.bind(bound) for t in side if t is not None] for side in types]
        work = BUILTIN_OPS[node.op].work(node.attributes, *sides)
        total["flops"] += work.flops
        total["bytes"] += work.bytes
    return total


def test_custom_op_is_the_loop_that_it_replaces() -> None:
    """What the example exports does the same work as the exporter's own loops."""
    assert 4 == len(_bags(CUSTOM, batch=6))
    assert _work(LOOPS) == _work(CUSTOM)


def _bag(
    folder: Path,
    inputs: str,
    *,
    op: str = "EmbeddingBag",
    domain: str = "perfc",
    outputs: str = "y",
    **attributes: Any,
) -> Path:
    names = [("" if name == "-" else name) for name in inputs.split()]
    node = onnx.helper.make_node(
        op, names, outputs.split(), name="bag", domain=domain, **attributes
    )
    proto = model(
        [node],
        inputs=[
            info("i", [12], onnx.TensorProto.INT64),
            info("m", [4, 3], onnx.TensorProto.INT64),
            info("o", [4], onnx.TensorProto.INT64),
            info("s", [12]),
        ],
        outputs=[info("y", [None, 16])],
        initializers=[weight("w", 100, 16), weight("v", 16)],
        opsets={"": 18, domain: 1},
    )
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("inputs", "attributes", "expected"),
    [
        ("w i o", {"mode": "mean"}, {"mode": "mean", "has_offsets": True}),
        ("w i o", {}, {"mode": "sum", "has_offsets": True}),
        ("w m", {"mode": 2}, {"mode": "max"}),
        ("w m -", {"padding_idx": 3}, {"mode": "sum", "padding_index": 3}),
        ("w i o s", {}, {"mode": "sum", "has_offsets": True, "weighted": True}),
        (
            "w i o -",
            {"include_last_offset": 1},
            {"mode": "sum", "has_offsets": True, "include_last_offset": True},
        ),
    ],
)
def test_forms_of_the_custom_op(
    inputs: str, attributes: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    """Offsets, weights, mode and padding say what they say in PyTorch."""
    (bag,) = _bags(_bag(tmp_path, inputs, **attributes))
    found = {name: value for name, value in bag.attributes.items() if name != "tables"}

    assert expected == found
    assert bag.results[0].type is not None
    bags = 3 if "include_last_offset" in expected else 4
    assert (bags, 16) == bag.results[0].type.shape


@pytest.mark.parametrize("domain", ["aten", "org.pytorch.aten"])
def test_aten_fallback(domain: str, tmp_path: Path) -> None:
    """PyTorch's older fall-back calls ATen's op, with four results, by its name."""
    path = _bag(
        tmp_path,
        "w i o",
        op="ATen",
        domain=domain,
        outputs="y a b c",
        operator="embedding_bag",
        mode=1,
        include_last_offset=0,
        padding_idx=-1,
    )

    assert ["mean"] == [bag.attributes["mode"] for bag in _bags(path)]


def test_other_aten_ops_stay_unknown(tmp_path: Path) -> None:
    """The fall-back is for any op of ATen; only this one is known."""
    path = _bag(tmp_path, "w i", op="ATen", domain="aten", operator="cdist")
    graph = perfc.load(path, dims={}).program.classes[0].ops
    assert graph is not None

    assert ["unknown"] == [node.op for node in graph]


@pytest.mark.parametrize(
    ("inputs", "attributes", "problem"),
    [
        (
            "w i o",
            {"mode": "median"},
            "mode 'median' is none of sum, mean, max, 0 to 2",
        ),
        ("w i o", {"mode": 3}, "mode 3 is none of sum, mean, max, 0 to 2"),
        ("v i o", {}, "the type of its weight 'v' is f32[16], expected a matrix"),
        ("w", {}, "needs a weight and indices"),
        ("w i", {}, "'bag': indices i64[12] need offsets, or a second dimension"),
    ],
)
def test_bad_forms(
    inputs: str, attributes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    """What cannot be a bag is said."""
    with pytest.raises(perfc.PerfcError) as caught:
        _bags(_bag(tmp_path, inputs, **attributes))

    assert str(caught.value).endswith(problem)
