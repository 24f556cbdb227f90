"""Reverse mode: the gradients of a graph, by a rule an op."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.autodiff.autograd_names import is_split_lookup
    from perfc.passes.autodiff.gradient_rules import GRADIENT_RULES
    from perfc.passes.autodiff.reverse_mode import Backward, Rows, Tables
    from perfc.passes.autodiff.vocabulary import (
        ALIKE,
        communicator_of,
        gathered_scores,
        mask_outside,
        write_split_cross_entropy,
    )
    from perfc.passes.autodiff.wanted_gradients import first_complex, needs_gradient
else:
    __getattr__ = door(
        __name__,
        {
            "autograd_names": ("is_split_lookup",),
            "gradient_rules": ("GRADIENT_RULES",),
            "reverse_mode": ("Backward", "Rows", "Tables"),
            "vocabulary": (
                "ALIKE",
                "communicator_of",
                "gathered_scores",
                "mask_outside",
                "write_split_cross_entropy",
            ),
            "wanted_gradients": ("first_complex", "needs_gradient"),
        },
    )

__all__ = [
    "ALIKE",
    "GRADIENT_RULES",
    "Backward",
    "Rows",
    "Tables",
    "communicator_of",
    "first_complex",
    "gathered_scores",
    "is_split_lookup",
    "mask_outside",
    "needs_gradient",
    "write_split_cross_entropy",
]
