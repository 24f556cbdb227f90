"""What an analysis says, as data and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.reports.comparison import (
        Comparison,
        compared,
        comparison_rows,
        sort_key,
    )
    from perfc.tools.reports.exporter import Exporter, find_exporter
    from perfc.tools.reports.memory import memory_timeline
    from perfc.tools.reports.nodes import NODE_KEYS
    from perfc.tools.reports.numbers import (
        format_bytes,
        format_percent,
        format_quantity,
        format_share,
        format_us,
    )
    from perfc.tools.reports.page_style import PAGE_SCRIPT, PAGE_STYLE
    from perfc.tools.reports.priced_plan import (
        PricedPlan,
        plan_of,
        with_probabilities,
    )
    from perfc.tools.reports.print_facts import print_analysis
    from perfc.tools.reports.ranks import bubble_s
    from perfc.tools.reports.report import OUT_OF_MEMORY, Report
    from perfc.tools.reports.results import Results, detail_of, lone_id, node_id
    from perfc.tools.reports.sensitivity import Sensitivity, Slope
    from perfc.tools.reports.summary import LIMITS, device_limits, kernel_limit
    from perfc.tools.reports.texts import RESULT_FORMATS, columns_text, format_result
    from perfc.tools.reports.verb_result import VerbResult, format_json
else:
    __getattr__ = door(
        __name__,
        {
            "comparison": ("Comparison", "compared", "comparison_rows", "sort_key"),
            "exporter": ("Exporter", "find_exporter"),
            "memory": ("memory_timeline",),
            "nodes": ("NODE_KEYS",),
            "numbers": (
                "format_bytes",
                "format_percent",
                "format_quantity",
                "format_share",
                "format_us",
            ),
            "page_style": ("PAGE_SCRIPT", "PAGE_STYLE"),
            "priced_plan": ("PricedPlan", "plan_of", "with_probabilities"),
            "print_facts": ("print_analysis",),
            "ranks": ("bubble_s",),
            "report": ("OUT_OF_MEMORY", "Report"),
            "results": ("Results", "detail_of", "lone_id", "node_id"),
            "sensitivity": ("Sensitivity", "Slope"),
            "summary": ("LIMITS", "device_limits", "kernel_limit"),
            "texts": ("RESULT_FORMATS", "columns_text", "format_result"),
            "verb_result": ("VerbResult", "format_json"),
        },
    )

__all__ = [
    "LIMITS",
    "NODE_KEYS",
    "OUT_OF_MEMORY",
    "PAGE_SCRIPT",
    "PAGE_STYLE",
    "RESULT_FORMATS",
    "Comparison",
    "Exporter",
    "PricedPlan",
    "Report",
    "Results",
    "Sensitivity",
    "Slope",
    "VerbResult",
    "bubble_s",
    "columns_text",
    "compared",
    "comparison_rows",
    "detail_of",
    "device_limits",
    "find_exporter",
    "format_bytes",
    "format_json",
    "format_percent",
    "format_quantity",
    "format_result",
    "format_share",
    "format_us",
    "kernel_limit",
    "lone_id",
    "memory_timeline",
    "node_id",
    "plan_of",
    "print_analysis",
    "sort_key",
    "with_probabilities",
]
