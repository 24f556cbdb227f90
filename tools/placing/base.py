"""A query of a model with all tables in the memory that the device works from."""

from __future__ import annotations

import functools
import math

import attrs

from perfc.costmodels import Target
from perfc.costmodels.locality import parse_popularity, read_popularity
from perfc.costmodels.tiers import TieredTable
from perfc.ir import Graph, UsageError
from perfc.ir.node_kinds import is_embedding_bag
from perfc.ir.program import Program
from perfc.ir.support import US, brief
from perfc.passes import World
from perfc.planning.plans import Table
from perfc.tools.analysis import analyze
from perfc.tools.models import TableList
from perfc.tools.placing.question import Question, chosen_tables
from perfc.tools.reports import Report
from perfc.tools.sharding import ShardModel


@attrs.frozen(eq=False, kw_only=True)
class QueriedModel:
    """A model and its tables, and what a query takes on a machine.

    Attributes:
        question: What is asked of it.
        listed: Its tables, if it is a list of them.

    """

    __repr__ = brief

    question: Question
    listed: TableList | None = None

    @functools.cached_property
    def name(self) -> str:
        """Name of the model."""
        return str(self._model.forward.name)

    @functools.cached_property
    def users(self) -> frozenset[str]:
        """Tables that are looked up once a query."""
        names = (
            [table.name for table in self._model.tables]
            if self.listed is None
            else [table.name for table in self.listed.tables]
        )
        return chosen_tables(names, self.question.users)

    @functools.cached_property
    def _model(self) -> ShardModel:
        return self._on(self.question.target)

    def _on(self, target: Target) -> ShardModel:
        asked = self.question.request
        candidates = self.question.candidates
        model = asked.model if self.listed is None else self._program(self.listed)
        # Popularities by table, those of files read.
        found: dict[str, str] = {}
        for name, text in asked.popularity.items():
            for of, said in read_popularity(text).items():
                if name and of:
                    msg = f"--popularity {name}={text}: the file is of several tables"
                    raise UsageError(msg)
                found[name or of] = said
        asked = attrs.evolve(asked, model=model, batch=candidates, popularity=found)
        return ShardModel(request=asked, target=target, world=World(1, 1))

    def _program(self, listed: TableList) -> Program:
        """Return a model of listed tables, of which users' are looked up once."""
        candidates = self.question.candidates
        tables = tuple(
            attrs.evolve(table, pooling=table.pooling / candidates)
            if table.name in self.users
            else table
            for table in listed.tables
        )
        return attrs.evolve(listed, tables=tables).program(candidates)

    @functools.cached_property
    def tables(self) -> tuple[TieredTable, ...]:
        """Its tables, with the lookups of one query."""
        return tuple(self._tiered(table) for table in self._model.tables)

    def _tiered(self, table: Table) -> TieredTable:
        candidates, user = self.question.candidates, table.name in self.users
        pooling = table.pooling
        if user and self.listed is not None:
            pooling *= candidates
        return TieredTable(
            name=table.name,
            rows=table.rows,
            row_bytes=max(1, round(table.dim * table.element_bytes)),
            lookups=pooling if user else pooling * candidates,
            pooling=max(pooling, 1.0),
            popularity=parse_popularity(table.popularity),
        )

    @functools.cached_property
    def pooled_bytes(self) -> float:
        """Bytes of pooled rows of a query, in fp32."""
        candidates = self.question.candidates
        bags = (
            (1 if table.name in self.users else candidates) * table.dim
            for table in self._model.tables
        )
        return 4.0 * sum(bags)

    def base(self, target: Target) -> BaseStep:
        """Analyze it with all tables in the memory that a machine works from."""
        asked = self.question.request
        model = self._on(target).forward
        return BaseStep(analyze(model, target, dtype=asked.dtype))


@attrs.frozen(eq=False)
class BaseStep:
    """A query with all tables in one memory, analyzed.

    Attributes:
        report: Of the whole pipeline.

    """

    report: Report

    @property
    def time_s(self) -> float:
        """Time of the query."""
        return self.report.time_us / US

    @functools.cached_property
    def lookup_s(self) -> float:
        """Device time of lookups."""
        graph = _graph(self.report)
        return self._seconds({n.name for n in graph if is_embedding_bag(n)})

    @functools.cached_property
    def dense_s(self) -> float:
        """Device time of what needs no row of a table: it can run beside reads."""
        after, lookups = set[object](), set[str]()
        names: set[str] = set()
        for node in _graph(self.report):
            if is_embedding_bag(node):
                lookups.add(node.name)
                after.update(node.results)
            elif after.isdisjoint(node.operands):
                names.add(node.name)
            else:
                after.update(node.results)
        return self._seconds(names - lookups)

    def _seconds(self, names: set[str]) -> float:
        parts = (
            entry["duration_us"] for entry in self.report.nodes if entry["id"] in names
        )
        return math.fsum(parts) / US


def _graph(report: Report) -> Graph:
    graph = report.results.program.classes[0].ops
    if graph is None:
        msg = f"{report.model.name} has no ops: perfc place needs a model, not a trace"
        raise UsageError(msg)
    return graph
