"""Pipelines: what a model goes through until its time is known, and in which order.

The part that loads a model is `FRONT`, which types its graphs and raises what exporters
spelled out, and after it the transforms that a run asks for. These stand in the order
of their phases if perfc adds the training step, else as they are given; what passes say
of each other (`Pass.precedes`) holds in any case. The part that times it is `TIMING`.

The text of both together is a whole pipeline (`perfc analyze --print-pipeline`). One
that is given is run as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs

from perfc.ir import AnyKey, UsageError
from perfc.ir.support import PipelineError
from perfc.passes import pipeline_spec
from perfc.passes.base import Pass, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.shapes import ShapeInference

FRONT = (
    "raise-embedding-bag,resolve-control-flow,shape-inference,fold-shapes,"
    "raise-gradient,raise-linear,raise-activation,raise-norm,raise-attention,"
    "raise-rotary,raise-index"
)
"""What every op graph goes through before anything is asked of it."""

RECORDED = "shape-inference"
"""What the op graph of a recording goes through."""

TIMING = (
    "lower-kernels,kernel-cost,overhead,sustained-clock,stream-schedule,critical-path,"
    "time-interval"
)
"""What turns typed op graphs into a time."""

RUNTIME_PASSES: Mapping[str, str] = {
    "cudagraph": "capture-graph",
    "compiled": "fuse-kernels",
}
"""The pass that makes the launches of a runtime out of eager PyTorch's."""

GIVEN: frozenset[AnyKey] = frozenset({TYPED, ELEMENTS})
"""Facts that every loaded model has."""

_TYPES = "shape-inference"


def loading_pipeline(
    transforms: Sequence[Pass], *, recorded: bool = False
) -> list[Pass]:
    """Return the passes that a model goes through when it is loaded.

    Args:
        transforms: What the run asks for, in order. Transforms of the phase `source`
            take their place in `FRONT`; types are inferred again after others that do
            not preserve them. A list that infers types itself is a whole pipeline,
            and stays as it is.
        recorded: Whether the graph is a recording of PyTorch's own calls.

    """
    if is_whole(transforms):
        check_order(transforms)
        return [*transforms]
    front, late = loading_parts(transforms, recorded=recorded)
    return [*front, *late]


def loading_parts(
    transforms: Sequence[Pass], *, recorded: bool = False
) -> tuple[list[Pass], list[Pass]]:
    """Return those passes in two parts: what any model goes through, and the rest.

    The first is `FRONT`, with transforms of the phase `source`; it leaves types.
    """
    passes = pipeline_spec.parse_pipeline(RECORDED if recorded else FRONT)
    if trains(transforms):
        passes = list(map(_as_called, passes))
    for p in transforms:
        if phase_of(p) is Phase.SOURCE:
            place(passes, p)
    late = [p for p in transforms if phase_of(p) is not Phase.SOURCE]
    return arranged(passes), inferred(late)


def split_pipeline(text: str) -> tuple[list[Pass] | None, str]:
    """Part the text of a pipeline: what loads a model, and the text of what times it.

    A text without transforms is of the latter alone: it loads by None. Else it does by
    the transforms among its passes, if `loading_pipeline` makes those passes of them,
    or by all of its passes.
    """
    requests = pipeline_spec.read_pipeline(text)
    changes = [
        place for place, one in enumerate(requests) if issubclass(one.cls, Transform)
    ]
    if not changes:
        return None, text
    last = requests[changes[-1]]
    typed = [n for n, one in enumerate(requests) if one.cls.name == _TYPES]
    if not typed:
        msg = (
            f"pass {last.cls.name!r} changes the graph, and {_TYPES} is not in "
            "--pipeline: write all of it, as --print-pipeline does, or use --pass"
        )
        raise UsageError(msg)
    end = max(changes[-1], typed[-1]) + 1
    for one in requests[:end]:
        if not issubclass(one.cls, Transform) and one.cls.name != _TYPES:
            msg = (
                f"pass {one.cls.name!r} stands before {requests[end - 1].cls.name!r}, "
                "which changes the graph that it is about: put it after"
            )
            raise UsageError(msg)
    passes = [one.make() for one in requests[:end]]
    front = FRONT.split(",")
    late = [p for p in passes if p.name not in front]
    usual = [loading_pipeline(late, recorded=recorded) for recorded in (False, True)]
    timing = ",".join(one.text for one in requests[end:])
    return (late if passes in usual else passes), timing


