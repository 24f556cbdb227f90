"""HTML pages: one builder for all verbs.

A page is a title and parts; what a part has to say is text and numbers, so that this
room knows nothing of reports::

    from perfc.tools import pages

    text = pages.page(
        "perfc place: dlrm-zion",
        [
            pages.Remarks(found.diagnostics),
            pages.Section("Plans", [pages.Table(("plan", "time"), rows)]),
            pages.Section("Power over the cache", [pages.Chart(x, y, series, text)]),
        ],
    )

`Cards` are the numbers of the answer, `Bars` parts of a whole, `Waterfall` steps from
one amount to another, `Chart` lines and points over two axes, `Timeline` boxes in
lanes.
The page is one file that loads nothing; it sorts tables, zooms and searches by a script
of its own, and draws charts by uPlot, whose licence is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.pages.blocks import (
        Badge,
        Card,
        Cards,
        Data,
        Heading,
        Preformatted,
        Remarks,
        Section,
        Text,
    )
    from perfc.tools.pages.charts import Axis, Chart, Series
    from perfc.tools.pages.document import fragment, page
    from perfc.tools.pages.part import Part, json_script
    from perfc.tools.pages.quantities import quantity_table
    from perfc.tools.pages.tables import Bar, Bars, Cell, Step, Table, Waterfall
    from perfc.tools.pages.timeline import (
        MOST_BYTES,
        Slices,
        Timeline,
        TimelineLane,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "blocks": (
                "Badge",
                "Card",
                "Cards",
                "Data",
                "Heading",
                "Preformatted",
                "Remarks",
                "Section",
                "Text",
            ),
            "charts": ("Axis", "Chart", "Series"),
            "document": ("fragment", "page"),
            "part": ("Part", "json_script"),
            "quantities": ("quantity_table",),
            "tables": ("Bar", "Bars", "Cell", "Step", "Table", "Waterfall"),
            "timeline": ("MOST_BYTES", "Slices", "Timeline", "TimelineLane"),
        },
    )

__all__ = [
    "MOST_BYTES",
    "Axis",
    "Badge",
    "Bar",
    "Bars",
    "Card",
    "Cards",
    "Cell",
    "Chart",
    "Data",
    "Heading",
    "Part",
    "Preformatted",
    "Remarks",
    "Section",
    "Series",
    "Slices",
    "Step",
    "Table",
    "Text",
    "Timeline",
    "TimelineLane",
    "Waterfall",
    "fragment",
    "json_script",
    "page",
    "quantity_table",
]
