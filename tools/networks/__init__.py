"""`perfc parallel --network`: layers placed on GPUs of several kinds and slow links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.networks.placing import (
        POLICIES,
        NetworkPlan,
        NetworkPricer,
        NetworkQuestion,
    )
    from perfc.tools.networks.report import NetworkComparison
else:
    __getattr__ = door(
        __name__,
        {
            "placing": ("NetworkPlan", "NetworkPricer", "NetworkQuestion", "POLICIES"),
            "report": ("NetworkComparison",),
        },
    )

__all__ = [
    "POLICIES",
    "NetworkComparison",
    "NetworkPlan",
    "NetworkPricer",
    "NetworkQuestion",
]
