"""Graphs, and the kernels that Inductor makes of them."""

from __future__ import annotations

X = "%x: f32[128,512]"
LINEAR = "param %w: f32[512,512], param %b: f32[512]"
NORM = "param %g: f32[512], param %h: f32[512]"
IMAGE = "%x: f32[32,64,56,56]"
CHANNELS = ", ".join(f"param %{name}: f32[64]" for name in "mvgh")

CASES = {
    "a loop into a reduction, and a loop after it": (
        X,
        "%a = add(%x, %x)\n%s = softmax(%a) {axis = -1}\n%y = relu(%s)",
        ["triton_per_fused_add_relu_softmax"],
    ),
    "the bias of a GEMM that loops read": (
        f"{X}, {LINEAR}",
        "%a = linear(%x, %w, %b)\n%r = relu(%a)\n%y = linear(%r, %w, %b)",
        ["aten::linear", "triton_poi_fused_linear_relu", "aten::linear"],
    ),
    "a norm of a sum": (
        f"{X}, %z: f32[128,512], {NORM}",
        "%a = add(%x, %z)\n%y = layer_norm(%a, %g, %h) {axis = 1}",
        ["triton_per_fused_add_layer_norm"],
    ),
    "a norm with long rows": (
        "%x: f32[128,4096], param %g: f32[4096]",
        "%y = rms_norm(%x, %g) {axis = 1}",
        ["triton_red_fused_rms_norm"],
    ),
    "a batch norm in training": (
        f"{IMAGE}, {CHANNELS}",
        "%n = batch_norm(%x, %g, %h, %m, %v) {training = true}\n%y = relu(%n)",
        [
            "triton_red_fused_batch_norm",
            "triton_per_fused_batch_norm",
            "triton_poi_fused_batch_norm_relu",
        ],
    ),
    "a batch norm with given statistics": (
        f"{IMAGE}, {CHANNELS}",
        "%n = batch_norm(%x, %g, %h, %m, %v)\n%y = relu(%n)",
        ["triton_poi_fused_batch_norm_relu"],
    ),
    "a sum of everything": (
        "%x: f32[4096,4096]",
        '%a = add(%x, %x)\n%y = reduce(%a) {kind = "sum"}',
        ["triton_red_fused_add", "triton_per_fused_reduce"],
    ),
    "a sum over the rows": (
        "%x: f32[4096,1024]",
        '%y = reduce(%x) {kind = "sum", axes = [0]}',
        ["triton_red_fused_reduce", "triton_per_fused_reduce"],
    ),
    "a short mean": (
        "%x: f32[128,64], %z: f32[128,64]",
        '%d = sub(%x, %z)\n%s = square(%d)\n%y = reduce(%s) {kind = "mean"}',
        ["triton_red_fused_reduce_square_sub"],
    ),
    "rows of a table, and a norm": (
        f"param %t: f32[1000,512], %i: i64[8,16], {NORM}",
        "%e = gather(%t, %i) {axis = 0}\n%y = layer_norm(%e, %g, %h) {axis = 2}",
        ["triton_per_fused_gather_layer_norm"],
    ),
    "three that read the same": (
        X,
        '%r = relu(%x)\n%s = sigmoid(%x)\n%y = reduce(%x) {kind = "sum", axes = [1]}',
        ["triton_per_fused_reduce_relu_sigmoid"],
    ),
    "two that share nothing": (
        f"{X}, %z: f32[128,512]",
        "%r = relu(%x)\n%y = sigmoid(%z)",
        ["triton_poi_fused_relu", "triton_poi_fused_sigmoid"],
    ),
    "a join of loops": (
        f"{X}, %z: f32[128,512]",
        "%r = relu(%x)\n%s = sigmoid(%z)\n%y = concat(%r, %s) {axis = 1}",
        ["triton_poi_fused_concat_relu_sigmoid"],
    ),
    "a join of GEMMs, which write into their places": (
        f"{X}, {LINEAR}",
        "%p = linear(%x, %w)\n%q = linear(%x, %w)\n%y = concat(%p, %q) {axis = 1}",
        ["aten::linear", "aten::linear"],
    ),
    "a pool": (
        IMAGE,
        (
            '%r = relu(%x)\n%y = pool(%r) {kind = "max", window = [3,3], '
            "stride = [2,2], padding = [1,1,1,1]}"
        ),
        ["triton_poi_fused_pool_relu"],
    ),
    "a convolution, whose bias a loop adds": (
        f"{IMAGE}, param %w: f32[64,64,3,3], param %b: f32[64]",
        "%c = conv(%x, %w, %b) {padding = [1,1,1,1]}\n%y = relu(%c)",
        ["aten::conv2d", "triton_poi_fused_conv_relu"],
    ),
    "halves of a tensor": (
        X,
        "%p, %q = split(%x) {axis = 1, parts = 2}\n%s = sigmoid(%q)\n%y = mul(%p, %s)",
        ["triton_poi_fused_mul_sigmoid"],
    ),
    "a transposed operand": (
        "%x: f32[128,512], %z: f32[512,128]",
        "%t = transpose(%x) {perm = [1,0]}\n%y = add(%t, %z)",
        ["triton_poi_fused_add"],
    ),
    "loops around a selection": (
        X,
        (
            "%k = constant() {dtype = !i64, shape = [1], elements = [5]}\n"
            "%a = add(%x, %x)\n%t, %i = topk(%a, %k) {axis = 1}\n%y = relu(%t)"
        ),
        ["triton_poi_fused_add", "aten::topk", "triton_poi_fused_relu"],
    ),
    "a running sum": (
        X,
        "%a = add(%x, %x)\n%c = cumsum(%a) {axis = 1}\n%y = relu(%c)",
        ["triton_per_fused_add_cumsum_relu"],
    ),
    "a reduction of a reduction": (
        "%x: f32[4096,1024], %z: f32[4096,1024]",
        (
            '%d = sub(%x, %z)\n%m = reduce(%d) {kind = "mean", axes = [1]}\n'
            '%y = reduce(%m) {kind = "mean"}'
        ),
        ["triton_per_fused_reduce_sub", "triton_red_fused_reduce"],
    ),
    "a softmax of long rows": (
        "%x: f32[128,16384]",
        "%y = softmax(%x) {axis = 1}",
        [
            "triton_red_fused_softmax",
            "triton_per_fused_softmax",
            "triton_poi_fused_softmax",
        ],
    ),
}
"""Arguments, nodes, and the kernels. How many there are, and of what kind, is what
Inductor's scheduler of PyTorch 2.13 says of the same lines in Python, for a device of
108 SMs and compute capability 8.0 (lowered and scheduled without a GPU, 2026-11)."""
