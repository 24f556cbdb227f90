"""Gradients of losses."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.passes.gradient import Gradients, Rule, Site


def _loss(site: Site) -> Gradients:
    operands = site.node.operands
    kept = site.kept("kind", "reduction")
    return {0: site.op("loss_backward", site.grad, *operands, **kept)}


def _nll_loss(site: Site) -> Gradients:
    operands = site.node.operands
    kept = site.kept("reduction")
    return {0: site.op("nll_loss_backward", site.grad, *operands, **kept)}


def _ctc_loss(site: Site) -> Gradients:
    scores, targets, *lengths = site.node.operands
    saved = (scores, targets, *site.node.results[:2], *lengths)
    kept = site.kept("zero_infinity")
    return {0: site.op("ctc_loss_backward", site.grad, *saved, **kept)}


RULES: Mapping[str, Rule] = {
    "loss": _loss,
    "nll_loss": _nll_loss,
    "ctc_loss": _ctc_loss,
}
"""Rules of losses by name."""
