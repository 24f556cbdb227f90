"""Archives as `torch.export.save` writes them: by hand, and by PyTorch."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MEMBER = "small/models/model.json"


def archive(model: object, member: str = MEMBER) -> bytes:
    """Pack a description; one that is bytes goes in as it is."""
    data = model if isinstance(model, bytes) else json.dumps(model).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in (("small/archive_format", b"pt2"), (member, data)):
            packed.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def meta(*sizes: int | str, dtype: int = 7, layout: int = 7) -> dict[str, Any]:
    """Describe a tensor; a size that is text is an expression."""
    return {
        "dtype": dtype,
        "sizes": [
            {"as_int": s} if isinstance(s, int) else {"as_expr": {"expr_str": s}}
            for s in sizes
        ],
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [],
        "storage_offset": {"as_int": 0},
        "layout": layout,
    }


def tensor(name: str) -> dict[str, Any]:
    """Refer to a tensor."""
    return {"as_tensor": {"name": name}}


def node(
    target: str, inputs: Mapping[str, object], *outputs: str, **metadata: str
) -> dict[str, Any]:
    """Write a call of an op."""
    return {
        "target": f"torch.ops.{target}",
        "inputs": [{"name": n, "arg": a, "kind": 1} for n, a in inputs.items()],
        "outputs": [tensor(name) for name in outputs],
        "metadata": metadata,
        "name": outputs[0] if outputs else "node",
    }


def small_model() -> dict[str, Any]:
    """Describe a linear layer, a view of a symbolic size, and a join."""
    sizes = {"as_sym_ints": [{"as_name": "sym_size_int"}, {"as_int": 4}]}
    stack = "L__self__,,m.Net;L__self___fc,fc,torch.nn.modules.linear.Linear"
    linear = {"input": tensor("x"), "weight": tensor("p_w"), "bias": tensor("p_b")}
    nodes = [
        node(
            "aten.linear.default",
            linear,
            "y",
            nn_module_stack=stack,
            stack_trace='File "net.py", line 7, in forward\n    return self.fc(x)',
        ),
        node("aten.view.default", {"self": tensor("y"), "size": sizes}, "v"),
        node(
            "aten.cat.default",
            {
                "tensors": {"as_tensors": [{"name": "v"}, {"name": "v"}]},
                "dim": {"as_int": 1},
            },
            "z",
        ),
    ]
    tensors = {
        "x": meta("s0", 3),
        "p_w": meta(4, 3),
        "p_b": meta(4),
        "y": meta("s0", 4),
        "v": meta("s0", 4),
        "z": meta("s0", 8),
    }
    hint = {"as_int": 2}
    size = {"as_expr": {"expr_str": "s0", "hint": hint}}
    specs = [
        {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "fc.weight"}},
        {"parameter": {"arg": {"name": "p_b"}, "parameter_name": "fc.bias"}},
        {"user_input": {"arg": tensor("x")}},
    ]
    return {
        "graph_module": {
            "graph": {
                "inputs": [tensor(n) for n in ("p_w", "p_b", "x")],
                "outputs": [tensor("z")],
                "nodes": nodes,
                "tensor_values": tensors,
                "sym_int_values": {"sym_size_int": size},
                "sym_bool_values": {},
            },
            "signature": {
                "input_specs": specs,
                "output_specs": [{"user_output": {"arg": tensor("z")}}],
            },
            "module_call_graph": [],
        },
        "opset_version": {"aten": 10},
        "range_constraints": {"s0": {"min_val": 2, "max_val": None}},
        "schema_version": {"major": 8, "minor": 20},
    }


_JOINT_OUTPUTS = [
    {"loss_output": {"arg": {"name": "loss"}}},
    {"gradient_to_parameter": {"arg": {"name": "g"}, "parameter_name": "w"}},
]


def joint_model() -> dict[str, Any]:
    """Describe `relu(x w).mean()` and its gradient."""
    model = small_model()
    graph, signature = (model["graph_module"][n] for n in ("graph", "signature"))
    matmul = {"self": tensor("x"), "mat2": tensor("p_w")}
    graph["nodes"] = [
        node("aten.mm.default", matmul, "y"),
        node("aten.relu.default", {"self": tensor("y")}, "r"),
        node("aten.alias.default", {"self": tensor("r")}, "saved"),
        node("aten.mean.default", {"self": tensor("r")}, "loss"),
        node("aten.expand.default", {"self": tensor("loss")}, "e"),
        node("aten.alias.default", {"self": tensor("saved")}, "kept"),
        node(
            "aten.threshold_backward.default",
            {"grad_output": tensor("e"), "self": tensor("kept")},
            "d",
        ),
        node("aten.permute.default", {"self": tensor("x"), "dims": _AXES}, "t"),
        node("aten.mm.default", {"self": tensor("t"), "mat2": tensor("d")}, "g"),
    ]
    rows = {n: meta(6, 4) for n in ("y", "r", "saved", "kept", "e", "d")}
    graph["tensor_values"] = {
        **rows,
        "x": meta(6, 3),
        "t": meta(3, 6),
        "p_w": meta(3, 4),
        "g": meta(3, 4),
        "loss": meta(),
    }
    graph["sym_int_values"] = {}
    signature["input_specs"] = [signature["input_specs"][i] for i in (0, 2)]
    signature["output_specs"] = _JOINT_OUTPUTS
    return model


_AXES = {"as_ints": [1, 0]}


def write(path: Path, model: object, member: str = MEMBER) -> Path:
    """Write an archive; return its path."""
    path.write_bytes(archive(model, member))
    return path
