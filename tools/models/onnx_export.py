"""`perfc.export_onnx`: a small ONNX file of a PyTorch module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from perfc.ir import UsageError
from perfc.ir.support import path_text, write_file
from perfc.tools.given import check_options
from perfc.tools.models.torch_source import require_torch


class ExportOptions(TypedDict, total=False):
    """What `perfc.export_onnx` takes by name."""

    dynamic_shapes: Any
    opset: int | None


def export_onnx(
    module: Any,  # noqa: ANN401 - a torch.nn.Module
    args: Sequence[Any],
    path: str | os.PathLike[str],
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[ExportOptions],
) -> None:
    """Write an ONNX file of a module's forward pass, without its weights.

    Needs the extra `perfc[torch]`. The module is only read, and may be on `meta`: a
    model of any size becomes a file of some hundred kilobytes, which `perfc analyze`
    and other tools read as any ONNX file whose weights are stored elsewhere.

    Args:
        module: What to export, in evaluation mode.
        args: Arguments of its forward; tensors may be on `meta`.
        path: The file to write.
        kwargs: More arguments, by name.
        dynamic_shapes: Which sizes stay open, as `torch.export.export` takes it.
        opset: ONNX opset; the exporter's default if None.

    Raises:
        UnsupportedModelError: PyTorch cannot export the module.
        PerfcError: the file cannot be written.

    """
    check_options("perfc.export_onnx", options, ExportOptions)
    if not isinstance(cast("object", kwargs), Mapping | None):
        msg = (
            "perfc.export_onnx takes the arguments of forward as one tuple: write "
            "perfc.export_onnx(module, (a, b), path)"
        )
        raise UsageError(msg)
    file = Path(path_text("path", path))
    require_torch()
    from perfc.frontends.torch import weightless_onnx

    content = weightless_onnx(module, args, kwargs, **options)
    write_file(file, content)
