"""The main job: predict the time of one iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.costmodels import Target, assumed_system, load_profile, load_target
from perfc.ir import Diagnostic, UsageError
from perfc.ir.annotations import Scenario
from perfc.ir.support import Level, PipelineError, UnsupportedModelError
from perfc.passes import Pass, PassManager, Transform, precision
from perfc.passes.facts import CRITICAL_PATH, INTERVAL
from perfc.passes.instruments import Instrument
from perfc.passes.kinds import is_a
from perfc.passes.pipeline_spec import PassRequest, format_pipeline, read_pipeline
from perfc.passes.pipelines import GIVEN
from perfc.passes.precision import LOW_DTYPES
from perfc.tools.models import INFERENCE, Model, load, made_passes
from perfc.tools.reports import Report, Variant, graph_variant, launch_variants

RUNTIMES = ("eager", "cudagraph", "compiled")
INPUTS = ("host-pinned", "host-pageable", "device")
DTYPES = ("fp32", "tf32", "bf16", "fp16", "amp-bf16", "amp-fp16")
BACK_PIPELINE = (
    "lower-kernels,kernel-cost,overhead,stream-schedule,critical-path,time-interval"
)
"""What turns a typed op graph into a time."""


@attrs.frozen(kw_only=True)
class Options:
    """How to analyze, apart from the model and the target.

    Attributes:
        runtime: `eager`, `cudagraph` for the iteration replayed as one graph, or
            `compiled` for what `torch.compile` launches.
        inputs: Where inputs come from: `host-pinned` (asynchronous copies),
            `host-pageable` (blocking copies) or `device` (no copies).
        dtype: `fp32` for the types of the source, `tf32` for fp32 storage and TF32
            products, `bf16` or `fp16` for the whole model in that type, `amp-bf16` or
            `amp-fp16` for autocast.
        overheads: Host profile, by name or file; None for the target's.
        passes: Extra passes, as `name{option=value}`; options given to one that
            the pipeline has already are set there.
        pipeline: The whole back pipeline, instead of the default one.

    """

    runtime: str = "eager"
    inputs: str = "host-pinned"
    dtype: str = "fp32"
    overheads: str | None = None
    passes: Sequence[str] = ()
    pipeline: str | None = None


def analyze(  # noqa: PLR0913 - the public call; all but two have defaults
    model: Model | str,
    target: Target | str,
    *,
    runtime: str = "eager",
    inputs: str = "host-pinned",
    dtype: str = "fp32",
    mode: str = INFERENCE,
    optimizer: str | None = None,
    ranks: int | None = None,
    overheads: str | None = None,
    passes: Sequence[str] = (),
    pipeline: str | None = None,
    overrides: Mapping[str, str] | None = None,
    instruments: Sequence[Instrument] = (),
) -> Report:
    """Predict the time of one iteration of *model* on *target*.

    Args:
        model: A loaded model, or what `load` takes.
        target: A target, its name, or the path of its sheet.
        runtime: `eager`, `cudagraph` or `compiled`.
        inputs: `host-pinned`, `host-pageable` or `device`.
        dtype: `fp32`, `tf32`, `bf16`, `fp16`, `amp-bf16` or `amp-fp16`.
        mode: `inference`, or `training` for a whole training step; a loaded model has
            its mode already.
        optimizer: Of a training step: `sgd` (if None), `adagrad`, `rowwise_adagrad`,
            `adam` or `adamw`.
        ranks: How many GPUs run replicas of it; a loaded model has its ranks already.
        overheads: Host profile, by name or file; None for the target's.
        passes: Extra passes as `name{option=value}`.
        pipeline: The whole back pipeline, instead of the default one.
        overrides: Sheet fields and values, as `--set` takes them; for a target
            given by name or path.
        instruments: Observers of the passes.

    Raises:
        UsageError: an argument names something perfc does not have.
        PerfcError: the model, the target or the pipeline is at fault.

    """
    options = Options(
        runtime=runtime,
        inputs=inputs,
        dtype=dtype,
        overheads=overheads,
        passes=passes,
        pipeline=pipeline,
    )
    _check(options)
    system = _target(target, overrides or {})
    if not isinstance(model, Model):
        transforms, others = split_passes(passes, ranks)
        transforms = [*conversions(dtype), *transforms]
        model = load(
            model,
            mode=mode,
            optimizer=optimizer,
            ranks=ranks,
            transforms=transforms,
            instruments=instruments,
        )
        options = attrs.evolve(options, passes=others)
    elif optimizer is not None or mode not in (INFERENCE, model.mode):
        msg = (
            f"{model.name} is loaded for {model.mode}; give mode and optimizer to "
            "perfc.load"
        )
        raise UsageError(msg)
    elif ranks not in (None, model.ranks):
        msg = (
            f"{model.name} is loaded for {model.ranks} ranks; give ranks to perfc.load"
        )
        raise UsageError(msg)
    for conversion in conversions(dtype):
        if model.dtype != dtype:
            model = model.converted(conversion)
    _check_rate(model, system)
    _check_runtime(runtime, system)
    check_world(model.ranks, system)
    return _run(model, system, back_passes(options), instruments)


def conversions(dtype: str) -> list[precision.ConvertDtype]:
    """Return the passes that make a model compute in *dtype*: none for 32 bits."""
    to = dtype.removeprefix("amp-")
    if to not in LOW_DTYPES:
        return []
    return [precision.ConvertDtype(to, autocast=to != dtype)]


def _check_rate(model: Model, target: Target) -> None:
    """Refuse a type that the device has no fast products in.

    PyTorch computes there all the same, by detours that no measurement shows.
    """
    wanted = model.dtype.removeprefix("amp-")
    rates = target.device.flops_per_s
    if wanted and wanted not in rates:
        others = [name for name in LOW_DTYPES if name in rates]
        advice = " or ".join(f"--dtype {name}" for name in (*others, "fp32"))
        msg = (
            f"{target.name} has no {wanted} tensor cores: PyTorch would emulate "
            f"{wanted} products there, which perfc does not price; use {advice}"
        )
        raise UnsupportedModelError(msg)


def _check_runtime(runtime: str, target: Target) -> None:
    """Refuse what a CPU has not, or what is not modelled there."""
    if target.device.synchronous and runtime != "eager":
        msg = (
            f"--runtime {runtime} on {target.name}: a CPU has no CUDA graphs, and what "
            "Inductor compiles for it is not modelled; use --runtime eager"
        )
        raise UnsupportedModelError(msg)


def check_world(ranks: int, target: Target) -> None:
    """Refuse more ranks than the machine has GPUs.

    Raises:
        PerfcError: they do not fit, or leave a node half empty.

    """
    if ranks == 1:
        return
    if target.device.synchronous:
        msg = (
            f"{ranks} ranks on {target.name}: only GPUs that NCCL joins are "
            "modelled; choose a GPU or a system of them (`perfc targets`)"
        )
        raise UnsupportedModelError(msg)
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


def split_passes(
    texts: Sequence[str], ranks: int | None = None
) -> tuple[list[Pass], list[str]]:
    """Take apart what `--pass` says: what `load` needs, and what `analyze` does.

    Transforms change the graph, once for all targets, so they belong to loading. Those
    that share a model have *ranks* where they do not say theirs.

    Raises:
        UsageError: a pass or an option is unknown.

    """
    requests = [request for text in texts for request in read_pipeline(text)]
    made = made_passes(requests, ranks)
    transforms: list[Pass] = [p for p in made if isinstance(p, Transform)]
    others = [
        request.text
        for p, request in zip(made, requests, strict=True)
        if not isinstance(p, Transform)
    ]
    return transforms, others


def _target(target: Target | str, overrides: Mapping[str, str]) -> Target:
    if not isinstance(target, Target):
        return load_target(target, overrides)
    if overrides:
        msg = "overrides need a target by name or path; this one is loaded already"
        raise UsageError(msg)
    return target


def _check(options: Options) -> None:
    check_known("runtime", options.runtime, RUNTIMES)
    check_known("inputs", options.inputs, INPUTS)
    check_known("dtype", options.dtype, DTYPES)


def check_known(name: str, value: str, known: Sequence[str]) -> None:
    """Refuse an option of another value.

    Raises:
        UsageError: it has one.

    """
    if value not in known:
        msg = f"{name} {value!r} is none of {', '.join(known)}"
        raise UsageError(msg)


def back_passes(options: Options) -> list[Pass]:
    """Return the passes that *options* ask for, in order.

    Raises:
        UsageError: a pass or an option is unknown, or options contradict.

    """
    if options.pipeline is not None and options.passes:
        msg = "--pipeline and --pass exclude each other: put the pass in the pipeline"
        raise UsageError(msg)
    text = BACK_PIPELINE if options.pipeline is None else options.pipeline
    requests = read_pipeline(text)
    extras = [extra for item in options.passes for extra in read_pipeline(item)]
    added = _RUNTIME_PASSES.get(options.runtime)
    if added is not None and all(r.cls.name != added for r in (*requests, *extras)):
        if options.pipeline is not None:
            msg = f"--runtime {options.runtime} needs the pass {added} in --pipeline"
            raise UsageError(msg)
        extras = [*read_pipeline(added), *extras]
    compiled = any(
        request.cls.name == "fuse-kernels" for request in (*requests, *extras)
    )
    passes = [_configured(r, options, compiled=compiled) for r in requests]
    for extra in extras:
        _insert(passes, extra)
    for p in passes:
        if isinstance(p, Transform):
            msg = (
                f"pass {p.name!r} changes the graph, so it runs when the model is "
                "loaded: use --pass, not --pipeline; from Python, "
                "perfc.load(..., transforms=[...])"
            )
            raise UsageError(msg)
    return passes


_RUNTIME_PASSES: Mapping[str, str] = {
    "cudagraph": "capture-graph",
    "compiled": "fuse-kernels",
}
"""The pass that makes the launches of a runtime out of eager PyTorch's."""


