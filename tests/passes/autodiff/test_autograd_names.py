"""What runs under which node of autograd, and what that is to the host."""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import pytest

from perfc.costmodels import HostProfile, PerName, load_profile
from perfc.costmodels.sheets.host_profile import REQUIRED_CALLS
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.ir import Program
from perfc.ir.location import autograd_call
from perfc.ir.text import parse_program
from perfc.passes import LowerKernels, PassManager, ShapeInference
from perfc.passes.autodiff.autograd_names import autograd_origin
from perfc.passes.facts import HOSTED, HostedLaunches
from perfc.passes.timing import Overhead
from perfc.passes.training import Training

MLP = """graph @g(%x: f32[4,8], param %w: f32[2,8], param %b: f32[2]) {
  %h = linear(%x, %w, %b) : ?
  %y = relu(%h) : ?
  return %y
}"""


def _trained(text: str, profile: str = "") -> tuple[Program, HostedLaunches]:
    program = parse_program(text)
    passes = (
        ShapeInference(),
        Training(loss="sum"),
        LowerKernels(inputs="device"),
        Overhead(profile),
    )
    analysis = PassManager(passes).run(program, None)
    (hosted,) = analysis.annotations.get(HOSTED, program, None)
    return program, hosted


def _origins(text: str) -> list[str]:
    """List the nodes of autograd of a step, in order, each once for neighbours."""
    program, _ = _trained(text)
    graph = program.classes[0].ops
    assert graph is not None
    found = [node.location.origin for node in graph if node.op != "constant"]
    called = [origin for origin in found if autograd_call(origin)]
    return [o for i, o in enumerate(called) if i == 0 or called[i - 1] != o]


def test_nodes_of_a_layer() -> None:
    """The order is autograd's; the weight's view has a node of its own."""
    assert [
        "SumBackward0(%loss.reduce)",
        "ReluBackward0(%y)",
        "AddmmBackward0(%h)",
        "TBackward0(%h)",
    ] == _origins(MLP)


def test_rows_of_a_sequence_are_views() -> None:
    """`linear` of three axes multiplies between two views."""
    text = MLP.replace("%x: f32[4,8]", "param %x: f32[4,3,8]")
    text = text.replace("%h = linear(%x,", "%a = exp(%x) : ?\n  %h = linear(%a,")

    assert [
        "SumBackward0(%loss.reduce)",
        "ReluBackward0(%y)",
        "ViewBackward0(%y.relu_backward)",
        "AddmmBackward0(%h)",
        "ViewBackward0(%h.matmul)",
        "TBackward0(%h)",
        "ExpBackward0(%a)",
    ] == _origins(text)


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("reduce(%x) {kind = 'mean', axes = [1]}", "MeanBackward1"),
        ("reduce(%x) {kind = 'sum'}", "SumBackward0"),
        ("transpose(%x) {perm = [1, 0]}", "TransposeBackward0"),
        ("matmul(%x, %w)", "MmBackward0"),
        ("log_softmax(%x) {axis = -1}", "LogSoftmaxBackward0"),
        ("leaky_relu(%x)", "LeakyReluBackward0"),
    ],
)
def test_names(node: str, name: str) -> None:
    """A call's name in camel case, with the number of the signature."""
    node = node.replace("'", '"')
    text = f"graph @g(param %x: f32[4,8], param %w: f32[8,2]) {{\n%y = {node} : ?\n"

    assert f"{name}(%y)" in _origins(f"{text}return %y }}")


def test_what_stands_for_several_calls_has_no_node() -> None:
    """The host runs several nodes for a rotary embedding: none is named."""
    text = """graph @g(param %x: f32[2,3,4,8], %c: f32[4,8], %s: f32[4,8]) {
      %y = rotary(%x, %c, %s) : ?
      return %y
    }"""

    assert ["SumBackward0(%loss.reduce)"] == _origins(text)


def test_an_exporter_s_origin_is_no_node() -> None:
    """Only names of autograd's nodes count."""
    assert "AddmmBackward0" == autograd_call("AddmmBackward0(%h)")
    assert "" == autograd_call("aten.linear.default(%x, %w)")
    assert "" == autograd_call("torch::autograd::AccumulateGrad")
    assert "" == autograd_call("")
    name = "torch::autograd::CppNode<SplitLookupFunction_sgd_Op>"
    assert name == autograd_call(f"{name}(%bags)")


def test_no_name_has_no_origin() -> None:
    """What several nodes run is not of one."""
    program, _ = _trained(MLP)
    graph = program.classes[0].ops
    assert graph is not None

    assert "" == autograd_origin("", graph.inputs[0])


def test_a_node_of_autograd_is_one_op_to_the_host(tmp_path: Path) -> None:
    """`AddmmBackward0` pays T2 and T3 once, T5 between its kernels, by its own name."""
    path = tmp_path / "host.toml"
    head = ProfileHead(name="mine", source="a test", date="2026-01-01", software="none")
    path.write_text(profile_text(head, host=_profile()), encoding="utf-8")
    _, hosted = _trained(MLP, str(path))

    graph = hosted.graph
    backward = [
        (detail, round(float(seconds), 4))
        for detail, seconds, op in zip(
            graph.detail, hosted.host_s, graph.op, strict=True
        )
        if graph.ops[op].node.startswith("h.") and not math.isnan(seconds)
    ]
    # the data needs no gradient: a GEMM for the weight, a sum for the bias
    assert [
        ("T1", 0.1),
        ("T2", 0.4),
        ("cudaLaunchKernel", 0.05),
        ("T5", 0.9),
        ("cudaLaunchKernel", 0.05),
        ("T3", 0.3),
        ("T1", 0.1),
        ("T5", 0.7),
    ] == backward


def _profile() -> HostProfile:
    return attrs.evolve(
        load_profile("lin-v100"),
        t1_s=0.1,
        t2_s=PerName(0.2, {"AddmmBackward0": 0.4, "aten::matmul": 0.6}),
        t3_s=PerName(0.3, {}),
        t5_s=PerName(0.9, {}),
        t0_s=PerName(0.5, {"TBackward0": 0.7}),
        calls_s=PerName(0.05, dict.fromkeys(REQUIRED_CALLS, 0.05)),
    )
