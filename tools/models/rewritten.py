"""Passes that a model goes through before it is asked anything."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir import Program
from perfc.ir.annotations import Annotations
from perfc.ir.copying import bound_copy
from perfc.passes import Pass, PassManager, ShapeInference
from perfc.passes.control_flow import ResolveControlFlow
from perfc.passes.instruments import Instrument
from perfc.passes.manager import Analysis
from perfc.passes.pipelines import inferred


def split_front(passes: Sequence[Pass]) -> tuple[Sequence[Pass], Sequence[Pass]]:
    """Part those that need neither types nor numbers from those that may."""
    resolving = (n for n, p in enumerate(passes) if isinstance(p, ResolveControlFlow))
    at = next(resolving, 0)
    return passes[:at], passes[at:]


def run_front(
    program: Program, passes: Sequence[Pass], instruments: Sequence[Instrument]
) -> Analysis:
    """Run passes on op graphs; launch graphs are as they are."""
    if all(rank.ops is None for rank in program.classes):
        return Analysis(program, Annotations(), None, program.diagnostics)
    return PassManager(passes, instruments).run(program)


@attrs.frozen(eq=False)
class Rewritten:
    """A program that went through more transforms.

    Attributes:
        analysis: Its types, and what else is known of it.
        program: The program, its symbols bound as before.
        unbound: Its graphs without numbers for their symbols.
        passes: The passes that it went through.

    """

    analysis: Analysis
    program: Program
    unbound: Program
    passes: tuple[Pass, ...]


def rewrite(
    program: Program, unbound: Program, transforms: Sequence[Pass]
) -> Rewritten:
    """Run transforms on a copy of a program."""
    classes = tuple(
        attrs.evolve(rank, ops=None if rank.ops is None else bound_copy(rank.ops, {}))
        for rank in program.classes
    )
    passes = (ShapeInference(), *inferred(transforms), ShapeInference())
    analysis = PassManager(passes).run(attrs.evolve(program, classes=classes))
    told = analysis.diagnostics
    return Rewritten(
        analysis,
        attrs.evolve(analysis.program, diagnostics=told),
        attrs.evolve(unbound, classes=classes, diagnostics=told),
        passes[1:],
    )
