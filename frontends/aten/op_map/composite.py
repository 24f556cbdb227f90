"""ATen ops that exporters keep whole, and that PyTorch writes as several others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand


def _prelu(node: AtenNode) -> None:
    """View the weights, one for each channel, as they are broadcast."""
    x, weight = node.tensor("self"), node.tensor("weight")
    if weight.rank == 1 and x.rank > 2:  # behind the channels
        shape = (*weight.type.shape, *(1 for _ in x.type.shape[2:]))
        (weight,) = node.helper("reshape", (weight, node.listed(shape)), {"view": True})
    node.emit("prelu", (x, weight))


def _is_whole(node: AtenNode, x: Operand, axes: Sequence[int]) -> bool:
    """Whether lengths that are given are those of the signal.

    The last axis of a spectrum of real numbers has half of them, and one more.
    """
    if node.is_given("s"):
        given = node.dims("s")
    elif node.is_given("n"):
        given = (node.dim("n"),)
    else:
        return True
    if node.name.startswith(("fft_irfft", "fft_hfft")):
        given = (*given[:-1], given[-1] // 2 + 1)
    return tuple(x.type.shape[axis] for axis in axes) == given


def _transform(axes: int | None) -> Handler:
    """A transform of one axis, of two, or of all that are not named."""

    def handler(node: AtenNode) -> None:
        x = node.tensor("self")
        named = node.integers("dim", ()) or tuple(range(-(axes or x.rank), 0))
        along = tuple(axis % x.rank for axis in named)
        if not _is_whole(node, x, along):
            msg = "a signal that is cut or padded first"
            raise Misfit(msg)
        node.emit("fft", (x,), {"axes": along})

    return handler


def _fft(node: AtenNode) -> None:
    node.emit("fft", (node.tensor("self"),), {"axes": node.integers("dim")})


COMPOSITE_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(("aten._fft_r2c", "aten._fft_c2c", "aten._fft_c2r"), _fft),
    "aten.prelu": _prelu,
    **{
        f"aten.fft_{kind}{suffix}": _transform(axes)
        for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for suffix, axes in (("", 1), ("2", 2), ("n", None))
    },
}
"""ATen ops to the functions that write them."""
