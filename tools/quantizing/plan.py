"""One plan of precision, priced: what it takes, and where."""

from __future__ import annotations

import functools

import attrs

from perfc.ir import Value
from perfc.ir.support import Json
from perfc.passes.graphs import typed
from perfc.passes.precision import TABLE, candidates
from perfc.tools.models import Model
from perfc.tools.reports import OUT_OF_MEMORY, PricedPlan, Report, plan_of

ORIGINAL = "original"
"""Name of the plan that changes nothing."""

_CASTS = frozenset({"cast", "quantize", "dequantize", "dynamic_quantize", "amax"})
"""Ops that convert between types, or find what is needed to."""


@attrs.frozen
class KeptOp:
    """A table or layer that has the type that it had.

    Attributes:
        name: Its parameter, without `.weight`.
        dtype: Its type.
        reason: `keep` where a pattern says so, `budget` where its loss does not fit,
            `no gain` where it saves no time, `unfit` where its sizes, or what else
            reads it, forbid the type, or `not asked`.

    """

    name: str
    dtype: str
    reason: str


@attrs.frozen
class Choice:
    """One of the types that an op may have in a search.

    Attributes:
        op: Its parameter, without `.weight`.
        dtype: The type.
        loss: What it costs in accuracy.
        saved_us: Device time that it saves, of its own kernels and what converts.
        chosen: Whether the plan has it.

    """

    op: str
    dtype: str
    loss: float
    saved_us: float
    chosen: bool


@attrs.frozen(kw_only=True)
class Frontier:
    """The fastest plan of some loss.

    Attributes:
        loss: Sum over what is quantised.
        time_us: Time of an iteration.
        device_only_us: The same of the device alone; None where that is not told apart.
        quantized: How many ops are quantised.
        kept: How many are not, of those that could be.

    """

    loss: float
    time_us: float
    device_only_us: float | None
    quantized: int
    kept: int

    @property
    def device_us(self) -> float:
        """Time of the device alone, or of the iteration where that is not known."""
        return self.time_us if self.device_only_us is None else self.device_only_us


@attrs.frozen(kw_only=True, eq=False)
class PrecisionPlan:
    """A plan, priced by the whole pipeline.

    Attributes:
        name: What it is called.
        model: The model as the plan makes it.
        report: Its report.
        kept: What has the type that it had.
        casts: Ops that convert between types, beyond those of the original.
        choices: What each op could be, where it was searched for.

    """

    name: str
    model: Model
    report: Report
    kept: tuple[KeptOp, ...]
    casts: int
    choices: tuple[Choice, ...] = ()

    @functools.cached_property
    def tables(self) -> list[Json]:
        """Each table: its type, its sizes, and what it takes."""
        return [_table(value) for value in _table_weights(self.model)]

    @property
    def tables_bytes(self) -> int:
        """What all tables take."""
        return sum(table["bytes"] for table in self.tables)

    @functools.cached_property
    def rest_bytes(self) -> int:
        """What all other parameters take."""
        whole = 0
        for rank in self.model.program.classes:
            values = rank.ops.parameters if rank.ops is not None else []
            for value in values:
                whole += int(typed(value).bind(self.model.program.bindings).nbytes)
        return whole - self.tables_bytes

    @property
    def fits(self) -> bool:
        """Whether the device has the memory."""
        return fits(self.report)

    @property
    def priced(self) -> PricedPlan:
        """What all verbs say of a plan."""
        return plan_of(self.name, self.report)


def fits(report: Report) -> bool:
    """Whether the device has the memory."""
    return all(one.code != OUT_OF_MEMORY for one in report.diagnostics)


def casts_of(model: Model) -> int:
    """Return how many ops of a model convert between types."""
    return len(cast_names(model))


def cast_names(model: Model) -> list[str]:
    """Return the names of the ops of a model that convert between types."""
    graphs = [rank.ops for rank in model.program.classes if rank.ops is not None]
    return [node.name for graph in graphs for node in graph if node.op in _CASTS]


def _table_weights(model: Model) -> list[Value]:
    found = (one.weight for one in candidates(model.program) if one.kind == TABLE)
    return [*dict.fromkeys(found)]


def _table(value: Value) -> Json:
    type_ = typed(value)
    rows, columns = type_.shape
    row_bytes = type_.dtype.row_bytes(columns)
    return {
        "name": value.name.removesuffix(".weight"),
        "dtype": str(type_.dtype),
        "rows": rows,
        "columns": columns,
        "row_bytes": row_bytes,
        "bytes": rows * row_bytes,
    }
