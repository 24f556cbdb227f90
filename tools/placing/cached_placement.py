"""Tables on servers behind a cache of rows on trainers: `perfc place --lookahead`.

A training step without a cache, with one of the last rows (LRU), and with one that
knows the next batches, as the pass `lookahead-cache` has them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import attrs

from perfc.costmodels.locality import CachedTable, LookAheadRows, window_that_fits
from perfc.ir import Diagnostic, Program, UsageError
from perfc.ir.node_kinds import is_embedding_bag
from perfc.ir.support import US, Json, brief
from perfc.passes.embeddings import LookaheadCache, cached_tables
from perfc.passes.pipeline_spec import format_pipeline
from perfc.passes.timing import TimeErrors
from perfc.tools import charts, pages, reports
from perfc.tools.analysis import report_on
from perfc.tools.models import load_request
from perfc.tools.request import TRAINING, Request

LOOK_AHEAD = "lookahead"
REMOTE = "remote"
"""The tier of the tables: servers."""


@attrs.frozen(eq=False, kw_only=True)
class CacheQuestion:
    """What is asked of a cache of rows.

    Attributes:
        request: The model, the target and the setting; its batch is that of each rank.
        window: Batches ahead.
        rows: Rows that the cache of all trainers holds.
        servers: Hosts that have the tables.
        policies: Caches to compare with the one that looks ahead.

    """

    __repr__ = brief

    request: Request
    window: int
    rows: int
    servers: int = 1
    policies: tuple[str, ...] = ("none", "lru")

    def __attrs_post_init__(self) -> None:
        """Check what the passes would refuse later."""
        for policy in self.all:
            self.cache(policy)

    @property
    def all(self) -> tuple[str, ...]:
        """The policies, the one that looks ahead first."""
        return tuple(dict.fromkeys((LOOK_AHEAD, *self.policies)))

    def cache(self, policy: str) -> LookaheadCache:
        """Return the pass of a policy."""
        return LookaheadCache(self.window, self.rows, self.servers, policy)


@attrs.frozen(eq=False, kw_only=True)
class CachedPlacement(reports.VerbResult):
    """Training steps with tables on servers, the fastest first.

    Attributes:
        question: What was asked.
        steps: What the pipeline says of each policy, by name.
        without_s: Seconds of the step if its rows were on the trainers.
        tables: Names of the tables, and what a batch looks up of each.
        window: Batches ahead for which the cache has room.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.place/1"

    question: CacheQuestion
    steps: tuple[tuple[str, reports.Report], ...]
    without_s: float
    tables: tuple[tuple[str, CachedTable], ...]
    window: int

    @property
    def rows(self) -> list[Json]:
        """What there is to say of each plan."""
        return [
            {**plan.to_dict(), "exposed_us": self._exposed_us(report)}
            for plan, (_, report) in zip(self.plans, self.steps, strict=True)
        ]

    def _priced(self) -> Iterator[tuple[reports.PricedPlan, TimeErrors | None]]:
        for name, report in self.steps:
            yield reports.plan_of(name, report), report.errors

    def _exposed_us(self, report: reports.Report) -> float:
        return max(report.time_us - self.without_s * US, 0.0)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks of all plans, each once."""
        found = [one for _, report in self.steps for one in report.diagnostics]
        return tuple(dict.fromkeys(found))

    @functools.cached_property
    def ahead(self) -> tuple[LookAheadRows, ...]:
        """Rows of each table with the window for which the cache has room."""
        return tuple(table.ahead(self.window) for _, table in self.tables)

    def _document(self) -> Json:
        step = dict(self.steps)[LOOK_AHEAD]
        named = list(zip(self.tables, self.ahead, strict=True))
        per_s = US / step.time_us
        fetched = math.fsum(rows.fetched for _, rows in named)
        moved = math.fsum(rows.fetched * table.row_bytes for (_, table), rows in named)
        used = math.fsum(table.curve.rows * table.row_bytes for _, table in self.tables)
        return {
            "model": step.model.name,
            "target": step.target.name,
            "ranks": self.question.request.ranks or 1,
            "batch": step.model.batch,
            "window": self.window,
            "cache_rows": self.question.rows,
            "servers": self.question.servers,
            "plans": self.rows,
            "tables": [_entry(name, table, rows) for (name, table), rows in named],
            "tiers": [
                {
                    "name": REMOTE,
                    "used_bytes": used,
                    "reads_per_s": fetched * per_s,
                    "read_bytes_per_s": moved * per_s,
                    "latency_us": None,
                    "watts": None,
                }
            ],
            "lookahead": [{"name": n, **rows.to_dict()} for (n, _), rows in named],
            "hosts": self.question.servers,
            "watts": None,
            "saving": None,
            "exposed_us": self._exposed_us(step),
        }

    @property
    def parts(self) -> list[pages.Part]:
        """What was asked, the plans, and the rows of a batch."""
        step, asked, best = self.steps[0][1], self.question, self.plans[0]
        ranks = asked.request.ranks or 1
        title = (
            f"{step.model.name}: a training step on {ranks} ranks of "
            f"{step.target.name}, tables on {asked.servers} servers, a cache of "
            f"{asked.rows:,} rows, {self.window:,} batches ahead"
        )
        plans = (
            {
                "plan": plan.name,
                "step": reports.format_us(plan.time_us),
                "P(fastest)": plan.chance,
                "exposed": reports.format_us(row["exposed_us"]),
            }
            for plan, row in zip(self.plans, self.rows, strict=True)
        )
        tables = (
            {"table": name, **{key: f"{n:,.0f}" for key, n in rows.to_dict().items()}}
            for (name, _), rows in zip(self.tables, self.ahead, strict=True)
        )
        below = [pages.table(tables, "Rows of a batch")]
        return [
            charts.plan_heading(title, best, f"Step with {best.name}:"),
            charts.plan_bars(self.plans, "Time of a step with each plan"),
            pages.table(plans, "Plans"),
            pages.Section("Rows of a batch", below, titled=True),
            pages.Remarks(self.diagnostics, form="{0.level.value}: {0.message}"),
        ]


def _entry(name: str, table: CachedTable, rows: LookAheadRows) -> Json:
    return {
        "name": name,
        "tier": REMOTE,
        "row_bytes": table.row_bytes,
        "lookups": table.lookups,
        "hits": table.lookups - rows.fetched,
        "reads": rows.fetched,
        "blocks_per_row": 1.0,
        "amplification": 1.0,
        "lookahead": rows.to_dict(),
    }


def look_ahead(
    question: CacheQuestion, *, say: Callable[[str], None] = lambda _: None
) -> CachedPlacement:
    """Predict a training step with each cache.

    Args:
        question: What is asked.
        say: Told what is being done.

    """
    asked = attrs.evolve(question.request, mode=TRAINING)
    say("analyzing the step: all rows on trainers")
    plain = report_on(load_request(asked))
    program = plain.results.program
    tables = cached_tables(program)
    names = _names(program)
    steps: list[tuple[str, reports.Report]] = []
    for policy in question.all:
        say(f"analyzing the step: {policy}")
        text = format_pipeline([question.cache(policy)])
        with_pass = attrs.evolve(asked, passes=(*asked.passes, text))
        steps.append((policy, report_on(load_request(with_pass))))
    return CachedPlacement(
        question=question,
        steps=tuple(sorted(steps, key=lambda one: one[1].time_us)),
        without_s=plain.time_us / US,
        tables=tuple(zip(names, tables, strict=True)),
        window=window_that_fits(tables, question.window, question.rows),
    )


def _names(program: Program) -> Sequence[str]:
    """Return the names of a program's tables, in the order of `cached_tables`."""
    graph = program.classes[0].ops
    return [
        weight.name.removesuffix(".weight")
        for node in graph or ()
        if is_embedding_bag(node)
        for weight, _ in zip(
            node.operands, node.attributes.records("tables"), strict=False
        )
    ]


def check_tier(tiers: str | None) -> None:
    """Refuse tiers in which no cache looks ahead."""
    if tiers not in (None, REMOTE):
        msg = (
            f"--lookahead with --tiers {tiers}: tables behind a cache that looks ahead "
            f"lie on servers (--tiers {REMOTE})"
        )
        raise UsageError(msg)
