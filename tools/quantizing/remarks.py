"""What there is to say of a plan of precision: what changes nothing, or is slower."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import Level
from perfc.passes.precision import TABLE, candidates
from perfc.tools.analysis import own_us
from perfc.tools.models import Model
from perfc.tools.quantizing.plan import PrecisionPlan, cast_names, fits
from perfc.tools.quantizing.question import Precision
from perfc.tools.reports import Report

_LARGER = 16
"""How many times the batch is that shows whether a larger one pays."""


def unused_types(model: Model, asked: Precision) -> Iterator[Diagnostic]:
    """Say so where a type of tables is asked for, and a model has none.

    The pass says it of linear layers.
    """
    dtype = asked.embeddings
    if dtype and all(one.kind != TABLE for one in candidates(model.program)):
        message = f"{model.name} has no tables: --embeddings {dtype} changes nothing"
        yield Diagnostic(Level.NOTE, "no-embeddings", message, model.name)


def why_slower(
    plan: PrecisionPlan, original: PrecisionPlan, price: Callable[[Model], Report]
) -> Iterator[Diagnostic]:
    """Say why a plan is no faster than what it was made of.

    Args:
        plan: The plan.
        original: What it was made of.
        price: Analyzes either at another batch.

    """
    more_us = plan.report.time_us - original.report.time_us
    if more_us <= 0:
        return
    before_us, after_us = _alone_us(original), _alone_us(plan)
    if after_us < before_us:
        launches = _count(plan.casts, "kernel that converts", "kernels that convert")
        why = (
            f"the device alone takes {before_us - after_us:,.1f} us less, but the host "
            f"launches {launches}, and is what the time waits for; --runtime cudagraph "
            "or compiled takes it out of the way"
        )
    else:
        why = _of_device(plan, original) + _larger(plan, original, price)
    message = f"{plan.name} is {more_us:,.1f} us slower than the original: {why}"
    yield Diagnostic(Level.NOTE, "no-gain", message, plan.name)


def _of_device(plan: PrecisionPlan, original: PrecisionPlan) -> str:
    """Say what the device spends on casts, and what it saves by fewer bits."""
    casts_us = _casts_us(plan) - _casts_us(original)
    gain_us = _alone_us(original) - (_alone_us(plan) - casts_us)
    rest = "at these sizes nothing else is faster in fewer bits"
    if casts_us <= 0:
        return rest
    casts = _count(plan.casts, "cast takes", "casts take")
    if gain_us > 0:
        rest = f"fewer bits save {gain_us:,.1f} us of all else"
    return f"{casts} {casts_us:,.1f} us where they are not fused, and {rest}"


def _larger(
    plan: PrecisionPlan, original: PrecisionPlan, price: Callable[[Model], Report]
) -> str:
    """Say whether a larger batch pays; nothing where there is none that fits."""
    batch = original.model.batch
    if batch is None:
        return ""
    try:
        before, after = (
            price(one.model.bind(_LARGER * batch)) for one in (original, plan)
        )
    except PerfcError:
        return ""
    if not fits(after):
        return ""
    saved_us = before.time_us - after.time_us
    how = f"is {saved_us:,.1f} us faster" if saved_us > 0 else "is slower, too"
    return f"; at batch {_LARGER * batch:,} it {how}"


def _alone_us(plan: PrecisionPlan) -> float:
    """Return the time of the device alone, or all of it where that is not told."""
    alone_us: float | None = plan.report.summary["device_only_us"]
    return plan.report.time_us if alone_us is None else alone_us


def _casts_us(plan: PrecisionPlan) -> float:
    return own_us(plan.report, cast_names(plan.model))


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
