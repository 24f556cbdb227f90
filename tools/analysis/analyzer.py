"""The main job: predict the time of one iteration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Unpack

import attrs

from perfc.costmodels import Target, load_target
from perfc.ir import UsageError
from perfc.ir.support import UnsupportedModelError
from perfc.passes.pipeline_spec import format_pipeline
from perfc.passes.pipelines import split_pipeline
from perfc.tools import models
from perfc.tools.analysis.autocast_cost import with_casts
from perfc.tools.analysis.conversions import with_activations
from perfc.tools.analysis.fused_pairs import fused, with_saving, with_weights
from perfc.tools.analysis.row_layouts import laid_out
from perfc.tools.given import NARROW_DTYPES
from perfc.tools.reports import Report
from perfc.tools.request import INFERENCE, AnalyzeOptions, Request
from perfc.tools.run import Run
from perfc.tools.signatures import shows

if TYPE_CHECKING:
    from perfc.frontends.torch import Source


@shows(AnalyzeOptions)
def analyze(
    model: models.Model | Source | models.OnnxModel | str | os.PathLike[str],
    target: Target | str | os.PathLike[str] | None = None,
    **options: Unpack[AnalyzeOptions],
) -> Report:
    """Predict the time of one iteration of *model* on *target*.

    Args:
        model: A loaded model, or what `load` takes.
        target: A target, its name, or the path of its sheet; None for the preset's.
        runtime: `eager`, `cudagraph` or `compiled`.
        inputs: `host-pinned` (asynchronous copies), `host-pinned-blocking` (copied
            without `non_blocking`), `host-pageable` or `device` (no copies); places of
            some inputs may follow, by patterns of names: `host-pinned,past_*=device`.
            A cache that the step writes or gives back longer is on the device anyway.
        dtype: `fp32` for the types of the source, `tf32` for fp32 storage and TF32
            GEMMs, `bf16` or `fp16` for the whole model in that type, `amp-bf16` or
            `amp-fp16` for autocast; PyTorch's and NumPy's own types mean theirs.
        batch: Samples in the batch.
        pooling: Lookups per embedding bag, where the model leaves it open.
        dims: Other symbols and their numbers.
        popularity: How lookups spread over the rows of embedding tables, as
            `perfc.load` takes it.
        mode: `inference`, or `training` for a whole training step; a loaded model has
            its mode already.
        optimizer: Of a training step: `sgd` (if None), `adagrad`, `rowwise_adagrad`,
            `adam` or `adamw`.
        accumulate: How many microbatches a training step has, as `perfc.load` takes it.
        prune: Share of the channels of convolutions to take away, likewise.
        ranks: How many GPUs run replicas of it; a loaded model has its ranks already.
        attention: Which kernels attention runs by: `auto` for PyTorch's choice,
            `flash-1`, `flash-2`, `flash-3`, `cudnn`, `efficient` or `math`.
        overheads: Host profile, by name or file; None for the target's.
        passes: Extra passes as `name{option=value}`; options given to one that the
            pipeline has already are set there.
        pipeline: The passes that time the model, instead of the default ones; of a
            model that is not loaded yet also all passes, as `Report.pipeline` has them.
        input_pipeline: File of the stages that bring batches to the device, whose waits
            become part of the step.
        overrides: Sheet fields and values, as `--set` takes them; for a target
            given by name or path.
        price: US dollars that an hour of one GPU costs, or the file of a price sheet;
            None for the price of the target's sheet.
        carbon: Grams of CO2 equivalent that a kWh stands for; None if not known.
        preset: A preset, by name or file: target, host, inputs and options of passes;
            what is given besides wins. A loaded model was to be loaded by it, too.
        transforms: Passes that change the graph of a model that is not loaded yet.
        instruments: Observers of the passes.

    Raises:
        UsageError: an argument names something perfc does not have.
        PerfcError: the model, the target or the pipeline is at fault.

    """
    named: dict[str, Any] = {"model": model}
    if target is not None or options.get("preset") is None:
        named["target"] = target
    request = Request.of("perfc.analyze", AnalyzeOptions, options, **named)
    if request.preset is None:
        return report_on(request)
    from perfc.tools.presets import with_preset

    if isinstance(request.model, models.Model):
        loaded = request.model
        return report_on(with_preset(request, loaded.passes, loaded.preset))
    return report_on(with_preset(request))


def report_on(request: Request) -> Report:
    """Predict what a request asks for."""
    run = with_saving(run_of(request))
    return _told(Report(run, run.analysis(request.instruments)))


def priced(request: Request, target: Target) -> Report:
    """Predict the rest of a request, of a model that is loaded or was changed."""
    model: models.Model = laid_out(request.model, target)
    check_run(model, request.runtime, target)
    if request.runtime == "compiled" and request.pipeline is None:
        model = fused(model, target)
    run = with_saving(Run.of(attrs.evolve(request, model=model), target))
    return _told(Report(run, run.analysis(request.instruments)))


def _told(report: Report) -> Report:
    """Say what kernels take that only convert weights, activations or types."""
    return with_casts(with_activations(with_weights(report)))


def run_of(request: Request) -> Run:
    """Return the run that a request asks for, with its model loaded."""
    target = _target(request)
    if isinstance(request.model, models.Model):
        request = _of_loaded(request, request.model)
    else:
        request = models.load_request(request)
    model = request.model
    if request.dtype in NARROW_DTYPES and model.dtype != request.dtype:
        from perfc.tools.models import narrowed

        model = narrowed(model, request.dtype)
    for conversion in models.conversions(request.dtype, narrow=True):
        if model.dtype != request.dtype:
            model = model.converted(conversion)
    model = laid_out(model, target)
    check_run(model, request.runtime, target)
    if request.runtime == "compiled" and request.pipeline is None:
        model = fused(model, target)
    return Run.of(attrs.evolve(request, model=model), target)


def check_run(model: models.Model, runtime: str, target: Target) -> None:
    """Refuse what a machine has not."""
    _check_rate(model, target)
    # Refuse what a CPU has not, or what is not modelled there.
    if target.device.synchronous and runtime != "eager":
        msg = (
            f"--runtime {runtime} on {target.name}: a CPU has no CUDA graphs, and what "
            "Inductor compiles for it is not modelled; use --runtime eager"
        )
        raise UnsupportedModelError(msg)
    check_world(model.ranks, target)


def _of_loaded(request: Request, model: models.Model) -> Request:
    """Return a request of a model that is loaded, bound to the sizes asked for."""
    late: str | None = None
    if request.optimizer is not None or request.mode not in (INFERENCE, model.mode):
        late = f"for {model.mode}; give mode and optimizer"
    elif request.ranks not in (None, model.ranks):
        late = f"for {model.ranks} ranks; give ranks"
    elif request.accumulate not in (None, model.microbatches):
        late = f"for {model.microbatches} microbatches a step; give accumulate"
    elif request.prune:
        late = "already; give prune"
    elif request.popularity:
        late = "already; give popularity"
    elif request.transforms:
        late = "already; give transforms"
    if late is not None:
        msg = f"{model.name} is loaded {late} to perfc.load"
        raise UsageError(msg)
    loading, timing = split_pipeline(request.pipeline or "")
    ran = f"{format_pipeline(model.passes)},{timing}"
    if loading is not None and request.pipeline != ran:
        msg = f"{model.name} is loaded by other passes than those of the pipeline"
        raise UsageError(msg)
    request = attrs.evolve(request, pipeline=timing or None)
    if request.batch or request.pooling or request.dims:
        model = model.bind(request.batch, pooling=request.pooling, dims=request.dims)
    return attrs.evolve(request, model=model)


def _check_rate(model: models.Model, target: Target) -> None:
    """Refuse a type that the device has no fast GEMMs in.

    PyTorch computes there all the same, by detours that no measurement shows.
    """
    wanted = model.dtype.removeprefix("amp-")
    if wanted in NARROW_DTYPES:
        from perfc.passes.precision import check_rate, linear_type

        check_rate(linear_type(wanted, "dtype"), target)
        return
    rates = target.device.flops_per_s
    if wanted and wanted not in rates:
        from perfc.passes.precision import LOW_DTYPES

        others = [name for name in LOW_DTYPES if name in rates]
        advice = " or ".join(f"--dtype {name}" for name in (*others, "fp32"))
        msg = (
            f"{target.name} has no {wanted} tensor cores: PyTorch would emulate "
            f"{wanted} GEMMs there, which perfc does not price; use {advice}"
        )
        raise UnsupportedModelError(msg)


def check_world(ranks: int, target: Target) -> None:
    """Refuse more ranks than the machine has GPUs."""
    if ranks == 1:
        return
    if target.device.synchronous:
        msg = (
            f"{ranks} ranks on {target.name}: only GPUs that NCCL joins are "
            "modelled; choose a GPU or a system of them (`perfc targets`)"
        )
        raise UnsupportedModelError(msg)
    from perfc.costmodels import assumed_system

    system = target.once(assumed_system)
    system.members(ranks)
    whole, rest = divmod(ranks, system.gpus_per_node)
    if whole and rest:
        least = whole * system.gpus_per_node
        msg = (
            f"{ranks} ranks do not fill nodes of {system.gpus_per_node} GPUs, "
            f"which {target.name} has; choose {least} or {least + system.gpus_per_node}"
        )
        if not ranks % (whole + 1):
            each = ranks // (whole + 1)
            msg += f", or take {each} of each node: --set node.gpus={each}"
        raise UnsupportedModelError(msg)


def _target(request: Request) -> Target:
    """Return the target of a request."""
    target = request.target
    if not target:
        msg = f"preset {request.preset} names no target: give one"
        raise UsageError(msg)
    if not isinstance(target, Target):
        return load_target(target, request.overrides)
    if request.overrides:
        msg = "overrides need a target by name or path; this one is loaded already"
        raise UsageError(msg)
    return target
