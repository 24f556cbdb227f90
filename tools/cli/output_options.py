"""Options of verbs that print a table or JSON, and of those that run traces."""

from __future__ import annotations

from pathlib import Path

import click

format_option = click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
)
"""What to print."""

output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write there instead of stdout.",
)
"""Where to."""

contention_option = click.option(
    "--contention/--no-contention",
    default=True,
    show_default=True,
    help="Kernels wait for those of other streams that fill the device.",
)
"""How a trace runs."""

max_events_option = click.option(
    "--max-events",
    type=click.IntRange(min=1),
    default=5_000_000,
    show_default=True,
    metavar="N",
    help="Refuse traces with more events than these to keep; a million takes 0.7 GB.",
)
"""How much of traces fits in memory."""

debug_option = click.option(
    "--debug", is_flag=True, help="Show the traceback of an error."
)
"""For reports of bugs."""
