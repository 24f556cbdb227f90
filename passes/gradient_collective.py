"""Gradients of collectives: what goes to other ranks comes back from them."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.passes.gradient import Gradients, Rule, Site
from perfc.passes.tape import typed

_COMMUNICATOR = ("group", "ranks", "stride", "stream")


def _all_to_all(site: Site) -> Gradients:
    """Every part goes back to where it came from."""
    kept = site.kept(*_COMMUNICATOR, "bytes")
    return {0: site.op("all_to_all", site.grad, shape=typed(site.x).shape, **kept)}


def _all_gather(site: Site) -> Gradients:
    """A part was read by all ranks: their gradients of it are added up."""
    kept = site.kept(*_COMMUNICATOR, "axis")
    return {0: site.op("reduce_scatter", site.grad, **kept)}


def _reduce_scatter(site: Site) -> Gradients:
    """Every part went into a sum: whoever has its gradient hands it to all."""
    kept = site.kept(*_COMMUNICATOR, "axis")
    return {0: site.op("all_gather", site.grad, **kept)}


def _all_reduce(site: Site) -> Gradients:
    """Hand the gradient on: all ranks read the sum, and each computes its gradient.

    It is the same on all of them, as in Megatron's `_ReduceFromModelParallelRegion`.
    """
    return {0: site.grad}


def _replicated(site: Site) -> Gradients:
    """Add up what each rank has of the gradient, in place."""
    return {0: site.op("all_reduce", site.grad, **site.kept(*_COMMUNICATOR))}


RULES: Mapping[str, Rule] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "reduce_scatter": _reduce_scatter,
    "replicated": _replicated,
}
"""Rules of collectives by name."""