def _with(passes: Sequence[Pass], added: str) -> list[Pass]:
    """Return *passes* with one more, behind those that make the launches."""
    result = list(passes)
    _insert(result, *read_pipeline(added))
    return result


def _runtime(passes: Sequence[Pass]) -> str:
    """Return which of `RUNTIMES` the passes predict."""
    for runtime, added in _RUNTIME_PASSES.items():
        if any(is_a(p, added) for p in passes):
            return runtime
    return "eager"


def _configured(request: PassRequest, options: Options, *, compiled: bool) -> Pass:
    """Make a pass as the options say, except where its own text says otherwise.

    Inductor fuses what a source spells out; attention it knows by its pattern
    (`fx_passes/fuse_attention.py`).
    """
    if is_a(request.cls, "lower-kernels"):
        return request.make(
            inputs=options.inputs,
            tf32=options.dtype == "tf32",
            spelled_out=not compiled,
        )
    if is_a(request.cls, "overhead"):
        return request.make(profile=options.overheads or "")
    return request.make()


def _insert(passes: list[Pass], extra: PassRequest) -> None:
    """Give its options to the pass of that class, or run as early as facts allow.

    That is behind every pass that provides, or changes, what it reads.
    """
    for index, p in enumerate(passes):
        if type(p) is extra.cls:
            passes[index] = extra.update(p)
            return
    added = extra.make()
    sources = [i for i, p in enumerate(passes) if p.provides & added.requires]
    passes.insert(sources[-1] + 1 if sources else 0, added)


