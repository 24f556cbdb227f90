"""One way to call both of PyTorch's ONNX exporters."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import onnx
import onnxscript
import torch
from torch import Tensor, nn

VERSIONS = (
    f"torch {torch.__version__.partition('+')[0]}, onnx {onnx.__version__} "
    f"and onnxscript {onnxscript.__version__}"
)

Argument = Tensor | list[Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """A module, its arguments, and what to call their axes.

    `names` and `axes` have one entry per argument: a list argument has the
    name `indices` for `indices_0`, `indices_1` and so on, and `nnz_#` among its
    axes stands for `nnz_0`, `nnz_1`.
    """

    module: nn.Module
    args: tuple[Argument, ...]
    names: tuple[str, ...]
    axes: tuple[dict[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """One file to write."""

    name: str
    about: str
    make: Callable[[], Case]
    exporter: Literal["legacy", "dynamo"]
    opset: int
    dynamic: bool = True
    hash_seed: str = "0"


Translation = dict[Callable[..., Any], Callable[..., Any]]


def export(fixture: Fixture, translation: Translation | None = None) -> onnx.ModelProto:
    """Run the exporter that the fixture asks for, quietly.

    `translation` says how the dynamo exporter writes ops that it should not write
    in its own way.
    """
    torch.manual_seed(0)
    case = fixture.make()
    case.module.eval()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if fixture.exporter == "legacy":
                return _export_legacy(case, fixture)
            return _export_dynamo(case, fixture, translation)
    finally:
        logging.disable(logging.NOTSET)


def _export_legacy(case: Case, fixture: Fixture) -> onnx.ModelProto:
    """Export by tracing to TorchScript."""
    flat = list(_flat_inputs(case))
    file = io.BytesIO()
    torch.onnx.export(
        case.module,
        case.args,
        file,  # type: ignore[arg-type]  # this exporter takes a buffer too
        dynamo=False,
        opset_version=fixture.opset,
        input_names=[name for name, _ in flat],
        output_names=["out"],
        dynamic_axes=dict(flat) if fixture.dynamic else None,
    )
    return onnx.load_from_string(file.getvalue())


def _export_dynamo(
    case: Case, fixture: Fixture, translation: Translation | None
) -> onnx.ModelProto:
    """Export through `torch.export`."""
    program = torch.onnx.export(
        case.module,
        case.args,
        dynamo=True,
        verbose=False,
        opset_version=fixture.opset,
        input_names=[name for name, _ in _flat_inputs(case)],
        output_names=["out"],
        dynamic_shapes=_dynamic_shapes(case) if fixture.dynamic else None,
        custom_translation_table=translation,
    )
    if program is None:
        msg = f"{fixture.name}: the exporter returned nothing"
        raise RuntimeError(msg)
    return program.model_proto


def _flat_inputs(case: Case) -> Iterator[tuple[str, dict[int, str]]]:
    """Name and axes of every tensor among the arguments."""
    for arg, name, axes in zip(case.args, case.names, case.axes, strict=True):
        if isinstance(arg, Tensor):
            yield name, axes
            continue
        for k in range(len(arg)):
            yield f"{name}_{k}", {d: a.replace("#", str(k)) for d, a in axes.items()}


def _dynamic_shapes(case: Case) -> tuple[Any, ...]:
    """Symbols of the axes, nested as the arguments are."""
    flat = iter(_flat_inputs(case))
    shapes: list[Any] = []
    for arg in case.args:
        if isinstance(arg, Tensor):
            shapes.append(_symbols(next(flat)[1]))
        else:
            shapes.append([_symbols(next(flat)[1]) for _ in arg])
    return tuple(shapes)


def _symbols(axes: dict[int, str]) -> dict[int, Any]:
    """Make a symbol for every named axis."""
    return {d: torch.export.Dim(name) for d, name in axes.items()}
