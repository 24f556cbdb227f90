"""Classes of kernels, by the names that libraries give them."""

from __future__ import annotations

import re

_CLASSES = (
    ("all_reduce", r"nccl\w*AllReduce"),
    ("all_gather", r"nccl\w*AllGather"),
    ("reduce_scatter", r"nccl\w*ReduceScatter"),
    ("all_to_all", r"nccl\w*(SendRecv|AllToAll)"),
    ("broadcast", r"nccl\w*Broadcast"),
    ("optimizer_step", r"multi_tensor_apply|[Aa]dam|FusedOptimizer"),
    ("attention", r"flash|fmha|attention|mha_"),
    ("embedding_bag", r"[Ee]mbedding"),
    ("batch_norm", r"batch_norm|bn_(fw|bw)"),
    ("layer_norm", r"layer_norm|LayerNorm|RMSNorm"),
    ("softmax", r"[Ss]oft[Mm]ax"),
    ("conv2d", r"conv(?!ert)|winograd|implicit|wgrad|dgrad|fprop|cudnn"),
    ("gemm", r"gemm|gemv|cutlass|xmma|Cijk_|splitK|nvjet|cublas"),
    ("concat", r"CatArray"),
    ("gather", r"index|gather|scatter"),
    ("transpose", r"transpose|nchwToNhwc|nhwcToNchw"),
    ("reduction", r"reduce|pool"),
    ("elementwise", r"elementwise|triton_poi|copy|fill|Functor"),
)
"""What a name has, the first that fits."""

_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)
_PREFIX = re.compile(r"^(void |[\w ]*\banonymous namespace\b\)?::)+")
_ARGUMENTS = re.compile(r"[<(].*")


def kernel_class(name: str) -> str:
    """Return the class of a kernel, as perfc names it; its own name if none fits."""
    found = next((kind for kind, p in _PATTERNS if p.search(name)), "")
    return found or short_name(name)


def short_name(name: str) -> str:
    """Return the name of a kernel without types and arguments."""
    own = _ARGUMENTS.sub("", name.removeprefix("void "))
    return own.rpartition("::")[2] or name[:60]
