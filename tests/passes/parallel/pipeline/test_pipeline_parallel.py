"""pipeline-parallel: what stages run, in which order, and what they tell each other."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.costmodels import load_target
from perfc.frontends.workloads import build_workload
from perfc.ir import Graph, LaunchGraph, Node, Program, TensorType, Value, single
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import (
    BudgetError,
    UnsupportedModelError,
    VerifyError,
    raised_budgets,
)
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import (
    LAUNCHES,
    LowerKernels,
    Pass,
    PassManager,
    PipelineParallel,
    ShapeInference,
    TensorParallel,
)
from perfc.passes.memory import MEMORY, Memory
from perfc.passes.parallel import DataParallel
from perfc.passes.parallel.pipeline.microbatches import SCHEDULES, Step, steps_of
from perfc.passes.shapes import FoldShapes
from perfc.passes.timing import TimeConstants, link_graphs, solve
from perfc.passes.training import Training

BATCH = 24
SIZES = "layers=4,hidden=64,heads=4,seq=16,vocab=101"
TARGET = load_target("dgx-a100")
SAMPLES = 4096
ACTIVATION = SAMPLES * 64 * 4
"""Bytes that a layer of `_chain` returns for a microbatch of so many samples."""

FREE = TimeConstants(stream_gap_s=0.0, graph_gap_s=0.0, launch_latency_s=0.0)
FORWARD_S, BACKWARD_S = 1.0, 2.0
SCHEDULE = st.sampled_from(sorted(SCHEDULES))


def _run(program: Program, *passes: Pass, batch: int = BATCH) -> Program:
    inferred = [q for p in passes for q in (p, ShapeInference())]
    manager = PassManager([ShapeInference(), FoldShapes(), *inferred])
    program = manager.run(program).program
    for rank in program.classes:
        assert rank.ops is not None
        verify(rank.ops, BUILTIN_OPS)
    return program.bind({"batch": batch})


def _graphs(program: Program) -> list[Graph]:
    return [rank.ops for rank in program.classes if rank.ops is not None]


def _chain(layers: int) -> Program:
    """Return equal linear layers, one after the other."""
    weights = ", ".join(f"param %w{n}: f32[64,64]" for n in range(layers))
    nodes = [
        f'%h{n + 1} = linear(%h{n}, %w{n}) : ? loc{{module = "layers.{n}"}}'
        for n in range(layers)
    ]
    text = f"graph @chain(%h0: f32[batch,64], {weights}) {{\n"
    return parse_program("\n".join([text, *nodes, f"return %h{layers}\n}}"]))


def _type(value: Value) -> TensorType:
    assert value.type is not None
    return value.type.bind({"batch": BATCH})


def _flops(graph: Graph) -> int:
    """Return the flops of GEMMs and attention, forward and backward."""
    found = 0
    for node in graph:
        if node.op in ("linear", "matmul", "attention", "attention_backward"):
            operands, results = map(_type, node.operands), map(_type, node.results)
            work = BUILTIN_OPS[node.op].work(node.attributes, [*operands], [*results])
            found += int(work.flops)
    return found


def test_microbatches_are_counted_before_they_are_written() -> None:
    """Nodes of all microbatches have a budget, which is kept to the last of them."""
    piped = PipelineParallel(stages=2, microbatches=6)
    problem = "6 microbatches of pipeline-parallel: 18 nodes of all microbatches"

    with raised_budgets({"pipeline-nodes": 18}):
        assert 2 == len(_graphs(_run(_chain(3), piped)))
    with raised_budgets({"pipeline-nodes": 17}), pytest.raises(BudgetError) as error:
        _run(_chain(3), piped)
    assert problem in str(error.value)


@pytest.mark.parametrize("model", [f"gpt2:{SIZES}", f"bert-base:{SIZES}"])
@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_work_of_all_stages_adds_up(model: str, schedule: str) -> None:
    """Stages together do the GEMMs of all layers once for every sample."""
    training = Training(optimizer="adamw")
    (whole,) = _graphs(_run(build_workload(model), training))
    piped = PipelineParallel(stages=3, microbatches=4, schedule=schedule)
    parts = _graphs(_run(build_workload(model), training, piped))

    assert _flops(whole) == sum(map(_flops, parts))
    assert all(_flops(part) for part in parts)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam", "adamw"])
@pytest.mark.parametrize("fused", [False, True])
def test_every_parameter_is_updated_where_it_is(optimizer: str, fused: bool) -> None:
    """Parameters and states are all held, a tied weight by two stages."""
    training = Training(optimizer=optimizer, fused=fused)
    model = build_workload(f"gpt2:{SIZES}")
    (whole,) = _graphs(_run(model, training))
    model = build_workload(f"gpt2:{SIZES}")
    parts = _graphs(_run(model, training, PipelineParallel(2, 2)))
    held = Counter(v.name for g in parts for v in (*g.parameters, *g.states))

    assert {v.name for v in (*whole.parameters, *whole.states)} == held.keys()
    twice = {name for name, count in held.items() if count > 1}
    assert all(name.startswith("transformer.wte.weight") for name in twice)
    assert "transformer.wte.weight" in twice
    for graph in parts:
        updates = [n for n in graph if n.location.phase == "optimizer"]
        read = {value for node in updates for value in node.operands}
        assert read >= {*graph.parameters, *graph.states}


def _pairs(graphs: list[Graph], op: str) -> dict[str, list[tuple[int, str]]]:
    """Return who sends or receives what in each group, in order."""
    found: dict[str, list[tuple[int, str]]] = {}
    for stage, graph in enumerate(graphs):
        for node in graph:
            if node.op == op:
                value = node.operands[0] if op == "send" else node.results[0]
                said = f"{value.name}: {value.type}"
                found.setdefault(node.attributes.text("group"), []).append(
                    (stage, said)
                )
    return found


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.integers(1, 7), SCHEDULE)
def test_sends_meet_what_receives_them(stages: int, count: int, schedule: str) -> None:
    """In every group one stage sends what another receives, in the same order."""
    piped = PipelineParallel(stages, count, schedule)
    graphs = _graphs(_run(_chain(6), Training(loss="sum"), piped, batch=count))
    sent, received = _pairs(graphs, "send"), _pairs(graphs, "recv")

    assert 2 * (stages - 1) == len(sent)
    assert sent.keys() == received.keys()
    for group, values in sent.items():
        assert [said for _, said in values] == [said for _, said in received[group]]
        assert count == len(values)
        ends = {values[0][0], received[group][0][0]}
        assert f"pp.{min(ends)}-{max(ends)}" == group.rpartition(".")[0]


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(2, 3))
def test_chunks_send_to_the_next_rank(stages: int, rounds: int, chunks: int) -> None:
    """From the last rank on to the first; each rank holds every P-th chunk."""
    count, layers = rounds * stages, stages * chunks
    piped = PipelineParallel(stages, count, "interleaved", chunks)
    made = _run(_chain(layers), Training(loss="sum"), piped, batch=count)
    graphs = _graphs(made)
    sent, received = _pairs(graphs, "send"), _pairs(graphs, "recv")

    assert 2 * (layers - 1) == len(sent)
    for group, values in sent.items():
        assert [said for _, said in values] == [said for _, said in received[group]]
        assert count == len(values)
        source, target = values[0][0], received[group][0][0]
        step = -1 if group.endswith("bwd") else 1
        assert target == (source + step) % stages
    held = [[v.name for v in graph.parameters] for graph in graphs]
    assert [
        [f"w{layer}" for layer in range(rank, layers, stages)] for rank in range(stages)
    ] == held


def _lowered(program: Program) -> tuple[LaunchGraph, ...]:
    analysis = PassManager([ShapeInference(), LowerKernels()]).run(program, TARGET)
    return analysis.annotations.get(LAUNCHES, analysis.program, None)


def _step_s(program: Program) -> float:
    """Return how long a step takes where layers have times and nothing else has."""
    launches = _lowered(program)
    seconds = [
        _seconds(graph, task) for graph in launches for task in range(len(graph))
    ]
    _, end_s, _ = solve(link_graphs(launches, FREE), seconds)
    return max(end_s)


def _seconds(graph: LaunchGraph, task: int) -> float:
    """Return the time of a layer, or of the gradient of its weight."""
    if graph.kernel[task] < 0 or graph.kernels[graph.kernel[task]].op != "gemm":
        return 0.0
    node = graph.ops[graph.op[task]].node
    if "matmul" not in node:
        return FORWARD_S
    is_first = node.startswith("h1.")
    return BACKWARD_S if "matmul_1" in node or is_first else 0.0


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.integers(1, 7), SCHEDULE)
def test_the_bubble(stages: int, count: int, schedule: str) -> None:
    """Equal stages and free sends take (M + P - 1) / M of one stage's work.

    And nothing waits for ever.
    """
    piped = PipelineParallel(stages, count, schedule)
    made = _run(_chain(stages), Training(loss="sum"), piped, batch=count)
    work_s = count * (FORWARD_S + BACKWARD_S)

    assert (count + stages - 1) / count * work_s == pytest.approx(_step_s(made))


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(2, 3))
def test_the_bubble_of_chunks(stages: int, rounds: int, chunks: int) -> None:
    """It is that of 1F1B over the number of chunks (Narayanan et al., 2021)."""
    count = rounds * stages
    piped = PipelineParallel(stages, count, "interleaved", chunks)
    made = _run(_chain(stages * chunks), Training(loss="sum"), piped, batch=count)
    work_s = count * chunks * (FORWARD_S + BACKWARD_S)
    bubble_s = (stages - 1) * (FORWARD_S + BACKWARD_S)

    assert work_s + bubble_s == pytest.approx(_step_s(made))


@given(st.integers(1, 6), st.integers(1, 4), st.integers(2, 4), st.data())
def test_every_chunk_once(
    stages: int, rounds: int, chunks: int, data: st.DataObject
) -> None:
    """Each microbatch goes up through the chunks of a stage, then down."""
    stage, count = data.draw(st.integers(0, stages - 1)), rounds * stages
    steps = steps_of("interleaved", stage, stages, count, training=True, chunks=chunks)

    assert 2 * count * chunks == len(steps) == len(set(steps))
    for number in range(count):
        mine = [(s.backward, s.chunk) for s in steps if s.microbatch == number]
        up = [(False, chunk) for chunk in range(chunks)]
        down = [(True, chunk) for chunk in reversed(range(chunks))]
        assert up + down == mine


def test_a_tied_weight_of_two_chunks_of_a_stage() -> None:
    """It is refused: the first and the third chunk of two stages are one rank's."""
    text = """graph @tied(%x: f32[batch,64], param %a: f32[64,64], param %b: f32[64,64],
        param %c: f32[64,64]) {
      %h = linear(%x, %a) : ? loc{module = "layers.0"}
      %i = linear(%h, %b) : ? loc{module = "layers.1"}
      %j = linear(%i, %a) : ? loc{module = "layers.2"}
      %k = linear(%j, %c) : ? loc{module = "layers.3"}
      return %k
    }"""
    with pytest.raises(UnsupportedModelError, match="%a is read by chunks 0, 2, two"):
        _run(parse_program(text), PipelineParallel(2, 2, "interleaved", 2))


