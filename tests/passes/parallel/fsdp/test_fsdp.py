"""fsdp and regather: what ranks share, and what is sent for it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import perfc
from perfc.frontends.workloads import build_workload
from perfc.ir import Graph, Node, Program, TensorType, Value
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.verification import verify
from perfc.passes import (
    CheckpointActivations,
    Fsdp,
    Pass,
    PassManager,
    ShapeInference,
    ShardEmbeddings,
)
from perfc.passes.parallel import Regather
from perfc.passes.parallel.fsdp.fsdp_units import repeated_blocks
from perfc.passes.precision import ConvertDtype
from perfc.passes.training import Training
from perfc.tools.models.pass_order import training_passes

BATCH, RANKS, LAYERS = 2, 4, 3
MODEL = f"gpt2:layers={LAYERS},hidden=64,heads=4,seq=16,vocab=101"
UNIT = 12 * 64 * 64 + 13 * 64
"""Elements of one block: 12 h^2 of weights, 13 h of biases and norms."""


def _run(passes: Iterable[Pass], model: str = MODEL) -> Program:
    inferred = [q for p in passes for q in (p, ShapeInference())]
    program = build_workload(model)
    done = PassManager([ShapeInference(), *inferred]).run(program).program
    for rank in done.classes:
        assert rank.ops is not None
        verify(rank.ops, BUILTIN_OPS)
    return done.bind({"batch": BATCH})


def _step(*early: Pass, optimizer: str = "adam") -> Graph:
    """Return the training step, as `--mode training` makes it."""
    (rank,) = _run(training_passes("training", optimizer, early)).classes
    assert rank.ops is not None
    return rank.ops


def _type(value: Value) -> TensorType:
    assert value.type is not None
    return value.type.bind({"batch": BATCH})


def _nodes(graph: Graph, op: str) -> list[Node]:
    return [node for node in graph if node.op == op]


def _bytes(values: Iterable[Value]) -> int:
    return sum(int(_type(value).nbytes) for value in values)


def _flops(graph: Graph, phases: tuple[str, ...] = ("forward", "backward")) -> int:
    found = 0
    for node in graph:
        if node.location.phase in phases:
            operands = [_type(v) for v in node.operands]
            results = [_type(v) for v in node.results]
            opdef = BUILTIN_OPS[node.op]
            found += int(opdef.work(node.attributes, operands, results).flops)
    return found


def test_parameters_and_states_add_up() -> None:
    """A rank has its part of every parameter and of every state, padding apart."""
    whole, part = _step(), _step(Fsdp(ranks=RANKS))
    padding = 4 * RANKS * (LAYERS + 1)

    for of_whole, of_part in (
        (whole.parameters, part.parameters),
        (
            [v for v in whole.states if _type(v).shape],
            [v for v in part.states if _type(v).shape],
        ),
    ):
        assert 0 <= RANKS * _bytes(of_part) - _bytes(of_whole) <= 2 * padding


def test_work_stays_on_every_rank() -> None:
    """Each rank computes its own batch: forward and backward are what they were."""
    assert _flops(_step()) == _flops(_step(Fsdp(ranks=RANKS)))


@pytest.mark.parametrize(
    ("strategy", "gathers"), [("full", 2 * LAYERS + 1), ("grad-op", LAYERS + 1)]
)
def test_bytes_of_each_unit(strategy: str, gathers: int) -> None:
    """A unit is gathered before forward and, if forgotten, backward; scattered once."""
    graph = _step(Fsdp(ranks=RANKS, strategy=strategy))
    units = [n for n in _nodes(graph, "all_gather") if ".h." in n.name]
    scatters = [n for n in _nodes(graph, "reduce_scatter") if ".h." in n.name]

    assert gathers == len(_nodes(graph, "all_gather"))
    assert LAYERS + 1 == len(_nodes(graph, "reduce_scatter"))
    assert {4 * UNIT} == {_bytes(node.results) for node in units}
    assert [4 * UNIT] * LAYERS == [_bytes(node.operands) for node in scatters]


def test_backward_reads_what_it_has_gathered() -> None:
    """Nothing of a unit that forward gathered is read in backward but the root's."""
    graph = _step(Fsdp(ranks=RANKS))
    again = {
        value
        for node in graph
        if node.location.phase == "backward"
        for value in node.operands
        if (producer := value.producer) is not None
        and ".fsdp." in value.name
        and producer.location.phase == "forward"
    }

    assert again
    assert all("transformer.h." not in value.name for value in again)


