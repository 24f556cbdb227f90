"""What PyTorch's memory-efficient attention reaches, by GPU, type and phase.

Its kernels are of Ampere: on Hopper their tensor cores reach a third to a sixth of the
peak that asynchronous instructions have. Gradients are a few kernels in one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from perfc.costmodels.kernels import PERFC_ROWS, Flags, Number, Signatures
from perfc.costmodels.machine import Target


@attrs.frozen(kw_only=True)
class AttentionParameters:
    """What the formula needs beside the target.

    Attributes:
        start_s: Added to the target's kernel floor.
        share: Of the peak rate that the products of a step run at.
        softmax: Share of the exponentials' time that products do not hide.
        fill_s: Start and end of a tile of queries.
        combine_s: What splitting the keys costs.
        memory_share: Of the memory rate that the operands are moved at.
        sigma_shared: Relative uncertainty that all kernels share: the formula alone is
            12 % off on its rows; masks and larger heads have none.
        sigma_independent: Relative uncertainty of one kernel.

    """

    start_s: float
    share: float
    softmax: float
    fill_s: float
    combine_s: float
    memory_share: float
    sigma_shared: float = 0.15
    sigma_independent: float = 0.2


EFFICIENT = AttentionParameters(
    start_s=2.0e-6,
    share=0.5,
    softmax=0.5,
    fill_s=2.0e-6,
    combine_s=3.0e-6,
    memory_share=0.7,
    sigma_shared=0.3,
    sigma_independent=0.3,
)
"""Round numbers, not fitted; no rows were at hand."""


def _measured(
    start_s: float, share: float, softmax: float, fill_s: float, own: float
) -> AttentionParameters:
    return attrs.evolve(
        EFFICIENT,
        start_s=start_s,
        share=share,
        softmax=softmax,
        fill_s=fill_s,
        sigma_shared=0.05,
        sigma_independent=own,
    )


_HOPPER: Mapping[tuple[bool, bool], AttentionParameters] = MappingProxyType(
    {
        (False, False): _measured(1.2e-6, 0.158, 0.296, 1.15e-6, 0.12),
        (False, True): _measured(8.07e-6, 0.101, 0.118, 1.12e-6, 0.55),
        (True, False): _measured(0.31e-6, 0.252, 0.913, 3.41e-6, 0.2),
        (True, True): _measured(11.1e-6, 0.243, 0.329, 0.2e-6, 0.25),
    }
)
"""By whether numbers have 32 bits, and of gradients: 66 of perfc's rows of H100
(PyTorch 2.11, `benchmarks/rows`, split `fit`)."""


def efficient_parameters(
    target: Target, *, wide: bool, backward: bool
) -> AttentionParameters:
    """Return the parameters of the memory-efficient kernel."""
    own = target.device.compute_capability in PERFC_ROWS
    return _HOPPER[wide, backward] if own else EFFICIENT


def efficient_kinds(
    kernels: Signatures[Number],
) -> tuple[Flags | bool, Flags | bool]:
    """Return whether kernels compute 32 bits, and whether they are gradients."""
    wide: Flags | bool = (kernels.math == "fp32") | (kernels.math == "tf32")
    backward: Flags | bool = kernels.text("phase") == "backward"
    return wide, backward
