"""What consecutive layers take on one kind of GPU, and sums of it."""

from __future__ import annotations

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats


@attrs.frozen(eq=False, kw_only=True)
class LayerPrices:
    """What consecutive layers take on one kind of GPU, for one microbatch.

    Arrays of layers have shape (L,), those of the cuts before each layer and after the
    last (L + 1,), 0 at both ends.

    Attributes:
        forward_s: Seconds of each layer.
        backward_s: Seconds of each layer.
        update_s: Seconds of the optimizer for each layer, once a step.
        lasting_bytes: Parameters, their gradients and states of the optimizer.
        saved_bytes: What each keeps for backward.
        passing_bytes: What each needs while it computes.
        gradient_bytes: Gradients of its parameters, which replicas add up.
        encode_s: What compressing the tensors at a cut takes.
        decode_s: What restoring them takes.

    """

    forward_s: Floats
    backward_s: Floats
    update_s: Floats
    lasting_bytes: Floats
    saved_bytes: Floats
    passing_bytes: Floats
    gradient_bytes: Floats
    encode_s: Floats
    decode_s: Floats


@attrs.frozen(eq=False, kw_only=True)
class Sums:
    """Sums over all layers before each cut, shape (L + 1,).

    Attributes:
        most_passing: The most that one of layers a up to b needs, shape (L + 1, L + 1).

    """

    forward_s: Floats
    backward_s: Floats
    update_s: Floats
    lasting_bytes: Floats
    saved_bytes: Floats
    gradient_bytes: Floats
    most_passing: Floats

    @classmethod
    def of(cls, prices: LayerPrices) -> Sums:
        """Add up."""
        count = len(prices.forward_s)
        most = np.zeros((count + 1, count + 1))
        for begin in range(count):
            most[begin, begin + 1 :] = np.maximum.accumulate(
                prices.passing_bytes[begin:]
            )
        return cls(
            forward_s=_sum(prices.forward_s),
            backward_s=_sum(prices.backward_s),
            update_s=_sum(prices.update_s),
            lasting_bytes=_sum(prices.lasting_bytes),
            saved_bytes=_sum(prices.saved_bytes),
            gradient_bytes=_sum(prices.gradient_bytes),
            most_passing=most,
        )

    def span(self, begin: int, end: int) -> tuple[float, float]:
        """Return the seconds of layers, forward and backward."""
        forward_s = float(self.forward_s[end] - self.forward_s[begin])
        return forward_s, float(self.backward_s[end] - self.backward_s[begin])


def _sum(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])