def test_order_of_gpipe() -> None:
    """All forward, then all backward."""
    steps = steps_of("gpipe", 0, 2, 3, training=True)

    assert [Step(0), Step(1), Step(2)] == steps[:3]
    assert [Step(n, backward=True) for n in range(3)] == steps[3:]


@given(st.integers(1, 8), st.integers(1, 12), st.data())
def test_in_flight(stages: int, count: int, data: st.DataObject) -> None:
    """At most P - p microbatches wait for backward in 1F1B, in GPipe all of them."""
    stage = data.draw(st.integers(0, stages - 1))
    most = dict.fromkeys(SCHEDULES, 0)
    for name in SCHEDULES:
        waiting = 0
        for step in steps_of(name, stage, stages, count, training=True):
            waiting += -1 if step.backward else 1
            most[name] = max(most[name], waiting)
        assert waiting == 0
    assert count == most["gpipe"]
    assert min(count, stages - stage) == most["1f1b"]


@given(st.integers(1, 8), st.integers(1, 12), SCHEDULE, st.data())
def test_every_microbatch_once(
    stages: int, count: int, schedule: str, data: st.DataObject
) -> None:
    """Each runs forward once, and then backward once, in order."""
    stage = data.draw(st.integers(0, stages - 1))
    steps = steps_of(schedule, stage, stages, count, training=True)

    for backward in (False, True):
        order = [step.microbatch for step in steps if step.backward == backward]
        assert [*range(count)] == order
    for number in range(count):
        forward, backward_ = Step(number), Step(number, backward=True)
        assert steps.index(forward) < steps.index(backward_)


