"""`perfc diff`: why one report is slower than another."""

from __future__ import annotations

from pathlib import Path

import click

from perfc.tools.cli.arguments import debug_option, output_option
from perfc.tools.cli.output_options import steps_option
from perfc.tools.cli.verb import Verb
from perfc.tools.files import write_result


@click.command(
    cls=Verb,
    epilog="Example: perfc diff base.json head.json --by module",
)
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("head", type=click.Path(path_type=Path))
@click.option(
    "--by",
    type=click.Choice(["op", "module", "phase", "kernel", "overhead"]),
    default="op",
    show_default=True,
    help="What the steps are made by.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "md", "json", "html"]),
    default="table",
    show_default=True,
)
@steps_option("Of a trace, take the median of these profiler steps only.")
@output_option()
@debug_option
def diff(
    *,
    base: Path,
    head: Path,
    by: str,
    form: str,
    steps: range | None,
    output: Path | None,
) -> int:
    """Say why HEAD is slower or faster than BASE.

    Both are files of `perfc analyze --format json`, or one is a Kineto trace of
    PyTorch's profiler, .json or .json.gz: of what the other predicts. The steps sum to
    the difference; ops are matched by module, op and shapes, whatever their order.
    """
    from perfc.tools.diffs import FORMATS, diffs_of

    found = diffs_of(base, head, by, steps)
    write_result(FORMATS[form](found), output, document=form != "table")
    return 0
