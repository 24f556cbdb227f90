"""Schedule a training step on many ranks: `ranks.py [NODES RANKS CLASSES]`.

The step is that of `scale.py`'s chain of blocks, data-parallel over all ranks, which
are split into classes that differ: each class runs one op more than the one before, so
that it comes later to every collective. Printed are the seconds and the MB that it
takes to lower, price and schedule all of them. Building the graphs is not counted.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from perfc.costmodels import load_target
from perfc.ir import Graph, Program, single
from perfc.ir.annotations import Scenario
from perfc.ir.program import RankClass
from perfc.passes import PassManager
from perfc.passes.facts import CRITICAL_PATH, SCHEDULE
from perfc.passes.pipeline_spec import parse_pipeline

sys.path.append(str(Path(__file__).parents[1]))
from speed.scale import build

FRONT = "shape-inference,training{loss=sum},data-parallel{ranks=%d}"
BACK = (
    "shape-inference,lower-kernels,kernel-cost,overhead,stream-schedule,"
    "critical-path,time-interval"
)
SHARE = 5.4
"""Nodes of a step for each node of its forward pass, about."""


def step(nodes: int, ranks: int, late: int) -> Graph:
    """Return a training step of about *nodes* nodes, *late* ops longer."""
    graph: Graph = build(int(nodes / SHARE))
    (y,) = graph.outputs
    for number in range(late):
        y = graph.add("relu", (y,), [f"late_{number}"]).results[0]
    graph.outputs = [y]
    PassManager(parse_pipeline(FRONT % ranks)).run(single(graph))
    return graph


def main() -> None:
    """Print one line of numbers."""
    nodes, ranks, classes = map(int, sys.argv[1:] or (10_000, 1_024, 1))
    graphs = [step(nodes, ranks, number) for number in range(classes)]
    members = [tuple(range(number, ranks, classes)) for number in range(classes)]
    found = tuple(map(RankClass, members, graphs))
    program = Program("ranks", found, bound=(("B", 256),))
    target = load_target("dgx-a100")
    scenario = Scenario(target.name, target.spec_sha256, "eager", program.bound)
    manager = PassManager(parse_pipeline(BACK))
    started = time.process_time()
    analysis = manager.run(program, target, scenario)
    seconds = time.process_time() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    tasks, time_s = (
        len(analysis.get(SCHEDULE).end_s),
        analysis.get(CRITICAL_PATH).time_s,
    )
    print(
        f"{len(graphs[0]):,} nodes on {ranks:,} ranks in {classes} classes, {tasks:,} "
        f"tasks: {seconds:.2f} s, {peak_mb:,.0f} MB; a step takes {time_s * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
