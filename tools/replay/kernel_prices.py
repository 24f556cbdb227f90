"""What perfc says that the kernels of a trace take, on any target."""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs

from perfc.costmodels import Target, find_cost_models, price
from perfc.ir import NO_WORK, Diagnostic, Kernel, PerfcError, Record, Work
from perfc.ir.support import Level, brief
from perfc.tools.replay.expected_kernels import (
    ExpectedKernel,
    ModelRow,
    expected_kernels,
    model_row,
)
from perfc.tools.replay.message_prices import CollectivePrices, collective_prices
from perfc.tools.replay.recorded_ops import NO_OP, TraceOps
from perfc.traces.events import DeviceKind, DeviceWork, Shape

NOTHING = "perfc launches nothing for it"
UNMODELLED = "perfc has no cost model for it"
_NAMED = 8
"""Ops that a remark names."""


class By(enum.Enum):
    """What a duration is known by; the value is the key of a report."""

    MODEL = "model"
    FACTS = "facts"
    COLLECTIVE = "collective"
    MEASURED = "measured"


@attrs.frozen
class Price:
    """What one task takes on a target.

    Attributes:
        seconds: Its duration.
        sigma_shared: Of the logarithm, shared by all kernels of the model.
        sigma_own: Of the logarithm, of this kernel alone.
        model: Name of the model, or of several.
        of_op: Seconds of all kernels of its op.
        is_spread: Whether the op launches other kernels than perfc expects, so that
            only its total is known: kernels have their measured shares of it.
        by: A cost model of the op, or one of the facts of the trace alone.
        work: Flops and bytes.

    """

    seconds: float
    sigma_shared: float
    sigma_own: float
    model: str
    of_op: float
    is_spread: bool
    by: By
    work: Work


@attrs.frozen(eq=False)
class TracePrices:
    """What the kernels of a trace take on a target.

    Attributes:
        ops: The trace, and who launched what.
        target: The machine.
        prices: By task; those that are not there have no price.
        collectives: What collectives take to send, which are not among the prices.
        diagnostics: What has none, and why.
        turned: How many are priced in TF32 though their names do not say so.

    """

    __repr__ = brief

    ops: TraceOps
    target: Target
    prices: Mapping[int, Price]
    collectives: CollectivePrices
    diagnostics: tuple[Diagnostic, ...]
    turned: int = 0

    @property
    def seconds(self) -> dict[int, float]:
        """What they take, by task, but for collectives."""
        return {task: price.seconds for task, price in self.prices.items()}


def trace_prices(
    ops: TraceOps, target: Target, *, tf32_convolutions: bool = False
) -> TracePrices:
    """Price what is known of the launches of a trace.

    Kernels are those that perfc launches for the op; they are matched with the measured
    ones by order where there are as many, else the op's total is spread. Copies and
    memsets are priced by their bytes, collectives by what they send: how long they wait
    for other ranks is not in their price.

    Args:
        ops: The trace, and who launched what.
        target: The machine.
        tf32_convolutions: Whether convolutions of fp32 use TF32 although no kernel of
            the trace says so.

    """
    with naming(ops, target):
        return _prices(ops, target, tf32_convolutions=tf32_convolutions)


@contextmanager
def naming(ops: TraceOps, target: Target) -> Generator[None]:
    """Let errors name the trace, and the GPU that it is priced on."""
    try:
        yield
    except PerfcError as error:
        msg = f"{ops.recorded.trace.file} on {target.name}: {error}"
        raise PerfcError(msg) from error


