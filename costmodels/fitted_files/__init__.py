"""Parameters that ship with perfc: tables and networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.fitted_files.fitted_file import FITTED_FOLDER, fitted
    from perfc.costmodels.fitted_files.network import (
        Network,
        Weights,
        network_of,
        networks,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "fitted_file": ("FITTED_FOLDER", "fitted"),
            "network": ("Network", "Weights", "network_of", "networks"),
        },
    )

__all__ = [
    "FITTED_FOLDER",
    "Network",
    "Weights",
    "fitted",
    "network_of",
    "networks",
]
