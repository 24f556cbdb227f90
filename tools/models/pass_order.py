"""What an iteration is: a forward pass, or a step of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from perfc.ir import Diagnostic, Program, UsageError
from perfc.ir.support import Level
from perfc.passes import Pass, Transform, embeddings, parallel, pipelines, training
from perfc.passes.graphs import (
    has_optimizer,
    is_training_step,
)
from perfc.passes.pipeline_spec import format_pipeline, make_pass, read_pipeline
from perfc.tools.given import WIDE_DTYPES, check_known
from perfc.tools.models.rank_options import check_shared, made_passes
from perfc.tools.request import CAPTURED, INFERENCE, MODES, TRAINING, Request

if TYPE_CHECKING:
    from perfc.passes.precision import ConvertDtype


def asked_passes(
    request: Request, written: list[Pass] | None
) -> tuple[list[Pass], list[str]]:
    """Return the passes of a request that change its model, and the others.

    Args:
        request: What is asked for.
        written: The passes of its pipeline that load a model, if that has them.

    """
    texts = sorted(request.popularity.items(), key=lambda item: not item[0])
    popular = [embeddings.SetPopularity(text, table) for table, text in texts]
    if written is not None:
        _check_written([*popular, *request.transforms], written)
        return written, list(request.passes)
    transforms, others = split_passes(
        *(request.passes, request.ranks, request.accumulate),
        captured=request.runtime == CAPTURED,
    )
    asked = [
        *pruning(request.prune),
        *conversions(request.dtype, narrow=True),
        *narrowings(request.dtype, request.mode),
        *transforms,
        *request.transforms,
    ]
    return [*popular, *_accumulated(asked, request.accumulate)], others


def _accumulated(transforms: Sequence[Pass], count: int | None) -> Sequence[Pass]:
    """Return *transforms* with the pass that makes a step of *count* microbatches."""
    said = [p for p in transforms if p.microbatches]
    if len(said) > 1:
        names = " and ".join(p.name for p in said)
        msg = f"{names} both say how many microbatches a step has: leave one out"
        raise UsageError(msg)
    if count is not None and said and said[0].microbatches != count:
        msg = (
            f"--accumulate {count} beside {format_pipeline(said)}: expected the same "
            "number of microbatches, or one of the two alone"
        )
        raise UsageError(msg)
    if count in (None, 1) or said:
        return transforms
    added = make_pass("accumulate-gradients", f"microbatches={count}")
    return [*transforms, added]


def microbatches_of(transforms: Sequence[Pass]) -> int:
    """Return how many microbatches a rank computes, each of the model's own batch."""
    counts = [
        p.microbatches
        for p in transforms
        if isinstance(p, training.AccumulateGradients)
    ]
    return max(counts, default=1)


def check_step(request: Request, transforms: Sequence[Pass]) -> None:
    """Refuse the passes of a pipeline that lack the step that a request asks for.

    A recording has its types and its backward pass without passes.
    """
    wanted: list[Pass] = [
        *pruning(request.prune),
        *conversions(request.dtype, narrow=True),
        *narrowings(request.dtype, request.mode),
    ]
    optimizer, count = request.optimizer, request.accumulate
    said = max((p.microbatches for p in transforms), default=0) or 1
    if count not in (None, said):
        wanted.append(make_pass("accumulate-gradients", f"microbatches={count}"))
    if request.mode == TRAINING and not pipelines.trains(transforms):
        wanted.append(make_pass("training"))
    elif optimizer is not None:
        wanted += [
            attrs.evolve(p, optimizer=optimizer)
            for p in transforms
            if isinstance(p, training.Training)
        ]
    _check_written(wanted, transforms)


def _check_written(asked: Sequence[Pass], written: Sequence[Pass]) -> None:
    """Refuse a pipeline that lacks what other options ask for."""
    wanted = [format_pipeline([p]) for p in asked if p not in written]
    if wanted:
        msg = f"--pipeline has no {wanted[0]}, which another option asks for"
        raise UsageError(msg)


def pruning(share: float | None) -> list[Pass]:
    """Return the passes that take away a share of the channels: none for 0."""
    return [make_pass("prune-channels", f"share={share!r}")] if share else []


NARROW_BASES: Mapping[str, str] = {
    "fp8": "bf16",
    "mxfp8": "bf16",
    "int8": "fp16",
    "w8a16": "fp16",
    "w4a16": "fp16",
}
"""What the rest of a model computes in whose linear layers have fewer bits."""


def narrowings(dtype: str, mode: str) -> list[Transform]:
    """Return the passes that give linear layers fewer than 16 bits, once converted.

    Scales are found as the model runs: nobody has calibrated it.
    """
    if dtype not in NARROW_BASES:
        return []
    from perfc.passes import precision

    if mode == INFERENCE:
        return [precision.Quantize(linear=dtype, activations="dynamic")]
    if dtype == "fp8":
        return [precision.TrainFp8()]
    if dtype == "mxfp8":
        return [precision.TrainFp8(scaling="block")]
    msg = (
        f"dtype {dtype!r} is for inference: gradients of weights of few bits make no "
        "sense; train in fp8, mxfp8, or 16 bits"
    )
    raise UsageError(msg)


def conversions(dtype: str, *, narrow: bool = False) -> list[ConvertDtype]:
    """Return the passes that make a model compute in *dtype*: none for 32 bits.

    Args:
        dtype: What `--dtype` takes.
        narrow: Whether who asks adds `narrowings`, too.

    """
    if not dtype or dtype in WIDE_DTYPES:
        return []
    from perfc.passes import precision

    if dtype in NARROW_BASES and not narrow:
        msg = (
            f"dtype {dtype!r} is taken by perfc analyze, quantize, and perfc.load; "
            f"here it is one of {', '.join((*WIDE_DTYPES, *precision.LOW_DTYPES))}"
        )
        raise UsageError(msg)
    dtype = NARROW_BASES.get(dtype, dtype)
    to = dtype.removeprefix("amp-")
    if to not in precision.LOW_DTYPES:
        return []
    return [precision.ConvertDtype(to, autocast=to != dtype)]


