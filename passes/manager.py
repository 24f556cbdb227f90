"""Runs passes in order, checks their contracts, tells instruments about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import attrs

from perfc import ir
from perfc.ir import support
from perfc.ir.annotations import Annotations
from perfc.passes.base import PassContext, Transform

if TYPE_CHECKING:
    from perfc import ir
    from perfc.costmodels import Target
    from perfc.ir.annotations import Anchor, Scenario
    from perfc.passes.base import Pass
    from perfc.passes.instruments import Instrument

T = TypeVar("T")


@attrs.frozen(eq=False)
class Analysis:
    """What is known of a program after a pipeline ran.

    Attributes:
        program: The program.
        annotations: The facts.
        scenario: Names the facts of this target, runtime and binding.
        diagnostics: Remarks of the frontend and of the passes.

    """

    __repr__ = support.brief

    program: ir.Program
    annotations: Annotations
    scenario: Scenario | None
    diagnostics: tuple[ir.Diagnostic, ...]

    def get(self, key: ir.AnnotationKey[T], anchor: Anchor | None = None) -> T:
        """Return the fact about *anchor*, the program if None."""
        about = self.program if anchor is None else anchor
        table = self.annotations.table(key, self.scenario)
        if about not in table:
            msg = f"no pass of this analysis provides {key} of {about}"
            raise support.PassContractError(msg)
        return table[about]

    def find(self, key: ir.AnnotationKey[T]) -> T | None:
        """Return a fact about the program; None if no pass has provided it."""
        return self.annotations.table(key, self.scenario).get(self.program)


def _tuple(passes: Iterable[Pass]) -> tuple[Pass, ...]:
    return tuple(passes)


@attrs.frozen
class PassManager:
    """A pass order, checked before anything runs.

    Attributes:
        passes: The passes, in order; the pipeline that runs is the one written.
        instruments: Observers.
        given: Facts that an earlier pipeline left.

    """

    __repr__ = support.brief

    passes: tuple[Pass, ...] = attrs.field(converter=_tuple)
    instruments: Sequence[Instrument] = ()
    given: frozenset[ir.AnyKey] = frozenset()

    def __attrs_post_init__(self) -> None:
        """Check that every fact a pass requires is there when it runs."""
        known = set(self.given)
        for p in self.passes:
            if missing := p.requires - known:
                names = ", ".join(sorted(map(str, missing)))
                late = [repr(q.name) for q in self.passes if q.provides & missing]
                hint = f": {late[0]} does, and comes later" if late else ""
                msg = (
                    f"pass {p.name!r} requires {names}, which no earlier pass "
                    f"provides{hint}"
                )
                raise support.PipelineError(msg)
            if isinstance(p, Transform):
                known &= p.preserves
            known |= p.provides

    def run(
        self,
        program: ir.Program,
        target: Target | None = None,
        scenario: Scenario | None = None,
        annotations: Annotations | None = None,
    ) -> Analysis:
        """Run every pass over *program* and return what is known then."""
        facts = Annotations() if annotations is None else annotations
        diagnostics = list(program.diagnostics)
        with support.paused_collector():
            for p in self.passes:
                ctx = PassContext(p, facts, target, scenario, diagnostics)
                program = self._run_pass(p, program, ctx)
        return Analysis(program, facts, scenario, tuple(diagnostics))

    def _run_pass(self, p: Pass, program: ir.Program, ctx: PassContext) -> ir.Program:
        """Run *p* inside the instruments, the first of them outermost.

        Returns the program to go on with.

        Whatever an inner instrument raises has failed the pass for those around
        it: every instrument that began hears of exactly one end.
        """
        waiting: list[Instrument] = []
        try:
            for instrument in self.instruments:
                instrument.before(p, program)
                waiting.append(instrument)
            with support.plugin_at_work(f"pass {p.name!r}", p):
                program = p.run(program, ctx) or program
            if isinstance(p, Transform):
                _drop_stale(p, ctx)
            _check_provided(p, program, ctx)
            while waiting:
                waiting.pop().after(p, program, ctx)
        except Exception as error:
            while waiting:
                waiting.pop().failed(p, program, error)
            raise
        return program


def find_fact(
    analysis: Analysis, key: ir.AnnotationKey[T], provider: Pass, target: Target | None
) -> T:
    """Return a fact of the program, running *provider* if no pass has found it.

    Args:
        analysis: What is known; a new fact is added to it.
        key: The fact, one of the program.
        provider: The pass that finds it.
        target: What the analysis is about.

    """
    facts, scenario = analysis.annotations, analysis.scenario
    if analysis.program not in facts.table(key, scenario):
        manager = PassManager((provider,), given=provider.requires)
        manager.run(analysis.program, target, scenario, facts)
    return facts.get(key, analysis.program, scenario)


def _drop_stale(p: Transform, ctx: PassContext) -> None:
    """Forget what the changed graph may have made wrong, for every target."""

    def stays(key: ir.AnyKey, scenario: Scenario | None) -> bool:
        new = key in p.provides and scenario in (None, ctx.scenario)
        return new or key in p.preserves

    ctx.annotations.retain(stays)


def _check_provided(p: Pass, program: ir.Program, ctx: PassContext) -> None:
    for key in sorted(p.provides, key=str):
        table = ctx.annotations.table(key, ctx.scenario)
        for anchor in _anchors(program, key):
            if anchor not in table:
                msg = f"pass {p.name!r} provides {key} but left out {anchor}"
                raise support.PassContractError(msg)


def _anchors(program: ir.Program, key: ir.AnyKey) -> Iterator[Anchor]:
    if key.anchor is ir.Program:
        yield program
        return
    for rank in program.classes:
        if key.anchor is ir.LaunchGraph and rank.launches is not None:
            yield rank.launches
        if rank.ops is None:
            continue
        if key.anchor is ir.Graph:
            yield rank.ops
        elif key.anchor is ir.Node:
            yield from rank.ops
        elif key.anchor is ir.Value:
            yield from rank.ops.values()