@pytest.mark.parametrize(("prefetch", "ahead"), [("pre", True), ("none", False)])
def test_prefetch(prefetch: str, *, ahead: bool) -> None:
    """With `pre` a block is gathered before the one after it goes backward."""
    nodes = list(_step(Fsdp(ranks=RANKS, prefetch=prefetch)))
    gather = next(
        n
        for n in nodes
        if n.name.startswith("transformer.h.0.fsdp.all_gat")
        and n.location.phase == "backward"
        and n.op == "all_gather"
    )
    before = next(
        n
        for n in nodes
        if n.location.phase == "backward"
        and n.location.module.startswith("transformer.h.1.")
        and n.op == "matmul"
    )

    assert ahead == (nodes.index(gather) < nodes.index(before))


def test_nodes_share_and_add_up() -> None:
    """Hybrid: parts of a node's ranks; gradients are all-reduced between nodes."""
    graph = _step(Fsdp(ranks=8, strategy="hybrid", per_node=2))
    (unit, *_) = [n for n in _nodes(graph, "all_gather") if ".h." in n.name]
    reduces = _nodes(graph, "all_reduce")

    assert 2 == unit.attributes["ranks"]
    assert {(4, 2)} == {
        (n.attributes["ranks"], n.attributes["stride"]) for n in reduces
    }
    assert _bytes(graph.parameters) == sum(_bytes(n.operands) for n in reduces)


def test_adding_up_between_nodes_runs_beside_gathers() -> None:
    """Its process group is another one: the next unit is gathered meanwhile."""
    early = [Fsdp(ranks=16, strategy="hybrid")]
    model = perfc.load(
        "gpt2:layers=3,seq=128", batch=1, mode="training", transforms=early
    )
    nodes = perfc.analyze(model, "dgx-a100").to_dict()["nodes"]
    sums = [n for n in nodes if n["op"] == "c10d::allreduce_"]
    gathers = [n for n in nodes if n["op"] == "c10d::_allgather_base_"]

    assert LAYERS + 1 == len(sums)
    assert ({"fsdp.nodes"}, {"fsdp"}) == (
        {n["stream"] for n in sums},
        {n["stream"] for n in gathers},
    )
    assert any(
        a["start_us"] <= g["start_us"] < a["start_us"] + a["duration_us"]
        for a in sums
        for g in gathers
    )


def test_the_rest_of_a_model_whose_tables_are_sharded() -> None:
    """Sharded tables stay as they are; the MLPs are shared among the same ranks."""
    early = (ShardEmbeddings(ranks=RANKS), Fsdp(ranks=RANKS, wrap="*"))
    program = _run((*early, Training()), "dlrm-ddp:tables=6,rows=50,dim=16,pooling=2")

    assert [(0, 1), (2, 3)] == [rank.ranks for rank in program.classes]
    assert RANKS == program.replicas
    for rank in program.classes:
        assert rank.ops is not None
        names = [v.name for v in rank.ops.parameters]
        assert {"bot_l.flat", "top_l.flat"} <= set(names)
        assert {"fsdp", "emb"} == {
            n.attributes["group"] for n in rank.ops if "group" in n.attributes
        }


def test_replicas_of_another_number_are_refused() -> None:
    """Tables on four ranks and parameters on eight do not go together."""
    with pytest.raises(Exception, match="has 4 replicas already, expected 8"):
        _run((ShardEmbeddings(ranks=4), Fsdp(ranks=8)), "dlrm-ddp")


def test_an_inference_gathers_too() -> None:
    """Without training there is nothing to scatter, and nothing to gather again."""
    (rank,) = _run(training_passes("inference", None, [Fsdp(ranks=2)])).classes
    assert rank.ops is not None

    assert LAYERS + 1 == len(_nodes(rank.ops, "all_gather"))
    assert (0, 1) == rank.ranks


