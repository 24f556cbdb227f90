"""Compared strategies: as text and as `perfc.parallel/1`."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import US, Json, brief
from perfc.passes.pipeline_spec import format_pipeline
from perfc.passes.timing import TimeErrors
from perfc.planning.strategies import Findings, Left, Refused, Strategy, StrategyPrice
from perfc.tools import charts, pages, reports
from perfc.tools.strategies.pricer import Pricer
from perfc.tools.strategies.question import Question

_SAID = (
    *("batch", "pooling", "mode", "optimizer", "dtype", "runtime", "inputs"),
    *("overheads", "target", "ranks", "dims", "overrides", "passes"),
)
"""Fields of a request that a printed command repeats, in this order."""

_WIDTH = 96
_REASONS = 8


@attrs.frozen(eq=False)
class Comparison(reports.VerbResult):
    """What was asked, and found.

    Attributes:
        question: The question.
        pricer: Who priced.
        findings: Prices, and what has none.
        within_s: The time in which a step was to end, on the fewest GPUs; None if
            nobody asked.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.parallel/1"

    question: Question
    pricer: Pricer
    findings: Findings
    within_s: float | None = None

    @property
    def rows(self) -> list[Json]:
        """What there is to say of each strategy that was priced."""
        return [_row(self, price) for price in self.findings.ranked]

    def _priced(self) -> Iterator[tuple[reports.PricedPlan, TimeErrors | None]]:
        for one in self.findings.ranked:
            yield _priced_plan(one), None if one.missing_bytes else one.errors

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks on the model as the strategies spread it, each once."""
        ranked, asked = self.findings.ranked, self.question.request
        found = [remark for price in ranked for remark in price.diagnostics]
        found = [*asked.remarks, *found]
        return tuple(dict.fromkeys(found))

    def passes(self, strategy: Strategy) -> list[str]:
        """Return the passes of a strategy as `--pass` takes them."""
        own = strategy.passes(self.pricer.gpus_per_node)
        made = self.question.models.ordered(own, replicas=True)
        texts = [format_pipeline([p]) for p in made]
        return [*texts, *self.question.request.passes]

    def command(self, strategy: Strategy) -> str:
        """Return the command that analyzes a strategy in full."""
        pricer = self.pricer
        asked = attrs.evolve(
            self.question.request,
            batch=None if pricer.fixed else pricer.samples(strategy),
            ranks=strategy.ranks,
            passes=tuple(self.passes(strategy)),
        )
        return shlex.join(["perfc", "analyze", asked.model, *asked.words(*_SAID)])

    def _document(self) -> Json:
        asked, found = self.question, self.findings
        return {
            **self._fewest(),
            "model": self.pricer.models.program.name,
            "system": asked.target.name,
            "ranks": max(asked.ranks),
            "sizes": list(asked.ranks),
            "batch": asked.request.batch,
            "mode": asked.request.mode,
            "dtype": asked.request.dtype,
            "runtime": asked.request.runtime,
            "optimizer": asked.request.optimizer,
            "objective": asked.objective.name,
            "memory_limit_bytes": self.pricer.limit_bytes,
            "usd_per_gpu_hour": asked.usd_per_hour,
            "interrupted": found.interrupted,
            "plans": [one.to_dict() for one in self.plans],
            "strategies": self.rows,
            "not_priced": [_left_json(left) for left in found.left],
            "refused": [
                {**_named(refused.strategy), "reason": refused.reason}
                for refused in found.refused
            ],
        }

    def _fewest(self) -> Json:
        """Return the entries on the fewest GPUs that end in time."""
        best = self.findings.best
        if self.within_s is None or best is None:
            return {}
        return {
            "within_us": self.within_s * US,
            "step_us": best.step_s * US,
            "samples_per_s_per_gpu": best.samples_per_s / best.strategy.ranks,
        }

    @property
    def within_text(self) -> str:
        """What the fewest GPUs that end in time do; "" if nobody asked for them."""
        fewest = self._fewest()
        if not fewest:
            return ""
        (count,) = self.question.ranks
        time = reports.format_us(fewest["within_us"])
        return (
            f"The fewest GPUs that end a step within {time}: {count:,}, "
            f"{_rate(fewest['samples_per_s_per_gpu'])} samples/s a GPU."
        )

    @property
    def parts(self) -> list[pages.Part]:
        """What was asked, the strategies, what is not among them and why, the best."""
        found, limit = self.findings, reports.format_bytes(self.pricer.limit_bytes)
        both = [*zip(found.ranked, self.plans, strict=True)]
        fitting = [each for each in both if not each[0].missing_bytes]
        others = [each for each in both if each[0].missing_bytes]
        fits = pages.table(_table(self, fitting), "Strategies", search=True)
        apart = pages.table(_table(self, others, missing=True), "Others", search=True)
        nothing = "" if fitting or not others else f"Nothing fits in {limit} of memory"
        parts: list[pages.Part] = [
            self._heading(limit),
            pages.Text(self.within_text),
            pages.Drawn(self._pictures),
            fits if fitting else pages.Text(nothing and f"{nothing} of a GPU."),
        ]
        if others:
            title = f"Too much for {limit}, by"
            parts.append(pages.Section(title, [apart], titled=True))
        parts += _listing("Not priced", _not_priced(self, found.left))
        parts += _listing("Cannot be", _cannot_be(found.refused))
        if found.best is not None:
            command = pages.Preformatted(f"  {self.command(found.best.strategy)}")
            parts.append(pages.Section("The first in full:", [command], titled=True))
        if found.interrupted:
            text = "Interrupted: this is what has been priced so far."
            parts.append(pages.Text(text))
        return [*parts, pages.Remarks(self.diagnostics)]

    def _heading(self, limit: str) -> pages.Heading:
        asked, best = self.question, self.findings.best
        request, sizes = asked.request, " or ".join(f"{n:,}" for n in asked.ranks)
        what = "training step" if request.mode == "training" else "inference"
        samples = "" if request.batch is None else f" of {request.batch:,} samples"
        gpus = "GPU" if asked.ranks == (1,) else "GPUs"
        title = _wrapped(
            f"{self.pricer.models.program.name}: {what}{samples} on {sizes} {gpus} of "
            f"{asked.target.name}, {request.dtype}, {request.runtime}, by "
            f"{asked.objective.name}",
            ("", "  "),
        )
        badges: list[pages.Badge] = []
        if self.findings.interrupted:
            badges.append(("interrupted: not all is priced", "bad"))
        if best is None:
            badges.append((f"nothing fits in {limit} of a GPU", "bad"))
            first, *others = title.splitlines()
            return pages.Heading(first, others, badges=badges)
        plan = self.plans[self.findings.ranked.index(best)]
        facts: list[pages.Badge] = [
            (f"{_rate(best.samples_per_s)} samples/s", ""),
            (f"bound by {best.bound}", ""),
            (f"fastest with {plan.chance} probability", ""),
        ]
        answer = plan, f"Step with {best.strategy}:", [*facts, *badges]
        return charts.plan_heading(title, *answer)

    def _pictures(self) -> Iterator[pages.Part]:
        """Draw times, the parts of the step of the best, its stages, and memory."""
        fit = zip(self.plans, self.findings.ranked, strict=True)
        plans = [plan for plan, price in fit if not price.missing_bytes]
        if plans:
            yield charts.plan_bars(plans, "Time of a step with each strategy")
        best = self.findings.best
        if best is not None:
            name = f"The step with {best.strategy}, by what limits it"
            yield pages.Bars([*_bars(best)], name)
            if best.strategy.stages > 1:
                yield charts.stage_timeline(self.pricer.report(best.strategy))
        chart = charts.time_and_memory(self.plans, self.pricer.limit_bytes)
        yield from [] if chart is None else [chart]


def _priced_plan(price: StrategyPrice) -> reports.PricedPlan:
    return reports.PricedPlan(
        name=str(price.strategy),
        time_us=price.step_s * US,
        time_us_p05=price.low_s * US,
        time_us_p95=price.high_s * US,
        energy_j=price.energy_j,
        peak_memory_bytes=price.peak_bytes,
    )


def _named(strategy: Strategy) -> Json:
    return {"strategy": str(strategy), "ranks": strategy.ranks}


def _row(compared: Comparison, price: StrategyPrice) -> Json:
    usd = compared.question.usd_per_hour
    per_million = None if usd is None else price.usd_per_million(usd)
    return {
        **_named(price.strategy),
        "batch": price.samples,
        "step_us": price.step_s * US,
        "step_us_p05": price.low_s * US,
        "step_us_p95": price.high_s * US,
        "exposed_comm_us": price.exposed_s * US,
        "bubble_us": price.bubble_s * US,
        "bound": price.bound,
        "bound_shares": dict(price.shares),
        "samples_per_s": price.samples_per_s,
        "usd_per_million_samples": per_million,
        "weight_bytes": price.parameters_bytes,
        "peak_memory_bytes": price.peak_bytes,
        "missing_bytes": price.missing_bytes,
        "fits": not price.missing_bytes,
        "passes": compared.passes(price.strategy),
    }


def _left_json(left: Left) -> Json:
    bound = left.bound
    return {
        **_named(left.strategy),
        "reason": left.reason,
        "step_us_at_least": None if bound is None else bound.step_s * US,
        "memory_bytes_at_least": None if bound is None else bound.peak_bytes,
    }


def _table(
    compared: Comparison,
    prices: Sequence[tuple[StrategyPrice, reports.PricedPlan]],
    *,
    missing: bool = False,
) -> Iterator[dict[str, str]]:
    several = len(compared.question.ranks) > 1
    stages = any(price.strategy.stages > 1 for price, _ in prices)
    usd = compared.question.usd_per_hour
    for price, plan in prices:
        bubble = "-" if price.strategy.stages == 1 else _share(price, price.bubble_s)
        cells = {
            "missing": reports.format_bytes(price.missing_bytes) if missing else None,
            "strategy": str(price.strategy),
            "GPUs": f"{price.strategy.ranks:,}" if several else None,
            "step": _time(price.step_s),
            "90 % interval": plan.interval,
            "P(fastest)": None if missing else plan.chance,
            "samples/s": _rate(price.samples_per_s),
            "$/M": None if usd is None else f"{price.usd_per_million(usd):,.4g}",
            "memory": reports.format_bytes(price.peak_bytes),
            "exposed": _time(price.exposed_s),
            "bubble": bubble if stages else None,
            "bound by": price.bound,
        }
        yield {name: cell for name, cell in cells.items() if cell is not None}


_KINDS = {
    "host": "host",
    "memory": "memory",
    "network": "comm",
    "compute": "kernel",
    "of it exposed communication": "comm",
}


def _bars(best: StrategyPrice) -> Iterator[pages.Bar]:
    """Yield the parts of the step: its bubble, and what limits the rest."""
    left_s = best.step_s - best.bubble_s
    parts_s = {name: share * left_s for name, share in best.shares.items()}
    parts_s |= {"bubble": best.bubble_s, "of it exposed communication": best.exposed_s}
    for name, part_s in parts_s.items():
        if part_s:
            texts = (_time(part_s), _share(best, part_s))
            kind = _KINDS.get(name, "idle")
            yield pages.Bar(name, part_s, *texts, kind)


def _time(seconds: float) -> str:
    return reports.format_us(seconds * US)


def _rate(per_s: float) -> str:
    return reports.format_quantity(per_s, "").strip()


def _share(price: StrategyPrice, seconds: float) -> str:
    return reports.format_percent(seconds / price.step_s)


def _listing(title: str, lines: Iterator[str]) -> Iterator[pages.Part]:
    listed = "\n".join(_wrapped(line, ("  ", "    ")) for line in lines)
    if listed:
        below = [pages.Preformatted(listed)]
        yield pages.Section(title, below, folded=True, titled=True)


def _wrapped(line: str, indents: tuple[str, str]) -> str:
    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent=indents[0],
        subsequent_indent=indents[1],
        break_on_hyphens=False,
        break_long_words=False,
    )


def _not_priced(compared: Comparison, left: Sequence[Left]) -> Iterator[str]:
    """Say why strategies are left out, each reason once, and the closest of them."""
    limit = compared.pricer.limit_bytes
    for reason in dict.fromkeys(one.reason for one in left):
        same = [one for one in left if one.reason == reason]
        line = f"{reason}: {_counted([one.strategy for one in same])}"
        bounds = [one.bound for one in same if one.bound is not None]
        if bounds and reason == "does not fit":
            least = min(bound.peak_bytes for bound in bounds) - limit
            line += f"; at least {reports.format_bytes(least)} too much"
        elif bounds and any(bound.step_s for bound in bounds):
            least_us = min(bound.step_s for bound in bounds) * US
            line += f"; at least {reports.format_us(least_us)}"
        yield line


def _cannot_be(refused: Sequence[Refused]) -> Iterator[str]:
    """Say what cannot be, each reason once, those of most strategies first."""
    by_reason: dict[str, list[Strategy]] = {}
    for one in refused:
        by_reason.setdefault(one.reason, []).append(one.strategy)
    order = sorted(by_reason, key=lambda reason: -len(by_reason[reason]))
    for reason in order[:_REASONS]:
        yield f"{_counted(by_reason[reason])}: {reason}"
    rest = sum(len(by_reason[reason]) for reason in order[_REASONS:])
    if rest:
        yield f"{rest:,} more, for other reasons, which --format json has"


def _counted(strategies: Sequence[Strategy]) -> str:
    first, *others = strategies
    return str(first) + (f" and {len(others):,} more" if others else "")