def _peaks(schedule: str, count: int) -> list[int]:
    """Return what each stage needs besides its inputs; all microbatches are alike."""
    piped = PipelineParallel(3, count, schedule)
    made = _run(_chain(6), Training(loss="sum"), piped, batch=SAMPLES * count)
    passes = [ShapeInference(), LowerKernels(inputs="device"), Memory()]
    analysis = PassManager(passes).run(made, TARGET)
    uses = analysis.annotations.get(MEMORY, analysis.program, None)
    inputs = [ACTIVATION * count, 0, 0]
    return [use.peak_bytes - own for use, own in zip(uses, inputs, strict=True)]


def test_memory_follows_the_schedule() -> None:
    """More microbatches take no more memory in 1F1B; in GPipe all activations stay.

    Backward reads the inputs of layers: two a stage, of which the first has one as the
    input of the model. Losses are returned, one number each.
    """
    many = _peaks("1f1b", 8)
    assert pytest.approx(many, abs=0.01 * ACTIVATION) == _peaks("1f1b", 4)
    grown = zip(_peaks("gpipe", 4), _peaks("gpipe", 8), strict=True)
    kept = [4 * ACTIVATION, 8 * ACTIVATION, 8 * ACTIVATION]
    assert pytest.approx(kept, abs=0.01 * ACTIVATION) == [b - a for a, b in grown]


