"""Options that say of what model, in what setting, a verb speaks."""

from __future__ import annotations

import click

from perfc.ir.ops.optimizer import OPTIMIZERS
from perfc.tools.analysis import DTYPES, INPUTS
from perfc.tools.cli.arguments import MAX_DIM

dims_option = click.option(
    "--dim", "dims", multiple=True, metavar="NAME=N", help="Bind another dimension."
)
"""Numbers for symbols."""

pooling_option = click.option(
    "--pooling",
    type=click.IntRange(1, MAX_DIM),
    metavar="N",
    help="Lookups per embedding bag, where the model leaves it open.",
)
"""A number for an open one."""

optimizer_option = click.option(
    "--optimizer",
    type=click.Choice(OPTIMIZERS),
    help="Of --mode training; sgd if not given.",
)
"""What updates parameters."""

dtype_option = click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="fp32",
    show_default=True,
    help="What the model computes in: bf16 and fp16 throughout, amp-… by autocast, "
    "tf32 only in fp32 products.",
)
"""Element types."""

inputs_option = click.option(
    "--inputs",
    type=click.Choice(INPUTS),
    default="host-pinned",
    show_default=True,
    help="Where inputs are when the iteration starts.",
)
"""Where an iteration starts."""

overheads_option = click.option(
    "--overheads",
    metavar="NAME|FILE.toml",
    help="Host profile; the target's if not given.",
)
"""The host."""

overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Override a field of the target, as gpu.sm_clock_mhz=1200.",
)
"""Other fields of the target."""