def _prices(ops: TraceOps, target: Target, *, tf32_convolutions: bool) -> TracePrices:
    found = {**dict(_by_signature(ops, target)), **dict(_by_facts(ops, target))}
    reasons: dict[tuple[str, str], list[int]] = defaultdict(list)
    tf32 = [one.takes_tf32(convolutions=tf32_convolutions) for one in ops.launches]
    expected, remarks = expected_kernels(ops.program, target, set(tf32))
    turned = 0
    for launches, mode in zip(ops.launches, tf32, strict=True):
        kernels = expected.get((launches.key, mode), [])
        missing = launches.missing or _unpriceable(kernels)
        unpriced = [task for task in launches.tasks if task not in found]
        if missing:
            reasons[launches.op, missing] += unpriced
        elif unpriced:
            found.update(_matched(ops, unpriced, kernels))
            in_tf32 = any(one.kernel.math == "tf32" for one in kernels)
            turned += len(unpriced) if in_tf32 and not launches.uses_tf32 else 0
    found.update(_alike(ops, found))
    reasons = {
        why: [task for task in tasks if task not in found]
        for why, tasks in reasons.items()
    }
    collectives = collective_prices(ops.recorded, target)
    remarks = (
        *remarks,
        *_missing(ops, reasons),
        *_spread(ops, found),
        *collectives.diagnostics,
    )
    return TracePrices(ops, target, found, collectives, remarks, turned)


def _unpriceable(kernels: Sequence[ExpectedKernel]) -> str:
    if not kernels:
        return NOTHING
    return "" if all(one.kernel.known for one in kernels) else UNMODELLED


def _matched(
    ops: TraceOps, tasks: Sequence[int], kernels: Sequence[ExpectedKernel]
) -> Iterator[tuple[int, Price]]:
    """Yield tasks with their prices, by order or by their measured shares."""
    total_s = math.fsum(one.row.seconds for one in kernels)
    if len(tasks) == len(kernels):
        for task, one in zip(tasks, kernels, strict=True):
            yield task, Price(*one.row, total_s, False, By.MODEL, one.kernel.work)
        return
    stated_s = ops.recorded.graph.stated_s
    measured_s = math.fsum(stated_s[task] for task in tasks)
    whole = ModelRow(
        total_s,
        math.fsum(one.row.seconds * one.row.sigma_shared for one in kernels) / total_s,
        math.hypot(*(one.row.seconds * one.row.sigma_own for one in kernels)) / total_s,
        "+".join(dict.fromkeys(one.row.model for one in kernels)),
    )
    work = sum((one.kernel.work for one in kernels), NO_WORK)
    for task in tasks:
        share = stated_s[task] / measured_s if measured_s else 1 / len(tasks)
        row = whole._replace(seconds=share * total_s)
        yield task, Price(*row, total_s, True, By.MODEL, _part(work, share))


def _part(work: Work, share: float) -> Work:
    amounts = (work.flops, work.bytes_read, work.bytes_written)
    return Work(*(round(share * amount) for amount in amounts))


def _alike(ops: TraceOps, found: Mapping[int, Price]) -> Iterator[tuple[int, Price]]:
    """Yield tasks of no known op that run the same blocks of a kernel as priced ones.

    So do those of an iteration that was launched before the trace began. Where equal
    kernels have different prices they have none.
    """
    known: dict[tuple[str, Shape], set[Price]] = defaultdict(set)
    works = ops.recorded.works
    for task, price_ in found.items():
        shape = works[task].shape
        if shape is not None and not price_.is_spread:
            known[works[task].name, shape].add(price_)
    for launches in ops.launches:
        for task in launches.tasks if launches.missing == NO_OP else ():
            shape = works[task].shape
            prices = known[works[task].name, shape] if shape else ()
            if len(prices) == 1:
                yield from ((task, only) for only in prices)


_ENDS: Mapping[str, str] = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d"}
_PAGEABLE = "Pageable"


def _by_facts(ops: TraceOps, target: Target) -> Iterator[tuple[int, Price]]:
    """Yield copies and memsets, priced by their bytes."""
    kernels: dict[int, Kernel] = {}
    for task, work in ops.recorded.works.items():
        kernel = _fact_kernel(work) if work.signature is None else None
        if kernel is not None:
            kernels[task] = kernel
    yield from _one_by_one(kernels, target, By.FACTS)


