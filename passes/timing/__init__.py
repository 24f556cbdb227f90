"""Timing of launches: prices, host, streams, the critical path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.timing.blocks import Amount, Lag, Lags, solve_columns
    from perfc.passes.timing.compared_times import (
        TimeErrors,
        errors_of_interval,
        probabilities_best,
        probability_shorter,
        time_errors,
    )
    from perfc.passes.timing.contention import Competition, solve_contended
    from perfc.passes.timing.critical_path import CriticalPath
    from perfc.passes.timing.critical_ways import LAGS, CriticalWays
    from perfc.passes.timing.demands import demands_of
    from perfc.passes.timing.error_factors import ErrorFactors
    from perfc.passes.timing.kernel_cost import KernelCost
    from perfc.passes.timing.many_intervals import ManyErrors, intervals_s
    from perfc.passes.timing.many_schedules import ManyLags, ManyPaths, ManySchedules
    from perfc.passes.timing.network import Network, Stretch, Ways
    from perfc.passes.timing.overhead import Overhead, host_launches
    from perfc.passes.timing.retiming import (
        Change,
        Question,
        Window,
        arrivals,
        solve_many,
        times_of_windows,
    )
    from perfc.passes.timing.sharing import share, with_waits
    from perfc.passes.timing.stream_schedule import StreamSchedule
    from perfc.passes.timing.sustained_clock import SustainedClock
    from perfc.passes.timing.task_durations import sources
    from perfc.passes.timing.task_kinds import (
        detail_mask,
        device_mask,
        kernel_numbers,
        task_mask,
    )
    from perfc.passes.timing.time_interval import (
        ErrorParts,
        OwnEffects,
        TimeInterval,
        interval_of,
        shared_effects,
    )
    from perfc.passes.timing.timeline import (
        TIMELINE,
        TimeConstants,
        Timeline,
        arrival,
        finish_s,
        link,
        link_graphs,
        solve,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "blocks": ("Amount", "Lag", "Lags", "solve_columns"),
            "contention": ("Competition", "solve_contended"),
            "critical_path": ("CriticalPath",),
            "critical_ways": ("CriticalWays", "LAGS"),
            "demands": ("demands_of",),
            "error_factors": ("ErrorFactors",),
            "kernel_cost": ("KernelCost",),
            "many_intervals": ("ManyErrors", "intervals_s"),
            "many_schedules": ("ManyLags", "ManyPaths", "ManySchedules"),
            "network": ("Network", "Stretch", "Ways"),
            "overhead": ("Overhead", "host_launches"),
            "retiming": (
                "Change",
                "Question",
                "Window",
                "arrivals",
                "solve_many",
                "sources",
                "times_of_windows",
            ),
            "sharing": ("share", "with_waits"),
            "stream_schedule": ("StreamSchedule",),
            "sustained_clock": ("SustainedClock",),
            "task_durations": ("sources",),
            "task_kinds": (
                "detail_mask",
                "device_mask",
                "device_mask",
                "kernel_numbers",
                "task_mask",
            ),
            "compared_times": (
                "TimeErrors",
                "errors_of_interval",
                "probabilities_best",
                "probability_shorter",
                "time_errors",
            ),
            "time_interval": (
                "ErrorParts",
                "OwnEffects",
                "TimeInterval",
                "interval_of",
                "shared_effects",
            ),
            "timeline": (
                "TIMELINE",
                "TimeConstants",
                "Timeline",
                "arrival",
                "finish_s",
                "link",
                "link_graphs",
                "solve",
            ),
        },
    )

__all__ = [
    "LAGS",
    "TIMELINE",
    "Amount",
    "Change",
    "Competition",
    "CriticalPath",
    "CriticalWays",
    "ErrorFactors",
    "ErrorParts",
    "KernelCost",
    "Lag",
    "Lags",
    "ManyErrors",
    "ManyLags",
    "ManyPaths",
    "ManySchedules",
    "Network",
    "Overhead",
    "OwnEffects",
    "Question",
    "StreamSchedule",
    "Stretch",
    "SustainedClock",
    "TimeConstants",
    "TimeErrors",
    "TimeInterval",
    "Timeline",
    "Ways",
    "Window",
    "arrival",
    "arrivals",
    "demands_of",
    "detail_mask",
    "device_mask",
    "errors_of_interval",
    "finish_s",
    "host_launches",
    "interval_of",
    "intervals_s",
    "kernel_numbers",
    "link",
    "link_graphs",
    "probabilities_best",
    "probability_shorter",
    "share",
    "shared_effects",
    "solve",
    "solve_columns",
    "solve_contended",
    "solve_many",
    "sources",
    "task_mask",
    "time_errors",
    "times_of_windows",
    "with_waits",
]
