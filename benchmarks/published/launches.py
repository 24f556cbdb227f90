"""Launches against reality: `launches.py TRACES`, a folder of public Kineto traces.

Builds the models of the traces again, captures and lowers them, and prints for each
whether the GEMMs and the convolutions are the same in shape and number, and
how many kernels an iteration launches; then, op by op, where the counts differ. What
is in a trace and is no part of the model (buckets of gradients, tables) is set apart
and said. Needs PyTorch and, for two of the models, transformers.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import kineto
import torch
from launch_models import CASES, Case

import perfc
from perfc.costmodels import load_target
from perfc.ir import LaunchGraph, Program
from perfc.passes import LAUNCHES, LowerKernels, PassManager, ShapeInference
from perfc.passes.lowering.eager.site import MEMSET

BAR = 0.10
"""Largest difference in kernels of an iteration."""

SHOWN = 12
"""Ops that the second table shows, for each model."""

_SAME: Mapping[str, str] = {
    "aten::matmul": "aten::mm",
    "aten::addmm": "aten::linear",
    "aten::cudnn_convolution_backward": "aten::convolution_backward",
    "aten::_log_softmax": "aten::log_softmax",
    "aten::nll_loss_forward": "aten::nll_loss",
    "aten::ones_like": "aten::full",
    "aten::native_layer_norm": "aten::layer_norm",
    "aten::_index_put_impl_": "aten::index_put_",
    "aten::index_put": "aten::index_put_",
    "aten::contiguous": "aten::copy",
    "aten::clone": "aten::copy",
    "aten::reshape": "aten::copy",
}
"""Ops by one name: PyTorch's own have changed, and some are called by others."""

_COMPOSITIONS = frozenset(
    {"aten::cross_entropy_loss", "aten::nll_loss_nd", "aten::adaptive_avg_pool2d"}
)
"""Ops that only call others."""

_GEMMS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})
_CONVOLUTIONS = {
    "aten::cudnn_convolution": "forward",
    "aten::convolution_backward": "backward",
    "aten::cudnn_convolution_backward": "backward",
}
_BATCHED = 3


@attrs.frozen
class Counts:
    """What one iteration launches.

    Attributes:
        kernels: Kernels, by op.
        gemms: GEMMs by b, m, n, k; of an unrecorded shape by ().
        convolutions: Convolutions by direction and shapes.
        other: Memsets and copies.
        apart: Kernels that are no part of the model, by the reason.

    """

    kernels: Counter[str]
    gemms: Counter[tuple[int, ...]]
    convolutions: Counter[tuple[object, ...]]
    other: int
    apart: Counter[str]

    @property
    def total(self) -> int:
        """Kernels."""
        return self.kernels.total()


