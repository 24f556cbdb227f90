"""What an analysis says, as data and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.reports.comparison import (
        Comparison,
        sort_key,
    )
    from perfc.tools.reports.exporter import Exporter, find_exporter
    from perfc.tools.reports.nodes import NODE_KEYS
    from perfc.tools.reports.numbers import (
        format_bytes,
        format_change,
        format_percent,
        format_quantity,
        format_share,
        format_us,
    )
    from perfc.tools.reports.page_head import (
        answer,
        basis,
        breakdown,
        cards,
        report_head,
    )
    from perfc.tools.reports.priced_plan import (
        PricedPlan,
        plan_of,
    )
    from perfc.tools.reports.print_facts import print_analysis
    from perfc.tools.reports.ranks import bubble_s
    from perfc.tools.reports.report import OUT_OF_MEMORY, Report
    from perfc.tools.reports.results import Results, detail_of, lone_id, node_id
    from perfc.tools.reports.sensitivity import Sensitivity, Slope
    from perfc.tools.reports.summary import LIMITS, device_limits, kernel_limit
    from perfc.tools.reports.texts import (
        RESULT_FORMATS,
        columns_text,
        format_parts,
        format_result,
    )
    from perfc.tools.reports.verb_result import VerbResult, format_json
else:
    __getattr__ = door(
        __name__,
        {
            "comparison": ("Comparison", "sort_key"),
            "exporter": ("Exporter", "find_exporter"),
            "nodes": ("NODE_KEYS",),
            "numbers": (
                "format_bytes",
                "format_change",
                "format_percent",
                "format_quantity",
                "format_share",
                "format_us",
            ),
            "page_head": ("answer", "basis", "breakdown", "cards", "report_head"),
            "priced_plan": ("PricedPlan", "plan_of"),
            "print_facts": ("print_analysis",),
            "ranks": ("bubble_s",),
            "report": ("OUT_OF_MEMORY", "Report"),
            "results": ("Results", "detail_of", "lone_id", "node_id"),
            "sensitivity": ("Sensitivity", "Slope"),
            "summary": ("LIMITS", "device_limits", "kernel_limit"),
            "texts": (
                "RESULT_FORMATS",
                "columns_text",
                "format_parts",
                "format_result",
            ),
            "verb_result": ("VerbResult", "format_json"),
        },
    )

__all__ = [
    "LIMITS",
    "NODE_KEYS",
    "OUT_OF_MEMORY",
    "RESULT_FORMATS",
    "Comparison",
    "Exporter",
    "PricedPlan",
    "Report",
    "Results",
    "Sensitivity",
    "Slope",
    "VerbResult",
    "answer",
    "basis",
    "breakdown",
    "bubble_s",
    "cards",
    "columns_text",
    "detail_of",
    "device_limits",
    "find_exporter",
    "format_bytes",
    "format_change",
    "format_json",
    "format_parts",
    "format_percent",
    "format_quantity",
    "format_result",
    "format_share",
    "format_us",
    "kernel_limit",
    "lone_id",
    "node_id",
    "plan_of",
    "print_analysis",
    "report_head",
    "sort_key",
]
