"""Raised graphs compute what the files they come from compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.frontends.evaluate import Array, outputs
from tests.frontends.onnx.onnx_values import fill, random_inputs, run_reference
from tests.frontends.onnx.rewrites import shuffled, stripped, swapped

from perfc.frontends.onnx import OnnxFrontend
from perfc.ir import Graph, Node
from perfc.passes import PassManager
from perfc.passes.instruments import VerifyEach
from perfc.passes.pipelines import loading_pipeline

FOLDER = Path(__file__).parents[2] / "fixtures" / "onnx"
FIXTURES = sorted(FOLDER.glob("*.onnx"))
CASES = [(0, 6, 5), (1, 8, 1), (2, 3, 9)]
"""Seed, batch, pooling; with one lookup a bag some bags are empty, where legal."""


def _stem(path: Path) -> str:
    """Name a test after its file."""
    return path.stem


every_fixture = pytest.mark.parametrize("path", FIXTURES, ids=_stem)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """Where rewritten models go."""
    return tmp_path


@every_fixture
@pytest.mark.parametrize(("seed", "batch", "pooling"), CASES)
def test_computes_what_onnxruntime_computes(
    path: Path, seed: int, batch: int, pooling: int
) -> None:
    """The raised, typed and folded graph gives the numbers of the file."""
    pytest.importorskip("onnxruntime", reason="the reference run needs onnxruntime")
    rng = np.random.default_rng(seed)
    model = fill(onnx.load(path, load_external_data=False), rng)
    inputs = random_inputs(model, batch, pooling, rng)

    (expected,) = run_reference(model, inputs).values()
    (actual,) = outputs(_front(path), {**_initializers(model), **inputs})

    assert expected.dtype == actual.dtype
    assert expected.shape == actual.shape
    assert np.allclose(actual, np.asarray(expected, np.float64), rtol=1e-4, atol=1e-5)


@every_fixture
def test_one_bag_per_table(path: Path) -> None:
    """Every loop over bags becomes one embedding_bag, and nothing else is left."""
    graph = _front(path)
    ops = [node.op for node in graph]

    assert (4 if path.stem.startswith("dlrm") else 1) == ops.count("embedding_bag")
    assert set() == set(ops) & {"loop", "if", "unknown", "identity", "cast"}


@every_fixture
def test_needs_no_metadata(path: Path, folder: Path) -> None:
    """The structure of the loop alone tells what kind of bag it is."""
    model = stripped(onnx.load(path, load_external_data=False))

    assert _bags(_front(path)) == _bags(_front_of(model, folder))


@every_fixture
@pytest.mark.parametrize("seed", [0, 1])
def test_order_of_nodes_does_not_matter(path: Path, folder: Path, seed: int) -> None:
    """Any topological order of the nodes, in every graph, gives the same bags."""
    model = onnx.load(path, load_external_data=False)
    other = shuffled(model, np.random.default_rng(seed))

    assert sorted(_bags(_front(path))) == sorted(_bags(_front_of(other, folder)))


@every_fixture
def test_order_of_operands_does_not_matter(path: Path, folder: Path) -> None:
    """Swapping the operands of commutative ops gives the same bags."""
    other = swapped(stripped(onnx.load(path, load_external_data=False)))

    assert _bags(_front(path)) == _bags(_front_of(other, folder))


def _front(path: Path) -> Graph:
    program = OnnxFrontend().load(path)
    PassManager(loading_pipeline(()), (VerifyEach(),)).run(program)
    graph = program.classes[0].ops
    assert graph is not None
    return graph


def _front_of(model: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "rewritten.onnx"
    path.write_bytes(model.SerializeToString())
    return _front(path)


def _bags(graph: Graph) -> list[str]:
    """Operands, attributes and types of the bags, as text."""
    return [_text(node) for node in graph if node.op == "embedding_bag"]


def _text(node: Node) -> str:
    operands = ", ".join(f"{v}: {v.type}" for v in node.operands)
    return f"({operands}) {node.attributes} : {node.results[0].type}"


def _initializers(model: onnx.ModelProto) -> dict[str, Array]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
