"""Table of gradient rules: for each op, the module that has its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.lazy_table import LazyTable

if TYPE_CHECKING:
    from perfc.passes.autodiff.reverse_mode import Rule

GRADIENT_RULES: LazyTable[Rule] = LazyTable(
    "perfc.passes.autodiff",
    {
        "collective:RULES": (
            "all_gather all_reduce all_to_all decode_rows encode_rows reduce_scatter "
            "replicated"
        ),
        "elementwise:RULES": (
            "identity copy sign ceil floor round relu sigmoid tanh leaky_relu gelu "
            "hardsigmoid softplus silu hardswish mish clip exp log sqrt reciprocal sin "
            "cos tan sinh cosh asin acos atan acosh erf square neg abs softsign add "
            "sub mul div pow maximum minimum where cast cast_like dropout"
        ),
        "functions:RULES": (
            "trunc frac exp2 expm1 log2 log10 log1p rsqrt erfc erfinv lgamma digamma "
            "sinc nan_to_num elu celu selu shrink logit log_sigmoid thresholded_relu "
            "glu prelu atanh asinh fmod mod atan2 hypot copysign logaddexp xlogy "
            "addcmul addcdiv lerp masked_fill"
        ),
        "layers:RULES": (
            "reduce cumsum cumprod det resize grid_sample softmax log_softmax "
            "layer_norm rms_norm group_norm batch_norm conv_tbc weight_norm distances "
            "conv conv_transpose pool attention rotary recurrent recurrent_cell"
        ),
        "lookup:RULES": "embedding_bag",
        "loss:RULES": "loss nll_loss ctc_loss split_cross_entropy",
        "movement:RULES": (
            "reshape flatten squeeze unsqueeze alias stack sort index_put rearrange "
            "max_unpool overwrite assign transpose expand concat split slice trilu pad "
            "tile gather index gather_nd gather_elements scatter_nd scatter_elements "
            "topk pixel_shuffle"
        ),
        "matmul:RULES": "linear matmul einsum",
    },
)
"""Rules by op name; an op without one has gradients that are costed by their bytes."""
