"""ATen's Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler


def _fft(node: AtenNode) -> None:
    node.emit("fft", (node.tensor("self"),), {"axes": node.integers("dim")})


SPECTRAL_HANDLERS: Mapping[str, Handler] = dict.fromkeys(
    ("aten._fft_r2c", "aten._fft_c2c", "aten._fft_c2r"), _fft
)
"""ATen ops to the functions that write them."""
