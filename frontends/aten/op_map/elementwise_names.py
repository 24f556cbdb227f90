"""ATen ops that compute element by element, and the perfc ops that they are.

Names alone: which ops there are is asked before any handler is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SAME: Sequence[str] = (
    *("relu", "sigmoid", "tanh", "silu", "mish", "hardswish", "erf", "erfc", "erfinv"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt"),
    *("reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("asinh", "acosh", "atanh", "square", "neg", "abs", "sign", "ceil", "floor"),
    *("round", "trunc", "frac", "isnan", "isinf", "isfinite", "lgamma", "digamma"),
    *("logit", "bitwise_not", "celu", "selu", "softplus", "leaky_relu"),
    *("polygamma", "i0", "sinc", "nan_to_num", "signbit"),
)
"""Ops of one tensor that have the same name here."""

RENAMED: Mapping[str, str] = {
    "logical_not": "not",
    "log_sigmoid": "log_sigmoid",
    "hardsigmoid": "hardsigmoid",
    "softshrink": "shrink",
    "isposinf": "isinf",
    "isneginf": "isinf",
    "threshold": "thresholded_relu",
    "relu6": "clip",
    "sgn": "sign",
    "angle": "sign",
    "elu": "elu",
    "negative": "neg",
    "absolute": "abs",
    "arctan": "atan",
    "arccos": "acos",
    "arcsin": "asin",
    "conj_physical": "neg",
    "_conj_physical": "neg",
    "special_expit": "sigmoid",
    "special_erf": "erf",
    "special_i0e": "i0e",
    "special_log1p": "log1p",
    "special_expm1": "expm1",
}
"""Ops of one tensor that have another name here."""

BINARY: Mapping[str, str] = {
    "add": "add",
    "sub": "sub",
    "subtract": "sub",
    "mul": "mul",
    "multiply": "mul",
    "div": "div",
    "divide": "div",
    "true_divide": "div",
    "floor_divide": "floor_divide",
    "remainder": "mod",
    "fmod": "fmod",
    "maximum": "maximum",
    "minimum": "minimum",
    "fmax": "maximum",
    "fmin": "minimum",
    "atan2": "atan2",
    "hypot": "hypot",
    "copysign": "copysign",
    "logaddexp": "logaddexp",
    "logaddexp2": "logaddexp",
    "ldexp": "mul",
    "special_xlog1py": "xlogy",
    "xlogy": "xlogy",
    "special_xlogy": "xlogy",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "bitwise_left_shift": "bit_shift",
    "bitwise_right_shift": "bit_shift",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__lshift__": "bit_shift",
    "__rshift__": "bit_shift",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "greater": "greater",
    "less": "less",
    "greater_equal": "greater_equal",
    "less_equal": "less_equal",
    "not_equal": "not_equal",
}
"""Ops of `self` and `other`; the factor `alpha` of some costs nothing."""

OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "pow": ("pow", "self", "exponent"),
    "float_power": ("pow", "self", "exponent"),
    "where": ("where", "condition", "self", "other"),
    "addcmul": ("addcmul", "self", "tensor1", "tensor2"),
    "addcdiv": ("addcdiv", "self", "tensor1", "tensor2"),
    "lerp": ("lerp", "self", "end", "weight"),
    "_prelu_kernel": ("prelu", "self", "weight"),
    "rsub": ("sub", "other", "self"),
    "masked_fill": ("masked_fill", "self", "mask", "value"),
}
"""Op, and the arguments that are its operands."""

BACKWARD: Mapping[str, Sequence[str]] = {
    "threshold_backward": ("relu_backward", "grad_output", "self"),
    "sigmoid_backward": ("sigmoid_backward", "grad_output", "output"),
    "tanh_backward": ("tanh_backward", "grad_output", "output"),
    "silu_backward": ("silu_backward", "grad_output", "self"),
    "mish_backward": ("mish_backward", "grad_output", "self"),
    "hardswish_backward": ("hardswish_backward", "grad_output", "self"),
    "hardsigmoid_backward": ("hardsigmoid_backward", "grad_output", "self"),
    "softplus_backward": ("softplus_backward", "grad_output", "self"),
    "native_dropout_backward": ("dropout_backward", "grad_output", "mask"),
    "_softmax_backward_data": ("softmax_backward", "grad_output", "output"),
    "_log_softmax_backward_data": ("log_softmax_backward", "grad_output", "output"),
    "logit_backward": ("logit_backward", "grad_output", "self"),
    "log_sigmoid_backward": ("log_sigmoid_backward", "grad_output", "self"),
    "softshrink_backward": ("shrink_backward", "grad_output", "self"),
}
"""Gradients, and the arguments that are their operands."""

_OWN = frozenset({"add"})
"""Its handler lies with those of sparse tensors."""

NAMED = [
    name
    for name in (*SAME, *RENAMED, *BINARY, *OTHER_NAMES, *BACKWARD)
    if name not in _OWN
]
"""All of these, without the namespace of ATen."""