def _by_signature(ops: TraceOps, target: Target) -> Iterator[tuple[int, Price]]:
    """Yield kernels of which the trace says what was priced: perfc's own."""
    modes = target.device.flops_per_s
    kernels = {
        task: attrs.evolve(signature, math="fp32")
        if signature.math == "tf32" and "tf32" not in modes
        else signature
        for task, work in ops.recorded.works.items()
        for signature in [work.signature]
        if signature is not None
    }
    try:
        yield from _one_by_one(kernels, target, By.MODEL)
    except PerfcError as error:
        msg = f"a kernel that the trace states: {error}"
        raise PerfcError(msg) from error


def _one_by_one(
    kernels: Mapping[int, Kernel], target: Target, by: By
) -> Iterator[tuple[int, Price]]:
    """Yield tasks with the prices of their kernels, each of which is an op's only."""
    distinct = list(dict.fromkeys(kernels.values()))
    if not distinct:
        return
    cost = price(distinct, target, find_cost_models()[0])
    rows = {kernel: model_row(cost, row) for row, kernel in enumerate(distinct)}
    for task, kernel in kernels.items():
        row = rows[kernel]
        yield task, Price(*row, row.seconds, False, by, kernel.work)


def _fact_kernel(work: DeviceWork) -> Kernel | None:
    """Return the kernel that a copy or a memset is; None if its bytes are not told."""
    size = work.size_bytes
    if not size or work.kind is DeviceKind.KERNEL:
        return None
    if work.kind is DeviceKind.MEMSET:
        params = Record({"kind": "fill", "rows": 1, "cols": size, "tensor_inputs": 0})
        return Kernel("elementwise", "uint8", "fp32", params, Work(0, 0, size))
    kind = next((end for name, end in _ENDS.items() if name in work.name), None)
    if kind is None:
        return None
    params = Record({"bytes": size, "kind": kind, "pinned": _PAGEABLE not in work.name})
    return Kernel("memcpy", "uint8", "fp32", params, Work(0, size, size))


def _missing(
    ops: TraceOps, reasons: Mapping[tuple[str, str], Sequence[int]]
) -> Iterator[Diagnostic]:
    """Say what is not priced, by reason, the longest first."""
    stated_s = ops.recorded.graph.stated_s
    by_reason: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    counts: Counter[str] = Counter()
    for (op, reason), tasks in reasons.items():
        by_reason[reason][op] += math.fsum(stated_s[task] for task in tasks)
        counts[reason] += len(tasks)
    totals = {reason: math.fsum(named.values()) for reason, named in by_reason.items()}
    for reason, named in sorted(by_reason.items(), key=lambda i: -totals[i[0]]):
        if not counts[reason]:
            continue
        longest = sorted(named, key=lambda op: -named[op])
        shown = ", ".join(op for op in longest[:_NAMED] if op)
        rest = len(named) - _NAMED
        more = f" and {rest} more" if rest > 0 else ""
        total_ms = math.fsum(named.values()) * 1e3
        message = (
            f"{counts[reason]} launches ({total_ms:,.2f} ms) keep what they took: "
            f"{reason}{': ' + shown + more if shown else ''}"
        )
        yield Diagnostic(
            Level.WARNING, "kernels-measured", message, ops.recorded.trace.file
        )


def _spread(ops: TraceOps, found: Mapping[int, Price]) -> Iterator[Diagnostic]:
    names: Counter[str] = Counter()
    for launches in ops.launches:
        names[launches.op] += sum(
            found[task].is_spread for task in launches.tasks if task in found
        )
    count = names.total()
    if count:
        shown = ", ".join(op for op, n in names.most_common(_NAMED) if n)
        message = (
            f"{count} launches share what is predicted for their op, which launches "
            f"more or fewer kernels in the trace than perfc expects: {shown}"
        )
        yield Diagnostic(Level.NOTE, "kernels-spread", message, ops.recorded.trace.file)
