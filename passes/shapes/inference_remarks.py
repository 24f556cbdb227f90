"""What type inference tells the user, each thing in one go."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.passes.base import PassContext
from perfc.passes.shapes.inference import Inference

_SHOWN = 3


def remark_assumed(worker: Inference, ctx: PassContext) -> None:
    """Say which types nothing tells, and what they are taken to be."""
    if not worker.assumed:
        return
    shown = [
        f"{op} ({values[0]} is taken to be {values[0].type}"
        + (f", and {len(values) - 1} more)" if len(values) > 1 else ")")
        for op, values in worker.assumed.items()
    ]
    ctx.warn(
        "type-assumed",
        f"nothing declares the results of {', '.join(shown)}; declare them in the "
        "model (an ONNX value_info)",
    )


def remark_misfits(worker: Inference, ctx: PassContext) -> None:
    """Say which ops do not take the assumed types of their operands."""
    misfits = [
        problem
        for node, problem in worker.misfits.items()
        if any(worker.graph.find(value.name) is value for value in node.results)
    ]
    if misfits:
        ctx.warn(
            "type-misfit",
            f"ops that do not fit types that were assumed: {_few(misfits)}; each is "
            "costed by its bytes; declare the types in the model (an ONNX value_info)",
        )


def remark_overruled(worker: Inference, ctx: PassContext) -> None:
    """Say which declared shapes are not those that the ops make."""
    overruled = [
        f"{value} is declared {declared}, inferred {value.type}"
        for value, declared in worker.overruled.items()
    ]
    if overruled:
        ctx.warn(
            "declared-type",
            f"the model declares shapes that its ops do not make: {_few(overruled)}; "
            "the inferred ones are used",
        )


def _few(entries: Sequence[str]) -> str:
    more = f"; … ({len(entries)} in all)" if len(entries) > _SHOWN else ""
    return "; ".join(entries[:_SHOWN]) + more
