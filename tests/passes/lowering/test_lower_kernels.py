"""How a program becomes a launch graph."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowered import LINEAR, kernels, lower, names, one_op, record

from perfc.ir import TaskKind, UsageError
from perfc.ir.opdef import Trait
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnboundSymbolError
from perfc.ir.text import parse_program
from perfc.passes import LAUNCHES, LowerKernels, PassManager, ShapeInference


def test_unknown_op_is_marked() -> None:
    """An op without a rule is one kernel of its bytes, under its own name."""
    text = 'graph @g(%x: f32[8]) { %y = unknown(%x) {op = "Fft"} : f32[4]\n return %y }'
    graph = lower(text)
    (kernel,) = kernels(graph)

    assert (["Fft"], "Fft", False) == (names(graph), kernel.op, kernel.known)
    assert (32, 16) == (kernel.work.bytes_read, kernel.work.bytes_written)


@pytest.mark.parametrize(
    ("target", "options", "gemm", "cudnn"),
    [
        ("a100", {}, "fp32", "tf32"),
        ("a100", {"cudnn_tf32": False}, "fp32", "fp32"),
        ("a100", {"tf32": True}, "tf32", "tf32"),
        ("a100", {"tf32": True, "cudnn_tf32": False}, "tf32", "fp32"),
        ("v100", {"tf32": True}, "fp32", "fp32"),  # has no TF32
        ("rtx-4090", {"tf32": True}, "fp32", "fp32"),  # has, and gains nothing by it
        ("mi300x", {}, "fp32_tensor", "fp32_tensor"),  # MIOpen does not take it itself
        ("mi300x", {"tf32": True}, "tf32", "tf32"),
    ],
)
def test_tf32_is_as_pytorch_has_it(
    target: str, options: dict[str, Any], gemm: str, cudnn: str
) -> None:
    """By default in what cuDNN computes, and not in GEMMs; each can be switched."""
    lowering = attrs.evolve(LowerKernels(inputs="device"), **options)
    found = [
        {k.math for k in kernels(lower(text, lowering, target)) if k.op in _MULTIPLY}
        for text in (
            one_op("%x: f32[512,512], param %w: f32[512,512]", "linear(%x, %w)"),
            one_op("%x: f32[64,64,56,56], param %w: f32[64,64,1,1]", "conv(%x, %w)"),
            _LSTM,
        )
    ]

    assert [{gemm}, {cudnn}, {cudnn}] == found


_MULTIPLY = ("gemm", "conv2d")
_LSTM = """graph @g(%x: f32[8,64,64], param %w: f32[1,256,64], %u: f32[1,256,64]) {
  %y, %h, %c = recurrent(%x, %w, %u) {kind = "lstm"} : ?, ?, ?
  return %y
}"""


def test_test_op_states_its_time() -> None:
    """An op for tests takes the microseconds it states."""
    text = "graph @g() { %y = test.op() {us = 12.5} : f32[1]\n return %y }"
    graph = lower(text)

    task = graph.kind.index(TaskKind.KERNEL)
    assert pytest.approx(12.5e-6) == graph.stated_s[task]


def test_pinned_inputs_are_copied_ahead() -> None:
    """The host does not wait for inputs in pinned memory."""
    graph = lower(LINEAR, LowerKernels())

    assert [
        TaskKind.CALL,
        TaskKind.COPY,
        TaskKind.CALL,
        TaskKind.KERNEL,
        TaskKind.SYNC,
    ] == graph.kind
    assert ["aten::to", "aten::linear"] == names(graph)
    copy = record(bytes=8 * 13 * 4, kind="h2d", pinned=True)
    assert copy == kernels(graph)[0].params


def test_pageable_inputs_are_waited_for() -> None:
    """Each copy from pageable memory is followed by a synchronisation."""
    graph = lower(LINEAR, LowerKernels(inputs="host-pageable"))

    assert TaskKind.SYNC is graph.kind[2]
    assert ("cudaStreamSynchronize", (1,)) == (graph.detail[2], graph.after[2])
    assert kernels(graph)[0].params["pinned"] is False


def test_pinned_inputs_that_are_waited_for() -> None:
    """Without `non_blocking` the host waits, and the copy is the one it would not."""
    graph = lower(LINEAR, LowerKernels(inputs="host-pinned-blocking"))

    assert TaskKind.SYNC is graph.kind[2]
    assert ("cudaStreamSynchronize", (1,)) == (graph.detail[2], graph.after[2])
    assert kernels(lower(LINEAR, LowerKernels())) == kernels(graph)


def test_iteration_ends_with_the_device() -> None:
    """The host waits for the last task of the device."""
    graph = lower(LINEAR)

    assert TaskKind.SYNC is graph.kind[-1]
    assert ("cudaDeviceSynchronize", (1,)) == (graph.detail[-1], graph.after[-1])


def test_copy_between_memories() -> None:
    """A copy op is a memcpy in its direction; the host waits for pageable memory."""
    text = "graph @g(%x: f32[8]) { %y = copy(%x) : f32[8]@host\n return %y }"
    graph = lower(text)

    (kernel,) = kernels(graph)
    assert ("d2h", False) == (kernel.params["kind"], kernel.params["pinned"])
    assert 2 == graph.kind.count(TaskKind.SYNC)


def test_unbound_symbols_are_named_together() -> None:
    """One error lists every dimension without a number, and how to set it."""
    text = one_op("%x: f32[batch,s77], %z: f32[nnz_0]", "relu(%x)")
    with pytest.raises(UnboundSymbolError) as caught:
        lower(text)

    advice = "--batch N (or --dim batch=N), --dim nnz_0=N, --dim s77=N"
    assert f"g: 3 dimensions have no number; give {advice}" == str(caught.value)


def test_unknown_place_of_inputs() -> None:
    """The option says what it may be."""
    with pytest.raises(UsageError, match=r"expected host-pinned, host-p.*, d"):
        LowerKernels(inputs="disk")


def test_launch_graph_stays_as_it_is() -> None:
    """What is given as launches is not lowered again."""
    program = parse_program('launches @t { thread "main" host {on = 0, seconds = 1} }')
    manager = PassManager((ShapeInference(), LowerKernels()))
    analysis = manager.run(program)

    assert (program.classes[0].launches,) == analysis.annotations.get(
        LAUNCHES, program, None
    )


def test_ops_name_their_nodes() -> None:
    """A launch leads back to the node it comes from."""
    assert ["y"] == [op.node for op in lower(LINEAR).ops[:-1]]


def test_equal_sites_share_a_signature() -> None:
    """Layers of one shape are one kernel signature."""
    lines = [f"%v{i + 1} = relu(%v{i}) : ?" for i in range(50)]
    graph = lower(f"graph @g(%v0: f32[4,8]) {{ {' '.join(lines)} return %v50 }}")

    assert (1, 50) == (len(graph.kernels), len(kernels(graph)))


@st.composite
def _chains(draw: st.DrawFn) -> str:
    """Draw a chain of ops on one matrix."""
    nodes = st.sampled_from(
        [
            "relu(%{0})",
            "transpose(%{0}) {{perm = [0, 2, 1]}}",
            "transpose(%{0}) {{perm = [1, 0, 2]}}",
            "flatten(%{0}) {{axis = 1}}",
            "softmax(%{0}) {{axis = -1}}",
            "cast(%{0}) {{dtype = !f16}}",
        ]
    )
    count = draw(st.integers(1, 8))
    rank = 3
    lines: list[str] = []
    for i in range(count):
        node = draw(nodes)
        if "perm" in node and rank == 2:
            node = "transpose(%{0}) {{perm = [1, 0]}}"
        rank = 2 if "flatten" in node else rank
        lines.append(f"%v{i + 1} = {node.format(f'v{i}')} : ?")
    shape = ",".join(map(str, draw(st.tuples(*[st.integers(0, 4)] * 3))))
    return f"graph @g(%v0: f32[{shape}]) {{ {' '.join(lines)} return %v{count} }}"


@given(_chains())
@settings(max_examples=60)
def test_launches_are_valid_and_in_order(text: str) -> None:
    """Every chain lowers to a valid launch graph whose op index never decreases."""
    graph = lower(text, LowerKernels())

    assert sorted(graph.op) == graph.op
    for kernel in graph.kernels:
        assert kernel.work.bytes > 0
        assert min(attrs.astuple(kernel.work)) >= 0


def test_every_op_has_a_rule_or_is_marked() -> None:
    """Only control flow, sequences, strings and unknown ops are without a rule."""
    from perfc.passes.control_flow.control_rules import CONTROL_RULES
    from perfc.passes.control_flow.sequence_rules import SEQUENCE_RULES
    from perfc.passes.lowering.eager.rule_table import RULES

    run = {op.name for op in BUILTIN_OPS if Trait.FREE not in op.traits}
    missing = run - set(RULES) - {"identity"}
    of_the_host = {"host_text", "mel_weight_matrix"}
    resolved = {*CONTROL_RULES, *SEQUENCE_RULES} - {"identity"}
    assert {"unknown", *resolved, *of_the_host} == missing
