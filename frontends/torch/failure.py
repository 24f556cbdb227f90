"""What went wrong in a capture, in one line that says where."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from perfc.frontends.aten import call_label
from perfc.frontends.torch.location import Locations, own_line
from perfc.frontends.torch.meta import UnknownValueError
from perfc.frontends.torch.recorder import Recorder
from perfc.ir import PerfcError
from perfc.ir.location import Location
from perfc.ir.support import UnsupportedModelError

_LONGEST = 300
_LIBRARY = {
    "/torch/nested/": "data decide the sizes of nested tensors, which a capture does "
    "not follow; give it padded tensors",
    "/torch/nn/attention/flex_attention.py": "flex_attention is a kernel that "
    "torch.compile makes, which perfc does not know; call scaled_dot_product_attention",
}
"""Parts of PyTorch that a capture does not follow, and why."""

_NO_RULE = re.compile(r"There was no rule registered for HigherOrderOperator (\w+) ")
"""What PyTorch says of ops that are given functions."""

_CHOICES = frozenset({"cond", "while_loop"})
"""Ops that run one of their functions, or run it repeatedly, as data decide."""

_ON_HOST = "on device cpu is not on the expected device meta"
"""What PyTorch says of tensors of two devices, of which `meta` is the GPU."""


@contextmanager
def explained(recorder: Recorder, name: str) -> Generator[None]:
    """Turn whatever a model raises into an error that names op, module and line."""
    try:
        yield
    except PerfcError:
        raise
    except (Exception, SystemExit) as error:
        target, location = recorder.failed or ("", _raising(recorder.locations, error))
        source = location.source or _raising(recorder.locations, error).source
        module = f"{name}.{location.module}" if location.module else name
        where = ", ".join(filter(None, (location.phase, source)))
        msg = f"{module} ({where}): {_problem(error, target)}"
        raise UnsupportedModelError(msg) from error


def _raising(locations: Locations, error: BaseException) -> Location:
    """Return where a model has raised: the innermost module, and line of its own."""
    frames = [*walk_tb(error.__traceback__)][::-1]
    paths = (locations.path(frame.f_locals.get("self")) for frame, _ in frames)
    module = next((path for path in paths if path is not None), "")
    return Location(module=module, source=own_line(frames), phase=locations.phase)


def _problem(error: BaseException, target: str) -> str:
    label = call_label(target)
    if isinstance(error, UnknownValueError):
        return str(error)
    said = first_line(error)
    unlike = _not_followed(error, said)
    if unlike:
        return unlike
    if isinstance(error, NotImplementedError) and label:
        return (
            f"{label} does not say what it returns on tensors without elements: "
            f"register it with torch.library.register_fake ({said})"
        )
    if _ON_HOST in said:
        return (
            f"{label} is given a tensor on the host, and others on the GPU: make it a "
            "buffer of the module, or move it there"
        )
    raised = f"{type(error).__name__}: {said}".removesuffix(": ")
    return f"{label}: {raised}" if label else raised


def _not_followed(error: BaseException, said: str) -> str:
    """Say what a capture does not follow, if that is why the model was stopped."""
    for path, why in _LIBRARY.items():
        if _raised_in(error, path):
            return why
    given = _NO_RULE.match(said)
    if given is None:
        return ""
    # Let Dynamo, which has begun to compile the op's functions, begin anew.
    # It would refuse them ever after, in `torch.export` too.
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
    name = given[1]
    if name in _CHOICES:
        return f"data decide what torch.{name} runs; call the function that is run"
    return f"a capture does not follow {name}, which is given functions; call them"


def _raised_in(error: BaseException, folder: str) -> bool:
    """Whether a file of PyTorch's, of this path or below it, has a part in an error."""
    trace = error.__traceback__
    while trace is not None:
        if folder in Path(trace.tb_frame.f_code.co_filename).as_posix():
            return True
        trace = trace.tb_next
    return False


def first_line(error: BaseException) -> str:
    """Return the message of an error, in one line of bearable length."""
    return " ".join(str(error).partition("\n\n")[0].split())[:_LONGEST]
