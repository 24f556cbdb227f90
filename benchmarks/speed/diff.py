"""Compare large reports: `diff.py [NODES]`, 10,000 if not said.

Prints the CPU seconds of `perfc.diff` of two files of reports, the documents read and
the answer written as JSON, and of a report and a trace of it. The bar is for the
reports.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import perfc
from perfc.ir import single
from perfc.passes import PassManager, ShapeInference
from perfc.passes.shapes import FoldShapes
from perfc.tools import Model
from perfc.tools.models.binding import classify_program

sys.path.append(str(Path(__file__).parents[1]))
from speed import scale
from speed.cpu_time import cpu_s

BAR_S = 1.0
RUNS = 3


def main() -> int:
    """Compare them."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        base, head, trace = (Path(folder, n) for n in ("b.json", "h.json", "t.json"))
        reports = [analyzed(nodes, batch) for batch in (256, 512)]
        reports[0].to_json(base)
        reports[1].to_json(head)
        reports[0].to_trace(trace)
        print(f"{len(reports[0].nodes):,} nodes, {len(reports[1].nodes):,} nodes")
        between_s = least_s(base, head)
        print(f"report and report: {between_s:.2f} s CPU, bar {BAR_S:.2f} s")
        print(f"report and trace:  {least_s(base, trace):.2f} s CPU")
    print("ok" if between_s <= BAR_S else "MISSED")
    return 0 if between_s <= BAR_S else 1


def analyzed(nodes: int, batch: int) -> perfc.Report:
    """Return the report of a synthetic graph of about so many nodes."""
    program = single(scale.build(nodes)).bind({"B": batch})
    front = PassManager([ShapeInference(), FoldShapes()]).run(program)
    symbols = classify_program(front.program)  # as `perfc.load` does
    model = Model(front.program, front.annotations, front.program, symbols)
    return perfc.analyze(model, "a100")


def least_s(base: Path, head: Path) -> float:
    """Return the least CPU seconds of some runs."""
    return min(cpu_s(lambda: perfc.diff(base, head).to_json()) for _ in range(RUNS))


if __name__ == "__main__":
    raise SystemExit(main())
