"""`perfc analyze`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from perfc.costmodels import load_target
from perfc.ir import UsageError
from perfc.ir.support import counted
from perfc.tools.cli import arguments
from perfc.tools.cli.plugin_option import plugin_option
from perfc.tools.cli.verb import Verb
from perfc.tools.files import write_result
from perfc.tools.reports import find_exporter
from perfc.tools.request import Request

if TYPE_CHECKING:
    from pathlib import Path

    from perfc.passes.instruments import Timing
    from perfc.tools.reports import Exporter, Report

EXIT_NOT_MODELLED = 4
EXIT_OUT_OF_MEMORY = 5

_COMPARED = 2
"""Reports that are compared, or more."""

_WITHOUT_SLOPES = frozenset({"csv", "trace", "onnx", "model-explorer"})
"""Formats of nodes and tasks, which say nothing of what decides the time."""


class _Models(click.Argument):
    """The models: one that is missing is called so."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the name of one."""
        return "'MODEL'"


@click.command(
    epilog="Example: perfc analyze dlrm-default --batch 2048 --target a100",
    cls=Verb,
)
@click.argument("model", cls=_Models, nargs=-1, required=True, metavar="MODEL...")
@arguments.request_option("target", required=False)
@arguments.request_options(
    "preset",
    *("batch", "dims", "pooling", "popularity", "mode", "optimizer"),
    *("accumulate", "prune", "ranks", "dtype", "runtime", "attention", "inputs"),
    *("overheads", "passes", "pipeline", "input_pipeline", "overrides"),
    *("price", "carbon"),
)
@plugin_option
@click.option(
    "--strict",
    is_flag=True,
    help="Exit 4 if an op is not modelled, 5 if the model does not fit.",
)
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Say what decides the time: by how much it follows each number of the target, "
    "each kernel and each cost of the host.",
)
@click.option(
    "--sort",
    "column",
    metavar="COLUMN",
    help="Of several models or targets, best first by this column of the comparison, "
    "as time_us or usd_per_million_samples; -COLUMN for the worst first. As given if "
    "not said.",
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
@arguments.output_option(
    "Write there instead of printing; compressed if it ends in .gz. Into a folder, a "
    "trace of each rank.",
    folders=True,
)
@arguments.quiet_option("No log on stderr.")
@arguments.timing_option
@click.option("--verify-each", is_flag=True, help="Verify the graph after every pass.")
@click.option(
    "--print-pipeline",
    is_flag=True,
    help="Print the passes that would run, as --pipeline takes them, and no report.",
)
@arguments.debug_option
def analyze(model: tuple[str, ...], **options: Any) -> int:
    """Predict the time of one iteration of MODEL, and say where it goes.

    Several models, or several targets, are compared: a row a model and target.

    MODEL is a file (model.onnx, model.pt2 of torch.export, graph.perfc), a built-in
    workload (NAME:key=value,...; see `perfc models`), or a function that makes a
    PyTorch module and example arguments (file.py:factory, pkg.mod:factory).
    """
    if options["quiet"] and options["verbose"]:
        msg = "--quiet and --verbose exclude each other"
        raise UsageError(msg)
    output, targets = options["output"], options["target"]
    asked = [arguments.read_requests(one, options, targets) for one in model]
    if options["print_pipeline"]:
        write_result(_pipeline(asked), output)
        return 0
    count = sum(map(len, asked))
    exporter = find_exporter(
        options["form"],
        reports=count,
        path=output,
        instead="one --target" if len(model) == 1 else "one MODEL and one --target",
    )
    by = None if options["column"] is None else _sorting(options["column"], count)
    if options["sensitivity"] and options["form"] in _WITHOUT_SLOPES:
        msg = (
            f"--sensitivity: format {options['form']!r} has no place for it; use "
            "table, json, md or html"
        )
        raise UsageError(msg)
    reports = _analyze_all(asked, options)
    if by is not None:
        from perfc.tools.reports import Comparison

        key, largest_first = by
        reports = list(
            Comparison(reports).sorted(key, largest_first=largest_first).reports
        )
    if output is not None and output.is_dir():
        exporter.write_split(reports[0], output)
    else:
        _write(exporter, reports, options)
    return _exit_code(reports) if options["strict"] else 0


def _write(
    exporter: Exporter, reports: Sequence[Report], options: Mapping[str, Any]
) -> None:
    output: Path | None = options["output"]
    text: str | bytes | None = None
    if len(reports) > 1 and not options["verbose"]:
        text = exporter.compared(reports)
    if text is None:
        text = exporter.export(reports, output)
    write_result(text, output, document=options["form"] != "table")


def _sorting(column: str, count: int) -> tuple[str, bool]:
    from perfc.tools.reports import sort_key

    if count < _COMPARED:
        msg = f"--sort {column}: there is one report; give several MODEL or --target"
        raise UsageError(msg)
    return sort_key(column)


def _pipeline(asked: Sequence[Sequence[Request]]) -> str:
    """Return the passes that would run: the same for all targets."""
    from perfc.tools.analysis import run_of

    (first, *_), *others = asked
    if others:
        msg = f"--print-pipeline is of one MODEL, found {len(asked)}"
        raise UsageError(msg)
    return f"{run_of(first).pipeline}\n"


def _analyze_all(
    asked: Sequence[Sequence[Request]], options: Mapping[str, Any]
) -> list[Report]:
    """Return the reports of each model on all targets, model after model."""
    from perfc.passes.instruments import Timing

    timing = Timing()
    found = [report for one in asked for report in _analyzed(one, options, timing)]
    if options["verbose"]:
        arguments.log_timing(timing)
    return found


def _analyzed(
    asked: Sequence[Request], options: Mapping[str, Any], timing: Timing
) -> list[Report]:
    from perfc.passes.instruments import VerifyEach
    from perfc.tools.analysis import report_on
    from perfc.tools.models import load_request

    verified = [VerifyEach()] if options["verify_each"] else []
    targets = [load_target(str(one.target), one.overrides) for one in asked]
    first = attrs.evolve(asked[0], instruments=(timing, *verified))
    loaded = attrs.evolve(load_request(first), overrides={})
    reports = [
        report_on(attrs.evolve(loaded, target=target, remarks=one.remarks))
        for one, target in counted([*zip(asked, targets, strict=True)], "targets")
    ]
    if options["sensitivity"]:
        found = counted([*zip(reports, asked, strict=True)], "sensitivities")
        reports = [_with_sensitivity(report, one) for report, one in found]
    return [attrs.evolve(report, called=str(asked[0].model)) for report in reports]


def _with_sensitivity(report: Report, asked: Request) -> Report:
    from perfc.tools.oracle import sensitivity_of

    return attrs.evolve(report, sensitivity=sensitivity_of(report.run, asked))


def _exit_code(reports: Sequence[Report]) -> int:
    from perfc.tools.reports import OUT_OF_MEMORY

    codes = {d.code for report in reports for d in report.diagnostics}
    if any(report.coverage["unknown_ops"] for report in reports):
        return EXIT_NOT_MODELLED
    return EXIT_OUT_OF_MEMORY if OUT_OF_MEMORY in codes else 0
