"""`perfc calibrate` and `perfc validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.calibration.calibration import (
        calibrate_rows,
        head_of,
        profile_of,
        summary,
    )
    from perfc.tools.calibration.network_calibration import (
        calibrate_networks,
        network_summary,
    )
    from perfc.tools.calibration.trace_calibration import calibrate_traces
    from perfc.tools.calibration.validation import validation_json, validation_text
else:
    __getattr__ = door(
        __name__,
        {
            "calibration": ("calibrate_rows", "head_of", "profile_of", "summary"),
            "network_calibration": ("calibrate_networks", "network_summary"),
            "trace_calibration": ("calibrate_traces",),
            "validation": ("validation_json", "validation_text"),
        },
    )

__all__ = [
    "calibrate_networks",
    "calibrate_rows",
    "calibrate_traces",
    "head_of",
    "network_summary",
    "profile_of",
    "summary",
    "validation_json",
    "validation_text",
]
