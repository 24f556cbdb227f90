"""Whole iterations of real models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.measure.models.iteration import Iteration
    from perfc.measure.models.setting import ATTENTION, ON_DEVICE, OWN, Setting
    from perfc.measure.models.subject import Subject, find_subject
    from perfc.measure.models.workload import Keep, WorkloadRun
else:
    __getattr__ = door(
        __name__,
        {
            "iteration": ("Iteration",),
            "setting": ("ATTENTION", "ON_DEVICE", "OWN", "Setting"),
            "subject": ("Subject", "find_subject"),
            "workload": ("Keep", "WorkloadRun"),
        },
    )

__all__ = [
    "ATTENTION",
    "ON_DEVICE",
    "OWN",
    "Iteration",
    "Keep",
    "Setting",
    "Subject",
    "WorkloadRun",
    "find_subject",
]
