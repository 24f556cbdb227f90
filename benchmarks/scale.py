"""Analyze one synthetic graph: `scale.py NODES` prints seconds, MB and passes.

The graph is a chain of blocks like a recommendation model's and a transformer's:
products, activations, joins, views and lookups, of varied widths. Building it is
not counted, everything from the typed graph's shape inference on is.
"""

from __future__ import annotations

import resource
import sys
import time

from perfc.costmodels import load_target
from perfc.ir import (
    DTYPES,
    Annotations,
    AttrValue,
    Graph,
    Program,
    Record,
    Scenario,
    TensorType,
    Value,
    single,
    symbol,
)
from perfc.passes import CRITICAL_PATH, PassManager, Timing, parse_pipeline

F32, I64 = DTYPES["f32"], DTYPES["i64"]
PIPELINE = (
    "raise-embedding-bag,shape-inference,fold-shapes,lower-kernels,kernel-cost,"
    "overhead,stream-schedule,critical-path,time-interval"
)
WIDTHS = (64, 128, 256, 384, 512, 768, 1024)
BLOCK = 8


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
    started = time.perf_counter()
    manager = PassManager(parse_pipeline(PIPELINE), [timing])
    scenario = Scenario(target.name, target.spec_sha256, "eager", program.bound)
    facts = Annotations()
    manager.run(program, target, scenario, facts)
    path = facts.get(CRITICAL_PATH, program, scenario)
    segments, slack_s = path.segments, path.slack_s
    seconds = time.perf_counter() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    passes = " ".join(f"{name} {s:.2f}" for name, s in timing.seconds)
    print(f"{seconds:.3f} {peak_mb:.0f} {passes}; {len(segments)} segments", end="")
    print(f", {sum(slack > 0 for slack in slack_s)} tasks with slack")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
