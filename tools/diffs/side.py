"""What is compared: a report, as its file says it."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import attrs

from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import brief, parse_json, read_text

Json: TypeAlias = Any
REPORT, REPORTS = "perfc.report/1", "perfc.reports/1"

_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 1 << 16
_TRACE = re.compile(
    rb'"(traceEvents|schemaVersion|deviceProperties|displayTimeUnit)"\s*:\s*[^\s]'
)
"""A key that a trace, and no report, has near its beginning."""

_TOLERANCE = 1e-6
"""Share of its time by which a report's critical path may miss it: rounding."""


@attrs.frozen
class Segment:
    """A part of the time.

    Attributes:
        kind: As in `critical_path` of a report.
        detail: Likewise.
        us: How long it is.
        kernel: Number of the kernel of its op that ran, or that had to wait; -1 for
            none, or where a report does not say.

    """

    kind: str
    detail: str
    us: float
    kernel: int = -1


@attrs.frozen(eq=False)
class SideNode:
    """An op of one side.

    Attributes:
        rank: The first of the ranks that run it.
        id: Its name in the report.
        op: What it is.
        module: Where it stands in the model.
        phase: Of a training step.
        operands: Types of its operands, as `f32[2048,13]`; empty where nobody says.
        kernels: What it launches, as `gemm fp32 tf32`; empty where nobody says.
        duration_us: Of its kernels.
        fuses: Names of the ops that it computes, if it is generated.
        segments: Its parts of the time.
        counted_as: Op, module and phase that its part of the time is said to be of, if
            not its own: those of the first of several that have its id.
        names: Its kernels as a trace names them; empty of a prediction.
        measured: What a trace calls it; empty of a prediction.
        is_bare: Whether it is a measured kernel that no op is around.

    """

    rank: int
    id: str
    op: str
    module: str
    phase: str
    operands: tuple[str, ...]
    kernels: tuple[str, ...]
    duration_us: float
    fuses: tuple[str, ...]
    segments: Sequence[Segment]
    counted_as: tuple[str, str, str] | None = None
    names: tuple[str, ...] = ()
    measured: str = ""
    is_bare: bool = False

    @functools.cached_property
    def shapes(self) -> tuple[str, ...]:
        """Shapes of its operands, as `2048,13]`."""
        return tuple(text.partition("[")[2] for text in self.operands)

    @functools.cached_property
    def dtypes(self) -> tuple[str, ...]:
        """Element types of its operands, and of what its kernels compute in."""
        own = [text.partition("[")[0] for text in self.operands]
        return *own, *(text.partition(" ")[2] for text in self.kernels)

    @functools.cached_property
    def kernel_ops(self) -> tuple[str, ...]:
        """What it launches, whatever it computes in."""
        return tuple(text.partition(" ")[0] for text in self.kernels)


@attrs.frozen(eq=False)
class Factor:
    """One of the errors of a time, as `uncertainty` of a report has it."""

    factor: str
    shared_with: str
    sigma: float
    sigma_low: float


