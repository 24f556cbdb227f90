"""PyTorch modules to models. PyTorch is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from perfc.ir import PerfcError, Program, UsageError
from perfc.passes import Pass
from perfc.passes.graphs import is_training_step
from perfc.passes.instruments import Instrument
from perfc.passes.training import Training
from perfc.tools.analysis.analyzer import DTYPES, analyze, check_known, conversions
from perfc.tools.files import tell
from perfc.tools.models import (
    TRAINING,
    Again,
    Dimensions,
    Model,
    by_name,
    prepare,
    require_torch,
    training_passes,
)

if TYPE_CHECKING:
    from perfc.frontends import Optimizer
    from perfc.frontends.torch import CustomStep, Loss, Source


def from_torch(  # noqa: PLR0913 - the public call; all but one have defaults
    module: Source,
    args: Any = (),  # noqa: ANN401 - one argument, or several
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: str = "inference",
    optimizer: Optimizer = None,
    loss: Loss = None,
    step: CustomStep = None,
    dtype: str | None = None,
    name: str | None = None,
    batch: int | None = None,
    pooling: int | None = None,
    dims: Mapping[str, int] | None = None,
    transforms: Sequence[Pass] = (),
    instruments: Sequence[Instrument] = (),
) -> Model:
    """Record one iteration of a PyTorch module, as eager PyTorch on a GPU runs it.

    Nothing is computed and no weight is allocated: the module is copied onto tensors
    without elements. Neither it nor the arguments are changed.

    A `torch.export.ExportedProgram` is not recorded: it is read as its `.pt2` file is,
    with open sizes, and the training step of a forward graph is derived. To record it,
    give `program.module()`.

    Args:
        module: A module, an `fx.GraphModule`, a `torch.export.ExportedProgram`, or a
            function without arguments that makes a module, which then takes no
            memory from the start.
        args: What `forward` is called with: tensors (real, fake or on `meta`; the
            small real ones keep their elements, so that a model may look at them), a
            `torch.Size`, a pair of a shape and a `torch.dtype`, or anything else. An
            exported program needs none; their sizes bind its open ones. A traced graph
            needs none if its inputs note what they were.
        kwargs: Arguments by name.
        mode: `inference` (in `eval()` and without gradients), or `training`: forward,
            loss, backward and, if one is given, optimizer.
        optimizer: `sgd`, `adagrad`, `rowwise_adagrad`, `adam`, `adamw`, with
            PyTorch's defaults for CUDA, or what makes one from parameters, as
            `functools.partial(torch.optim.AdamW, fused=True)`.
        loss: A function of what the module returns; `bce`, `bce_with_logits`, `mse`,
            `cross_entropy` (against labels, an input) or `sum`; None for what the
            module calls `loss`, itself if it is one number, else what fits its end.
        step: Your own iteration of a training loop instead of forward, loss, backward
            and one step of the optimizer: `step(module, optimizer, *args, **kwargs)`.
            It may accumulate or clip gradients, zero them in place, average weights.
            What it returns is held to its end. It runs twice, and the second run is
            recorded, so it finds what an earlier iteration left; the module that it
            gets is the copy.
        dtype: `bf16` or `fp16` to convert the weights, `amp-bf16` or `amp-fp16` to
            run under `torch.autocast`; None to leave them.
        name: What the report calls the model; its class if not given.
        batch: Samples in the batch, where an exported program leaves it open.
        pooling: Lookups per embedding bag, where an exported program leaves it open.
        dims: Other symbols of an exported program, and their numbers.
        transforms: Passes that change the graph, run once, here.
        instruments: Observers of the passes.

    Raises:
        UsageError: an option names what there is not.
        PerfcError: PyTorch is not installed, or the model does not run; the message
            names the op, the module and the line.

    """
    require_torch()
    from perfc.frontends import torch as frontend  # noqa: PLC0415 - imports PyTorch

    wanted = Dimensions(batch, pooling, dims or {})
    asked = {
        "module": module,
        "args": args,
        "kwargs": kwargs,
        "mode": mode,
        "optimizer": optimizer,
        "loss": loss,
        "step": step,
        "name": name,
        "transforms": transforms,
        "instruments": instruments,
    }
    again = Again(from_torch, asked, by_name)
    if frontend.is_exported(module):
        sizes = frontend.given_sizes(module, args, kwargs)
        wanted = attrs.evolve(wanted, dims={**sizes, **wanted.dims})
        made = frontend.read_exported(module, name)
        changes = _changes(made, mode, optimizer, loss, step, dtype)
        model = prepare(made, wanted, None, [*changes, *transforms], instruments)
        return attrs.evolve(model, again=again)
    program = frontend.capture_module(
        module,
        args,
        kwargs,
        mode=mode,
        optimizer=optimizer,
        loss=loss,
        step=step,
        dtype=dtype,
        name=name,
    )
    model = prepare(program, wanted, None, transforms, instruments)
    computed_in = "" if dtype in {None, "fp32"} else dtype
    return attrs.evolve(model, dtype=computed_in, again=again)


def _changes(  # noqa: PLR0913, PLR0917 - options of the public call
    program: Program,
    mode: str,
    optimizer: Optimizer,
    loss: Loss,
    step: CustomStep,
    dtype: str | None,
) -> Sequence[Pass]:
    """Return the passes that make of an exported program what the options ask for.

    Raises:
        UsageError: an option needs a recording, or names what there is not.

    """
    for option, value in (("step", step), ("optimizer", optimizer), ("loss", loss)):
        if value is not None and not isinstance(value, str):
            msg = (
                f"{option} of an exported program has to be one by name; to run your "
                "own, give program.module(), which is recorded"
            )
            raise UsageError(msg)
    check_known("dtype", dtype or "fp32", DTYPES)
    early = conversions(dtype or "fp32")
    graph = program.classes[0].ops
    if mode == TRAINING and optimizer is None:
        if graph is not None and is_training_step(graph):
            return early
        msg = f"a training step of {program.name} needs the name of an optimizer"
        raise UsageError(msg)
    derived = Training(loss=loss) if isinstance(loss, str) else Training()
    wanted = [*early, derived] if mode == TRAINING else early
    return training_passes(mode, str(optimizer) if optimizer else None, wanted)


def compile_backend(
    graph: Any,  # noqa: ANN401 - a torch.fx.GraphModule
    inputs: Sequence[Any],
    *,
    options: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """Report a graph of `torch.compile(model, backend="perfc")`; run it eagerly.

    The report is of the graph's forward pass, and goes to stderr. The model runs
    whatever becomes of the report.

    Args:
        graph: What PyTorch's compiler has taken out of the model.
        inputs: Example inputs, weights among them.
        options: `target` (`a100` if not given), `runtime`, `dtype`.

    """
    chosen: dict[str, Any] = {"target": "a100", **(options or {})}
    try:
        model = from_torch(graph, inputs, name="torch.compile graph")
        text = str(analyze(model, **chosen))
    except (PerfcError, TypeError) as error:
        text = f"perfc: error: {error}"
    tell(text)
    forward: Callable[..., Any] = graph.forward
    return forward