def _run(
    model: Model,
    target: Target,
    passes: Sequence[Pass],
    instruments: Sequence[Instrument],
) -> Report:
    """Run the back pipeline and wrap what it finds."""
    runtime = _runtime(passes)
    manager = PassManager(passes, instruments, given=GIVEN)
    provided = {key for p in passes for key in p.provides}
    for key in (CRITICAL_PATH, INTERVAL):
        if key not in provided:
            msg = (
                f"the pipeline ends without {key}; `perfc passes` says who provides it"
            )
            raise PipelineError(msg)
    scenario = Scenario(
        target.name,
        target.spec_sha256,
        runtime,
        model.program.bound,
        format_pipeline(passes),
    )
    facts = model.annotations.fork()
    analysis = manager.run(model.program, target, scenario, facts)
    profile = next((p.profile for p in passes if is_a(p, "overhead")), "")
    tf32 = any(p.tf32 for p in passes if is_a(p, "lower-kernels"))
    if tf32 and "tf32" not in target.device.flops_per_s:
        tf32, message = (
            False,
            f"{target.name} has no TF32: products are fp32, as in PyTorch",
        )
        remark = Diagnostic(Level.NOTE, "no-tf32", message, target.name)
        analysis = attrs.evolve(analysis, diagnostics=(*analysis.diagnostics, remark))
    dtype = model.dtype or ("tf32" if tf32 else "")
    changes = () if _is_given(model) else _variants(model, target, passes)
    profile = profile or load_profile(target.host.overheads).name
    placed = "" if _is_given(model) else _inputs_from(target, passes)
    return Report(model, target, runtime, dtype, profile, analysis, changes, placed)


def _inputs_from(target: Target, passes: Sequence[Pass]) -> str:
    """Return where inputs are; a CPU has them where it computes."""
    said = next((p.inputs for p in passes if is_a(p, "lower-kernels")), "")
    return "device" if said and target.device.synchronous else said


def _is_given(model: Model) -> bool:
    """Whether any launches are the source's own."""
    return any(rank.launches is not None for rank in model.program.classes)


def _variants(model: Model, target: Target, passes: Sequence[Pass]) -> list[Variant]:
    """Return what could be changed; of a CPU, or of other passes' launches, nothing."""

    def again(changed: Model, name: str) -> float:
        added = _with(passes, name) if name else passes
        return _run(changed, target, added, ()).time_us

    lowered = any(is_a(p, "lower-kernels") for p in passes)
    if target.device.synchronous or not lowered:
        return []
    found = launch_variants(model, again)
    if _runtime(passes) != "cudagraph":
        found.append(graph_variant(model, again))
    return found
