"""Layers placed on a network: as text and as `perfc.parallel/1`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import US, Json, Level, brief
from perfc.tools import reports
from perfc.tools.networks import placing


@attrs.frozen(eq=False)
class NetworkComparison(reports.VerbResult):
    """What was asked of a network, and found.

    Attributes:
        question: The question.
        pricer: Who priced.
        found: Plans, the chosen one first.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.parallel/1"

    question: placing.NetworkQuestion
    pricer: placing.NetworkPricer
    found: Sequence[placing.NetworkPlan]

    @property
    def best(self) -> placing.NetworkPlan:
        """The chosen plan."""
        return self.found[0]

    @property
    def rows(self) -> list[Json]:
        """What there is to say of each plan."""
        return [self._row(plan) for plan in self.found]

    @property
    def plans(self) -> tuple[reports.PricedPlan, ...]:
        """What all verbs say of the plans."""
        return self._plans

    @functools.cached_property
    def _plans(self) -> tuple[reports.PricedPlan, ...]:
        errors = [
            plan.errors if self._row(plan)["fits"] else None for plan in self.found
        ]
        priced = [
            reports.PricedPlan(
                name=plan.name,
                time_us=plan.step_s * US,
                time_us_p05=plan.low_s * US,
                time_us_p95=plan.high_s * US,
                energy_j=plan.energy_j,
                peak_memory_bytes=round(max(plan.memory)),
            )
            for plan in self.found
        ]
        return reports.with_probabilities(priced, errors)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What was assumed, and what would be faster."""
        return tuple(
            Diagnostic(Level.NOTE, "network", text) for text in self._remarks()
        )

    def _remarks(self) -> Iterator[str]:
        network, used = self.question.network, self.best
        for node in network.nodes:
            if node.count > 1 and (node.name, node.name) not in network.links:
                rate = network.inside(node).bytes_per_s
                yield (
                    f"GPUs of node {node.name} are joined as the sheet of "
                    f"{node.target.name} says, at {rate / 1e9:.3g} GB/s"
                )
        yield (
            "links carry one message at a time in each direction, beside what GPUs "
            f"compute; {used.problem.schedule} is the order of microbatches"
        )
        if self.question.compression.changes:
            yield "what compression does to accuracy is not modelled"
        for plan in self.found:
            if plan.name == placing.FEWER:
                yield (
                    f"{plan.gpus} of {network.gpus} GPUs would take "
                    f"{reports.format_us(plan.step_s * US)}: links cost more than the "
                    "others "
                    "save"
                )

    @property
    def speedup(self) -> float | None:
        """How much faster than an even split, nothing compressed."""
        base = next((plan for plan in self.found if plan.name == placing.EVEN), None)
        return None if base is None else base.step_s / self.best.step_s

    def _row(self, plan: placing.NetworkPlan) -> Json:
        batch = self.question.models.request.batch or 0
        needs = zip(plan.placed.units, plan.memory, strict=True)
        missing = max(
            need - plan.problem.units[unit].limit_bytes for unit, need in needs
        )
        return {
            "strategy": plan.name,
            "ranks": plan.gpus,
            "batch": batch,
            "step_us": plan.step_s * US,
            "step_us_p05": plan.low_s * US,
            "step_us_p95": plan.high_s * US,
            "bubble": plan.bubble,
            "samples_per_s": batch / plan.step_s,
            "peak_memory_bytes": round(max(plan.memory)),
            "missing_bytes": max(0.0, missing),
            "fits": missing <= 0,
        }

    def stages(self, plan: placing.NetworkPlan) -> list[Json]:
        """Return an entry of each stage of a plan."""
        names, last = self.pricer.layer_names(), len(plan.times) - 1
        found: list[Json] = []
        spans = list(pairwise(plan.placed.ends))
        for place, (begin, end) in enumerate(spans):
            times = plan.times[place]
            unit = plan.problem.units[plan.placed.units[place]]
            node = self.question.network.nodes[unit.node]
            found.append(
                {
                    "node": node.name,
                    "target": node.target.name,
                    "gpus": unit.gpus,
                    "layers": end - begin,
                    "first_layer": names[begin],
                    "time_us": (times.forward_s + times.backward_s) * US,
                    "forward_us": times.forward_s * US,
                    "backward_us": times.backward_s * US,
                    "tail_us": times.tail_s * US,
                    "link_us": times.sent_s * US,
                    "backward_link_us": times.returned_s * US,
                    "ratio": plan.ratios[place] if place < last else None,
                    "memory_bytes": plan.memory[place],
                }
            )
        return found

    def _document(self) -> Json:
        asked, best = self.question.models.request, self.best
        row = self._row(best)
        nodes = self.question.network.nodes
        return {
            "model": self.question.models.program.name,
            "system": ", ".join(dict.fromkeys(node.target.name for node in nodes)),
            "ranks": best.gpus,
            "sizes": [self.question.network.gpus],
            "batch": asked.batch,
            "mode": asked.mode,
            "dtype": asked.dtype,
            "runtime": asked.runtime,
            "optimizer": asked.optimizer,
            "objective": "throughput",
            "memory_limit_bytes": min(unit.limit_bytes for unit in best.problem.units),
            "usd_per_gpu_hour": None,
            "interrupted": False,
            "plans": [one.to_dict() for one in self.plans],
            "strategies": self.rows,
            "not_priced": [],
            "refused": [],
            "stages": self.stages(best),
            "bubble": best.bubble,
            "step_us": row["step_us"],
            "samples_per_s": row["samples_per_s"],
            "samples_per_s_per_gpu": row["samples_per_s"] / best.gpus,
            "speedup_over_even": self.speedup,
            "microbatches": self.question.microbatches,
            "schedule": best.problem.schedule,
            "within_us": _us(self.question.within_s),
        }

    def _text(self) -> str:
        asked, network = self.question.models.request, self.question.network
        best = self.best
        head = (
            f"{self.question.models.program.name}: {asked.mode} of {asked.batch:,} "
            f"samples in {self.question.microbatches} microbatches on {best.gpus} of "
            f"{network.gpus} GPUs, {asked.dtype}, {asked.runtime}"
        )
        notes = "\n".join(f"note: {text}" for text in self._remarks())
        tables = map(reports.columns_text, (self.stage_lines, self.plan_lines))
        parts = [head, *tables, notes]
        return "\n\n".join(parts) + "\n"

    @property
    def stage_lines(self) -> list[tuple[str, ...]]:
        """A heading, and a row for each stage of the chosen plan."""
        titles = ("stage", "node", "GPUs", "layers", "from", "time", "link", "ratio")
        rows: list[tuple[str, ...]] = [(*titles, "memory")]
        for number, stage in enumerate(self.stages(self.best)):
            last = stage["ratio"] is None
            rows.append(
                (
                    str(number),
                    f"{stage['node']} ({stage['target']})",
                    str(stage["gpus"]),
                    str(stage["layers"]),
                    stage["first_layer"],
                    reports.format_us(stage["time_us"]),
                    "-" if last else reports.format_us(stage["link_us"]),
                    "-" if last else f"{stage['ratio']:.4g}",
                    reports.format_bytes(stage["memory_bytes"]),
                )
            )
        return rows

    @property
    def plan_lines(self) -> list[tuple[str, ...]]:
        """A heading, and a row for each plan."""
        rows: list[tuple[str, ...]] = [
            ("plan", "GPUs", "step", "bubble", "samples/s", "a GPU", "speedup")
        ]
        base = next(
            (plan for plan in self.found if plan.name == placing.EVEN), self.best
        )
        for plan in self.found:
            row = self._row(plan)
            rate = row["samples_per_s"]
            rows.append(
                (
                    plan.name + ("" if row["fits"] else " (does not fit)"),
                    str(plan.gpus),
                    reports.format_us(row["step_us"]),
                    reports.format_percent(plan.bubble),
                    reports.format_quantity(rate, "").strip(),
                    reports.format_quantity(rate / plan.gpus, "").strip(),
                    f"{base.step_s / plan.step_s:.2f}",
                )
            )
        return rows


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * US
