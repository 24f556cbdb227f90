"""accumulate-gradients: steps of several microbatches, their time, bytes and memory."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from tests.passes.torch_graph import run_graph

import perfc
from perfc.frontends.workloads import build_workload
from perfc.ir import Graph, Node, Program, UsageError, Value
from perfc.ir.choices import INPUTS
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import BudgetError, UnsupportedModelError, raised_budgets
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import (
    CheckpointActivations,
    Fsdp,
    Pass,
    PassManager,
    ShapeInference,
    TensorParallel,
)
from perfc.passes.memory import BufferKind
from perfc.passes.parallel import DataParallel
from perfc.passes.pipelines import completed, inferred
from perfc.passes.training import AccumulateGradients, Training
from perfc.tools.reports import Report

BATCH, LAYERS = 2, 3
MODEL = f"gpt2:layers={LAYERS},hidden=64,heads=4,seq=16,vocab=101"
COUNTS = (2, 3, 5)
HEADROOM = 1.01
"""What rounding to blocks of the allocator may add to memory."""

CHAIN = """
graph @chain(%x: f32[4,3], param %w: f32[5,3], param %b: f32[5], param %v: f32[2,5]) {
  %h = linear(%x, %w, %b) : ?
  %a = relu(%h) : ?
  %y = linear(%a, %v) : ?
  return %y
}
"""


def _run(passes: Iterable[Pass], program: Program | None = None) -> Graph:
    """Return the graph of the one class of ranks that passes make."""
    source = build_workload(MODEL) if program is None else program
    ordered = inferred(completed([*passes]))
    done = PassManager([ShapeInference(), *ordered]).run(source).program
    (rank,) = done.classes
    assert rank.ops is not None
    verify(rank.ops, BUILTIN_OPS)
    return rank.ops


def _nodes(graph: Graph, op: str) -> list[Node]:
    return [node for node in graph if node.op == op]


def _elements(values: Iterable[Value]) -> int:
    return sum(int(v.type.numel) for v in values if v.type is not None)


def _report(
    count: int, *passes: Pass, target: str = "a100", **options: object
) -> Report:
    """Return the report of a step of *count* microbatches of `BATCH` samples."""
    model = perfc.load(
        MODEL,
        batch=BATCH * count,
        mode="training",
        optimizer="adam",
        accumulate=count,
        transforms=passes,
        **options,  # type: ignore[arg-type]
    )
    return perfc.analyze(model, target)


def _phase_us(report: Report, *phases: str) -> float:
    return sum(float(r["time_us"]) for r in report.phases if r["phase"] in phases)


def test_gradients_are_those_of_all_microbatches() -> None:
    """Microbatches of the same samples, each divided by their number, make its own."""
    data = {
        "x": torch.randn(4, 3),
        "w": torch.randn(5, 3),
        "b": torch.randn(5),
        "v": torch.randn(2, 5),
        "labels": torch.randn(4, 2),
    }
    phases = ("forward", "loss", "backward")
    training = Training(loss="mse")
    one = run_graph(_run([training], parse_program(CHAIN)), data, phases)
    passes = (training, AccumulateGradients(4))
    four = run_graph(_run(passes, parse_program(CHAIN)), data, phases)

    for name in ("w.grad", "b.grad", "v.grad"):
        torch.testing.assert_close(one[name], four[f"{name}.mb3"])


def test_one_microbatch_changes_nothing() -> None:
    """`accumulate=1` is byte for byte a step without it, with the pass and without."""
    passes: tuple[tuple[Pass, ...], ...] = ((), (AccumulateGradients(1),))
    plain = perfc.load(MODEL, batch=BATCH, mode="training", optimizer="adam")
    expected = perfc.analyze(plain, "a100").to_json()

    for extra in passes:
        assert expected == _report(1, *extra).to_json()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("runtime", ["eager", "cudagraph"])
def test_time_is_between_passes_and_steps(count: int, runtime: str) -> None:
    """N microbatches take N times forward and backward, and less than N steps."""
    whole, step = (
        perfc.analyze(_report(n).model, "a100", runtime=runtime) for n in (1, count)
    )
    passes_us = whole.time_us - _phase_us(whole, "optimizer", "")

    assert count * passes_us <= step.time_us <= count * whole.time_us


@pytest.mark.parametrize("count", COUNTS)
def test_work_is_that_of_microbatches(count: int) -> None:
    """Products are done once for every sample, the optimizer's work once a step."""
    one, many = (_run([Training(), AccumulateGradients(n)]) for n in (1, count))

    for op in ("linear", "matmul", "attention", "attention_backward"):
        assert count * len(_nodes(one, op)) == len(_nodes(many, op))
    assert len(_nodes(one, "foreach")) == len(_nodes(many, "foreach"))
    assert len({node.name for node in many}) == len(list(many))


