"""One of each kind of perfc plugin: frontend, pass, cost model, target, exporter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import (
    Estimate,
    KernelTable,
    Provenance,
    Target,
    uniform_estimate,
)
from perfc.ir import (
    NO_WORK,
    AnnotationKey,
    AnyKey,
    Kernel,
    LaunchGraph,
    LaunchOp,
    ParseError,
    Program,
    Record,
    TaskKind,
    single,
)
from perfc.ir.kernels import KernelDef, KernelParam, ParamType
from perfc.passes import Pass, PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.tools import Exporter, Report

TARGET = Path(__file__).with_name("toy_gpu.toml")
"""The sheet of a target: a path, as `perfc.targets` takes it."""

TOY_KERNEL = KernelDef(
    name="toy.kernel",
    summary="a kernel that says how long it takes",
    params=(
        KernelParam(
            name="us", type=ParamType.NUMBER, summary="its time", unit="microseconds"
        ),
        KernelParam(
            name="least_us",
            type=ParamType.NUMBER,
            summary="what it cannot be faster than",
            unit="microseconds",
            default=0,
        ),
    ),
)
"""What the toy's cost model prices: nothing else launches kernels of this name."""

OP_COUNT: AnnotationKey[int] = AnnotationKey("toy.op_count", Program)
"""Ops of all op graphs."""


@attrs.frozen
class ToyCountOps(Pass):
    """Count the ops of a program, and say how many there are.

    Attributes:
        only: Name of the op to count; empty for every op.

    """

    name: ClassVar[str] = "toy-count-ops"
    provides: ClassVar[frozenset[AnyKey]] = frozenset({OP_COUNT})

    only: str = ""

    def run(self, program: Program, ctx: PassContext) -> None:
        """Count."""
        graphs = [rank.ops for rank in program.classes if rank.ops is not None]
        ops = [node.op for graph in graphs for node in graph]
        count = sum(op == self.only for op in ops) if self.only else len(ops)
        ctx.set(OP_COUNT, program, count)
        ctx.note("toy-op-count", f"{count} {self.only or 'ops'}")


@attrs.frozen
class ToyDropRelu(Transform):
    """Let every reader of a ReLU read what the ReLU reads.

    It stands between two built-in passes, and says so.
    """

    name: ClassVar[str] = "toy-drop-relu"
    phase: ClassVar[Phase] = Phase.SOURCE
    runs_after: ClassVar[frozenset[str]] = frozenset({"raise-linear"})
    runs_before: ClassVar[frozenset[str]] = frozenset({"raise-activation"})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({ELEMENTS, TYPED})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Drop them in every rank class."""
        for rank in program.classes:
            if rank.ops is None:
                continue
            for node in list(rank.ops):
                if node.op == "relu":
                    rank.ops.replace_uses(node.results[0], node.operands[0])
            rank.ops.erase_dead(lambda node: node.op != "relu")


@attrs.frozen
class ToyModel:
    """A cost model that believes what the kernel says of itself.

    It declares the kernel, and says how fast one can be; its sigmas make the interval.
    """

    name: str = "toy"
    priority: int = 1000
    ops: frozenset[str] | None = frozenset({TOY_KERNEL.name})
    kernels: tuple[KernelDef, ...] = (TOY_KERNEL,)

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim kernels that say how long they take."""
        return kernels.param("us") > 0

    def lower_bound(self, kernels: KernelTable, target: Target) -> NDArray[np.float64]:
        """Return what they cannot be faster than, by what they say."""
        return kernels.param("least_us") / 1e6

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Return what they say."""
        return uniform_estimate(
            kernels.param("us") / 1e6,
            model=self.name,
            provenance=Provenance.ASSUMED,
            sigma_shared=0.1,
            sigma_independent=0.1,
        )


TOY_MODEL = ToyModel()


_TIME = r"[0-9]+(?:\.[0-9]+)?"
_LINE = re.compile(rf"(?P<us>{_TIME})(?: (?P<least_us>{_TIME}))?")


class ToyFrontend:
    """Reads `.toy` files: microseconds of one kernel a line, and the least of it."""

    def load(self, path: Path) -> Program:
        """Read *path* into a launch graph.

        Raises:
            ParseError: a line is not a number above 0, and perhaps another.

        """
        graph = LaunchGraph(path.stem)
        thread, stream = graph.thread(), graph.stream()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = _LINE.fullmatch(line)
            if match is None or float(match["us"]) <= 0:
                msg = f"{path}: line {number}: expected microseconds, found {line!r}"
                raise ParseError(msg)
            op = graph.add_op(LaunchOp("toy::op", f"line{number}"))
            times = match.groupdict(default="0").items()
            params = Record({name: float(us) for name, us in times})
            kernel = Kernel(TOY_KERNEL.name, "fp32", "fp32", params, NO_WORK)
            call = graph.task(TaskKind.CALL, thread, op=op, detail="cudaLaunchKernel")
            graph.task(
                TaskKind.KERNEL,
                stream,
                op=op,
                kernel=graph.intern(kernel),
                issue=call,
            )
        return single(graph)


class ToyExporter(Exporter):
    """Writes one line a report: the target and the microseconds."""

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the lines."""
        return "".join(f"{r.target.name} {r.time_us:.1f}\n" for r in reports)
