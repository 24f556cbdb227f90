"""Collectives: links, protocols, what measured ones say of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.collectives.collective import (
        COLLECTIVE,
        MAKERS_SYSTEMS,
        collective_links,
        collective_parameters,
        joins_nodes,
    )
    from perfc.costmodels.collectives.links import LINK_SHARE, Links
    from perfc.costmodels.collectives.parts import exchanges_by_peer
    from perfc.costmodels.collectives.rows import (
        CollectiveRows,
        collective_rows_of,
        left_out_one_by_one,
        weighed,
    )
    from perfc.costmodels.collectives.share import (
        SUMS_BESIDE,
        CollectiveShares,
        collective_shares,
    )
    from perfc.costmodels.collectives.sizes import Collectives
    from perfc.costmodels.collectives.terms import CollectiveParameters
    from perfc.costmodels.collectives.time import collective_seconds, node_rate
else:
    __getattr__ = door(
        __name__,
        {
            "collective": (
                "COLLECTIVE",
                "MAKERS_SYSTEMS",
                "collective_links",
                "collective_parameters",
                "joins_nodes",
            ),
            "links": ("LINK_SHARE", "Links"),
            "parts": ("exchanges_by_peer",),
            "rows": (
                "CollectiveRows",
                "collective_rows_of",
                "left_out_one_by_one",
                "weighed",
            ),
            "share": ("CollectiveShares", "SUMS_BESIDE", "collective_shares"),
            "sizes": ("Collectives",),
            "terms": ("CollectiveParameters",),
            "time": ("collective_seconds", "node_rate"),
        },
    )

__all__ = [
    "COLLECTIVE",
    "LINK_SHARE",
    "MAKERS_SYSTEMS",
    "SUMS_BESIDE",
    "CollectiveParameters",
    "CollectiveRows",
    "CollectiveShares",
    "Collectives",
    "Links",
    "collective_links",
    "collective_parameters",
    "collective_rows_of",
    "collective_seconds",
    "collective_shares",
    "exchanges_by_peer",
    "joins_nodes",
    "left_out_one_by_one",
    "node_rate",
    "weighed",
]