def test_nodes_keep_their_names() -> None:
    """The first microbatch and the optimizer have the ids of a step of one."""
    one, many = (_run([Training(), AccumulateGradients(n)]) for n in (1, 2))

    assert {node.name for node in one} <= {node.name for node in many}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sync", ["last", "each"])
def test_ddp_sends_once_unless_told(count: int, sync: str) -> None:
    """All-reduced bytes do not grow with microbatches, or with `each` as they do."""
    parallel = DataParallel(ranks=2, bucket_mb=0.1, first_bucket_mb=0.01)
    one = _run([Training(), parallel])
    many = _run([Training(), AccumulateGradients(count, sync), parallel])
    times = 1 if sync == "last" else count

    sent, found = (
        _elements(v for node in _nodes(graph, "all_reduce") for v in node.operands)
        for graph in (one, many)
    )
    assert times * sent == found
    assert times * len(_nodes(one, "all_reduce")) == len(_nodes(many, "all_reduce"))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("sync", "strategy", "gathers", "scatters"),
    [
        ("last", "full", True, False),
        ("last", "grad-op", False, False),
        ("each", "full", True, True),
        ("each", "grad-op", True, True),
    ],
)
def test_fsdp_sends_what_it_must(
    count: int, sync: str, strategy: str, gathers: bool, scatters: bool
) -> None:
    """Parameters that are forgotten are gathered again, gradients scattered once."""
    fsdp = Fsdp(ranks=4, strategy=strategy)
    one = _run([fsdp, Training()])
    many = _run([fsdp, Training(), AccumulateGradients(count, sync)])

    for op, each in (("all_gather", gathers), ("reduce_scatter", scatters)):
        times = count if each else 1
        assert times * len(_nodes(one, op)) == len(_nodes(many, op))


def test_what_stages_of_a_layer_send_is_sent_by_each() -> None:
    """Activations that `tensor-parallel` adds up belong to their microbatch."""
    one, many = (
        _run([TensorParallel(ranks=2), Training(), AccumulateGradients(n)])
        for n in (1, 3)
    )

    assert 3 * len(_nodes(one, "all_reduce")) == len(_nodes(many, "all_reduce"))


@pytest.mark.parametrize(
    "passes", [(), (CheckpointActivations(modules="transformer.h.*"),)]
)
def test_memory_is_that_of_one_microbatch(passes: tuple[Pass, ...]) -> None:
    """Nothing but the sum of gradients and the next inputs outlives a microbatch."""
    one, *more = (_report(n, *passes).memory_use for n in (1, *COUNTS))
    gradients = sum(b.nbytes for b in one.buffers if b.kind is BufferKind.GRADIENT)

    assert len({use.peak_bytes for use in more}) == 1
    assert one.peak_bytes <= more[0].peak_bytes
    assert more[0].peak_bytes <= (one.peak_bytes + gradients) * HEADROOM