def test_regather_stands_after_training() -> None:
    """It follows the pass only where parameters are forgotten."""
    full = training_passes("training", None, [Fsdp(ranks=2, prefetch="none")])
    kept = training_passes("training", None, [Fsdp(ranks=2, strategy="grad-op")])

    assert [Fsdp, Training, Regather] == [type(p) for p in full]
    assert Regather(prefetch="none") == full[-1]
    assert [Fsdp, Training] == [type(p) for p in kept]


def _mixed(**options: str) -> Graph:
    return _step(Fsdp(ranks=RANKS, param_dtype="bf16", **options))  # type: ignore[arg-type] # all are texts


@pytest.mark.parametrize(("reduce", "size"), [("", 2), ("fp16", 2), ("fp32", 4)])
def test_mixed_precision_halves_what_is_sent(reduce: str, size: int) -> None:
    """Gathers have the type of parameters, scatters theirs; what stays has its own."""
    graph, wide = _mixed(reduce_dtype=reduce), _step(Fsdp(ranks=RANKS))
    gathers = [n for n in _nodes(graph, "all_gather") if ".h." in n.name]
    scatters = [n for n in _nodes(graph, "reduce_scatter") if ".h." in n.name]

    assert {2 * UNIT} == {_bytes(node.results) for node in gathers}
    assert {size * UNIT} == {_bytes(node.operands) for node in scatters}
    assert _bytes(wide.parameters) == _bytes(graph.parameters)
    assert _bytes(wide.states) == _bytes(graph.states)


def test_mixed_precision_computes_in_the_type_of_parameters() -> None:
    """Matmuls read bf16 alone, as many as there were; the optimizer reads fp32."""
    graph, wide = _mixed(), _step(Fsdp(ranks=RANKS))
    matmuls = _nodes(graph, "matmul") + _nodes(graph, "linear")
    read = [_type(v).dtype.name for n in matmuls for v in n.operands]

    assert _flops(wide) == _flops(graph)
    assert {"bf16"} == set(read)
    assert {"f32"} == {
        _type(v).dtype.name
        for node in graph
        if node.location.phase == "optimizer"
        for v in node.operands
    }


@pytest.mark.parametrize("reduce", ["", "fp32"])
def test_nothing_that_computes_waits_for_a_cast(reduce: str) -> None:
    """Parts are cast, and gradients cast back, on streams of their own."""
    graph = _mixed(reduce_dtype=reduce)
    sent = {v for n in _nodes(graph, "all_gather") for v in n.operands}
    scatters = _nodes(graph, "reduce_scatter")
    casts = [n for n in _nodes(graph, "cast") if sent.intersection(n.results)]
    back = [
        n
        for n in _nodes(graph, "cast")
        if n.operands[0].producer in scatters
        or any(n.results[0] in scatter.operands for scatter in scatters)
    ]

    assert 2 * LAYERS + 1 == len(casts)
    assert LAYERS + 1 == len(back)
    assert {"fsdp.cast"} == {n.attributes["stream"] for n in casts}
    assert {"fsdp.cast.grad"} == {n.attributes["stream"] for n in back}


def test_autocast_meets_what_fsdp_has_gathered() -> None:
    """With both, matmuls read what is gathered, and norms casts to fp32."""
    amp, mixed = ConvertDtype(autocast=True), Fsdp(ranks=2, param_dtype="bf16")
    passes = training_passes("training", None, [amp, mixed])
    (rank,) = _run(passes).classes
    assert rank.ops is not None

    assert [Fsdp, ConvertDtype, Training, Regather] == [type(p) for p in passes]
    assert {"bf16"} == {
        _type(n.operands[1]).dtype.name for n in _nodes(rank.ops, "linear")
    }
    assert {"f32"} == {
        _type(v).dtype.name for n in _nodes(rank.ops, "layer_norm") for v in n.operands
    }