@attrs.frozen(eq=False)
class Side:
    """What is compared.

    Attributes:
        where: File, or what it is called.
        name: Model and target, for people.
        host: Whose host times it has.
        time_us: The time.
        nodes: Its ops, and whatever else takes time.
        factors: What the time is off by; None where it was measured.
        asked: Batch, mode and the like, in words.
        target: The name of its target; empty where perfc has none.
        model: The name of its model; empty of a trace.
        step: The step of a trace that it is; empty of a prediction.
        remarks: What there is to say of a trace.

    """

    __repr__ = brief

    where: str
    name: str
    host: str
    time_us: float
    nodes: Sequence[SideNode]
    factors: Sequence[Factor] | None
    asked: Sequence[str] = ()
    target: str = ""
    model: str = ""
    step: str = ""
    remarks: tuple[Diagnostic, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether it is a step of a trace."""
        return self.factors is None


def read_sides(path: Path) -> list[Side]:
    """Return the reports of a file, gzipped or not."""
    where = str(path)
    what = "a report of `perfc analyze --format json`"
    if is_gzipped(path):
        from perfc.traces.json_stream import EventFile

        text = "".join(EventFile(path).chunks())
    else:
        text = read_text(path, PerfcError, what)
    return sides_of(parse_json(text, PerfcError, where, what), where)


def is_trace(path: Path) -> bool:
    """Whether a file is a trace, by how it begins; False if unreadable."""
    if not path.is_file():
        return False
    head = _head(path)
    return head.lstrip()[:1] == b"[" or _TRACE.search(head) is not None


def _head(path: Path) -> bytes:
    if is_gzipped(path):
        from perfc.traces.json_stream import EventFile

        return EventFile(path).head(_HEAD_BYTES)
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


def is_gzipped(path: Path) -> bool:
    """Whether a file is gzipped; False if unreadable, or no file."""
    try:
        if not path.is_file():  # what a pipe says is read once
            return False
        with path.open("rb") as file:
            return file.read(2) == _GZIP
    except OSError:
        return False


def sides_of(document: Json, where: str) -> list[Side]:
    """Return the reports of a document."""
    found = _Fields(where, "", document)
    schema = found.text("schema")
    if schema == REPORTS:
        if reports := found.list("reports"):
            return [*map(_side, reports)]
        msg = f"{where}: reports: expected one or more, found none"
        raise PerfcError(msg)
    if schema != REPORT:
        msg = f"{where}: schema: expected {REPORT} or {REPORTS}, found {schema!r}"
        raise PerfcError(msg)
    return [_side(found)]


def _side(found: _Fields) -> Side:
    model, target = found.part("model"), found.part("target")
    time_us = found.part("summary").number("time_us")
    # The parts of the critical path, by rank and node.
    segments: dict[tuple[int, str], list[Segment]] = {}
    for one in found.list("critical_path"):
        key = one.integer("rank"), one.text("node")
        segment = Segment(
            one.text("kind"), one.text("detail"), one.number("duration_us")
        )
        segments.setdefault(key, []).append(segment)
    total_us = math.fsum(s.us for own in segments.values() for s in own)
    if abs(total_us - time_us) > _TOLERANCE * time_us:
        msg = (
            f"{found.where}: {found.path}critical_path: expected segments that sum to "
            f"summary.time_us, {time_us:.10g}, found {total_us:.10g}"
        )
        raise PerfcError(msg)
    first: dict[tuple[int, str], tuple[str, str, str]] = {}
    nodes = [_node(one, segments, first) for one in found.list("nodes")]
    if segments:
        raise _without_node(found, segments.keys())
    return Side(
        found.where,
        f"{model.text('name')} on {target.text('name')}, {found.text('runtime')}",
        f"{target.said('profile')}, {found.text('runtime')}",
        time_us,
        nodes,
        [
            Factor(
                one.text("factor"),
                one.text("shared_with"),
                one.number("sigma"),
                one.number("sigma_low"),
            )
            for one in found.list("uncertainty")
        ],
        [*_asked(found)],
        target.text("name"),
        model.text("name"),
    )


def _without_node(found: _Fields, missing: Collection[tuple[int, str]]) -> PerfcError:
    path = found.list("critical_path")
    one = next(o for o in path if (o.integer("rank"), o.text("node")) in missing)
    what = f"the id of a node of rank {one.integer('rank')}"
    return one.expected("node", what, one.text("node"))


def _asked(found: _Fields) -> Iterator[str]:
    model, target = found.part("model"), found.part("target")
    for before, value in (
        ("batch ", model.said("batch")),
        ("", model.said("mode")),
        ("", model.said("dtype")),
        ("host profile ", target.said("profile")),
    ):
        if value:
            yield f"{before}{value}"


def _node(
    one: _Fields,
    segments: dict[tuple[int, str], list[Segment]],
    first: dict[tuple[int, str], tuple[str, str, str]],
) -> SideNode:
    rank, name = one.integer("rank"), one.text("id")
    kind = one.text("op"), one.text("module"), one.text("phase")
    counted_as = first.setdefault((rank, name), kind)
    return SideNode(
        rank,
        name,
        *kind,
        one.texts("operands"),
        one.texts("kernels"),
        one.number("duration_us"),
        one.texts("fuses"),
        segments.pop((rank, name), ()),
        None if counted_as == kind else counted_as,
    )


@attrs.frozen(eq=False)
class _Fields:
    """An object of a document, whose errors say where it stands."""

    where: str
    path: str
    value: Json

    def expected(self, key: str, what: str, found: object) -> PerfcError:
        """Return the error that something else stands there."""
        msg = f"{self.where}: {self.path}{key}: expected {what}, found {found!r:.40}"
        return PerfcError(msg)

    def said(self, key: str) -> Json:
        """Return whatever stands there; None if nothing does."""
        found: object = self.value
        if not isinstance(found, dict):
            name = self.path.removesuffix(".") or "the document"
            msg = f"{self.where}: {name}: expected an object, found {found!r:.40}"
            raise PerfcError(msg)
        return cast("dict[str, Json]", found).get(key)

    def text(self, key: str) -> str:
        """Return a text."""
        value = self.said(key)
        if not isinstance(value, str):
            raise self.expected(key, "a text", value)
        return value

    def number(self, key: str) -> float:
        """Return a number."""
        value = self.said(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf"):
            raise self.expected(key, "a number from 0 on", value)
        return float(value)

    def integer(self, key: str) -> int:
        """Return a whole number."""
        value = self.said(key)
        if type(value) is not int:
            raise self.expected(key, "a whole number", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return texts; none where a report does not say."""
        value = self.said(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.expected(key, "a list of texts", value)
        listed = cast("list[object]", value)
        texts = tuple([one for one in listed if isinstance(one, str)])
        if len(texts) < len(listed):
            raise self.expected(key, "a list of texts", listed)
        return texts

    def part(self, key: str) -> _Fields:
        """Return the object that stands there."""
        return _Fields(self.where, f"{self.path}{key}.", self.said(key))

    def list(self, key: str) -> Sequence[_Fields]:
        """Return the objects of a list."""
        value = self.said(key)
        if not isinstance(value, list):
            raise self.expected(key, "a list", value)
        entries = cast("Sequence[Json]", value)
        return [
            _Fields(self.where, f"{self.path}{key}[{number}].", one)
            for number, one in enumerate(entries)
        ]
