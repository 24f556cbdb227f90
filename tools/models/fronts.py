"""Models made again with other transforms, from the graph that these begin with."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir import Program
from perfc.ir.support import paused_collector
from perfc.passes import Pass, PassManager, ShapeInference
from perfc.passes.manager import Analysis
from perfc.passes.pipelines import GIVEN, inferred, loading_parts
from perfc.tools.models.program import copied_program, read_program


@attrs.frozen(eq=False)
class Fronts:
    """What is known of a model by name before any transform, so that it is read once.

    Attributes:
        programs: The program after the passes that precede transforms, by those.

    """

    programs: dict[tuple[Pass, ...], Program] = attrs.field(
        factory=dict[tuple[Pass, ...], Program], init=False
    )

    def __reduce__(self) -> tuple[type[Fronts], tuple[()]]:
        """Leave out what was worked out."""
        return type(self), ()

    def transformed(
        self, name: str, transforms: Sequence[Pass]
    ) -> tuple[Analysis, list[Pass]] | None:
        """Load a model with transforms, which are not the whole of a pipeline.

        Args:
            name: What `read_program` takes.
            transforms: What changes its graph.

        Returns:
            What is known of it, and the passes that it went through; None for a
            recording, whose transforms come elsewhere.

        """
        front, late = loading_parts(transforms)
        known = self.programs.get(tuple(front))
        if known is None:
            read = read_program(name)
            if read.recorded:
                return None
            raised = PassManager(front).run(read)
            known = attrs.evolve(raised.program, diagnostics=raised.diagnostics)
            self.programs[tuple(front)] = known
        return _analysis(known, late), [*front, *late]


def transformed(
    program: Program, transforms: Sequence[Pass]
) -> tuple[Analysis, list[Pass]]:
    """Change a copy of a typed program that no transform has changed.

    Returns:
        What is known of it, and the passes that it went through.

    """
    passes = inferred(transforms)
    return _analysis(program, passes), passes


def _analysis(program: Program, passes: Sequence[Pass]) -> Analysis:
    """Run passes on a copy of a typed program; what types say was said before."""
    with paused_collector():
        typed = PassManager((ShapeInference(),)).run(copied_program(program))
        again = attrs.evolve(typed.program, diagnostics=program.diagnostics)
        manager = PassManager(passes, given=GIVEN)
        return manager.run(again, annotations=typed.annotations)