def timing_pipeline(
    requests: Sequence[pipeline_spec.PassRequest],
    extras: Sequence[pipeline_spec.PassRequest] = (),
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> list[Pass]:
    """Return the passes that turn typed op graphs into a time.

    Args:
        requests: The pipeline, as its text says it.
        extras: Passes besides; one that is in the pipeline gives it its options.
        settings: Options by name of the pass, where no text says otherwise.

    """
    known = settings or {}
    passes = [one.make(**known.get(one.cls.name, {})) for one in requests]
    for extra in extras:
        same = [n for n, p in enumerate(passes) if type(p) is extra.cls]
        if same:
            passes[same[0]] = extra.update(passes[same[0]])
        else:
            place(passes, extra.make())
    check_order(passes)
    return passes


def runtime_of(passes: Sequence[Pass]) -> str:
    """Return which runtime the passes predict: `eager`, `cudagraph` or `compiled`."""
    made = {p.runtime for p in passes}
    return next((runtime for runtime in RUNTIME_PASSES if runtime in made), "eager")


def is_whole(passes: Sequence[Pass]) -> bool:
    """Whether passes are all that a model goes through when it is loaded."""
    return any(isinstance(p, ShapeInference) for p in passes)


def trains(passes: Sequence[Pass]) -> bool:
    """Whether one of the passes derives a backward pass."""
    return any(phase_of(p) is Phase.DERIVE_BACKWARD for p in passes)


def inferred(transforms: Sequence[Pass]) -> list[Pass]:
    """Return transforms, each with types inferred after it if it changes them."""
    passes: list[Pass] = []
    for p in transforms:
        passes.append(p)
        if isinstance(p, Transform) and not p.preserves >= GIVEN - p.provides:
            passes.append(pipeline_spec.make_pass(_TYPES))
    return passes


def with_backward(transforms: Sequence[Pass], training: Pass) -> list[Pass]:
    """Return *transforms* with the one that derives the backward pass in its place."""
    return sorted([*transforms, training], key=phase_of)


def completed(transforms: Sequence[Pass]) -> list[Pass]:
    """Return *transforms* with what they bring along, in an order that all allow."""
    passes = [*transforms]
    for p in transforms:
        for brought in p.brings(passes) if isinstance(p, Transform) else ():
            place(passes, brought)
    return arranged(sorted(passes, key=lambda p: phase_of(p) is Phase.LAST))


def phase_of(p: Pass) -> Phase:
    """Return the phase of a transform; an analysis may be anywhere after the front."""
    return p.phase if isinstance(p, Transform) else Phase.AFTER_BACKWARD


def place(passes: list[Pass], added: Pass) -> None:
    """Put a pass in the place of one of its class, or as early as it may run.

    That is after every pass that provides, or changes, what it reads, and after those
    that say that they precede it.
    """
    for index, p in enumerate(passes):
        if type(p) is type(added):
            passes[index] = added
            return
    sources = [
        index
        for index, p in enumerate(passes)
        if p.provides & added.requires or p.precedes(added)
    ]
    passes.insert(sources[-1] + 1 if sources else 0, added)


def arranged(passes: Sequence[Pass]) -> list[Pass]:
    """Return passes in their order, but for what they say of each other."""
    left, result = [*passes], list[Pass]()
    while left:
        for index, p in enumerate(left):
            if not _waited_for(p, left):
                result.append(left.pop(index))
                break
        else:
            raise PipelineError(_circle(left))
    return result


def check_order(passes: Sequence[Pass]) -> None:
    """Refuse an order in which a pass stands after one that it has to precede."""
    for index, p in enumerate(passes):
        late = next((q for q in passes[index + 1 :] if q.precedes(p)), None)
        if late is not None:
            msg = f"pass {p.name!r} stands before {late.name!r}, but has to run after"
            raise PipelineError(msg)


def _waited_for(p: Pass, passes: Sequence[Pass]) -> Sequence[Pass]:
    return [q for q in passes if q is not p and q.precedes(p)]


def _circle(passes: Sequence[Pass]) -> str:
    """Name passes each of which has to run before the next, and the last before it."""
    chain = [passes[0]]
    while (before := _waited_for(chain[-1], passes)[0]) not in chain:
        chain.append(before)
    circle = chain[chain.index(before) :]
    names = [repr(p.name) for p in reversed(circle)]
    says = "; ".join(
        f"{p.name!r} has to run before {q.name!r}"
        for p, q in zip(circle, [circle[-1], *circle[:-1]], strict=True)
    )
    return f"passes {' and '.join(names)} cannot be put in an order: {says}"


def _as_called(p: Pass) -> Pass:
    """Let a pass leave alone what the source spells out call by call.

    Its backward pass is that of the calls.
    """
    if "spelled-out" not in pipeline_spec.option_kinds(type(p)):
        return p
    called: Pass = attrs.evolve(cast("Any", p), spelled_out=False)
    return called
