"""The models of public traces, built again in PyTorch, and what is known of the runs.

Batch sizes and widths are those of the traces' `Input Dims`; where a trace records
none, those of its execution trace, or of another trace of the same network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import kineto
import torch
from torch import Tensor, nn
from torch.nn import functional

from perfc.twins import ResNet50

IMAGES, CLASSES = 32, 1000


@attrs.frozen(kw_only=True)
class Case:
    """A trace, and the run that it is of.

    Attributes:
        name: What the table calls it.
        trace: File below the folder of traces.
        build: Makes the module and its arguments.
        target: The GPU.
        options: How the run is captured: mode, optimizer, loss, dtype.
        lowering: Options of `lower-kernels`.
        iterations: An op that each iteration calls once, if no steps are marked.
        apart: Why an op is no part of the model, by the start of its name or of the
            name of an op around it.

    """

    name: str
    trace: str
    build: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]
    target: str
    options: Mapping[str, Any]
    lowering: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    iterations: str = ""
    apart: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def reason_apart(self, op: kineto.Op) -> str:
        """Return why an op is no part of the model; empty if it is one."""
        around: kineto.Op | None = op
        while around is not None:
            for start, reason in self.apart.items():
                if around.name.startswith(start):
                    return reason
            around = around.parent
        return ""


class Linears(nn.Module):
    """PARAM's example: 21 layers of 1024 x 1024 with relu, and a softmax."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        pairs = [(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(21)]
        self.layers = nn.Sequential(*(layer for pair in pairs for layer in pair))

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities [rows, 1024]."""
        return functional.softmax(self.layers(x), dim=1)


class DenseDlrm(nn.Module):
    """TorchRec's DLRM without its tables: dot products of 27 vectors of 16 numbers.

    What the tables return is a parameter, so that its gradient is computed.
    """

    def __init__(self, batch: int = 16, tables: int = 26, dim: int = 16) -> None:
        """Make both MLPs."""
        super().__init__()
        self.pooled = nn.Parameter(torch.empty(batch, tables, dim))
        vectors = tables + 1
        width = dim + vectors * (vectors - 1) // 2
        self.bottom = _mlp(13, 256, 128, dim)
        self.top = _mlp(width, 512, 512, 256)
        self.last = nn.Linear(256, 1)
        self.places = torch.triu_indices(vectors, vectors, offset=1)

    def forward(self, dense: Tensor) -> Tensor:
        """Return logits [batch]."""
        x = self.bottom(dense)
        vectors = torch.cat([x.unsqueeze(1), self.pooled], dim=1)
        products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
        flat = products[:, self.places[0], self.places[1]]
        out: Tensor = self.last(self.top(torch.cat([x, flat], dim=1)))
        return out.squeeze(-1)


def _mlp(*widths: int) -> nn.Sequential:
    pairs = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    return nn.Sequential(*(layer for pair in pairs for layer in pair))


def _resnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """ResNet-50, the twin of the workload."""
    return ResNet50(), (torch.zeros(IMAGES, 3, 224, 224),)


def _vit() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """ViT-base as `AutoModel` makes it: a pooler, no classes."""
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig()), (torch.zeros(4, 3, 224, 224),)


def _qwen() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Qwen1.5-0.5B as `AutoModel` makes it: no words come out."""
    from transformers import Qwen2Config, Qwen2Model

    config = Qwen2Config(
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=16,
        num_hidden_layers=24,
        vocab_size=151_936,
        use_cache=False,
    )
    config._attn_implementation = _attention_of_2025()  # noqa: SLF001 - as users do
    model = Qwen2Model(config)
    model.rotary_emb = _RotaryOf2025()
    return model, (torch.zeros(16, 559, dtype=torch.long),)


