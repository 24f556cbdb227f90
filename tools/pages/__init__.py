"""Answers as parts, and pages: one builder for all verbs.

An answer is a list of parts, each of which can be printed, and written as HTML and as
Markdown. What a part has to say is text and numbers, so that this room knows nothing of
reports::

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
lanes; `Drawn` is what only a page has. `text_of`, `markdown_of` and `answer_page` write
a list.
A page is one file that loads nothing; it sorts tables, zooms and searches by a script
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
        Drawn,
        Heading,
        Preformatted,
        Remarks,
        Section,
        Text,
    )
    from perfc.tools.pages.charts import Axis, Chart, Series
    from perfc.tools.pages.document import answer_page, fragment, page
    from perfc.tools.pages.part import (
        Part,
        columns_text,
        json_script,
        markdown_of,
        text_of,
    )
    from perfc.tools.pages.quantities import quantity_table, table
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
                "Drawn",
                "Heading",
                "Preformatted",
                "Remarks",
                "Section",
                "Text",
            ),
            "charts": ("Axis", "Chart", "Series"),
            "document": ("answer_page", "fragment", "page"),
            "part": (
                "Part",
                "columns_text",
                "json_script",
                "markdown_of",
                "text_of",
            ),
            "quantities": ("quantity_table", "table"),
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
    "Drawn",
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
    "answer_page",
    "columns_text",
    "fragment",
    "json_script",
    "markdown_of",
    "page",
    "quantity_table",
    "table",
    "text_of",
]
