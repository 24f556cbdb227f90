"""Gradients of collectives: what goes to other ranks comes back from them."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import AttrValue, TensorType
from perfc.ir.dims import Expr, floor_div
from perfc.ir.ops.wire import WIRE_FORMATS, block_bytes, encoded
from perfc.passes import graphs
from perfc.passes.autodiff.reverse_mode import Gradients, Rule, Site
from perfc.passes.autodiff.vocabulary import ALIKE
from perfc.passes.embeddings import encoder

_COMMUNICATOR = ("group", "ranks", "stride", "stream")


def _all_to_all(site: Site) -> Gradients:
    """Every part goes back to where it came from."""
    kept, sent = site.kept(*_COMMUNICATOR, "bytes", "filled"), graphs.typed(site.x)
    source = encoder(site.x)
    if source is not None:
        forth, back = map(source.attributes.text, ("format", "gradient"))
        sent = encoded(graphs.typed(source.operands[0]), back)
        kept |= _other_bytes(kept.get("bytes"), forth, back)
    return {0: site.op("all_to_all", site.grad, shape=sent.shape, **kept)}


def _other_bytes(known: AttrValue, forth: str, back: str) -> dict[str, AttrValue]:
    """Return the bytes of one format in another; nothing if they are not said."""
    if not isinstance(known, int | Expr):
        return {}
    return {"bytes": floor_div(known * block_bytes(back), block_bytes(forth))}


def _all_gather(site: Site) -> Gradients:
    """A part was read by all ranks: their gradients of it are reduced.

    They are reduced in the type that the gather says, be it another one than theirs.
    Where all use it alike each has the sum already, and cuts its part out, as
    Megatron's `_GatherFromModelParallelRegion`; ranks run the same graph, so it is the
    first part.
    """
    if site.node.attributes.flag(ALIKE):
        axis = site.node.attributes.integer("axis", 0) % graphs.typed(site.x).rank
        part = site.tape.cut(site.grad, (0, graphs.typed(site.x).shape[axis]), axis)
        return {0: site.op("copy", part)}
    kept, grad = site.kept(*_COMMUNICATOR, "axis"), site.grad
    wanted = site.node.attributes.get("reduce_dtype")
    if wanted is not None and wanted != graphs.typed(grad).dtype:
        stream = graphs.cast_stream(site.node.attributes.text("stream", ""))
        aside = graphs.gradient_stream(stream)
        grad = site.op("cast", grad, dtype=wanted, stream=aside)
    return {0: site.op("reduce_scatter", grad, **kept)}


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
    """All-reduce what each rank has of the gradient, in place."""
    return {0: site.op("all_reduce", site.grad, **site.kept(*_COMMUNICATOR))}


def _decode_rows(site: Site) -> Gradients:
    """Encode the gradient of what was received, in the format of its own way."""
    forth, back = map(site.node.attributes.text, ("format", "gradient"))
    if WIRE_FORMATS[back] == graphs.typed(site.grad).dtype:
        return {0: site.grad}
    return {0: site.op("encode_rows", site.grad, format=back, gradient=forth)}


def _encode_rows(site: Site) -> Gradients:
    """Decode the gradient of what was sent."""
    forth, back = map(site.node.attributes.text, ("format", "gradient"))
    like: TensorType = graphs.typed(site.x)
    if WIRE_FORMATS[back] == like.dtype:
        return {0: site.grad}
    formats: dict[str, AttrValue] = {"format": back, "gradient": forth}
    own: dict[str, AttrValue] = {"dtype": like.dtype, "shape": like.shape}
    return {0: site.op("decode_rows", site.grad, **formats, **own)}


RULES: Mapping[str, Rule] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "decode_rows": _decode_rows,
    "encode_rows": _encode_rows,
    "reduce_scatter": _reduce_scatter,
    "replicated": _replicated,
}
"""Rules of collectives by name."""