class _RotaryOf2025(nn.Module):
    """Angles as transformers 4.5x computes them: by a matmul of depth one."""

    def __init__(self) -> None:
        super().__init__()
        self.inv_freq = nn.Buffer(torch.empty(32), persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        rows = position_ids.shape[0]
        inverse = self.inv_freq[None, :, None].float().expand(rows, -1, 1)
        matmul = inverse.float() @ position_ids[:, None, :].float()
        angles = torch.cat([matmul.transpose(1, 2)] * 2, dim=-1)
        cos, sin = angles.cos() * 1.0, angles.sin() * 1.0
        return cos.to(dtype=x.dtype), sin.to(dtype=x.dtype)


def _attention_of_2025() -> str:
    """Return the name of attention as transformers 4.5x calls it: with copies."""
    from transformers import AttentionInterface

    def attention(
        module: nn.Module, *heads: Tensor, **_: object
    ) -> tuple[Tensor, None]:
        del module
        q, k, v = (tensor.contiguous() for tensor in heads[:3])
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("copying", attention)
    return "copying"


def _probabilities(logits: Tensor) -> Tensor:
    """Compare with probabilities of classes, as the script of the trace does."""
    return functional.cross_entropy(logits, torch.empty_like(logits))


def _labels(scores: Tensor) -> Tensor:
    labels = torch.empty(scores.shape[0], dtype=torch.long, device=scores.device)
    return functional.cross_entropy(scores, labels)


def _clicks(logits: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, torch.empty_like(logits))


_SINGLE = {"foreach": False}
_GRADIENTS = "gradients are zeroed and added to (zero_grad before PyTorch 2)"
_DDP = "gradients go through the buckets of DistributedDataParallel"
_TABLES = "tables, and what is sent between GPUs for them"

CASES = (
    Case(
        name="ResNet-50 training, V100, PyTorch 1.9",
        trace="resnet50_v100dgxs_tb_nw0_9861.json.gz",
        build=_resnet,
        target="v100",
        options={
            "mode": "training",
            "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9, **_SINGLE),
            "loss": _labels,
        },
        lowering={"fused_bias": False},
        apart={
            "aten::zero_": _GRADIENTS,
            "torch::autograd::AccumulateGrad": _GRADIENTS,
            "aten::to": "inputs are copied to the GPU",
        },
    ),
    Case(
        name="ResNet-50 training, V100, PyTorch 2.3",
        trace="resnet50_v100_hta_ns.json.gz",
        build=_resnet,
        target="v100",
        options={
            "mode": "training",
            "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
            "loss": _probabilities,
        },
        apart={
            "autograd::engine::evaluate_function: torch::autograd::Acc": _DDP,
            "torch.distributed": _DDP,
            "c10d::": _DDP,
            "aten::flatten_dense": _DDP,
            "aten::div": _DDP,
        },
    ),
    Case(
        name="21 x Linear training, RTX 2080 Ti, PyTorch 2.0",
        trace="linear_2080ti_param.json.gz",
        build=lambda: (Linears(), (torch.zeros(512, 1024),)),
        target="rtx-2080ti",
        options={
            "mode": "training",
            "optimizer": partial(torch.optim.SGD, lr=0.1),
            "loss": _labels,
        },
        iterations="aten::cross_entropy_loss",
        apart={
            "aten::zero_": _GRADIENTS,
            "autograd::engine::evaluate_function: torch::autograd::Acc": _GRADIENTS,
        },
    ),
    Case(
        name="ViT-base inference, H100, PyTorch 2.6",
        trace="tl_h100_Falconsai_nsfw_image_detection.json.gz",
        build=_vit,
        target="h100",
        options={"mode": "inference", "dtype": "bf16"},
    ),
    Case(
        name="Qwen1.5-0.5B inference, H100, PyTorch 2.6",
        trace="tl_h100_Qwen_Qwen1.5-0.5B-Chat.json.gz",
        build=_qwen,
        target="h100",
        options={"mode": "inference", "dtype": "bf16"},
    ),
    Case(
        name="DLRM's dense part, training, V100, PyTorch 2.0",
        trace="dlrm_torchrec_8xV100_param/kineto_w0.json.gz",
        build=lambda: (DenseDlrm(), (torch.zeros(16, 13),)),
        target="v100",
        options={
            "mode": "training",
            "optimizer": partial(torch.optim.Adagrad, **_SINGLE),
            "loss": _clicks,
        },
        lowering={"log_sigmoid": False},
        apart={
            "fbgemm::": _TABLES,
            "c10d::": _TABLES,
            "All2All": _TABLES,
            "torch::autograd::CppNode<Split": _TABLES,
            "autograd::engine::evaluate_function: torch::autograd::Cpp": _TABLES,
            "autograd::engine::evaluate_function: torch::autograd::Acc": _DDP,
            "aten::zeros": _TABLES,
            "aten::to": "inputs are copied to the GPU",
        },
    ),
)
"""The traces whose model can be built again."""
