"""Rescaling of measured times, from a trace of one GPU to the time on another.

Each kernel's measured time is multiplied by what perfc's model says of it on both GPUs;
of GEMMs and convolutions whose sizes are not told, by what it says of typical ones;
where no model knows the kernel, by wave scaling. Then the trace runs again.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

import attrs

from perfc.costmodels import HostProfile, Target
from perfc.costmodels.machine import ANOTHER_DAY, WAVE_SIGMA, wave_ratio
from perfc.ir import Diagnostic
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.support import Level, brief
from perfc.tools.replay import rescale_interval
from perfc.tools.replay.kernel_prices import (
    By,
    Price,
    TracePrices,
    naming,
    trace_prices,
)
from perfc.tools.replay.message_prices import SentPrice
from perfc.tools.replay.recorded_ops import TraceOps
from perfc.tools.replay.replay import KernelSeconds, Replayed, replay_alone
from perfc.tools.replay.typical_ops import (
    SIGMA_OWN,
    SIGMA_SHARED,
    Typical,
    typical_ratios,
)


class Method(enum.Enum):
    """Ways to carry a duration over; the value is the key of a report."""

    MODEL = "model"
    FACTS = "facts"
    TYPICAL = "typical"
    COLLECTIVE = "collective"
    WAVE = "wave"
    KEPT = "kept"


@attrs.frozen
class Scaled:
    """A task on the other GPU.

    Attributes:
        seconds: What it takes there.
        method: How that is known.
        sigma_shared: Of the logarithm of the ratio, shared by all of `family`.
        sigma_own: Of the logarithm of the ratio, of equal calls of one op.
        family: The models, or the method, whose error it shares.
        kept: How much of it is waiting for other ranks, which stays as measured.

    """

    seconds: float
    method: Method
    sigma_shared: float = 0.0
    sigma_own: float = 0.0
    family: str = ""
    kept: float = 0.0

    @property
    def moved(self) -> float:
        """Seconds of it that another GPU, or another day, may change."""
        return self.seconds - self.kept


@attrs.frozen(eq=False)
class Rescaled:
    """A trace on another GPU.

    Attributes:
        target: The other GPU.
        scaled: Its device tasks there, by task.
        replayed: The trace run again with them.
        intervals: How far off its times may be.
        diagnostics: What is not rescaled, or not by a model.

    """

    __repr__ = brief

    target: Target
    scaled: Mapping[int, Scaled]
    replayed: Replayed
    intervals: rescale_interval.Intervals
    diagnostics: tuple[Diagnostic, ...]


@attrs.frozen(eq=False)
class Rescaling:
    """A trace that is carried over to other GPUs.

    Attributes:
        ops: The trace, and who launched what.
        origin: What perfc's models say of its kernels on the GPU it was measured on.
        method: `MODEL` for models where they know a kernel, else waves; `WAVE` for
            waves alone.
        host: Host times; None for those of the trace.
        steps: Numbers of the steps to report; None for all.
        contention: Whether kernels wait for those of other streams that leave no room
            on the other GPU.
        tf32: Whether convolutions of fp32 use TF32 on a GPU that has it, if the trace
            is of one that has not: PyTorch's default.
        same_host: Whether the other GPUs are in the machine that the trace was measured
            on; the GPU of the trace itself always is.

    """

    __repr__ = brief

    ops: TraceOps
    origin: TracePrices
    method: Method = Method.MODEL
    host: HostProfile | None = None
    steps: Collection[int] | None = None
    contention: bool = True
    tf32: bool = True
    same_host: bool = False

    def to(self, target: Target) -> Rescaled:
        """Return the trace on *target*."""
        there, typical = self._priced(target)
        graph = self.ops.recorded.graph
        scaled = {
            task: self._one(task, there, typical.get(task))
            for task, kind in enumerate(graph.kind)
            if kind in BUSY_KINDS
        }
        expected = self._run(target, _moved(scaled, 0.0))
        intervals = self._intervals(target, scaled, expected)
        turned = there.turned + sum(one.turns_to_tf32 for one in typical.values())
        remarks = tuple(self._remarks(there, scaled, turned))
        return Rescaled(target, scaled, expected, intervals, remarks)

    def _run(self, target: Target, seconds: KernelSeconds) -> Replayed:
        (again,) = replay_alone(
            [self.ops.recorded],
            self.host,
            self.steps,
            [seconds],
            contention=self.contention,
            device=target.device,
        )
        return again

    def _intervals(
        self, target: Target, scaled: Mapping[int, Scaled], expected: Replayed
    ) -> rescale_interval.Intervals:
        """Return them: errors of the host's times, and of the device's."""
        recorded = self.ops.recorded
        own_s = rescale_interval.own_seconds(recorded, self.host)

        def again(host_log: float, device_log: float) -> Replayed:
            factor = math.exp(host_log)
            host = {task: seconds * factor for task, seconds in own_s.items()}
            return self._run(target, _moved(scaled, device_log) | host)

        same = self.same_host or target.name == self.origin.target.name
        unknown = rescale_interval.host_uncertainty(recorded, self.host, same_host=same)
        sigma = math.hypot(_sigma(self.ops, scaled), ANOTHER_DAY)
        return rescale_interval.find_intervals(
            expected, unknown, sigma, target.name, again
        )

    def _priced(self, target: Target) -> tuple[TracePrices, dict[int, Typical]]:
        """Return prices there, and the ratios of typical ops."""
        tf32 = self._changes_to_tf32(target)
        origin, by_model = self.origin.target, self.method is Method.MODEL
        there = trace_prices(self.ops, target, tf32_convolutions=tf32)
        if not by_model or origin.name == target.name:
            return there, {}
        with naming(self.ops, target):
            return there, typical_ratios(
                self.ops, origin, target, tf32_convolutions=tf32
            )

    def _changes_to_tf32(self, target: Target) -> bool:
        """Whether cuDNN computes convolutions there in what it has not got here."""
        here, there = (t.device for t in (self.origin.target, target))
        gains = "tf32" in there.flops_per_s and "tf32" not in here.flops_per_s
        by_model = self.method is Method.MODEL
        return self.tf32 and by_model and gains and there.runs_cuda

    def _one(self, task: int, there: TracePrices, typical: Typical | None) -> Scaled:
        measured_s = self.ops.recorded.graph.stated_s[task]
        work = self.ops.recorded.works[task]
        # Methods are tried from the most to the least certain. Prices of the same
        # launch on both GPUs come first, because errors that the model makes on both
        # cancel.
        before, after = self.origin.prices.get(task), there.prices.get(task)
        if before is not None and after is not None:
            # `Method.WAVE` replaces models, but not facts: copies have no blocks to
            # scale by, and their bytes over the link's rate hold on any GPU.
            by_model = before.by is By.MODEL and after.by is By.MODEL
            if not by_model or self.method is Method.MODEL:
                return _by_ratio(measured_s, before, after)
        if typical is not None:
            seconds, name = measured_s * typical.ratio, f"typical {typical.kind.value}"
            return Scaled(seconds, Method.TYPICAL, SIGMA_SHARED, SIGMA_OWN, name)
        # The blocks of a collective are NCCL's channels and do not grow with what it
        # sends, so it is never scaled by waves: its message decides, or it is kept.
        here, sent = (p.collectives.sent.get(task) for p in (self.origin, there))
        if here is not None and sent is not None:
            return _sent(measured_s, here, sent)
        if work.is_collective:
            return Scaled(measured_s, Method.KEPT, kept=measured_s)
        # On the same GPU the ratio is exactly 1, so that it adds no uncertainty.
        same = there.target.name == self.origin.target.name
        sigma = 0.0 if same else WAVE_SIGMA
        if work.shape is None:
            kept = Method.KEPT
            return Scaled(measured_s, kept, sigma, 0.0, kept.value)
        ratio = wave_ratio(
            self.origin.target.device,
            there.target.device,
            blocks=work.shape.blocks,
            threads=work.shape.threads,
            registers=work.shape.registers,
            shared_bytes=work.shape.shared_bytes,
            work=None if before is None else before.work,
        )
        return Scaled(measured_s * ratio, Method.WAVE, sigma, 0.0, Method.WAVE.value)

    def _remarks(
        self, there: TracePrices, scaled: Mapping[int, Scaled], turned: int
    ) -> Iterator[Diagnostic]:
        recorded = self.ops.recorded
        if turned:
            message = (
                f"{turned} launches of fp32 convolutions are priced in TF32, PyTorch's "
                "default; --no-tf32 prices them as they were"
            )
            file = recorded.trace.file
            yield Diagnostic(Level.NOTE, "convolutions-tf32", message, file)
        yield from (d for d in there.diagnostics if d.code in _CARRIED)
        for method, what in _REMARKS.items():
            tasks = [task for task, one in scaled.items() if one.method is method]
            if not tasks or (method is Method.WAVE and self.method is Method.WAVE):
                continue
            total_ms = math.fsum(recorded.graph.stated_s[task] for task in tasks) * 1e3
            message = f"{len(tasks)} launches ({total_ms:,.2f} ms) {what}"
            level = Level.WARNING if method is Method.KEPT else Level.NOTE
            yield Diagnostic(
                level, f"rescaled-{method.value}", message, recorded.trace.file
            )


_CARRIED = frozenset({"extrapolated", "collectives-measured", "collectives-sent"})
"""Remarks on prices there that a reader needs."""

_REMARKS: Mapping[Method, str] = {
    Method.KEPT: "keep what they took: collectives of which the trace does not tell "
    "what they send, and work of which it tells neither bytes nor blocks",
    Method.COLLECTIVE: "are collectives: their waits for other ranks are kept as "
    "measured",
    Method.TYPICAL: "are rescaled as typical ones of their kind that take as long: the "
    "trace does not tell their sizes, or not all of their settings",
    Method.WAVE: "are rescaled by their blocks alone, as if they waited for memory: no "
    "model of perfc knows them",
}


def _by_ratio(measured_s: float, before: Price, after: Price) -> Scaled:
    """Multiply by the ratio of the prices, of the whole op where it was spread.

    What a model gets wrong on both GPUs alike cancels; how much does is not known, so
    both errors count.
    """
    if before.is_spread or after.is_spread:
        ratio = after.of_op / before.of_op
    else:
        ratio = after.seconds / before.seconds
    same = (before.sigma_shared, before.seconds) == (after.sigma_shared, after.seconds)
    return Scaled(
        measured_s * ratio,
        Method.MODEL if before.by is By.MODEL else Method.FACTS,
        0.0 if same else math.hypot(before.sigma_shared, after.sigma_shared),
        0.0 if same else math.hypot(before.sigma_own, after.sigma_own),
        f"{before.model}/{after.model}",
    )


def _sent(measured_s: float, here: SentPrice, there: SentPrice) -> Scaled:
    """Rescale what a collective sends; the rest of its time it waits for other ranks.

    One that took less than the model says did not wait.
    """
    moved_s = min(measured_s, here.seconds)
    same = here == there
    return Scaled(
        moved_s * (there.seconds / here.seconds) + measured_s - moved_s,
        Method.COLLECTIVE,
        0.0 if same else math.hypot(here.sigma_shared, there.sigma_shared),
        0.0 if same else math.hypot(here.sigma_own, there.sigma_own),
        Method.COLLECTIVE.value,
        measured_s - moved_s,
    )


def _sigma(ops: TraceOps, scaled: Mapping[int, Scaled]) -> float:
    """Return the relative uncertainty of all the device's time.

    Errors that kernels of one family share add up, and so do those of equal calls;
    families, and different calls, err independently.
    """
    works = ops.recorded.works
    # Without sizes equal calls are those of an op that run the same blocks of a kernel.
    calls: dict[int, object] = {
        task: launches.key or (launches.op, works[task].name, works[task].shape)
        for launches in ops.launches
        for task in launches.tasks
    }
    shared: dict[str, float] = defaultdict(float)
    own: dict[object, float] = defaultdict(float)
    for task, one in scaled.items():
        shared[one.family] += one.moved * one.sigma_shared
        own[calls.get(task) or works[task].signature or task] += (
            one.moved * one.sigma_own
        )
    moved_s = math.fsum(one.moved for one in scaled.values())
    return math.hypot(*shared.values(), *own.values()) / moved_s if moved_s else 0.0


def _moved(scaled: Mapping[int, Scaled], log_factor: float) -> dict[int, float]:
    """Return the seconds of tasks if all that is rescaled is off by one factor."""
    factor = math.exp(log_factor)
    return {
        task: one.seconds + one.moved * (factor - 1.0) for task, one in scaled.items()
    }
