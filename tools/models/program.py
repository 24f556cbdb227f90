"""Reading what the user names as a program: a file, or a built-in workload."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast, runtime_checkable

import attrs

from perfc.ir import PerfcError, UsageError
from perfc.ir.copying import bound_copy
from perfc.ir.support import (
    FRONTENDS,
    UnsupportedModelError,
    load_plugin,
    plugin_at_work,
    plugin_names,
)
from perfc.passes.control_flow import has_control_flow

if TYPE_CHECKING:
    from perfc.frontends.protocol import Frontend
    from perfc.ir import Program


_FACTORY = re.compile(r"(.+\.py|[^\W\d][\w.]*):([^\W\d]\w*)")


@runtime_checkable
class _FrontendClass(Protocol):
    def __call__(self) -> Frontend: ...


class OnnxModel(Protocol):
    """An `onnx.ModelProto`; onnx is imported by whoever has one."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Return the bytes of its file."""
        ...


def is_factory(text: str) -> bool:
    """Whether *text* names a function: `file.py:factory` or `pkg.mod:factory`."""
    if _FACTORY.fullmatch(text) is None:
        return False
    from perfc.frontends import find_workload

    return find_workload(text) is None


def read_program(text: str) -> Program:
    """Read a file with the frontend of its suffix, or build a workload.

    Raises:
        UsageError: nothing has this name, or no frontend reads this suffix.
        UnsupportedModelError: the file does not exist or is damaged.

    """
    path = Path(text)
    if not text or path.is_dir():
        msg = f"{text}: is a folder, not a model file" if text else "no model is named"
        raise UnsupportedModelError(msg) if text else UsageError(msg)
    suffix = path.suffix.removeprefix(".")
    is_file = suffix in plugin_names(FRONTENDS) and path.is_file()
    if not is_file:
        from perfc.frontends import workloads

        if workloads.find_workload(text) is not None or not (suffix or path.exists()):
            return workloads.build_workload(text)
    if suffix not in plugin_names(FRONTENDS):
        known = ", ".join(f".{name}" for name in plugin_names(FRONTENDS))
        what = f"{path.suffix} files" if suffix else "files without a suffix"
        msg = f"{text}: no frontend reads {what}; known: {known}, and `perfc models`"
        if suffix.removesuffix(":") == "py":
            msg = f"{text}: say which function makes the model: {path.stem}.py:NAME"
        raise UsageError(msg)
    if not path.is_file():
        msg = f"{text}: no such file"
        raise UnsupportedModelError(msg)
    frontend = load_plugin(FRONTENDS, suffix)
    if not isinstance(frontend, _FrontendClass):
        msg = f"frontend {suffix!r} is not callable: {frontend!r}"
        raise PerfcError(msg)
    reader = frontend()
    with plugin_at_work(f"frontend {suffix!r}", reader):
        return reader.load(path)


def is_onnx(model: object) -> TypeGuard[OnnxModel]:
    """Whether *model* is an `onnx.ModelProto`, in memory."""
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(model, onnx.ModelProto)


def read_onnx(model: OnnxModel) -> Program:
    """Read an `onnx.ModelProto` as its file would be read.

    Raises:
        UnsupportedModelError: it is damaged, or too large to be written down.

    """
    from perfc.frontends.onnx import OnnxFrontend

    return OnnxFrontend().read(cast("Any", model))


def copied_program(program: Program) -> Program:
    """Return a program whose op graphs are copies, which passes may change."""
    classes = tuple(
        rank if rank.ops is None else attrs.evolve(rank, ops=bound_copy(rank.ops, {}))
        for rank in program.classes
    )
    return attrs.evolve(program, classes=classes)


def depends_on_numbers(program: Program) -> bool:
    """Whether symbols of the inputs may decide which ops run."""
    return any(
        rank.ops is not None
        and has_control_flow(rank.ops)
        and any(v.type is not None and v.type.symbols() for v in rank.ops.inputs)
        for rank in program.classes
    )
