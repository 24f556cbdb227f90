"""PyTorch modules to models. PyTorch is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never, Unpack, cast

import attrs

from perfc.ir import PerfcError, Program, UsageError
from perfc.passes import Pass, graphs
from perfc.passes.training import Training
from perfc.tools import models
from perfc.tools.analysis.analyzer import analyze
from perfc.tools.files import tell
from perfc.tools.request import TRAINING, Request, TorchOptions
from perfc.tools.signatures import shows

if TYPE_CHECKING:
    from perfc.frontends.torch import Recording, Source


@shows(TorchOptions)
def from_torch(
    module: Source,
    args: Any = (),  # noqa: ANN401 - one argument, or several
    kwargs: Mapping[str, Any] | None = None,
    *more: Never,
    **options: Unpack[TorchOptions],
) -> models.Model:
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
        more: Nothing: arguments of `forward` are one tuple.
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
        dims: Other symbols of an exported program, or numbers that data decide of
            what is recorded.
        transforms: Passes that change the graph, run once, here.
        instruments: Observers of the passes.

    Raises:
        UsageError: an option names what there is not.
        PerfcError: PyTorch is not installed, or the model does not run; the message
            names the op, the module and the line.

    """
    if more or not isinstance(cast("object", kwargs), Mapping | None):
        msg = (
            "perfc.from_torch takes the arguments of forward as one tuple: write "
            "perfc.from_torch(module, (a, b)); those by name are a mapping behind it"
        )
        raise UsageError(msg)
    named = {"model": module, "args": args, "kwargs": kwargs}
    return record_model(Request.of("perfc.from_torch", TorchOptions, options, **named))


def record_model(request: Request) -> models.Model:
    """Record the module of a request, or read the program that was exported from it."""
    models.require_torch()
    from perfc.frontends import torch as frontend

    if isinstance(request.model, str):
        msg = f"{request.model!r} is a name: expected a module; perfc.load takes names"
        raise UsageError(msg)
    module, transforms = request.model, list(request.transforms)
    dims = dict(request.dims)
    if frontend.is_exported(module):
        dims = {**frontend.given_sizes(module, request.args, request.kwargs), **dims}
        program = frontend.read_exported(module, request.name)
        transforms = [*_changes(program, request), *transforms]
    else:
        program = frontend.capture_module(module, _recording(request))
        transforms = [*models.narrowings(request.dtype, request.mode), *transforms]
    wanted = models.Dimensions(request.batch, request.pooling, dims)
    model = models.prepare(program, wanted, None, transforms, request.instruments)
    if program.recorded and request.dtype != "fp32":
        model = attrs.evolve(model, dtype=request.dtype)
    return attrs.evolve(model, again=models.Again(record_model, request))


def _recording(request: Request) -> Recording:
    """Return the recording to make, as the frontend takes it."""
    from perfc.frontends.torch import Recording

    return Recording(
        args=request.args,
        kwargs=request.kwargs,
        mode=request.mode,
        optimizer=request.optimizer,
        loss=request.loss,
        step=request.step,
        dtype=models.NARROW_BASES.get(request.dtype, request.dtype),
        name=request.name,
        dims=request.dims,
    )


def _changes(program: Program, request: Request) -> Sequence[Pass]:
    """Return the passes that make of an exported program what the options ask for."""
    optimizer, loss = request.optimizer, request.loss
    for option in ("step", "optimizer", "loss"):
        value = getattr(request, option)
        if value is not None and not isinstance(value, str):
            msg = (
                f"{option} of an exported program has to be one by name; to run your "
                "own, give program.module(), which is recorded"
            )
            raise UsageError(msg)
    early = [
        *models.conversions(request.dtype, narrow=True),
        *models.narrowings(request.dtype, request.mode),
    ]
    graph = program.classes[0].ops
    if request.mode == TRAINING and optimizer is None:
        if graph is not None and graphs.is_training_step(graph):
            return early
        msg = f"a training step of {program.name} needs the name of an optimizer"
        raise UsageError(msg)
    derived = Training(loss=loss) if isinstance(loss, str) else Training()
    wanted = [*early, derived] if request.mode == TRAINING else early
    return models.training_passes(request.mode, optimizer, wanted)


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
