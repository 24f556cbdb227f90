"""`perfc opt`: passes on text, the interface of golden tests and bug reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfc.costmodels import load_target
from perfc.ir import Program
from perfc.ir.annotations import Scenario
from perfc.passes.pipeline_spec import format_pipeline, parse_pipeline
from perfc.tools.cli import arguments
from perfc.tools.cli.plugin_option import plugin_option
from perfc.tools.cli.verb import Verb
from perfc.tools.files import write_result
from perfc.tools.request import INFERENCE

if TYPE_CHECKING:
    from perfc.passes.instruments import Instrument


@click.command(
    epilog="Example: perfc opt -p shape-inference,fold-shapes dlrm-ddp",
    cls=Verb,
)
@click.argument("file")
@click.option("-p", "--pipeline", default="", metavar="PIPELINE", help="Passes to run.")
@arguments.request_option(
    "target", help="For passes that need one.", required=False, multiple=False
)
@plugin_option
@arguments.request_option("dims", help="Bind a dimension.")
@click.option(
    "--dump-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the program after each pass.",
)
@click.option(
    "--reproducer",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="If a pass fails, write the program and the pipeline here.",
)
@arguments.output_option()
@arguments.timing_option
@arguments.debug_option
def opt(
    file: str,
    *,
    pipeline: str,
    target: str | None,
    dims: tuple[str, ...],
    dump_dir: Path | None,
    reproducer: Path | None,
    output: Path | None,
    verbose: bool,
) -> int:
    """Run PIPELINE on FILE and print the program with the facts found.

    FILE is perfc assembly or any model `perfc analyze` reads; the graph is
    verified after every pass.
    """
    from perfc.passes import PassManager
    from perfc.passes.instruments import DumpDir, Reproducer, Timing, VerifyEach
    from perfc.tools.reports import print_analysis

    passes = parse_pipeline(pipeline)
    program = _read(file).bind(arguments.integers(dims, "--dim"))
    timing = Timing()
    instruments: list[Instrument] = []
    if reproducer is not None:
        instruments.append(Reproducer(reproducer, format_pipeline(passes)))
    instruments += [timing, VerifyEach()]
    if dump_dir is not None:
        instruments.append(DumpDir(dump_dir))
    system = load_target(target) if target is not None else None
    scenario = None
    if system is not None:
        scenario = Scenario(
            system.name,
            system.spec_sha256,
            "eager",
            program.bound,
            format_pipeline(passes),
        )
    analysis = PassManager(passes, instruments).run(program, system, scenario)
    write_result(print_analysis(analysis), output, document=True)
    if verbose:
        arguments.log_timing(timing)
    return 0


def _read(file: str) -> Program:
    from perfc.tools.models import is_factory, read_program, read_torch

    if is_factory(file):
        return read_torch(file, mode=INFERENCE, optimizer=None)
    return read_program(file)
