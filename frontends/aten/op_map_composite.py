"""ATen ops that exporters keep whole, and that PyTorch writes as several others."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit


def _prelu(node: AtenNode) -> None:
    """View the weights, one for each channel, as they are broadcast."""
    x, weight = node.tensor("self"), node.tensor("weight")
    if weight.rank == 1 and x.rank > 2:  # noqa: PLR2004 - behind the channels
        shape = (*weight.type.shape, *(1 for _ in x.type.shape[2:]))
        (weight,) = node.helper("reshape", (weight, node.listed(shape)), {"view": True})
    node.emit("prelu", (x, weight))


def _transform(axes: int | None) -> Handler:
    """A transform of one axis, of two, or of all that are not named."""

    def handler(node: AtenNode) -> None:
        x = node.tensor("self")
        if node.is_given("n") or node.is_given("s"):
            msg = "a signal that is cut or padded first"
            raise Misfit(msg)
        named = node.integers("dim", ()) or tuple(range(-(axes or x.rank), 0))
        node.emit("fft", (x,), {"axes": tuple(axis % x.rank for axis in named)})

    return handler


COMPOSITE_HANDLERS: Mapping[str, Handler] = {
    "aten.prelu": _prelu,
    **{
        f"aten.fft_{kind}{suffix}": _transform(axes)
        for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for suffix, axes in (("", 1), ("2", 2), ("n", None))
    },
}
"""ATen ops to the functions that write them."""
