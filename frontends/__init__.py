"""Frontends lower models of other formats to programs.

What needs PyTorch is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from perfc.frontends.protocol import Frontend
from perfc.frontends.text import TextFrontend
from perfc.frontends.workloads import (
    WORKLOADS,
    Workload,
    build_workload,
    find_workload,
    widths_of,
)

if TYPE_CHECKING:
    from perfc.frontends.aten.recorded import NotRecordedError, RecordedGraph
    from perfc.frontends.madmax import MadMaxStep
    from perfc.frontends.madmax_strategy import Strategy, read_strategy, strategies
    from perfc.frontends.torch import (
        CustomStep,
        Label,
        Loss,
        Made,
        Optimizer,
        Source,
        capture_factory,
        capture_module,
        given_sizes,
        is_exported,
        loss_of,
        make_optimizer,
        raised_by,
        read_exported,
        run_factory,
        settled_loss,
    )
    from perfc.frontends.torch.embedding_bag_op import TRANSLATION
    from perfc.frontends.torch.onnx_file import weightless_onnx

__all__ = [
    "TRANSLATION",
    "WORKLOADS",
    "CustomStep",
    "Frontend",
    "Label",
    "Loss",
    "MadMaxStep",
    "Made",
    "NotRecordedError",
    "Optimizer",
    "RecordedGraph",
    "Source",
    "Strategy",
    "TextFrontend",
    "Workload",
    "build_workload",
    "capture_factory",
    "capture_module",
    "find_workload",
    "given_sizes",
    "is_exported",
    "loss_of",
    "make_optimizer",
    "raised_by",
    "read_exported",
    "read_strategy",
    "run_factory",
    "settled_loss",
    "strategies",
    "weightless_onnx",
    "widths_of",
]

_HOMES = {
    "NotRecordedError": "perfc.frontends.aten.recorded",
    "RecordedGraph": "perfc.frontends.aten.recorded",
    "MadMaxStep": "perfc.frontends.madmax",
    "Strategy": "perfc.frontends.madmax_strategy",
    "read_strategy": "perfc.frontends.madmax_strategy",
    "strategies": "perfc.frontends.madmax_strategy",
    "TRANSLATION": "perfc.frontends.torch.embedding_bag_op",
    "weightless_onnx": "perfc.frontends.torch.onnx_file",
}
"""Where what does not lie in `perfc.frontends.torch` is: ops of traces and the rules of
MAD-Max, which need no PyTorch, and what needs its ONNX exporter besides."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    home = _HOMES.get(name, "perfc.frontends.torch")
    found: object = getattr(import_module(home), name)
    return found
