"""Table of rules: for each op, the module that knows what eager PyTorch launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.ir.ops import FAMILIES
from perfc.lazy_table import LazyTable

if TYPE_CHECKING:
    from perfc.passes.lowering.eager.site import Rule

_OWN = frozenset({"masked_fill"})
"""Ops whose rule lies with others."""

_ELEMENTWISE = [op for op in FAMILIES.homes["elementwise:OPS"] if op not in _OWN]

RULES: LazyTable[Rule] = LazyTable(
    "perfc.passes.lowering.eager",
    {
        "attention.backward:RULES": "attention_backward",
        "attention.forward:RULES": "attention rotary",
        "backward:RULES": (
            "clip_backward dropout_backward elu_backward gelu_backward "
            "hardsigmoid_backward hardswish_backward leaky_relu_backward "
            "log_sigmoid_backward logit_backward mish_backward relu_backward "
            "shrink_backward sigmoid_backward silu_backward softplus_backward "
            "tanh_backward prelu_backward glu_backward pad_backward "
            "grid_sample_backward pool_backward slice_backward index_put"
        ),
        "collective:RULES": (
            "all_reduce all_gather reduce_scatter all_to_all broadcast send recv pack"
        ),
        "convolution.convolution:RULES": (
            "conv conv_transpose conv_backward conv_tbc conv_tbc_backward deform_conv"
        ),
        "distance:RULES": "distances distances_backward",
        "elementwise:RULES": (
            f"{' '.join(_ELEMENTWISE)} gelu silu hardswish mish glu batch_norm"
        ),
        "embedding.bags:RULES": "bucketize_bags regroup_bags check_bags",
        "embedding.sparse:RULES": "sparse_optimizer_step",
        "embedding.tables:RULES": (
            "bag_weights_backward embedding_bag embedding_backward "
            "embedding_bag_backward"
        ),
        "gemm.einsum:RULES": "einsum",
        "gemm.matmul:RULES": "linear matmul packed_linear det det_backward",
        "loss:RULES": (
            "loss loss_backward nll_loss_backward softmax_backward log_softmax_backward"
        ),
        "movement:RULES": (
            "reshape flatten transpose squeeze unsqueeze expand slice split cast "
            "cast_like bit_cast concat stack copy item fill range gather "
            "gather_elements gather_nd index"
        ),
        "optimizer:RULES": "foreach optimizer_step",
        "quantization:RULES": (
            "quantize dequantize dynamic_quantize amax encode_rows decode_rows"
        ),
        "recurrent.cell:RULES": "recurrent_cell recurrent_cell_backward",
        "recurrent.ctc:RULES": "ctc_loss ctc_loss_backward",
        "recurrent.layers:RULES": (
            "recurrent recurrent_backward linear_attention causal_conv dft fft stft "
            "window"
        ),
        "reductions.norm_backward:RULES": (
            "layer_norm_backward rms_norm_backward batch_norm_backward "
            "group_norm_backward weight_norm_backward"
        ),
        "reductions.normalization:RULES": "layer_norm rms_norm group_norm weight_norm",
        "reductions.reduction:RULES": (
            "reduce argmax argmin cumsum cumprod softmax log_softmax hardmax histogram "
            "pool max_unpool dropout nll_loss local_response_norm"
        ),
        "reductions.selection:RULES": (
            "scatter_elements scatter_nd tensor_scatter reverse_sequence topk nonzero "
            "compress unique non_max_suppression one_hot tile pad center_crop_pad "
            "pixel_shuffle trilu eye_like random multinomial resize grid_sample "
            "affine_grid roi_pool col2im"
        ),
        "storage:RULES": (
            "alias replicated split_cross_entropy view empty host overwrite assign "
            "masked_fill rearrange sort resize_backward"
        ),
        "testing:RULES": "test.op",
    },
)
"""Rules by op name."""
