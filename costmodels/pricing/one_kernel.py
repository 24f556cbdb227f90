"""The price of one kernel, without tables: what an editor of graphs asks for.

A model of perfc's own may say what one kernel costs in plain floats: its method
`estimate_one(one, target)` returns a `Priced`, the number that `estimate` has, some
tens of times sooner, or None; `claims_one(one, target)` says whether it claims it.
Whatever has no such way, or asks for a table (a profile's corrections), is priced in a
table of one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import attrs
import numpy as np

from perfc.costmodels.kernels import (
    CostModel,
    Estimate,
    OneSignature,
    Priced,
    Provenance,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.pricing.bound import at_least_bound_of_one
from perfc.costmodels.pricing.intervals import Sigmas, interval_of
from perfc.costmodels.pricing.listed import MEASURED_NAME, ListedModel
from perfc.ir import Kernel
from perfc.ir.support import is_built_in


class Said(NamedTuple):
    """What is said of one kernel; as a row of `Estimate`."""

    seconds: float
    sigmas: Sigmas
    model: str
    provenance: Provenance


def price_one(
    kernel: Kernel, target: Target, models: Sequence[CostModel]
) -> Estimate | None:
    """Return `price_table`'s estimate of a table of one kernel; None: ask that."""
    said = say_one(OneSignature(kernel), target, models)
    if said is None:
        return None
    return estimate_of([said])


def estimate_of(said: Sequence[Said]) -> Estimate:
    """Return an estimate whose rows are the given prices."""
    columns = np.array([(one.seconds, *one.sigmas, 0.0) for one in said]).T
    return Estimate(  # no clock is held down
        columns[0],
        columns[1],
        columns[2],
        [one.model for one in said],
        [one.provenance for one in said],
        columns[3:],
    )


def say_one(
    one: OneSignature, target: Target, models: Sequence[CostModel]
) -> Said | None:
    """Return the estimate of `price_one` in plain numbers."""
    if target.is_calibrated:
        return None
    # An unknown op is a matter of models for any op.
    for model in _ORDER.of(models, one.op if one.kernel.known else ""):
        if model is None:
            return None
        if model.claims_one(one, target):
            break
    else:
        return None
    try:
        found = model.estimate_one(one, target)
    except (ArithmeticError, ValueError):  # of a size of 0, say: arrays go on
        return None
    if found is None:
        return None
    seconds, shared, own, provenance = found
    sigmas = interval_of(one, target, seconds, (shared, own))
    seconds = at_least_bound_of_one(seconds, one, target)
    return Said(seconds, sigmas, model.name, provenance)


class _OneByOne(CostModel, Protocol):
    """A model that has such a way."""

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it prices a kernel."""
        ...

    def estimate_one(self, one: OneSignature, target: Target) -> Priced | None:
        """Price it; None: a table has to."""
        ...


@attrs.define(eq=False)
class _Order:
    """Models that are asked, and their order: of those asked last, by op."""

    kept: tuple[Sequence[CostModel], dict[str, list[_OneByOne | None]]] = ((), {})

    def of(self, models: Sequence[CostModel], op: str) -> list[_OneByOne | None]:
        """Return the models for an op; None: one that prices tables only."""
        last, by_op = self.kept
        if models is not last:
            by_op = {}
            if isinstance(models, tuple):  # which does not change
                self.kept = (models, by_op)
        if op not in by_op:
            asked = [model for model in models if model.ops is None or op in model.ops]
            # No target that comes here has a table of measured kernels.
            asked = [model for model in asked if model.name != MEASURED_NAME]
            by_op[op] = [_one_by_one(model) for model in sorted(asked, key=_order)]
        return by_op[op]


_ORDER = _Order()


def _one_by_one(model: CostModel) -> _OneByOne | None:
    if (
        isinstance(model, ListedModel)
        and model.ops is not None
        and model.passes_over is None
    ):
        model = model.model  # which is asked again and again: by no detour
    if not is_built_in(model) or not hasattr(model, "estimate_one"):
        return None
    return cast("_OneByOne", model)


def _order(model: CostModel) -> tuple[int, str]:
    return -model.priority, model.name
