"""Graphs for the gradient rules of functions, images and rearrangements."""

from __future__ import annotations

from collections.abc import Mapping

_X = "param %x: f64[3,4]"
_XY = "param %x: f64[3,4], param %y: f64[4]"
_XYZ = "param %x: f64[3,4], param %y: f64[4], param %z: f64[3,4]"
_IMAGE = "param %x: f64[2,4,4,4]"
_HALF = "%h = constant() {dtype = !f64, shape = [], value = 0.5} : ?\n"


def _unary(op: str, attributes: str = "") -> tuple[str, str]:
    return _X, f"%r = {op}(%x) {attributes} : ?"


_UNARY = (
    *("trunc", "frac", "exp2", "expm1", "log2", "log10", "log1p", "rsqrt", "erfc"),
    *("erfinv", "lgamma", "digamma", "sinc", "nan_to_num", "elu", "celu", "selu"),
    *("shrink", "logit", "log_sigmoid", "thresholded_relu"),
)
_BINARY = ("fmod", "mod", "atan2", "hypot", "copysign", "logaddexp", "xlogy")

MORE_CASES: Mapping[str, tuple[str, str]] = {
    **{op: _unary(op) for op in _UNARY},
    **{op: (_XY, f"%r = {op}(%x, %y) : ?") for op in _BINARY},
    **{
        op: (_XYZ, f"%r = {op}(%x, %y, %z) : ?")
        for op in ("addcmul", "addcdiv", "lerp")
    },
    "shrink-hard": _unary("shrink", "{hard = true}"),
    "glu": _unary("glu", "{axis = 1}"),
    "prelu": (_XY, "%m = neg(%x) : ?\n%r = prelu(%m, %y) : ?"),
    "masked_fill": (
        f"{_X}, param %y: f64[]",
        f"{_HALF}%b = less(%x, %h) : ?\n%r = masked_fill(%x, %b, %y) : ?",
    ),
    "reduce-prod": _unary("reduce", '{kind = "prod", axes = [1]}'),
    "cumprod": _unary("cumprod", "{axis = 1}"),
    "det": ("param %x: f64[3,4,4]", "%r = det(%x) : ?"),
    "conv_tbc": (
        "param %x: f64[6,2,5], param %y: f64[3,5,4], param %z: f64[4]",
        "%r = conv_tbc(%x, %y, %z) {padding = 1} : ?",
    ),
    "weight_norm": (
        "param %x: f64[3,4,2], param %y: f64[3,1,1]",
        "%r, %n = weight_norm(%x, %y) {axis = 0} : ?, ?",
    ),
    "distances-within": _unary("distances", "{order = 1.5}"),
    "distances": (
        "param %x: f64[2,3,4], param %y: f64[2,5,4]",
        "%r = distances(%x, %y) {order = 2.0} : ?",
    ),
    "resize": (
        _IMAGE,
        '%r = resize(%x) {mode = "nearest", scales = [1.0, 1.0, 2.0, 2.0]} : ?',
    ),
    "grid_sample": (
        f"{_IMAGE}, param %g: f64[2,3,3,2]",
        '%r = grid_sample(%x, %g) {mode = "linear"} : ?',
    ),
    "pad-reflect": (
        _X,
        (
            "%n = constant() {dtype = !i64, shape = [2], elements = [1, 2]} : ?\n"
            "%a = constant() {dtype = !i64, shape = [1], elements = [1]} : ?\n"
            '%r = pad(%x, %n, %a) {mode = "reflect"} : ?'
        ),
    ),
    "alias": (_X, '%a = alias(%x) {call = "aten::alias"} : ?\n%r = exp(%a) : ?'),
    "stack": (
        "param %x: f64[3,4], param %y: f64[3,4]",
        "%r = stack(%x, %y, %x) {axis = 1} : ?",
    ),
    "sort": (_X, "%r, %p = sort(%x) {axis = 1} : ?, ?"),
    "index_put": (
        "param %x: f64[7,4], param %y: f64[3,4], %o: i64[3,1]",
        "%r = index_put(%x, %y, %o) {axis = 0} : ?",
    ),
    "index_put-add": (
        "param %x: f64[7,4], param %y: f64[3,4], %i: i64[3,1]",
        "%r = index_put(%x, %y, %i) {axis = 0, accumulate = true} : ?",
    ),
    "index_put-places": (
        "param %x: f64[4,7], param %y: f64[4,3], %i: i64[3]",
        "%r = index_put(%x, %y, %i) {axis = 1, accumulate = true} : ?",
    ),
    "index_put-axes": (
        "param %x: f64[7,5,4], param %y: f64[3,4], %o: i64[3], %p: i64[3]",
        "%r = index_put(%x, %y, %o, %p) {axis = 0} : ?",
    ),
    "rearrange": _unary("rearrange", '{kind = "flip", shape = [3, 4]}'),
    "max_unpool": (
        "param %x: f64[1,1,2,2], %o: i64[4,1]",
        (
            "%n = constant() {dtype = !i64, shape = [4], elements = [1, 1, 2, 2]} : ?\n"
            "%p = reshape(%o, %n) : ?\n"
            "%r = max_unpool(%x, %p) {window = [2, 2], stride = [2, 2]} : ?"
        ),
    ),
    "overwrite": (_X, "%a = overwrite(%x) {value = 0.0} : ?\n%r = add(%a, %x) : ?"),
    "assign": (
        "param %x: f64[3,4], param %y: f64[4]",
        "%a = assign(%x, %y) : ?\n%r = exp(%a) : ?",
    ),
}
"""Arguments and body of a graph for each rule, as in `test_gradients.py`."""
