"""What PyTorch's memory-efficient attention reaches, by GPU, type and phase.

Its kernels are of Ampere: on Hopper their tensor cores reach a third to a sixth of the
peak that asynchronous instructions have. Gradients are a few kernels in one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import PERFC_ROWS, Flags, Number, Signatures
from perfc.costmodels.machine import Target

_CONSTANTS = constants("attention")


@attrs.frozen(kw_only=True)
class AttentionParameters:
    """What the formula needs beside the target.

    Attributes:
        start_s: Added to the target's kernel floor.
        share: Of the peak rate that the matmuls of a step run at.
        softmax: Share of the exponentials' time that matmuls do not hide.
        fill_s: Start and end of a tile of queries.
        combine_s: What splitting the keys costs.
        memory_share: Of the memory rate that the operands are moved at.
        sigma_shared: Relative uncertainty that all kernels share.
        sigma_independent: Relative uncertainty of one kernel.

    """

    start_s: float
    share: float
    softmax: float
    fill_s: float
    combine_s: float
    memory_share: float
    sigma_shared: float = _CONSTANTS.number("sigma_flash_shared")
    sigma_independent: float = _CONSTANTS.number("sigma_flash_independent")


EFFICIENT = AttentionParameters(**_CONSTANTS.table("efficient"))
"""Parameters where no rows were at hand."""


def _measured(name: str) -> AttentionParameters:
    """Return the parameters that rows say; what they do not say is as elsewhere."""
    return attrs.evolve(EFFICIENT, **_CONSTANTS.table(f"efficient_{name}"))


_HOPPER: Mapping[tuple[bool, bool], AttentionParameters] = MappingProxyType(
    {
        (False, False): _measured("half_forward"),
        (False, True): _measured("half_backward"),
        (True, False): _measured("wide_forward"),
        (True, True): _measured("wide_backward"),
    }
)
"""Hopper's parameters, by whether numbers have 32 bits and are gradients."""


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