def split_passes(
    texts: Sequence[str],
    ranks: int | None = None,
    accumulate: int | None = None,
    *,
    captured: bool = False,
) -> tuple[list[Pass], list[str]]:
    """Take apart what `--pass` says: what `load` needs, and what `analyze` does.

    Transforms change the graph, once for all targets, so they belong to loading. Those
    that share a model have *ranks* where they do not say theirs, and those that
    accumulate gradients *accumulate* microbatches; in a step that is *captured* as a
    CUDA graph bags have fixed lengths.
    """
    requests = [request for text in texts for request in read_pipeline(text)]
    made = made_passes(requests, ranks, accumulate, captured=captured)
    transforms: list[Pass] = [p for p in made if isinstance(p, Transform)]
    others = [
        request.text
        for p, request in zip(made, requests, strict=True)
        if not isinstance(p, Transform)
    ]
    return transforms, others


def check_mode(mode: str, optimizer: str | None) -> None:
    """Refuse a mode that is none, and an optimizer of nothing."""
    check_known("mode", mode, MODES)
    if mode == INFERENCE and optimizer is not None:
        msg = f"optimizer {optimizer!r} needs mode training (--mode training)"
        raise UsageError(msg)


def training_passes(
    mode: str, optimizer: str | None, transforms: Sequence[Pass]
) -> Sequence[Pass]:
    """Return *transforms* with the pass that *mode* asks for, set to *optimizer*."""
    check_mode(mode, optimizer)
    if pipelines.is_whole(transforms):
        return transforms
    if mode == TRAINING and not pipelines.trains(transforms):
        transforms = pipelines.with_backward(transforms, make_pass("training"))
    if optimizer is not None:
        transforms = [
            attrs.evolve(p, optimizer=optimizer)
            if isinstance(p, training.Training)
            else p
            for p in transforms
        ]
    return pipelines.completed(transforms)


def parallel_passes(ranks: int | None, transforms: Sequence[Pass]) -> Sequence[Pass]:
    """Return *transforms* with the one that fills *ranks* ranks with replicas.

    A `data-parallel` that says nothing of ranks is told how many there are.
    """
    if pipelines.is_whole(transforms):
        return transforms
    return pipelines.completed(_replicated(ranks, transforms))


def _replicated(ranks: int | None, transforms: Sequence[Pass]) -> Sequence[Pass]:
    if ranks is None:
        return transforms
    if ranks < 1:
        msg = f"ranks={ranks}: expected at least 1"
        raise UsageError(msg)
    check_shared(ranks, transforms)
    replicas = parallel.DataParallel
    told = [
        attrs.evolve(p, world=ranks)
        if isinstance(p, replicas) and not (p.ranks or p.world)
        else p
        for p in transforms
    ]
    if any(isinstance(p, replicas) for p in told):
        return told
    return [*told, replicas(world=ranks)]


def check_recorded(name: str, mode: str, transforms: Sequence[Pass]) -> None:
    """Refuse passes that do not go with a backward pass that PyTorch recorded.

    They change forward, or run it several times.
    """
    if mode == TRAINING and any(
        isinstance(p, training.AccumulateGradients) for p in transforms
    ):
        msg = (
            f"{name} is recorded with PyTorch's own backward pass: write the loop over "
            "microbatches yourself (perfc.from_torch(..., step=...)), let perfc derive "
            "backward (--pass training, without --mode training), or save "
            "torch.export.export(module, arguments) as a .pt2 file and give that"
        )
        raise UsageError(msg)
    sharing = [p for p in transforms if isinstance(p, Transform) and p.shares]
    if mode == TRAINING and sharing:
        msg = (
            f"{name} is recorded with PyTorch's own backward pass, and "
            f"{sharing[0].name} changes forward: let perfc derive backward (--pass "
            "training after it, without --mode training), or save torch.export.export("
            "module, arguments) as a .pt2 file and give that"
        )
        raise UsageError(msg)


def check_ranks(wanted: int | None, found: int) -> None:
    """Refuse passes that run a model on another number of ranks than was asked for."""
    if wanted not in (None, found):
        msg = (
            f"{wanted} ranks are asked for (--ranks), but the passes run the model on "
            f"{found}; leave one of the two out"
        )
        raise UsageError(msg)


def remarked(program: Program) -> Program:
    """Say so where the source of a model is a training step."""
    steps = [r.ops for r in program.classes if r.ops and is_training_step(r.ops)]
    if not steps:
        return program
    message = f"{program.name} is a training step, not an inference: it is analyzed "
    message += (
        "whole, with its optimizer"
        if any(map(has_optimizer, steps))
        else "without an optimizer, which it has not; add one with --mode training "
        "--optimizer NAME"
    )
    note = Diagnostic(Level.NOTE, "training-step", message)
    return attrs.evolve(program, diagnostics=(*program.diagnostics, note))


def dtype_of(transforms: Sequence[Pass]) -> str:
    """Return the dtype that transforms convert a model to; empty if none do."""
    return next((p.converts_to for p in reversed(transforms) if p.converts_to), "")


def computes_in(transforms: Sequence[Pass]) -> str:
    """Return the dtype that transforms let a model compute in, FSDP's as well."""
    gathered = next((p.param_dtype for p in reversed(transforms) if p.param_dtype), "")
    return dtype_of(transforms) or gathered
