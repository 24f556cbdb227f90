"""Modules to small ONNX files: the graph and the sizes of the weights, no weights.

A 100 GB model becomes some hundred kilobytes. What the weights would say lies in a
file that nobody writes, which ONNX calls external data.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Generator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx_ir
import torch
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

from perfc.frontends.torch.embedding_bag_op import TRANSLATION
from perfc.frontends.torch.guards import is_list
from perfc.frontends.torch.weightless import Copier
from perfc.ir.support import UnsupportedModelError

WEIGHTS_FILE = "weights.bin"
_EXPORT: Any = vars(torch.onnx)["export"]  # its types are partly unknown
_SMALL = 1024
"""Elements of a weight that the exporter looks into: it merges equal ones."""

_STUBBED_BYTES = 4096
"""A larger weight is left out of the file."""


def weightless_onnx(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    opset: int | None = None,
) -> bytes:
    """Return an ONNX file of a module's forward pass, in evaluation mode.

    The module is only read. It may be on `meta`, and so may its arguments. Embedding
    bags are written as `perfc::EmbeddingBag`; the exporter folds batch norms into
    the convolutions before them.

    Args:
        module: What to export.
        args: Arguments of its forward.
        kwargs: More of them, by name.
        dynamic_shapes: Which sizes stay open, as `torch.export.export` takes it.
        opset: ONNX opset; the exporter's default if None.

    """
    if not isinstance(cast("object", module), torch.nn.Module):
        msg = f"expected a torch.nn.Module to export, got {module!r:.60}"
        raise UnsupportedModelError(msg)
    if not is_list(args):
        args = (args,)
    copied = Copier().copy(module, type(module).__name__).eval()
    # Make fake what is large, and real what the exporter looks into.
    # Small weights are all different: equal ones would be merged.
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made: dict[torch.Tensor, torch.Tensor] = {}
    for part in copied.modules():
        own = (
            *part.named_parameters(recurse=False),
            *part.named_buffers(recurse=False),
        )
        for name, tensor in own:
            if tensor not in made:
                made[tensor] = _with_elements(tensor, mode)
            setattr(part, name, made[tensor])
    tensors = pytree.tree_map_only(
        torch.Tensor, _real, (tuple(args), dict(kwargs or {}))
    )
    with _quiet():
        try:
            exported = torch.export.export(
                copied, *tensors, dynamic_shapes=dynamic_shapes, strict=False
            )
            program = _EXPORT(
                exported,
                dynamo=True,
                optimize=False,
                verbose=False,
                opset_version=opset,
                custom_translation_table=TRANSLATION,
            )
        except Exception as error:
            raise _refused(module, error) from error
        # Put one repeated number, which takes no memory, for fake weights.
        # The exporter's optimizer computes with weights, to fold batch norms.
        model = program.model
        for name, value in model.graph.initializers.items():
            weight = value.const_value
            if (
                weight is None
                or weight.size <= _SMALL
                or not weight.dtype.is_floating_point()
            ):
                continue
            number = np.asarray(0.5, dtype=weight.dtype.numpy())
            spread = np.broadcast_to(number, weight.shape.numpy())
            value.const_value = onnx_ir.Tensor(spread, dtype=weight.dtype, name=name)
        program.optimize()
    _stub(program.model)
    data: bytes = onnx_ir.serde.serialize_model(program.model).SerializeToString()
    return data


def _with_elements(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    if tensor.is_floating_point() and tensor.numel() > _SMALL:
        with mode:
            made = torch.empty(tensor.shape, dtype=tensor.dtype)
    else:
        made = _real(tensor)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=False)
    return made


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of this size with elements: its own, if it has any."""
    if tensor.device.type == "cpu" and type(tensor) is torch.Tensor:
        return tensor
    if tensor.is_floating_point():
        return torch.rand(tensor.shape).to(tensor.dtype)
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


def _stub(model: onnx_ir.Model) -> None:
    """Leave large weights out of the file."""
    end = 0
    for name, value in model.graph.initializers.items():
        weight = value.const_value
        if weight is None or weight.nbytes <= _STUBBED_BYTES:
            continue
        if not weight.dtype.is_floating_point():
            continue  # a constant of the graph
        value.const_value = onnx_ir.ExternalTensor(
            WEIGHTS_FILE,
            end,
            weight.nbytes,
            weight.dtype,
            shape=onnx_ir.Shape(weight.shape.numpy()),
            name=name,
        )
        end += weight.nbytes


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Keep the exporter's remarks about itself to itself."""
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _refused(module: torch.nn.Module, error: Exception) -> UnsupportedModelError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    problem = lines[0] if lines else type(error).__name__
    msg = f"PyTorch cannot export {type(module).__name__}: {problem}"
    return UnsupportedModelError(msg)
