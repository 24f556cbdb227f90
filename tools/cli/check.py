"""`perfc check`: budgets that a build must hold."""

from __future__ import annotations

from pathlib import Path

import click

from perfc.tools.cli.arguments import debug_option, output_option, quiet_option
from perfc.tools.cli.verb import Verb
from perfc.tools.files import write_result


@click.command(
    cls=Verb,
    epilog="Example: perfc check budgets.toml",
)
@click.argument("file", type=click.Path(path_type=Path), metavar="BUDGETS")
@click.option(
    "--update", is_flag=True, help="Write the baselines that regressions are against."
)
@click.option(
    "--allow-python",
    is_flag=True,
    help="Run the Python of models that are functions, file.py:factory: only where "
    "you trust who wrote it.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="perfc.toml of the base branch, which may have allow-python = true; not of "
    "the checkout that BUDGETS is of.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "md", "json", "junit", "sarif"]),
    default="table",
    show_default=True,
)
@output_option()
@quiet_option(told=False)
@debug_option
def check(
    *,
    file: Path,
    update: bool,
    allow_python: bool,
    config: Path | None,
    form: str,
    output: Path | None,
) -> int:
    """Predict the models of BUDGETS, and fail where a limit is broken.

    BUDGETS is a TOML file of tables [[budget]]: model, target, options of analyze,
    and limits. Exit 3: a limit is broken; 5: a model does not fit.
    """
    from perfc.tools.checks import FORMATS, allows_python, read_budgets
    from perfc.tools.checks import check as checked

    if config is not None:
        allow_python |= allows_python(config, file)
    budgets = read_budgets(file, allow_python=allow_python)
    found = checked(budgets, str(file), update=update)
    write_result(FORMATS[form](found), output, document=form != "table")
    return found.exit_code
