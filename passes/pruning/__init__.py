"""Models with channels taken away, consistently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.pruning.channel_groups import ChannelGroups, Run
    from perfc.passes.pruning.prune_channels import PruneChannels
else:
    __getattr__ = door(
        __name__,
        {
            "channel_groups": ("ChannelGroups", "Run"),
            "prune_channels": ("PruneChannels",),
        },
    )

__all__ = ["ChannelGroups", "PruneChannels", "Run"]
