"""Networks of GPUs of several kinds: their files, pipelines on them, and placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.networks.compression import (
        Adaptive,
        Compression,
        Crossing,
        read_compression,
    )
    from perfc.planning.networks.layer_prices import LayerPrices
    from perfc.planning.networks.network import (
        Link,
        Network,
        NetworkNode,
        read_network,
    )
    from perfc.planning.networks.placement import Placer, clustered, even
    from perfc.planning.networks.schedule import (
        StageRun,
        StageTimes,
        completion_s,
        flow_s,
        ordered_step_s,
        stage_runs,
        step_s,
    )
    from perfc.planning.networks.split import (
        Cutter,
        Placed,
        Problem,
        Unit,
        neighbours,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "compression": ("Adaptive", "Compression", "Crossing", "read_compression"),
            "layer_prices": ("LayerPrices",),
            "network": ("Link", "Network", "NetworkNode", "read_network"),
            "placement": ("Placer", "clustered", "even"),
            "schedule": (
                "StageRun",
                "StageTimes",
                "completion_s",
                "flow_s",
                "ordered_step_s",
                "stage_runs",
                "step_s",
            ),
            "split": (
                "Cutter",
                "Placed",
                "Problem",
                "Unit",
                "neighbours",
            ),
        },
    )

__all__ = [
    "Adaptive",
    "Compression",
    "Crossing",
    "Cutter",
    "LayerPrices",
    "Link",
    "Network",
    "NetworkNode",
    "Placed",
    "Placer",
    "Problem",
    "StageRun",
    "StageTimes",
    "Unit",
    "clustered",
    "completion_s",
    "even",
    "flow_s",
    "neighbours",
    "ordered_step_s",
    "read_compression",
    "read_network",
    "stage_runs",
    "step_s",
]
