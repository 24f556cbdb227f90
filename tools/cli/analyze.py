"""`perfc analyze`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from perfc.costmodels import load_target
from perfc.ir import UsageError
from perfc.ir.program import MAX_RANKS
from perfc.passes.instruments import Timing, VerifyEach
from perfc.tools.analysis import RUNTIMES, conversions, split_passes
from perfc.tools.analysis import analyze as run_analysis
from perfc.tools.cli.arguments import MAX_DIM, Count, integers, log_timing, pairs
from perfc.tools.cli.model_options import (
    dims_option,
    dtype_option,
    inputs_option,
    optimizer_option,
    overheads_option,
    overrides_option,
    pooling_option,
)
from perfc.tools.cli.plugin_option import plugin_option
from perfc.tools.cli.popularity_option import set_popularities
from perfc.tools.files import write_result
from perfc.tools.models import INFERENCE, MODES, load
from perfc.tools.reports import OUT_OF_MEMORY, Report, find_exporter

EXIT_NOT_MODELLED = 4
EXIT_OUT_OF_MEMORY = 5


@click.command(
    epilog="Example: perfc analyze dlrm-default --batch 2048 --target a100",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("model")
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="NAME|FILE.toml",
    help="Device to predict for; repeat for several.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, MAX_DIM),
    metavar="N",
    help="Samples in the batch.",
)
@dims_option
@pooling_option
@click.option(
    "--popularity",
    "popularities",
    multiple=True,
    metavar="TEXT|FILE|NAME=TEXT",
    help="How look-ups spread over the rows of tables, or of the table NAME: "
    "uniform, zipf(1.05), zipf-mandelbrot(0.98,1400), ..., or what `perfc locality` "
    "writes.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=INFERENCE,
    show_default=True,
    help="training: forward, loss, backward and optimizer.",
)
@optimizer_option
@click.option(
    "--ranks",
    type=Count(MAX_RANKS),
    metavar="N",
    help="GPUs that run replicas of it, each with its own batch; in training they add "
    "their gradients up.",
)
@dtype_option
@click.option(
    "--runtime",
    type=click.Choice(RUNTIMES),
    default="eager",
    show_default=True,
    help="cudagraph: the iteration captured, and replayed as one CUDA graph; "
    "compiled: kernels fused as torch.compile does.",
)
@inputs_option
@overheads_option
@click.option(
    "--pass",
    "passes",
    multiple=True,
    metavar="NAME{k=v}",
    help="Add a pass, or give one of the pipeline other options.",
)
@click.option("--pipeline", metavar="STRING", help="Run exactly these passes.")
@overrides_option
@plugin_option
@click.option(
    "--strict",
    is_flag=True,
    help="Exit 4 if an op is not modelled, 5 if the model does not fit.",
)
@click.option(
    "--format",
    "form",
    default="table",
    show_default=True,
    metavar="NAME",
    help="table, json, csv, md, html, trace (Kineto), onnx (for Netron), "
    "model-explorer, or one that a plugin adds.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write there instead of printing; compressed if it ends in .gz.",
)
@click.option("-q", "--quiet", is_flag=True, help="No log on stderr.")
@click.option("-v", "--verbose", is_flag=True, help="Time of each pass on stderr.")
@click.option("--verify-each", is_flag=True, help="Verify the graph after every pass.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def analyze(model: str, **options: Any) -> int:  # noqa: ANN401 - one per option
    """Predict the time of one iteration of MODEL, and say where it goes.

    MODEL is a file (model.onnx, model.pt2 of torch.export, graph.perfc), a built-in
    workload (NAME:key=value,...; see `perfc models`), or a function that makes a
    PyTorch module and example arguments (file.py:factory, pkg.mod:factory).
    """
    if options["quiet"] and options["verbose"]:
        msg = "--quiet and --verbose exclude each other"
        raise UsageError(msg)
    output, targets = options["output"], len(options["targets"])
    exporter = find_exporter(options["form"], reports=targets, path=output)
    reports = _analyze_all(model, options)
    document = options["form"] != "table"
    write_result(exporter.export(reports, output), output, document=document)
    return _exit_code(reports) if options["strict"] else 0


def _analyze_all(model: str, options: dict[str, Any]) -> list[Report]:
    timing = Timing()
    instruments = [timing, *([VerifyEach()] if options["verify_each"] else [])]
    transforms, passes = split_passes(options["passes"], options["ranks"])
    popular = set_popularities(options["popularities"])
    transforms = [*popular, *conversions(options["dtype"]), *transforms]
    overrides = pairs(options["overrides"], "--set")
    targets = [load_target(name, overrides) for name in options["targets"]]
    loaded = load(
        model,
        batch=options["batch"],
        pooling=options["pooling"],
        dims=integers(options["dims"], "--dim"),
        mode=options["mode"],
        optimizer=options["optimizer"],
        ranks=options["ranks"],
        transforms=transforms,
        instruments=instruments,
    )
    reports = [
        run_analysis(
            loaded,
            target,
            runtime=options["runtime"],
            inputs=options["inputs"],
            dtype=options["dtype"],
            overheads=options["overheads"],
            passes=passes,
            pipeline=options["pipeline"],
            instruments=instruments,
        )
        for target in targets
    ]
    if options["verbose"]:
        log_timing(timing)
    return reports


def _exit_code(reports: Sequence[Report]) -> int:
    codes = {d.code for report in reports for d in report.diagnostics}
    if any(report.coverage["unknown_ops"] for report in reports):
        return EXIT_NOT_MODELLED
    return EXIT_OUT_OF_MEMORY if OUT_OF_MEMORY in codes else 0
