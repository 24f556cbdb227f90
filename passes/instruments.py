"""Observers of a pipeline: one concern each, nested like a stack.

An instrument's own exception propagates: these are developer tools.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from perfc.ir import PerfcError, Program, text, verification
from perfc.ir.launch import verify_launches
from perfc.ir.opdef import OpRegistry
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes.facts import HOSTED, LAUNCHES, TYPED

if TYPE_CHECKING:
    from perfc.passes.base import Pass, PassContext


class Instrument:
    """Sees every pass start, and end in one of two ways. Does nothing."""

    def before(self, p: Pass, program: Program) -> None:
        """Called right before *p* runs."""

    def after(self, p: Pass, program: Program, ctx: PassContext) -> None:
        """Called after *p* ran and its contract was checked."""

    def failed(self, p: Pass, program: Program, error: Exception) -> None:
        """Called instead of `after` when *p*, its contract or an inner one failed."""


@attrs.define
class Timing(Instrument):
    """Wall time of each pass, in the order they ran.

    Attributes:
        seconds: Pass name and seconds, one entry a run.

    """

    seconds: list[tuple[str, float]] = attrs.field(
        factory=list["tuple[str, float]"], init=False
    )
    _started: float = attrs.field(default=0.0, init=False)

    def before(self, p: Pass, program: Program) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def after(self, p: Pass, program: Program, ctx: PassContext) -> None:
        """Stop the clock."""
        self.seconds.append((p.name, time.perf_counter() - self._started))


@attrs.frozen
class VerifyEach(Instrument):
    """Verify every op graph and launch graph after every pass.

    Attributes:
        ops: Known ops.

    """

    ops: OpRegistry = BUILTIN_OPS

    def after(self, p: Pass, program: Program, ctx: PassContext) -> None:
        """Verify; types only where `ir.typed` says that they are there."""
        typed = ctx.annotations.table(TYPED, ctx.scenario)
        for rank in program.classes:
            if rank.launches is not None:
                verify_launches(rank.launches)
            if rank.ops is not None:
                verification.verify(rank.ops, self.ops)
                if rank.ops in typed:
                    verification.verify_types(rank.ops, self.ops)
        for graph in ctx.annotations.table(LAUNCHES, ctx.scenario).get(program, ()):
            verify_launches(graph)
        for hosted in ctx.annotations.table(HOSTED, ctx.scenario).get(program, ()):
            verify_launches(hosted.graph)


@attrs.define
class DumpDir(Instrument):
    """Write the program after each pass to `000_name.perfc`, `001_…`.

    Attributes:
        folder: Where the files go; made if absent.

    """

    folder: Path
    _count: int = attrs.field(default=0, init=False)

    def after(self, p: Pass, program: Program, ctx: PassContext) -> None:
        """Write one file."""
        path = self.folder / f"{self._count:03d}_{p.name}.perfc"
        _write(path, text.print_program(program))
        self._count += 1


@attrs.define
class Reproducer(Instrument):
    """On failure, write the program as it came and the pipeline that fails on it.

    Put it first, so that what other instruments find is a failure too.

    Attributes:
        path: The file to write: a golden test's input.
        pipeline: Text of the pipeline.

    """

    path: Path
    pipeline: str
    _source: tuple[Program, str] | None = attrs.field(default=None, init=False)

    def before(self, p: Pass, program: Program) -> None:
        """Keep the text of a program that has not been seen yet."""
        if self._source is None or self._source[0] is not program:
            self._source = program, text.print_program(program)

    def failed(self, p: Pass, program: Program, error: Exception) -> None:
        """Write the file."""
        reason = " ".join(str(error).split())
        head = f"// RUN: {self.pipeline}\n// {p.name}: {reason}\n"
        _write(self.path, head + (self._source[1] if self._source else ""))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}"
        raise PerfcError(msg) from None
