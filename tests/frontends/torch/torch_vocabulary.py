"""Small uses of the modules, functions and optimizers that PyTorch has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn.attention.varlen import varlen_attn

F: Any = nn.functional

ROWS = torch.zeros(3, 8)
VECTORS = torch.zeros(2, 4, 8)
IMAGES = torch.zeros(2, 4, 8, 8)
VOLUMES = torch.zeros(2, 4, 6, 6, 6)
HEADS = torch.zeros(2, 2, 4, 8)
LABELS = torch.zeros(3, dtype=torch.int64)
IDS = torch.zeros(2, 5, dtype=torch.int64)
SIGNS = torch.ones(3)
LENGTHS = torch.tensor([6, 6]), torch.tensor([3, 3])
LIKELY = torch.zeros(6, 2, 5)
"""Log-probabilities [steps, batch, classes]."""

Use = tuple[Callable[..., Any], tuple[Any, ...]]
"""What is called, and on what; the first tensor of real numbers gets a parameter."""

_BY_RANK = (VECTORS, IMAGES, VOLUMES)


def _by_rank(count: int) -> dict[str, Use]:
    """Modules that there are for vectors, images and volumes."""
    x, d = _BY_RANK[count - 1], f"{count}d"
    made: Any = nn
    uses: dict[str, Use] = {
        f"Conv{d}": (getattr(made, f"Conv{d}")(4, 4, 3), (x,)),
        f"ConvTranspose{d}": (getattr(made, f"ConvTranspose{d}")(4, 4, 3), (x,)),
        f"LazyConv{d}": (getattr(made, f"LazyConv{d}")(4, 3), (x,)),
        f"LazyConvTranspose{d}": (getattr(made, f"LazyConvTranspose{d}")(4, 3), (x,)),
        f"LPPool{d}": (getattr(made, f"LPPool{d}")(2, 2), (x,)),
        f"ConstantPad{d}": (getattr(made, f"ConstantPad{d}")(1, 2.0), (x,)),
        f"MaxUnpool{d}": (partial(_unpooled, count), (x,)),
    }
    for kind in ("reflect", "replicate", "circular"):
        conv = getattr(made, f"Conv{d}")(4, 4, 3, padding=1, padding_mode=kind)
        uses[f"Conv{d}-{kind}"] = (conv, (x,))
    for kind in ("MaxPool", "AvgPool"):
        uses[f"{kind}{d}"] = (getattr(made, f"{kind}{d}")(2), (x,))
        uses[f"Adaptive{kind}{d}"] = (getattr(made, f"Adaptive{kind}{d}")(3), (x,))
    for kind in ("BatchNorm", "InstanceNorm"):
        uses[f"{kind}{d}"] = (getattr(made, f"{kind}{d}")(4, affine=True), (x,))
        uses[f"Lazy{kind}{d}"] = (getattr(made, f"Lazy{kind}{d}")(), (x,))
    for kind in ("ReflectionPad", "ReplicationPad", "ZeroPad", "CircularPad"):
        uses[f"{kind}{d}"] = (getattr(made, f"{kind}{d}")(1), (x,))
    return uses


def _unpooled(count: int, x: Tensor) -> Tensor:
    """Pool, and put the maxima back."""
    pool, back = (getattr(F, f"{name}{count}d") for name in ("max_pool", "max_unpool"))
    values, places = pool(x, 2, return_indices=True)
    made: Tensor = back(values, places, 2)
    return made


_ACTIVATIONS = """
ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6
RReLU SELU CELU GELU Sigmoid SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink GLU
Softmin Softmax LogSoftmax Dropout AlphaDropout FeatureAlphaDropout Dropout1d Identity
Flatten
"""
_LOSSES: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            *("L1Loss", "MSELoss", "HuberLoss", "SmoothL1Loss", "SoftMarginLoss"),
            *("PoissonNLLLoss", "KLDivLoss", "BCELoss", "BCEWithLogitsLoss"),
            *("HingeEmbeddingLoss", "MultiLabelSoftMarginLoss"),
        ),
        (ROWS, ROWS),
    ),
    **dict.fromkeys(("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss"), (ROWS, LABELS)),
    "CTCLoss": (LIKELY, IDS[:, :3], *LENGTHS),
    "GaussianNLLLoss": (ROWS, ROWS, ROWS),
    "MarginRankingLoss": (SIGNS, SIGNS, SIGNS),
    "MultiLabelMarginLoss": (ROWS, torch.zeros(3, 8, dtype=torch.int64)),
    "CosineEmbeddingLoss": (ROWS, ROWS, SIGNS),
    "TripletMarginLoss": (ROWS, ROWS, ROWS),
    "TripletMarginWithDistanceLoss": (ROWS, ROWS, ROWS),
}


def modules() -> dict[str, Use]:
    """Make every module of `torch.nn`, by its name, and options behind a dash."""
    made: Any = nn
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    uses: dict[str, Use] = {
        **_by_rank(1),
        **_by_rank(2),
        **_by_rank(3),
        **{name: (getattr(made, name)(), (VECTORS,)) for name in _ACTIVATIONS.split()},
        **{name: (getattr(made, name)(), args) for name, args in _LOSSES.items()},
        "Linear": (nn.Linear(8, 4), (ROWS,)),
        "LazyLinear": (nn.LazyLinear(4), (ROWS,)),
        "Bilinear": (nn.Bilinear(8, 8, 4), (ROWS, ROWS)),
        "GELU-tanh": (nn.GELU("tanh"), (VECTORS,)),
        "Threshold": (nn.Threshold(0.1, 2.0), (VECTORS,)),
        "Softmax2d": (nn.Softmax2d(), (IMAGES,)),
        "Dropout2d": (nn.Dropout2d(), (IMAGES,)),
        "Dropout3d": (nn.Dropout3d(), (VOLUMES,)),
        "FractionalMaxPool2d": (nn.FractionalMaxPool2d(2, output_size=3), (IMAGES,)),
        "FractionalMaxPool3d": (nn.FractionalMaxPool3d(2, output_size=3), (VOLUMES,)),
        "Fold": (nn.Fold((4, 4), 2), (torch.zeros(2, 16, 9),)),
        "Unfold": (nn.Unfold(2), (IMAGES,)),
        "Unflatten": (nn.Unflatten(1, (2, 2)), (IMAGES,)),
        "GroupNorm": (nn.GroupNorm(2, 4), (IMAGES,)),
        "LayerNorm": (nn.LayerNorm(8), (VECTORS,)),
        "RMSNorm": (nn.RMSNorm(8), (VECTORS,)),
        "SyncBatchNorm": (nn.SyncBatchNorm(4), (IMAGES,)),
        "LocalResponseNorm": (nn.LocalResponseNorm(2), (IMAGES,)),
        "CrossMapLRN2d": (nn.CrossMapLRN2d(2), (IMAGES,)),
        "RNNCell": (nn.RNNCell(8, 4), (ROWS,)),
        "LSTMCell": (nn.LSTMCell(8, 4), (ROWS,)),
        "GRUCell": (nn.GRUCell(8, 4), (ROWS,)),
        "LSTM-projected": (nn.LSTM(8, 6, proj_size=3), (VECTORS,)),
        "LSTM-dropout": (nn.LSTM(8, 6, 2, dropout=0.5), (VECTORS,)),
        "MultiheadAttention": (
            nn.MultiheadAttention(8, 2, batch_first=True),
            (VECTORS, VECTORS, VECTORS),
        ),
        "TransformerEncoderLayer": (block, (VECTORS,)),
        "TransformerDecoderLayer": (decoder, (VECTORS, VECTORS)),
        "TransformerEncoder": (nn.TransformerEncoder(block, 2), (VECTORS,)),
        "TransformerDecoder": (nn.TransformerDecoder(decoder, 2), (VECTORS, VECTORS)),
        "Transformer": (
            nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
            (VECTORS, VECTORS),
        ),
        "Embedding": (nn.Embedding(9, 8), (IDS,)),
        "Embedding-max_norm": (nn.Embedding(9, 8, max_norm=1.0), (IDS,)),
        "EmbeddingBag": (nn.EmbeddingBag(9, 8), (IDS,)),
        "EmbeddingBag-max": (nn.EmbeddingBag(9, 8, mode="max"), (IDS,)),
        "CosineSimilarity": (nn.CosineSimilarity(), (ROWS, ROWS)),
        "PairwiseDistance": (nn.PairwiseDistance(), (ROWS, ROWS)),
        "PixelShuffle": (nn.PixelShuffle(2), (IMAGES,)),
        "PixelUnshuffle": (nn.PixelUnshuffle(2), (IMAGES,)),
        "ChannelShuffle": (nn.ChannelShuffle(2), (IMAGES,)),
        "UpsamplingNearest2d": (nn.UpsamplingNearest2d(scale_factor=2), (IMAGES,)),
        "UpsamplingBilinear2d": (nn.UpsamplingBilinear2d(scale_factor=2), (IMAGES,)),
        "NLLLoss-images": (nn.NLLLoss(), (IMAGES, torch.zeros(2, 8, 8).long())),
        "CrossEntropyLoss-smoothed": (
            nn.CrossEntropyLoss(label_smoothing=0.1),
            (ROWS, LABELS),
        ),
        "CrossEntropyLoss-likely": (nn.CrossEntropyLoss(), (ROWS, ROWS)),
        "CrossEntropyLoss-weighted": (
            nn.CrossEntropyLoss(weight=torch.ones(8)),
            (ROWS, LABELS),
        ),
        "LinearCrossEntropyLoss": (nn.LinearCrossEntropyLoss(8, 4), (ROWS, LABELS)),
        "AdaptiveLogSoftmaxWithLoss": (
            nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=1.0),
            (ROWS, LABELS),
        ),
    }
    for name in ("RNN", "LSTM", "GRU"):
        layers = getattr(made, name)(8, 4, 2, batch_first=True, bidirectional=True)
        uses[name] = (layers, (VECTORS,))
    for kind in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        uses[f"Upsample-{kind}"] = (nn.Upsample(scale_factor=2, mode=kind), (IMAGES,))
    uses["Upsample-linear"] = (nn.Upsample(scale_factor=2, mode="linear"), (VECTORS,))
    uses["Upsample"] = (nn.Upsample(scale_factor=2, mode="trilinear"), (VOLUMES,))
    return uses


_ENDS = torch.tensor([0, 4, 8], dtype=torch.int32)
"""Where sequences begin that stand one behind the other."""

_FLASH: Any = torch.ops.aten._flash_attention_forward


def _in_place(name: str, *given: Any) -> Tensor:
    """Call a function that writes over its argument."""
    *numbers, x = given
    written: Tensor = getattr(F, f"{name}_")(x * 2, *numbers)
    return written


def _one_hot(x: Tensor, ids: Tensor) -> Tensor:
    chosen: Tensor = x * F.one_hot(ids, 8)
    return chosen


def _experts(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Multiply rows by the matrix of their group."""
    made: Tensor = F.grouped_mm(x, weights, offs=ends)
    return made


