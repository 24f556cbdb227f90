"""Layers placed on a network: as text and as `perfc.parallel/1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import US, Json, Level, brief
from perfc.passes.timing import TimeErrors
from perfc.planning.networks import stage_runs
from perfc.tools import charts, pages, reports
from perfc.tools.networks import placing

_COLORS = {"forward": 0, "backward": 1, "sent": 3, "gradients, optimizer": 2}


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

    def _priced(self) -> Iterator[tuple[reports.PricedPlan, TimeErrors | None]]:
        for plan in self.found:
            priced = reports.PricedPlan(
                name=plan.name,
                time_us=plan.step_s * US,
                time_us_p05=plan.low_s * US,
                time_us_p95=plan.high_s * US,
                energy_j=plan.energy_j,
                peak_memory_bytes=round(max(plan.memory)),
            )
            yield priced, plan.errors if self._row(plan)["fits"] else None

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
                    "others save"
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

    @property
    def parts(self) -> list[pages.Part]:
        """What was asked, the stages of the best plan, the plans, and memory."""
        best, row = self.best, self._row(self.best)
        badges: list[pages.Badge] = [
            (f"bubble {reports.format_percent(best.bubble)}", ""),
            (f"{_rate(row['samples_per_s'])} samples/s", ""),
        ]
        if self.speedup is not None and best.name != placing.EVEN:
            text = f"{self.speedup:.2f} times as fast as an even split"
            badges.append((text, ""))
        answer = self.plans[0], f"Step of {best.name}:", badges
        return [
            charts.plan_heading(self._title, *answer),
            pages.Drawn(lambda: [self._timeline()]),
            pages.table(self._stage_rows(), f"Stages of {best.name}"),
            charts.plan_bars(self.plans, "Time of a step under each plan"),
            pages.table(self._plan_rows(), "Plans"),
            pages.Bars([*self._memory()], "Memory of each stage"),
            pages.Remarks(self.diagnostics, form="{0.level.value}: {0.message}"),
        ]

    @property
    def _title(self) -> str:
        asked, network = self.question.models.request, self.question.network
        return (
            f"{self.question.models.program.name}: {asked.mode} of {asked.batch:,} "
            f"samples in {self.question.microbatches} microbatches on {self.best.gpus} "
            f"of {network.gpus} GPUs, {asked.dtype}, {asked.runtime}"
        )

    def _stage_rows(self) -> Iterator[dict[str, str]]:
        for number, stage in enumerate(self.stages(self.best)):
            last = stage["ratio"] is None
            yield {
                "stage": str(number),
                "node": f"{stage['node']} ({stage['target']})",
                "GPUs": str(stage["gpus"]),
                "layers": str(stage["layers"]),
                "from": stage["first_layer"],
                "time": reports.format_us(stage["time_us"]),
                "link": "-" if last else reports.format_us(stage["link_us"]),
                "ratio": "-" if last else f"{stage['ratio']:.4g}",
                "memory": reports.format_bytes(stage["memory_bytes"]),
            }

    def _plan_rows(self) -> Iterator[dict[str, str]]:
        base = next(
            (plan for plan in self.found if plan.name == placing.EVEN), self.best
        )
        for plan in self.found:
            row = self._row(plan)
            yield {
                "plan": plan.name + ("" if row["fits"] else " (does not fit)"),
                "GPUs": str(plan.gpus),
                "step": reports.format_us(row["step_us"]),
                "bubble": reports.format_percent(plan.bubble),
                "samples/s": _rate(row["samples_per_s"]),
                "a GPU": _rate(row["samples_per_s"] / plan.gpus),
                "speedup": f"{base.step_s / plan.step_s:.2f}",
            }

    def _memory(self) -> Iterator[pages.Bar]:
        best = self.best
        needs = zip(best.placed.units, best.memory, strict=True)
        for number, (unit, need) in enumerate(needs):
            share = need / best.problem.units[unit].limit_bytes
            texts = reports.format_bytes(need), reports.format_percent(share)
            yield pages.Bar(f"stage {number}", need, *texts, kind="memory")

    def _timeline(self) -> pages.Timeline:
        """Draw what stages, and the links behind them, do with each microbatch."""
        plan, problem = self.best, self.best.problem
        nodes = [stage["node"] for stage in self.stages(plan)]
        runs = stage_runs(plan.times, problem.microbatches, problem.schedule)
        boxes: list[charts.Box] = []
        for run in sorted(runs, key=lambda run: (run.stage, run.link)):
            if run.end_s <= run.start_s:
                continue
            lane = f"stage {run.stage}, {nodes[run.stage]}"
            kind = "backward" if run.backward else "forward"
            name = f"microbatch {run.microbatch}, {kind}"
            if run.microbatch < 0:
                kind = name = "gradients, optimizer"
            if run.link:
                way = "back" if run.backward else "on"
                lane, kind = f"link {run.stage} to {run.stage + 1}, {way}", "sent"
            boxes.append(charts.Box(lane, name, kind, run.start_s, run.end_s))
        time = reports.format_us(plan.step_s * US)
        text = f"What stages and links do, over {time}."
        return charts.box_timeline(boxes, _COLORS, text)


def _rate(per_s: float) -> str:
    return reports.format_quantity(per_s, "").strip()


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * US
