"""The built-in ops. One module per family, loaded when one of its ops is asked for."""

from __future__ import annotations

from perfc.ir.opdef import OpDef, OpRegistry
from perfc.lazy_table import LazyTable

FAMILIES: LazyTable[OpDef] = LazyTable(
    "perfc.ir.ops",
    {
        "activation:OPS": "gelu silu hardswish mish glu",
        "attention:OPS": "attention rotary",
        "bags:OPS": "regroup_bags bucketize_bags check_bags",
        "normalization:OPS": "layer_norm rms_norm group_norm weight_norm",
        "casting:OPS": "cast cast_like bit_cast",
        "constant:OPS": "constant shape size fill range",
        "control:OPS": "loop if scan item unknown",
        "convolution:OPS": "conv conv_transpose conv_tbc deform_conv col2im",
        "distance:OPS": "distances distances_backward",
        "einsum:OPS": "einsum",
        "elementwise:OPS": (
            "relu leaky_relu thresholded_relu shrink elu celu selu hardsigmoid sigmoid "
            "softplus softsign tanh erf exp log log2 log10 log1p exp2 expm1 rsqrt erfc "
            "erfinv i0e lgamma digamma polygamma i0 sinc nan_to_num signbit logit "
            "log_sigmoid sqrt reciprocal sin cos tan asin acos atan sinh cosh asinh "
            "acosh atanh square neg abs sign ceil floor round trunc frac clip "
            "bitwise_not isnan isinf isfinite not add sub mul div pow maximum minimum "
            "mod fmod floor_divide atan2 hypot copysign logaddexp xlogy prelu "
            "bit_shift bitwise_and bitwise_or bitwise_xor equal not_equal less "
            "less_equal greater greater_equal and or xor addcmul addcdiv lerp where "
            "masked_fill"
        ),
        "collective:OPS": (
            "all_reduce broadcast all_gather reduce_scatter all_to_all send recv pack"
        ),
        "ctc:OPS": "ctc_loss ctc_loss_backward",
        "embedding:OPS": "embedding_bag",
        "indexing:OPS": (
            "slice gather gather_elements gather_nd index scatter_elements scatter_nd "
            "tensor_scatter reverse_sequence"
        ),
        "linalg:OPS": "linear matmul packed_linear det det_backward",
        "memory:OPS": "alias empty overwrite assign view host",
        "movement:OPS": (
            "reshape flatten transpose squeeze unsqueeze identity expand concat stack "
            "split copy"
        ),
        "pooling:OPS": "pool max_unpool roi_pool",
        "quantization:OPS": "quantize dequantize dynamic_quantize amax",
        "rearrangement:OPS": (
            "tile rearrange pad pad_backward center_crop_pad pixel_shuffle trilu "
            "eye_like random multinomial"
        ),
        "recurrent:OPS": "recurrent linear_attention causal_conv",
        "recurrent_cell:OPS": "recurrent_cell recurrent_cell_backward",
        "reduction:OPS": (
            "reduce argmax argmin cumsum cumprod softmax log_softmax hardmax "
            "local_response_norm batch_norm dropout nll_loss histogram"
        ),
        "replicated:OPS": "replicated",
        "resampling:OPS": (
            "resize resize_backward grid_sample grid_sample_backward affine_grid"
        ),
        "selection:OPS": (
            "topk sort nonzero compress unique non_max_suppression one_hot"
        ),
        "sequence:OPS": (
            "sequence_empty sequence_construct sequence_insert sequence_erase "
            "sequence_at sequence_length optional_empty optional_has_element "
            "sequence_map split_to_sequence concat_from_sequence"
        ),
        "spectral:OPS": "fft dft stft window mel_weight_matrix",
        "activation_backward:OPS": (
            "relu_backward leaky_relu_backward elu_backward shrink_backward "
            "log_sigmoid_backward logit_backward sigmoid_backward tanh_backward "
            "hardsigmoid_backward softplus_backward gelu_backward silu_backward "
            "hardswish_backward mish_backward clip_backward dropout_backward "
            "prelu_backward glu_backward softmax_backward log_softmax_backward"
        ),
        "embedding_backward:OPS": (
            "embedding_backward embedding_bag_backward bag_weights_backward"
        ),
        "indexing_backward:OPS": "slice_backward index_put",
        "layer_backward:OPS": (
            "layer_norm_backward rms_norm_backward group_norm_backward "
            "batch_norm_backward conv_backward conv_tbc_backward pool_backward "
            "attention_backward recurrent_backward weight_norm_backward"
        ),
        "loss:OPS": "loss loss_backward nll_loss_backward split_cross_entropy",
        "optimizer:OPS": "foreach optimizer_step sparse_optimizer_step",
        "testing:OPS": "test.op",
        "text:OPS": "host_text",
        "wire:OPS": "encode_rows decode_rows",
    },
)
"""Ops by name, in the order in which `perfc ops` lists them."""

BUILTIN_OPS = OpRegistry(FAMILIES)
"""Every op of perfc's own vocabulary."""