def _of_uneven_length(q: Tensor, ends: Tensor) -> Tensor:
    """Attention within each of several sequences, one behind the other."""
    found = varlen_attn(q, q, q, ends, ends, 4, 4)
    return found if isinstance(found, Tensor) else found[0]


def _by_its_kernel(q: Tensor, ends: Tensor) -> Tensor:
    """Do the same by the op of the kernel."""
    found: Tensor = _FLASH(q, q, q, ends, ends, 4, 4, 0.0, True, False)[0]
    return found


_GRID = torch.zeros(2, 3, 3, 2)
FUNCTIONS: Mapping[str, Use] = {
    "affine_grid": (partial(F.affine_grid, size=(2, 4, 3, 3)), (torch.zeros(2, 2, 3),)),
    "conv_tbc": (
        F.conv_tbc,
        (torch.zeros(5, 2, 8), torch.zeros(3, 8, 4), torch.zeros(4)),
    ),
    "gelu": (partial(F.gelu, approximate="none"), (VECTORS,)),
    "grid_sample": (partial(F.grid_sample, align_corners=False), (IMAGES, _GRID)),
    "grid_sample-nearest": (
        partial(F.grid_sample, mode="nearest", align_corners=False),
        (IMAGES, _GRID),
    ),
    "grid_sample-volumes": (
        partial(F.grid_sample, align_corners=False),
        (VOLUMES, torch.zeros(2, 3, 3, 3, 3)),
    ),
    "grouped_mm": (
        F.grouped_mm,
        (torch.zeros(2, 4, 8).bfloat16(), torch.zeros(2, 8, 8).bfloat16()),
    ),
    "grouped_mm-experts": (
        _experts,
        (
            torch.zeros(8, 8).bfloat16(),
            torch.zeros(2, 8, 8).bfloat16(),
            _ENDS[1:],
        ),
    ),
    "gumbel_softmax": (partial(F.gumbel_softmax, hard=True), (ROWS,)),
    "interpolate-antialias": (
        partial(F.interpolate, scale_factor=0.5, mode="bilinear", antialias=True),
        (IMAGES,),
    ),
    "normalize": (F.normalize, (ROWS,)),
    "pad": (partial(F.pad, pad=(1, -1)), (VECTORS,)),
    "pdist": (F.pdist, (ROWS,)),
    "rrelu-inference": (partial(F.rrelu, training=False), (ROWS,)),
    "scaled_dot_product_attention": (
        F.scaled_dot_product_attention,
        (HEADS, HEADS, HEADS),
    ),
    "scaled_dot_product_attention-masked": (
        F.scaled_dot_product_attention,
        (HEADS, HEADS, HEADS, torch.zeros(4, 4)),
    ),
    "scaled_dot_product_attention-causal": (
        partial(F.scaled_dot_product_attention, is_causal=True),
        (HEADS, HEADS, HEADS),
    ),
    "one_hot": (_one_hot, (ROWS, LABELS)),
    **{
        f"{name}_": (partial(_in_place, name), (VECTORS,))
        for name in ("celu", "elu", "hardtanh", "leaky_relu", "relu", "rrelu", "selu")
    },
    "threshold_": (partial(_in_place, "threshold", 0.1, 2.0), (VECTORS,)),
    "max_pool2d-unbatched": (partial(F.max_pool2d, kernel_size=2), (IMAGES[0],)),
    "varlen_attn": (
        _of_uneven_length,
        (torch.zeros(8, 2, 8).half(), _ENDS),
    ),
    "varlen_attn-flash": (
        _by_its_kernel,
        (torch.zeros(8, 2, 8).half(), _ENDS),
    ),
}
"""Functions of `torch.nn.functional` that no module calls, and other uses of them."""


Make = Callable[..., optim.Optimizer]
OPTIMIZERS: Mapping[str, Make] = {
    **{
        name: getattr(optim, name)
        for name in (
            *("SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Adadelta", "NAdam"),
            *("RAdam", "Adamax", "ASGD", "Rprop", "Adafactor", "Muon"),
        )
    },
    "SGD-momentum": partial(optim.SGD, momentum=0.9),
    "SGD-nesterov": partial(optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam-amsgrad": partial(optim.Adam, amsgrad=True, weight_decay=0.1),
    "RMSprop-centered": partial(optim.RMSprop, centered=True, momentum=0.9),
}
"""Optimizers of `torch.optim`, by their names, and options behind a dash."""
