"""Changes to an iteration that somebody could make; the report says what they gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from perfc.passes import Pass, embeddings, training
from perfc.passes.what_if import waits_for_inputs, waits_inside
from perfc.tools.models import Change
from perfc.tools.reports.results import Results
from perfc.tools.run import Run

CUDA_GRAPH = "capture-graph"

LEAST_SHARE = 0.02
"""An optimizer that takes less of the time is not worth analyzing another one."""

Phases: TypeAlias = Sequence[Mapping[str, Any]]
"""The `phases` of a report."""


@attrs.frozen
class Variant:
    """A change.

    Attributes:
        name: The pass that makes it, as `--pass` takes it.
        what: What a table calls it.
        where: What it is made to.
        reason: A sentence for people.
        changed: Returns the changed run; None if the change comes to nothing.
        applies: Whether what was found gives a reason for it.

    """

    name: str
    what: str
    where: str
    reason: str
    changed: Callable[[Run], Run | None] = attrs.field(repr=False)
    applies: Callable[[Results, Phases], bool] = attrs.field(repr=False)


def variants_of(run: Run) -> tuple[Variant, ...]:
    """Return the possible changes: none of a CPU, or of launches that are given."""
    if not run.is_lowered:
        return ()
    return _LAUNCHES if run.runtime == "cudagraph" else (*_LAUNCHES, _GRAPH)


def _always(_results: Results, _phases: Phases) -> bool:
    return True


def _waits(results: Results, _: Phases) -> bool:
    return any(waits_inside(g) - waits_for_inputs(g) for g in results.graphs)


def _has_optimizer(results: Results, phases: Phases) -> bool:
    time_us = math.fsum(p["time_us"] for p in phases if p["phase"] == "optimizer")
    return bool(time_us > LEAST_SHARE * results.path.time_s * 1e6)


def _has_tables(results: Results, _: Phases) -> bool:
    """Whether several ops look tables up; what that takes is mostly the host's."""
    ops = [op.name for graph in results.graphs for op in graph.ops]
    return ops.count("aten::embedding_bag") > 1


def _with_batched_tables(run: Run) -> Run | None:
    """Batch the tables; those that several ranks keep alike cannot be updated so."""
    if run.model.ranks > 1:
        return None
    return _reloaded(run, _batched)


def _reloaded(run: Run, change: Change) -> Run | None:
    model = run.model.changed(change)
    return None if model is None else attrs.evolve(run, model=model)


def _batched(transforms: Sequence[Pass]) -> Sequence[Pass]:
    return (embeddings.BatchEmbeddings(), *transforms)


def _fused(transforms: Sequence[Pass]) -> Sequence[Pass]:
    """Fuse the optimizer of the step that is derived; nothing if none is."""
    steps = [p for p in transforms if isinstance(p, training.Training) and not p.fused]
    if not steps:
        return ()
    return [
        attrs.evolve(p, fused=True, foreach=True) if p in steps else p
        for p in transforms
    ]


_LAUNCHES = (
    Variant(
        "pin-copies",
        "pinned inputs",
        "copies to the device",
        "the host waits for copies to the device (--pass pin-copies)",
        lambda run: run.with_pass("pin-copies"),
        lambda results, _: any(map(waits_for_inputs, results.graphs)),
    ),
    Variant(
        "remove-syncs",
        "no waits",
        "whole iteration",
        "the host waits for the device before the end (--pass remove-syncs)",
        lambda run: run.with_pass("remove-syncs"),
        _waits,
    ),
    Variant(
        "training{fused=true}",
        "fused optimizer",
        "optimizer",
        "one kernel over all parameters (--pass 'training{fused=true}')",
        lambda run: _reloaded(run, _fused),
        _has_optimizer,
    ),
    Variant(
        "batch-embeddings",
        "batched tables",
        "embedding bags",
        "one lookup kernel for all tables (--pass batch-embeddings)",
        _with_batched_tables,
        _has_tables,
    ),
)
"""Changes to launches that were lowered here."""

_GRAPH = Variant(
    CUDA_GRAPH,
    "CUDA graph",
    "whole iteration",
    "one launch for all kernels, no host time between ops (--runtime cudagraph)",
    lambda run: run.with_pass(CUDA_GRAPH),
    _always,
)
"""The replay as a CUDA graph."""
