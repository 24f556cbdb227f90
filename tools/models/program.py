"""Reading what the user names as a program: a file, or a built-in workload."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    NoReturn,
    Protocol,
    TypeGuard,
    cast,
    runtime_checkable,
)

import attrs

from perfc.ir import PerfcError, UsageError, support
from perfc.ir.copying import bound_copy
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
    """Read a file with the frontend of its suffix, or build a workload."""
    path = Path(text)
    if not text:
        msg = "no model is named"
        raise UsageError(msg)
    if path.is_dir():
        from perfc.tools.models.mistaken_model import folder_problem

        raise support.UnsupportedModelError(folder_problem(text))
    suffix = path.suffix.removeprefix(".")
    known = support.plugin_names(support.FRONTENDS)
    if suffix not in known or not path.is_file():
        from perfc.frontends import workloads

        if workloads.find_workload(text) is not None:
            return workloads.build_workload(text)
        _refuse(text, path, known)
    frontend = support.load_plugin(support.FRONTENDS, suffix)
    if not isinstance(frontend, _FrontendClass):
        msg = f"frontend {suffix!r} is not callable: {frontend!r}"
        raise PerfcError(msg)
    reader = frontend()
    with support.plugin_at_work(f"frontend {suffix!r}", reader):
        return reader.load(path)


def _refuse(text: str, path: Path, known: Sequence[str]) -> NoReturn:
    """Say what to give instead of a name that nothing has, or that is not read."""
    from perfc.frontends import workloads
    from perfc.tools.models import mistaken_model

    suffix, elsewhere = path.suffix[1:], mistaken_model.is_elsewhere(text)
    if suffix in known and not elsewhere:
        raise support.UnsupportedModelError(mistaken_model.missing_file(path))
    if not (suffix or path.exists() or elsewhere):
        workloads.build_workload(text)
    raise UsageError(mistaken_model.file_problem(text, known))


def is_onnx(model: object) -> TypeGuard[OnnxModel]:
    """Whether *model* is an `onnx.ModelProto`, in memory."""
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(model, onnx.ModelProto)


def read_onnx(model: OnnxModel) -> Program:
    """Read an `onnx.ModelProto` as its file would be read."""
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
