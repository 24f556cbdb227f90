"""Places in the model where ops were called: in which modules, by which line.

Profilers tell them in three ways: as calls of Python around an op (`with_stack`,
`with_modules`), as labels of modules, or as arguments of the op itself. A gradient
belongs where the op was called that it is of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfc.traces.events import (
    NOWHERE,
    Frame,
    HostOp,
    Place,
    RuntimeCall,
    Thread,
)

_MODULE = "nn.Module: "
_LINE = re.compile(r"(.+)\(\d+\): ")
_INSTALLED = re.compile(r"^.*/(site|dist)-packages/")
_LIBRARY = re.compile(
    r"^torch/|/torch/(nn|autograd|optim|utils|_|cuda|profiler|distributed|fx|jit)"
    r"|(^|/)lib/python3\.\d+/|^(threading|contextlib|functools)\.py$|^<"
)
"""Files that call for others: PyTorch's own, and those of Python."""

_STACK, _HIERARCHY = "Call stack", "Module Hierarchy"


def frame_name(name: str) -> tuple[str, bool] | None:
    """Return the name that a call of Python is kept as, and whether it is a module.

    None for one that says nothing of the model: PyTorch's own, or built in.
    """
    if name.startswith(_MODULE):
        return name.removeprefix(_MODULE), True
    name = _INSTALLED.sub("", name)
    line = _LINE.match(name)
    return None if line is None or _LIBRARY.search(line[1]) else (name, False)


def stated_place(args: Mapping[str, Any]) -> Place:
    """Return the place that an op's own arguments tell."""
    stack, hierarchy = args.get(_STACK), args.get(_HIERARCHY)
    if not stack and not hierarchy:
        return NOWHERE
    lines = re.split(r"[;\n]", stack) if isinstance(stack, str) else []
    frames = filter(None, map(frame_name, lines))
    sources = (name for name, is_module in frames if not is_module)
    module = hierarchy if isinstance(hierarchy, str) else ""
    return Place(module, next(sources, ""))


def place_ops(
    ops: Sequence[HostOp], calls: Sequence[RuntimeCall], frames: Iterable[Frame]
) -> None:
    """Tell ops where they were called, and gradients where what they are of was.

    Args:
        ops: In the order of their starts, longer ones first.
        calls: Calls of the runtime, in the order of their starts.
        frames: Calls of Python, and of modules, in any order.

    """
    every = [*frames, *_labels(ops)]
    every.sort(key=lambda frame: (frame.start_us, -frame.end_us))
    if every:
        _place_by_frames(ops, every)
        _place_by_frames(calls, every)
    if any(op.place is not NOWHERE for op in ops):
        # Gradients, and what in them is called from the same place, that of their op.
        # They are called where the backward pass is.
        places: dict[int, Place] = {}
        running: dict[Thread, tuple[HostOp, Place]] = {}
        for op in ops:
            around, called = running.get(op.thread, (None, NOWHERE))
            if around is not None and op.start_us < around.end_us:
                op.place = around.place if op.place is called else op.place
            elif op.is_gradient:
                running[op.thread] = op, op.place
                op.place = places.get(op.sequence, op.place)
            elif op.sequence >= 0:
                # the last of a number makes its gradient
                places[op.sequence] = op.place


def _labels(ops: Iterable[HostOp]) -> Iterator[Frame]:
    for op in ops:
        if op.is_label and op.name.startswith(_MODULE):
            name = op.name.removeprefix(_MODULE)
            yield Frame(name, op.start_us, op.end_us, op.thread, is_module=True)


def _place_by_frames(
    events: Iterable[HostOp | RuntimeCall], frames: Sequence[Frame]
) -> None:
    stacks: dict[Thread, list[tuple[float, Place]]] = {}
    at = 0
    for event in events:
        while at < len(frames) and frames[at].start_us <= event.start_us:
            frame = frames[at]
            stack = _running(stacks, frame.thread, frame.start_us)
            stack.append((frame.end_us, _inside(stack, frame)))
            at += 1
        stack = _running(stacks, event.thread, event.start_us)
        if stack and event.place is NOWHERE:
            event.place = stack[-1][1]


def _running(
    stacks: dict[Thread, list[tuple[float, Place]]], thread: Thread, now_us: float
) -> list[tuple[float, Place]]:
    """Return the calls of a thread that have not ended yet."""
    stack = stacks.setdefault(thread, [])
    while stack and stack[-1][0] <= now_us:
        stack.pop()
    return stack


def _inside(stack: Sequence[tuple[float, Place]], frame: Frame) -> Place:
    around = stack[-1][1] if stack else NOWHERE
    if not frame.is_module:
        return Place(around.module, frame.name)
    modules = filter(None, (around.module, frame.name))
    return Place(".".join(modules), around.source)
