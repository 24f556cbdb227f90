"""Compared strategies: as text and as `perfc.parallel/1`."""

from __future__ import annotations

import functools
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import US, Json, brief
from perfc.passes.pipeline_spec import format_pipeline
from perfc.planning.strategies import Findings, Left, Refused, Strategy, StrategyPrice
from perfc.tools.reports import (
    PricedPlan,
    VerbResult,
    columns_text,
    format_bytes,
    format_percent,
    format_quantity,
    format_us,
    with_probabilities,
)
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
class Comparison(VerbResult):
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

    @property
    def plans(self) -> tuple[PricedPlan, ...]:
        """What all verbs say of the strategies."""
        return self._plans

    @functools.cached_property
    def _plans(self) -> tuple[PricedPlan, ...]:
        ranked = self.findings.ranked
        errors = [None if one.missing_bytes else one.errors for one in ranked]
        return with_probabilities([*map(_priced_plan, ranked)], errors)

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
        rate = format_quantity(fewest["samples_per_s_per_gpu"], "").strip()
        return (
            f"The fewest GPUs that end a step within {format_us(fewest['within_us'])}: "
            f"{count:,}, {rate} samples/s a GPU."
        )

    def _text(self) -> str:
        """Return a table, what is not in it and why, and how to look closer."""
        found = self.findings
        parts = [_title(self), self.within_text, *_tables(self)]
        parts += [_listing("Not priced", not_priced(self, found.left))]
        parts += [_listing("Cannot be", cannot_be(found.refused))]
        if found.best is not None:
            parts.append(f"The first in full:\n  {self.command(found.best.strategy)}")
        if found.interrupted:
            parts.append("Interrupted: this is what has been priced so far.")
        return "\n\n".join(part for part in parts if part) + "\n"


def _priced_plan(price: StrategyPrice) -> PricedPlan:
    return PricedPlan(
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


def _title(compared: Comparison) -> str:
    asked = compared.question
    what = "training step" if asked.request.mode == "training" else "inference"
    sizes = " or ".join(f"{count:,}" for count in asked.ranks)
    gpus = "GPU" if asked.ranks == (1,) else "GPUs"
    samples = (
        "" if asked.request.batch is None else f" of {asked.request.batch:,} samples"
    )
    name = compared.pricer.models.program.name
    head = (
        f"{name}: {what}{samples} on {sizes} {gpus} of {asked.target.name}, "
        f"{asked.request.dtype}, {asked.request.runtime}, by {asked.objective.name}"
    )
    return textwrap.fill(head, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _tables(compared: Comparison) -> Iterator[str]:
    """Yield the table of strategies that fit, and that of the others."""
    fitting, others = strategy_tables(compared)
    limit = format_bytes(compared.pricer.limit_bytes)
    if fitting:
        yield columns_text(fitting)
    elif others:
        yield f"Nothing fits in {limit} of memory of a GPU."
    if others:
        yield f"Too much for {limit}, by\n{columns_text(others)}"


Lines: TypeAlias = Sequence[tuple[str, ...]]


def strategy_tables(compared: Comparison) -> tuple[Lines, Lines]:
    """Return the table of strategies that fit, and that of the others, with headings.

    A table without strategies is empty.
    """
    both = [*zip(compared.findings.ranked, compared.plans, strict=True)]
    fitting = [each for each in both if not each[0].missing_bytes]
    others = [each for each in both if each[0].missing_bytes]
    return _table(compared, fitting), _table(compared, others, missing=True)


def _table(
    compared: Comparison,
    prices: Sequence[tuple[StrategyPrice, PricedPlan]],
    *,
    missing: bool = False,
) -> Lines:
    several = len(compared.question.ranks) > 1
    stages = any(price.strategy.stages > 1 for price, _ in prices)
    usd = compared.question.usd_per_hour
    rows: list[tuple[str, ...]] = []
    for price, plan in prices:
        cells = {
            "missing": format_bytes(price.missing_bytes) if missing else None,
            "strategy": str(price.strategy),
            "GPUs": f"{price.strategy.ranks:,}" if several else None,
            "step": format_us(price.step_s * US),
            "90 % interval": _interval(price),
            "P(fastest)": None if missing else plan.chance,
            "samples/s": format_quantity(price.samples_per_s, "").strip(),
            "$/M": None if usd is None else f"{price.usd_per_million(usd):,.4g}",
            "memory": format_bytes(price.peak_bytes),
            "exposed": format_us(price.exposed_s * US),
            "bubble": _bubble(price) if stages else None,
            "bound by": price.bound,
        }
        shown = {name: cell for name, cell in cells.items() if cell is not None}
        rows = rows or [tuple(shown)]
        rows.append(tuple(shown.values()))
    return rows


def _interval(price: StrategyPrice) -> str:
    return f"{format_us(price.low_s * US)} to {format_us(price.high_s * US)}"


def _bubble(price: StrategyPrice) -> str:
    if price.strategy.stages == 1:
        return "-"
    return format_percent(price.bubble_s / price.step_s)


def _listing(title: str, lines: Iterator[str]) -> str:
    listed = "\n".join(map(_wrapped, lines))
    return f"{title}\n{listed}" if listed else ""


def _wrapped(line: str) -> str:
    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def not_priced(compared: Comparison, left: Sequence[Left]) -> Iterator[str]:
    """Say why strategies are left out, each reason once, and the closest of them."""
    limit = compared.pricer.limit_bytes
    for reason in dict.fromkeys(one.reason for one in left):
        same = [one for one in left if one.reason == reason]
        line = f"{reason}: {_counted([one.strategy for one in same])}"
        bounds = [one.bound for one in same if one.bound is not None]
        if bounds and reason == "does not fit":
            least = min(bound.peak_bytes for bound in bounds) - limit
            line += f"; at least {format_bytes(least)} too much"
        elif bounds and any(bound.step_s for bound in bounds):
            least_us = min(bound.step_s for bound in bounds) * US
            line += f"; at least {format_us(least_us)}"
        yield line


def cannot_be(refused: Sequence[Refused]) -> Iterator[str]:
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
