"""What ranks that differ do over time: stages of a pipeline beside each other."""

from __future__ import annotations

import numpy as np

from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.passes import task_mask
from perfc.tools.charts.boxes import Box, box_timeline
from perfc.tools.pages import Timeline
from perfc.tools.reports import Report, format_us

_COLORS = {"forward": 0, "backward": 1, "optimizer": 2, "sent": 3}


def stage_timeline(report: Report) -> Timeline:
    """Return a lane for each stream of each class of ranks that are alike."""
    results = report.results
    phases = {entry["id"]: entry["phase"] for entry in report.nodes}
    starts_s, ends_s = results.schedule.starts_s, results.schedule.ends_s
    boxes: list[Box] = []
    for number, own in enumerate(results.program.classes):
        graph, first = results.graphs[number], results.schedule.offsets[number]
        for task in np.flatnonzero(task_mask(graph, BUSY_KINDS)).tolist():
            flat = first + task
            node = results.node_of(flat)
            sent = graph.kind[task] is TaskKind.COLLECTIVE
            boxes.append(
                Box(
                    lane=f"rank {own.ranks[0]}, "
                    f"{graph.resources[graph.resource[task]].name}",
                    name=node,
                    kind="sent" if sent else phases.get(node, "") or "others",
                    start_s=float(starts_s[flat]),
                    end_s=float(ends_s[flat]),
                )
            )
    boxes.sort(key=lambda box: not box.lane.endswith(", compute"))
    what = "one rank of each stage, of several that do the same"
    text = f"What devices do, {what}, over {format_us(report.time_us)}."
    return box_timeline(boxes, _COLORS, text)