def test_replicas_reduce_gradients_once() -> None:
    """Each stage reduces what it holds, shared weights too, when all is added up."""
    model = build_workload(f"gpt2:{SIZES}")
    parallel = PipelineParallel(2, 4), DataParallel(world=6)
    made = _run(model, Training(), *parallel)

    assert [(0, 2, 4), (1, 3, 5)] == [rank.ranks for rank in made.classes]
    for stage, graph in enumerate(_graphs(made)):
        reduced = [n for n in graph if n.op == "pack"]
        assert len(graph.parameters) == len(reduced)
        groups = {_communicator(n) for n in graph if n.op == "all_reduce"}
        assert {(f"dp.{stage}", 3, 2), ("pp.shared.0-1", 2, 1)} == groups


def _communicator(node: Node) -> tuple[str, int, int]:
    attributes = node.attributes
    return (
        attributes.text("group"),
        attributes.integer("ranks"),
        attributes.integer("stride", 1),
    )


def test_ranks_that_share_layers_make_a_stage() -> None:
    """They are neighbours; the next stage is as far away as they are many."""
    model = build_workload(f"gpt2:{SIZES}")
    made = _run(model, TensorParallel(4), Training(), PipelineParallel(2, 2))

    assert [(0, 1, 2, 3), (4, 5, 6, 7)] == [rank.ranks for rank in made.classes]
    for stage, graph in enumerate(_graphs(made)):
        reduces = {_communicator(n) for n in graph if n.op == "all_reduce"}
        assert {(f"tp.stage{stage}", 4, 1), ("pp.shared.0-1", 2, 4)} == reduces
        strides = {n.attributes["stride"] for n in graph if n.op in ("send", "recv")}
        assert {4} == strides


def test_a_batch_that_does_not_divide() -> None:
    """The error says what there is, and what there should be."""
    with pytest.raises(VerifyError, match="batch=6 does not divide into 4 microb"):
        _run(_chain(2), PipelineParallel(2, 4), batch=6)


def test_cuts_are_even() -> None:
    """Equal layers are assigned evenly."""
    graphs = _graphs(_run(_chain(8), PipelineParallel(4, 2)))

    assert [2, 2, 2, 2] == [len(graph.parameters) for graph in graphs]


def test_launches_have_no_layers() -> None:
    """A model given as launches is refused."""
    with pytest.raises(UnsupportedModelError, match="given as launches"):
        PassManager([ShapeInference(), PipelineParallel(2, 2)]).run(
            single(LaunchGraph("step"))
        )
