"""`perfc::EmbeddingBag`: the ONNX op that neither exporter of PyTorch has.

They write a loop over bags for it, which perfc recognises; a file with the op says
plainly what is meant. Importing this module makes the op known to `onnx`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import onnx
import torch

DOMAIN = "perfc"
_VALUES: Any = import_module("onnxscript.values")  # its types are unknown
_OPSET: Any = _VALUES.Opset(DOMAIN, 1)
MODES = ("sum", "mean", "max")

_Schema = onnx.defs.OpSchema
_OPTIONAL = _Schema.FormalParameterOption.Optional
onnx.defs.register_schema(
    _Schema(
        "EmbeddingBag",
        DOMAIN,
        1,
        "Rows of `weight` named by `indices`, pooled per bag.",
        inputs=[
            _Schema.FormalParameter("weight", "T", "[rows, dim]"),
            _Schema.FormalParameter("indices", "I", "[lookups], or [bags, lookups]"),
            _Schema.FormalParameter(
                "offsets", "I", "where each bag starts", param_option=_OPTIONAL
            ),
            _Schema.FormalParameter(
                "per_sample_weights", "T", "[lookups]", param_option=_OPTIONAL
            ),
        ],
        outputs=[_Schema.FormalParameter("pooled", "T", "[bags, dim]")],
        type_constraints=[
            ("T", ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"], ""),
            ("I", ["tensor(int64)", "tensor(int32)"], ""),
        ],
        attributes=[
            _Schema.Attribute("mode", _Schema.AttrType.STRING, "sum, mean or max"),
            _Schema.Attribute(
                "include_last_offset",
                onnx.helper.make_attribute("include_last_offset", 0),
                "whether offsets end with the number of lookups",
            ),
            _Schema.Attribute(
                "padding_idx",
                onnx.helper.make_attribute("padding_idx", -1),
                "row that does not count, or -1",
            ),
        ],
    )
)


def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Any, ...]:
    """Write `aten::embedding_bag`; of its four results only the first is used."""
    pooled = _OPSET.EmbeddingBag(
        weight,
        indices,
        offsets,
        per_sample_weights,
        mode=MODES[mode],
        include_last_offset=int(include_last_offset),
        padding_idx=-1 if padding_idx is None else padding_idx,
    )
    return (pooled,) * 4


TRANSLATION: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.embedding_bag.padding_idx: embedding_bag
}
"""What `torch.onnx.export` takes as `custom_translation_table`."""