def test_fsdp_keeps_whole_gradients_until_they_are_sent() -> None:
    """`last` holds gradients of all parameters, `each` those of a rank's part."""
    fsdp = Fsdp(ranks=4)
    ranks = {"target": "dgx-a100"}
    late, each, one = (
        _report(count, fsdp, *extra, **ranks).memory_use
        for count, extra in (
            (3, (AccumulateGradients(3),)),
            (3, (AccumulateGradients(3, sync="each"),)),
            (1, ()),
        )
    )
    held = [
        max(
            sum(
                b.nbytes
                for b in use.buffers
                if b.kind is BufferKind.GRADIENT and b.first <= n <= b.last
            )
            for n in range(len(use.nodes))
        )
        for use in (late, each, one)
    ]
    parameters = 4 * late.parameters_bytes

    assert held[0] == pytest.approx(parameters, rel=0.3)
    assert held[1] == pytest.approx(parameters / 4, rel=0.3)
    assert held[1] == held[2]
    assert each.peak_bytes < late.peak_bytes


def test_samples_are_those_of_all_microbatches() -> None:
    """The batch is the step's; so are the samples of a second."""
    report = _report(4)
    model, summary = report.header["model"], report.summary

    assert 4 * BATCH == report.model.batch == model["batch"]
    assert 4 == report.model.microbatches == model["microbatches"]
    assert summary["samples_per_s"] == pytest.approx(4 * BATCH / report.time_us * 1e6)
    assert "batch 8 · 4 microbatches · training" in str(report)
    assert "microbatches" not in _report(1).header["model"]


def test_a_loaded_step_is_bound_anew() -> None:
    """`Model.bind` takes the batch of the step, and what does not divide is refused."""
    model = _report(2).model
    again = model.bind(batch=12)

    assert 12 == again.batch
    assert {"batch": 12} == again.dims
    assert "i64[6,16]" == perfc.analyze(again, "a100").inputs["input_ids"]
    with pytest.raises(
        perfc.PerfcError, match="a batch of 7 does not divide into 2 mi"
    ):
        model.bind(batch=7)


def test_a_loaded_step_is_converted() -> None:
    """A type that is asked for late keeps batch and microbatches."""
    loaded = perfc.load(MODEL, batch=8, mode="training", accumulate=4)
    late = perfc.analyze(loaded, "a100", dtype="amp-bf16")
    soon = perfc.analyze(
        MODEL, "a100", batch=8, mode="training", accumulate=4, dtype="amp-bf16"
    )

    assert soon.to_json() == late.to_json()
    with pytest.raises(UsageError, match="is loaded for 4 microbatches a step; give a"):
        perfc.analyze(loaded, "a100", accumulate=2)


def test_microbatches_are_counted_before_they_are_written() -> None:
    """Nodes of all microbatches have a budget."""
    program = parse_program(CHAIN)
    size = len(_run([Training()], program))
    with raised_budgets({"microbatch-nodes": 4 * size - 1}):
        _run([Training(), AccumulateGradients(3)], parse_program(CHAIN))
        with pytest.raises(BudgetError, match="4 microbatches of @chain: "):
            _run([Training(), AccumulateGradients(4)], parse_program(CHAIN))


def test_launches_have_no_gradients() -> None:
    """A launch graph is refused."""
    program = parse_program('launches @l {\n  thread "main"\n  sync {on = 0}\n}\n')
    with pytest.raises(
        UnsupportedModelError, match="is given as launches: it has no g"
    ):
        AccumulateGradients(2).run(program, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("inputs", INPUTS)
def test_inputs_are_copied_for_each_microbatch(inputs: str) -> None:
    """As many copies as microbatches, of its samples; none if they are there."""
    model = _report(3).model
    report = perfc.analyze(model, "a100", inputs=inputs)
    copies = [n for n in report.nodes if n["op"] == "aten::to"]
    expected = 0 if inputs == "device" else 3 * len(report.inputs)

    assert expected == len(copies)
