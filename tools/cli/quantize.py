"""`perfc quantize`: tables and linear layers in fewer bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import click

from perfc.ir import UsageError
from perfc.tools.cli import arguments
from perfc.tools.cli.output_options import result_format_option, write_answer
from perfc.tools.cli.plugin_option import plugin_option
from perfc.tools.cli.verb import Verb


@click.command(
    cls=Verb,
    epilog="Example: perfc quantize dlrm-ddp --batch 64 --target a100 --linear int8",
)
@click.argument("model", metavar="MODEL")
@arguments.request_option("target", multiple=False)
@click.option(
    "--embeddings",
    metavar="TYPE",
    default="",
    help="What tables are stored in: int8, int4, int2, int4-codebook, fp8, fp16, bf16; "
    "as they are if not given.",
)
@click.option(
    "--linear",
    metavar="TYPE",
    default="",
    help="What linear layers are stored and multiplied in: int8, fp8, mxfp8, nvfp4, "
    "fp16, bf16; w8a16 or w4a16 (also int4) for weights alone; as they are if not "
    "given.",
)
@click.option(
    "--activations",
    type=click.Choice(["static", "dynamic", "dynamic-tensor"]),
    default="static",
    show_default=True,
    help="Where their scales come from: a calibration; each row, as the layer runs; or "
    "the whole tensor.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="PATTERN:TYPE",
    help="Tables and layers of another type, as top_l.0,top_l.8:fp16; give it again "
    "for more.",
)
@click.option(
    "--sum-bits",
    type=click.Choice(["16", "32"]),
    default="32",
    show_default=True,
    help="What a CPU adds products of 8 bits up in.",
)
@click.option(
    "--losses",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CSV of what quantizing each op costs in accuracy: op, loss, and type if ops "
    "are to choose among several.",
)
@click.option(
    "--budget",
    type=float,
    metavar="X",
    help="What the losses may add up to: what is quantized is then chosen.",
)
@click.option(
    "--compare",
    metavar="TYPE[,TYPE...]",
    help="Other plans: all tables and layers in fp32, fp16, bf16, fp8, int8, ...",
)
@arguments.request_options(
    *("batch", "dims", "pooling", "popularity", "mode", "dtype", "runtime"),
    *("attention", "inputs", "overheads", "passes", "overrides"),
)
@plugin_option
@result_format_option
@arguments.output_option()
@arguments.quiet_option()
@arguments.debug_option
def quantize(model: str, **options: Any) -> int:
    """Price MODEL with tables and linear layers in fewer bits, beside the original.

    It says the time, what tables and the rest take, the peak of memory, how many casts
    are inserted, and what binds. With --losses and --budget it chooses what to
    quantize.
    """
    from perfc.tools.quantizing import Precision
    from perfc.tools.quantizing import quantize as run

    compare = options["compare"]
    if not all(map(str.strip, options["keep"])):
        msg = "--keep '' names nothing: expected PATTERN:TYPE, as top.0:fp16"
        raise UsageError(msg)
    asked = Precision(
        embeddings=options["embeddings"],
        linear=options["linear"],
        activations=options["activations"],
        keep=",".join(options["keep"]),
        sum_bits=int(options["sum_bits"]),
        losses=options["losses"],
        budget=options["budget"],
        compare=[]
        if compare is None
        else [each.strip() for each in compare.split(",")],
    )
    request = attrs.evolve(
        arguments.read_request(model, options), target=options["target"]
    )
    write_answer(run(request, asked))
    return 0
