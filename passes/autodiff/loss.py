"""Gradients of losses."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.passes import graphs
from perfc.passes.autodiff.reverse_mode import Gradients, Rule, Site


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


def _split_cross_entropy(site: Site) -> Gradients:
    """Softmax less one at the label, where this rank has it, times the gradient.

    In place of the softmax: see `_VocabParallelCrossEntropy` of Megatron-LM.
    """
    scores, _, shares, every, places, outside = site.node.operands
    *_, count = shape = graphs.typed(scores).shape
    mask = site.op("cast", outside, dtype=graphs.typed(shares).dtype)
    kept = site.op("sub", site.tape.number(shares, 1.0), mask)
    flat = site.tape.reshape(shares, *graphs.typed(places).shape, count)
    less = site.op("sub", site.op("index", flat, every, places, axes=(0, 1)), kept)
    flat = site.op("index_put", flat, less, every, places, in_place=True)
    wide = site.tape.reshape(site.grad, *shape[:-1], 1)
    back = site.tape.reshape(flat, *shape)
    return {0: site.op("mul", back, wide, in_place=True)}


RULES: Mapping[str, Rule] = {
    "loss": _loss,
    "nll_loss": _nll_loss,
    "ctc_loss": _ctc_loss,
    "split_cross_entropy": _split_cross_entropy,
}
"""Rules of losses by name."""
