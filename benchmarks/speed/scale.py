"""Analyze one synthetic graph: `scale.py NODES` prints what it took, as JSON.

CPU seconds, those of a fixed loop in the same process, the peak of memory in MB, wall
seconds of each pass, and how long the critical path is.

The graph is a chain of blocks like a recommendation model's and a transformer's:
GEMMs, activations, joins, views and lookups, of varied widths. Building it is
not counted, everything from the typed graph's shape inference on is.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from perfc.costmodels import load_target
from perfc.ir import (
    DTYPES,
    AttrValue,
    Graph,
    Program,
    Record,
    TensorType,
    Value,
    single,
)
from perfc.ir.annotations import Annotations, Scenario
from perfc.ir.dims import symbol
from perfc.passes import PassManager
from perfc.passes.facts import CRITICAL_PATH
from perfc.passes.instruments import Timing
from perfc.passes.pipeline_spec import parse_pipeline

sys.path.append(str(Path(__file__).parents[1]))
from speed import cpu_time

F32, I64 = DTYPES["f32"], DTYPES["i64"]
PIPELINE = (
    "raise-embedding-bag,shape-inference,fold-shapes,lower-kernels,kernel-cost,"
    "overhead,stream-schedule,critical-path,time-interval"
)
WIDTHS = (64, 128, 256, 384, 512, 768, 1024)
BLOCK = 8
LOOPS = 5


def build(nodes: int) -> Graph:
    """Return a graph of about *nodes* nodes."""
    graph = Graph("scale")
    batch = symbol("B")
    x = graph.add_input("x", TensorType(F32, (batch, WIDTHS[0])))
    indices = graph.add_input("indices", TensorType(I64, (batch, 10)))
    for block in range(nodes // BLOCK):
        x = _block(graph, x, indices, block)
    graph.outputs.append(x)
    return graph


def _block(graph: Graph, x: Value, indices: Value, block: int) -> Value:
    inner, outer = WIDTHS[block % 7], WIDTHS[(block + 1) % 7]

    def parameter(name: str, *shape: int) -> Value:
        return graph.add_parameter(f"{name}{block}", TensorType(F32, shape))

    def op(name: str, *operands: Value, **attributes: AttrValue) -> Value:
        result = f"{name}_{len(graph)}"
        return graph.add(name, operands, [result], attributes).results[0]

    w = parameter("w", inner, WIDTHS[block % 7])
    h = op("relu", op("linear", x, w, parameter("b", inner)))
    table = Record({"rows": 1000 * (1 + block % 50), "dim": inner})
    bag = op(
        "embedding_bag",
        parameter("t", 1000 * (1 + block % 50), inner),
        indices,
        tables=(table,),
        mode="sum",
    )
    joined = op("concat", h, bag, axis=1)
    y = op("linear", joined, parameter("v", outer, 2 * inner))
    turned = op("transpose", y, perm=(1, 0))
    back = op("transpose", turned, perm=(1, 0))
    return op("sigmoid", op("add", back, y))


def main() -> int:
    """Build, analyze, print."""
    graph = build(int(sys.argv[1]))
    program: Program = single(graph).bind({"B": 2048})
    target = load_target("a100")
    timing = Timing()
    manager = PassManager(parse_pipeline(PIPELINE), [timing])
    scenario = Scenario(target.name, target.spec_sha256, "eager", program.bound)
    facts = Annotations()
    found: dict[str, int] = {}

    def analyze() -> None:
        manager.run(program, target, scenario, facts)
        path = facts.get(CRITICAL_PATH, program, scenario)
        found["segments"] = len(path.segment_table.task)
        found["tasks_with_slack"] = sum(slack > 0 for slack in path.slack_s)

    loops_s = [cpu_time.cpu_s(cpu_time.loop) for _ in range(LOOPS)]
    seconds = cpu_time.cpu_s(analyze)
    loops_s += [cpu_time.cpu_s(cpu_time.loop) for _ in range(LOOPS)]
    taken = {
        "cpu_s": seconds,
        "loop_s": min(loops_s),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "passes_s": dict(timing.seconds),
        **found,
    }
    print(json.dumps(taken))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
