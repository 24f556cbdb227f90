"""Traces run again, and carried over to other devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.replay.kernel_prices import TracePrices, trace_prices
    from perfc.tools.replay.message_prices import collective_prices, with_waits
    from perfc.tools.replay.recorded_ops import trace_ops
    from perfc.tools.replay.replay import profile_seconds, replay_alone, replay_joint
    from perfc.tools.replay.replay_report import (
        replay_json,
        replay_parts,
        replay_title,
    )
    from perfc.tools.replay.rescale import Method, Rescaling
    from perfc.tools.replay.rescale_report import rescale_json, rescale_text
    from perfc.tools.replay.step_times import MeasuredStep, measured_steps
    from perfc.tools.replay.steps_option import check_steps
    from perfc.tools.replay.trace_files import read_recorded, read_traces
    from perfc.tools.replay.trace_target import measured_on, target_of_trace
else:
    __getattr__ = door(
        __name__,
        {
            "kernel_prices": ("TracePrices", "trace_prices"),
            "message_prices": ("collective_prices", "with_waits"),
            "recorded_ops": ("trace_ops",),
            "replay": ("profile_seconds", "replay_alone", "replay_joint"),
            "replay_report": ("replay_json", "replay_parts", "replay_title"),
            "rescale": ("Method", "Rescaling"),
            "rescale_report": ("rescale_json", "rescale_text"),
            "step_times": ("MeasuredStep", "measured_steps"),
            "steps_option": ("check_steps",),
            "trace_files": ("read_recorded", "read_traces"),
            "trace_target": ("measured_on", "target_of_trace"),
        },
    )

__all__ = [
    "MeasuredStep",
    "Method",
    "Rescaling",
    "TracePrices",
    "check_steps",
    "collective_prices",
    "measured_on",
    "measured_steps",
    "profile_seconds",
    "read_recorded",
    "read_traces",
    "replay_alone",
    "replay_joint",
    "replay_json",
    "replay_parts",
    "replay_title",
    "rescale_json",
    "rescale_text",
    "target_of_trace",
    "trace_ops",
    "trace_prices",
    "with_waits",
]
