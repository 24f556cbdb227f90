"""What the front pipeline makes of exported models, in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfc.frontends.onnx import OnnxFrontend
from perfc.ir.text import print_graph
from perfc.passes import PassManager
from perfc.passes.instruments import VerifyEach
from perfc.passes.pipelines import loading_pipeline

FIXTURES = Path(__file__).parents[2] / "fixtures" / "onnx"
GOLDENS = Path(__file__).parent / "goldens"


@pytest.mark.parametrize(
    "name",
    [
        *("dlrm_small_legacy_op17", "dlrm_small_dynamo_op20_dynbatch"),
        *("bag_legacy_sum_2d", "bag_legacy_mean_bounds", "bag_legacy_sum_weighted"),
        *("bag_dynamo_max_offsets", "bag_dynamo_sum_padding"),
    ],
)
def test_text(name: str, request: pytest.FixtureRequest) -> None:
    """The graph prints as the golden file says; `--update-golden` writes it."""
    program = OnnxFrontend().load(FIXTURES / f"{name}.onnx")
    PassManager(loading_pipeline(()), (VerifyEach(),)).run(program)
    graph = program.classes[0].ops
    assert graph is not None
    path, text = GOLDENS / f"{name}.perfc", print_graph(graph)
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == text
