"""What strategies of parallel training take, by the rules of MAD-Max."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import attrs

from perfc.frontends.reference import MadMaxStep
from perfc.ir import Diagnostic
from perfc.ir.support import brief
from perfc.passes.timing import TimeConstants, link_graphs, solve
from perfc.tools import charts, pages
from perfc.tools.reports import PricedPlan, VerbResult, format_bytes

_FREE = TimeConstants(stream_gap_s=0.0, graph_gap_s=0.0, launch_latency_s=0.0)
"""Times between tasks: none, for there is no host."""

_COMPUTE: tuple[str, ...] = ("gemm", "emb")
_COLLECTIVES: tuple[str, ...] = (
    *("all_to_all", "all_reduce"),
    *("all_gather", "reduce_scatter"),
)


@attrs.frozen(kw_only=True)
class Outcome:
    """What a step takes on a GPU.

    Attributes:
        step: The step.
        seconds: Its tasks by what they do.
        step_s: From the first to the last.
        weight_bytes: What the GPU holds.

    """

    step: MadMaxStep
    seconds: dict[str, float]
    step_s: float
    weight_bytes: float

    @property
    def exposed_s(self) -> float:
        """Communication that no computation hides."""
        return self.step_s - math.fsum(self.seconds[name] for name in _COMPUTE)

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all GPUs together."""
        return self.step.batch / self.step_s

    @property
    def fits(self) -> bool:
        """Whether the weights fit in memory; nothing else is counted."""
        return self.weight_bytes <= self.step.system.memory_bytes

    def as_json(self) -> dict[str, Any]:
        """Return a row of `perfc.parallel/1`."""
        return {
            "strategy": str(self.step.strategy),
            "step_us": self.step_s * 1e6,
            **{f"{name}_us": self.seconds[name] * 1e6 for name in _COMPUTE},
            **{f"{name}_us": self.seconds[name] * 1e6 for name in _COLLECTIVES},
            "exposed_comm_us": self.exposed_s * 1e6,
            "samples_per_s": self.samples_per_s,
            "weight_bytes": self.weight_bytes,
            "fits": self.fits,
        }


def outcome(step: MadMaxStep) -> Outcome:
    """Schedule a step."""
    graph = step.launches()
    _, end_s, _ = solve(link_graphs((graph,), _FREE), graph.stated_s)
    seconds = dict.fromkeys((*_COMPUTE, *_COLLECTIVES), 0.0)
    for name, taken_s in zip(graph.detail, graph.stated_s, strict=True):
        seconds[name] += taken_s
    return Outcome(
        step=step,
        seconds=seconds,
        step_s=max(end_s),
        weight_bytes=step.weight_bytes(),
    )


@attrs.frozen(eq=False)
class MadMaxComparison(VerbResult):
    """Strategies compared as MAD-Max compares them.

    Attributes:
        outcomes: What a step takes: what fits first, the fastest first.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.parallel/1"

    outcomes: tuple[Outcome, ...]

    @classmethod
    def of(cls, steps: Iterable[MadMaxStep]) -> MadMaxComparison:
        """Schedule steps, and rank them."""
        found = map(outcome, steps)
        return cls(tuple(sorted(found, key=lambda one: (not one.fits, one.step_s))))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What there is to say of each strategy."""
        return [one.as_json() for one in self.outcomes]

    def _priced(self) -> Iterator[tuple[PricedPlan, None]]:
        """Yield the strategies; the rules tell a time alone."""
        for one in self.outcomes:
            yield (
                PricedPlan(name=str(one.step.strategy), time_us=one.step_s * 1e6),
                None,
            )

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks: the rules have none."""
        return ()

    def _document(self) -> dict[str, Any]:
        step = self.outcomes[0].step
        return {
            "compat": "madmax",
            "model": step.model.name,
            "system": step.system.name,
            "ranks": step.ranks,
            "batch": step.batch,
            "mode": "training" if step.training else "inference",
            "plans": [one.to_dict() for one in self.plans],
            "strategies": self.rows,
        }

    @property
    def parts(self) -> list[pages.Part]:
        """What was asked, and the strategies."""
        step, best = self.outcomes[0].step, self.plans[0]
        mode = "training step" if step.training else "inference"
        title = (
            f"{step.model.name}: {mode} of {step.batch:,} samples on {step.ranks:,} "
            f"{step.system.gpu} ({step.system.name}), by the rules of MAD-Max"
        )
        return [
            charts.plan_heading(title, best, f"Step with {best.name}:"),
            charts.plan_bars(self.plans, "Time of a step with each plan"),
            pages.table(map(_row, self.outcomes), "Plans"),
        ]


def _row(one: Outcome) -> dict[str, str]:
    computes_s = math.fsum(one.seconds[name] for name in _COMPUTE)
    sends_s = math.fsum(one.seconds[name] for name in _COLLECTIVES)
    weights = format_bytes(one.weight_bytes)
    return {
        "strategy": str(one.step.strategy),
        "step": f"{one.step_s * 1e3:,.2f} ms",
        "samples/s": f"{one.samples_per_s:,.0f}",
        "computes": f"{computes_s * 1e3:,.2f} ms",
        "communicates": f"{sends_s * 1e3:,.2f} ms",
        "exposed": f"{one.exposed_s * 1e3:,.2f} ms",
        "weights": weights if one.fits else f"{weights}, too much",
    }
