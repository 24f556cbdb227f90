"""`perfc.export_onnx`: a small ONNX file of a PyTorch module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfc.ir.support import write_file
from perfc.tools.models.torch_source import require_torch


def export_onnx(  # noqa: PLR0913 - the public call; all but three have defaults
    module: Any,  # noqa: ANN401 - a torch.nn.Module
    args: Sequence[Any],
    path: str | Path,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,  # noqa: ANN401 - what torch.export takes
    opset: int | None = None,
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
    require_torch()
    from perfc.frontends.torch import weightless_onnx  # noqa: PLC0415 - imports PyTorch

    content = weightless_onnx(
        module, args, kwargs, dynamic_shapes=dynamic_shapes, opset=opset
    )
    write_file(Path(path), content)