def test_gathers_of_mixed_precision_do_not_wait_for_compute() -> None:
    """A unit's parts are cast and gathered while the unit before it computes."""
    early = [Fsdp(ranks=8, param_dtype="bf16")]
    model = perfc.load(
        "gpt2:layers=2,seq=512", batch=16, mode="training", transforms=early
    )
    found = perfc.analyze(model, "dgx-a100").to_dict()
    nodes = [node for node in found["nodes"] if node["phase"] == "forward"]
    (gather,) = [n for n in nodes if n["id"] == "transformer.h.1.fsdp.all_gather"]
    before = [n for n in nodes if n["module"].startswith("transformer.h.0.")]

    assert "bf16" == found["model"]["dtype"]
    assert "fsdp" == gather["stream"]
    assert gather["start_us"] < max(node["start_us"] for node in before)


@pytest.mark.parametrize(
    ("model", "units"),
    [
        (
            "switch-xl-4:layers=2",
            [f"{side}.block.{n}" for side in ("encoder", "decoder") for n in (0, 1)],
        ),
        (
            "resnet50",
            [
                f"layer{stage}.{n}"
                for stage, blocks in ((1, 3), (2, 4), (3, 6), (4, 3))
                for n in range(blocks)
            ],
        ),
        (
            "dlrm-ddp",
            [
                *(f"bot_l.{n}" for n in range(0, 6, 2)),
                *(f"top_l.{n}" for n in range(0, 10, 2)),
            ],
        ),
    ],
)
def test_blocks_of_all_lists_are_units(model: str, units: list[str]) -> None:
    """Encoder and decoder, or all stages; layers only where there are no blocks."""
    early = (ShardEmbeddings(ranks=2),) if model.startswith("dlrm") else ()
    (rank, *_) = _run((*early, Fsdp(ranks=2)), model).classes
    assert rank.ops is not None
    flat = [v.name for v in rank.ops.parameters if v.name.endswith(".flat")]

    assert {*units} == {name.removesuffix(".flat") for name in flat} - {"root"}


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["h.0.a.w", "h.1.a.w", "head.0.w", "head.1.w"], ["h.[0-9]*"]),
        (["0.w", "1.w", "2.0.w", "2.1.w"], ["[0-9]*"]),
        (["h.0.w", "out.w"], []),
        (["g.0.h.0.w", "g.0.h.1.w"], ["g.0.h.[0-9]*"]),
    ],
)
def test_what_is_a_list(names: list[str], patterns: list[str]) -> None:
    """Two modules or more with numbers; the outermost list counts, blocks first."""
    assert patterns == repeated_blocks(names)


@pytest.mark.parametrize(
    ("modules", "strategy", "again"),
    [
        ("transformer.h.*", "full", LAYERS),
        ("transformer.h.*.mlp", "full", LAYERS),
        ("transformer", "full", 2 * LAYERS - 1),
        ("transformer.h.*", "grad-op", 0),
        ("transformer", "grad-op", 0),
    ],
)
def test_what_is_computed_again_inside_a_unit_shares_its_gather(
    modules: str, strategy: str, again: int
) -> None:
    """Of a module around units all are gathered twice but the last, used at once."""
    shared, kept = Fsdp(RANKS, strategy), CheckpointActivations(modules)
    found = [
        [(n.op, n.name) for n in _step(*passes)]
        for passes in ((shared, kept), (kept, shared))
    ]
    gathers = [name for op, name in found[0] if op == "all_gather"]

    assert LAYERS + 1 + again == len(gathers)
    assert found[0] == found[1]


def test_what_is_computed_again_reads_what_backward_gathers() -> None:
    """Nothing of a unit that forward gathered lives on till backward."""
    kept = CheckpointActivations("transformer.h.*")
    graph = _step(Fsdp(RANKS), kept)
    gathered = [n for n in _nodes(graph, "all_gather") if ".h." in n.name]

    assert 2 * LAYERS == len(gathered)
    for node in gathered:
        views = [use.node for value in node.results for use in graph.uses(value)]
        readers = {node.location.phase for node in views}
        assert {node.location.phase} == readers


def test_training_of_ones_own_forgets_as_well() -> None:
    """A pass `training` that is given has what is gathered forgotten after it."""
    given = [Fsdp(RANKS), Training(fused=True)]

    assert [*given, Regather()] == training_passes("training", None, given)