def measured(case: Case, folder: Path) -> Counts:
    """Count what the trace shows of one iteration."""
    trace = kineto.read(folder / case.trace)
    ops, iterations = trace.ops, 1
    if case.iterations:
        iterations = sum(op.name == case.iterations for op in ops)
    elif trace.steps:
        ops = kineto.within(ops, trace.steps[len(trace.steps) // 2])
    kernels: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    other = 0
    for op in ops:
        count = sum(kind == "kernel" for kind, _ in op.device)
        reason = case.reason_apart(op) if op.device else ""
        if reason:
            apart[reason] += count
            continue
        kernels[_name_of(op)] += count
        other += len(op.device) - count
    return Counts(
        _per_iteration(+kernels, iterations),
        _per_iteration(Counter(_gemms(ops)), iterations),
        _per_iteration(Counter(_convolutions(ops)), iterations),
        round(other / iterations),
        _per_iteration(+apart, iterations),
    )


def _per_iteration(counts: Counter, iterations: int) -> Counter:  # type: ignore[type-arg]
    return Counter({key: round(n / iterations) for key, n in counts.items()})


def _name_of(op: kineto.Op) -> str:
    """Return the outermost op that is no composition of others."""
    around = op.outermost
    chain = [op]
    while chain[-1] is not around and chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    names = [_name(o.name) for o in chain if kineto.is_library(o.name)]
    names = names or [around.name]
    return next((n for n in reversed(names) if n not in _COMPOSITIONS), names[-1])


def _name(name: str) -> str:
    return _SAME.get(name, name)


def _gemms(ops: Sequence[kineto.Op]) -> Iterator[tuple[int, ...]]:
    for op in ops:
        if op.name in _GEMMS and not _empty(op):
            matrices = [shape for shape in op.dims if len(shape) > 1][-2:]
            yield _sizes(*matrices) if len(matrices) > 1 else ()


def _empty(op: kineto.Op) -> bool:
    """Whether an op launched nothing: a GEMM on the host."""
    return not op.device


def _sizes(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    batch = left[0] if len(left) == _BATCHED else 1
    return (batch, left[-2], right[-1], left[-1])


def _convolutions(ops: Sequence[kineto.Op]) -> Iterator[tuple[object, ...]]:
    for op in ops:
        if op.name not in _CONVOLUTIONS:
            continue
        direction = _CONVOLUTIONS[op.name]
        shapes = [shape for shape in op.dims if len(shape) > _BATCHED]
        if direction == "forward":
            yield (direction, *shapes[:2])
            continue
        old = op.name == "aten::cudnn_convolution_backward"  # x, gradient, weight
        if old and shapes:
            shapes = [shapes[1], shapes[0], shapes[2]]
        yield (direction, *shapes[1:3])


def predicted(case: Case) -> Counts:
    """Count what perfc launches for one iteration."""
    with torch.device("meta"):
        module, args = case.build()
    program = perfc.from_torch(module, args, **case.options).program
    graph = _lowered(program, case)
    kernels: Counter[str] = Counter()
    gemms: Counter[tuple[int, ...]] = Counter()
    other = 0
    for op, kernel, issue in zip(graph.op, graph.kernel, graph.issue, strict=True):
        if kernel < 0:
            continue
        signature = graph.kernels[kernel]
        if signature.op == "memcpy" or graph.detail[issue] == MEMSET:
            other += 1
            continue
        kernels[_name(graph.ops[op].name)] += 1
        if signature.op == "gemm":
            sizes = [signature.params.integer(name) for name in "bmnk"]
            gemms[tuple(sizes)] += 1
    convolutions = Counter(_nodes(program))
    return Counts(kernels, gemms, convolutions, other, Counter())


def _lowered(program: Program, case: Case) -> LaunchGraph:
    lower = LowerKernels(inputs="device", **case.lowering)
    manager = PassManager((ShapeInference(), lower))
    analysis = manager.run(program, load_target(case.target))
    (graph,) = analysis.annotations.get(LAUNCHES, program, None)
    return graph


def _nodes(program: Program) -> Iterator[tuple[object, ...]]:
    (rank,) = program.classes
    for node in rank.ops or ():
        if node.op not in ("conv", "conv_backward"):
            continue
        backward = node.op == "conv_backward"
        operands = node.operands[1:3] if backward else node.operands[:2]
        shapes = [v.type.shape for v in operands if v.type is not None]
        yield ("backward" if backward else "forward", *shapes)


def _compared(
    ours: Counter[tuple[object, ...]], trace: Counter[tuple[object, ...]]
) -> str:
    """Say whether the calls are equal; number only where no shapes are recorded."""
    recorded = all(len(key) > 1 for key in trace)
    if not recorded:
        same = ours.total() == trace.total()
        return (
            f"{ours.total()} = {trace.total()} (number)"
            if same
            else _differ(ours, trace)
        )
    return f"{ours.total()} equal" if ours == trace else _differ(ours, trace)


def _differ(
    ours: Counter[tuple[object, ...]], trace: Counter[tuple[object, ...]]
) -> str:
    return f"{ours.total()} DIFFER from {trace.total()}"


def show(case: Case, ours: Counts, trace: Counts) -> bool:
    """Print the rows of one model; return whether it meets the bars."""
    gemms = _compared(ours.gemms, trace.gemms)
    convolutions = _compared(ours.convolutions, trace.convolutions)
    difference = ours.total / trace.total - 1
    good = abs(difference) <= BAR and "DIFFER" not in gemms + convolutions
    print(f"{case.name}")
    print(f"  GEMMs         {gemms}")
    print(f"  convolutions  {convolutions}")
    print(
        f"  kernels       {ours.total} of {trace.total} ({difference:+.1%}), memsets "
        f"and copies {ours.other} of {trace.other}  {'ok' if good else 'MISSED'}"
    )
    for reason, count in trace.apart.items():
        print(f"  set apart     {count} kernels: {reason}")
    _show_ops(ours.kernels, trace.kernels)
    for kind in ("gemms", "convolutions"):
        _show_shapes(getattr(ours, kind), getattr(trace, kind))
    return good


def _show_ops(ours: Counter[str], trace: Counter[str]) -> None:
    names = {*ours, *trace}
    off = sorted(names, key=lambda name: -abs(ours[name] - trace[name]))
    for name in off[:SHOWN]:
        if ours[name] != trace[name]:
            print(f"    {name:<50} {ours[name]:>5} of {trace[name]:>5}")


def _show_shapes(
    ours: Counter[tuple[object, ...]], trace: Counter[tuple[object, ...]]
) -> None:
    if any(len(key) < 2 for key in trace):  # no shapes
        return
    for label, rest in (("only ours", ours - trace), ("only theirs", trace - ours)):
        for shape, count in sorted(rest.items(), key=str)[:SHOWN]:
            print(f"    {label}: {count} x {shape}")


def main() -> int:
    """Print the table."""
    folder = Path(sys.argv[1])
    sys.path.append(str(Path(__file__).resolve().parents[2]))  # tests.models
    named = sys.argv[2:]
    chosen = [c for c in CASES if not named or any(n in c.name for n in named)]
    good = [show(case, predicted(case), measured(case, folder)) for case in chosen]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
