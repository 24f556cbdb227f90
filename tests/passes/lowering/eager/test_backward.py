"""What eager PyTorch launches in a backward pass."""

from __future__ import annotations

import pytest
from tests.passes.lowered import kernels, launched, lower, one_op

from perfc.ir import Kernel

HEADS = "f16[4,12,512,64]"


def _kinds(found: list[Kernel]) -> list[object]:
    return [kernel.params.get("kind", kernel.op) for kernel in found]


def _wanting(
    node: str, arguments: str, wants: list[str], target: str = ""
) -> list[Kernel]:
    names = ", ".join(f"%r{i}" for i in range(len(wants)))
    quoted = ", ".join(f'"{want}"' for want in wants)
    types = ", ".join("?" * len(wants))
    line = f"{names} = {node.replace('WANTS', quoted)} : {types}"
    text = f"graph @g({arguments}) {{ {line} return %r0 }}"
    return kernels(lower(text, target=target))


def _conv(
    x: str, weight: str, grad: str, rest: str = "", target: str = "v100"
) -> list[Kernel]:
    node = f"conv_backward(%g, %x, %w) {{wants = [WANTS]{rest}}}"
    arguments = f"%g: f32[{grad}], %x: f32[{x}], param %w: f32[{weight}]"
    return _wanting(node, arguments, ["x", "weight"], target)


def test_gradients_of_a_convolution_are_two_of_its_kind() -> None:
    """One for the images and one for the filters, each with the flops of forward."""
    found = _conv("32,64,56,56", "256,64,1,1", "32,256,56,56")
    data, weight = (kernel for kernel in found if kernel.op == "conv2d")

    assert "backward_data" == data.params["phase"]
    assert "backward_weight" == weight.params["phase"]
    flops = 2 * 32 * 256 * 64 * 56 * 56
    assert (flops, flops) == (data.work.flops, weight.work.flops)
    assert ("n", "c_in", "c_out") == tuple(list(data.params)[:3])


@pytest.mark.parametrize(
    ("x", "weight", "grad", "rest", "kinds"),
    [
        (
            "32,128,28,28",
            "128,128,3,3",
            "32,128,28,28",
            ", padding = [1, 1, 1, 1]",
            ["winograd", "winograd", "conv2d", "winograd"] * 2,
        ),
        (
            "32,256,56,56",
            "512,256,1,1",
            "32,512,28,28",
            ", stride = [2, 2]",
            ["clear", "conv2d", "offsets", "offsets", "memset", "memset", "conv2d"],
        ),
        (
            "32,256,56,56",
            "64,256,1,1",
            "32,64,56,56",
            "",
            ["conv2d", "conv2d", "join_parts"],
        ),
        (
            "32,64,56,56",
            "64,1,3,3",
            "32,64,56,56",
            ", padding = [1, 1, 1, 1], groups = 64",
            ["conv2d", "conv2d"],
        ),
    ],
    ids=["winograd", "strided", "gemm", "depthwise"],
)
def test_kernels_beside_a_convolution(
    x: str, weight: str, grad: str, rest: str, kinds: list[str]
) -> None:
    """The algorithm decides which transforms, offsets and sums are launched."""
    assert kinds == _kinds(_conv(x, weight, grad, rest))


def test_tensor_cores_turn_layouts() -> None:
    """In half precision every tensor is made channels last, and the result turned."""
    node = "conv_backward(%g, %x, %w) {wants = [WANTS], padding = [1, 1, 1, 1]}"
    arguments = "%g: f16[8,64,56,56], %x: f16[8,64,56,56], param %w: f16[64,64,3,3]"
    kinds = _kinds(_wanting(node, arguments, ["x", "bias"], "a100"))

    turned = ["nchw_to_nhwc", "nchw_to_nhwc", "conv2d", "nhwc_to_nchw"]
    assert [*turned, "sum"] == kinds


def test_gradient_of_a_transposed_convolution_is_a_convolution() -> None:
    """What its operand gets is the forward convolution of its result's gradient."""
    found = _conv(
        "2,16,8,8",
        "16,4,4,4",
        "2,4,16,16",
        (", transposed = true, stride = [2, 2], padding = [1, 1, 1, 1]"),
    )
    data, weight = (kernel for kernel in found if kernel.op == "conv2d")

    assert "phase" not in data.params
    assert "backward_weight" == weight.params["phase"]
    assert (4, 16, 16) == tuple(data.params[n] for n in ("c_in", "c_out", "size"))
    assert 2 * 2 * 16 * 64 * 4 * 16 == data.work.flops == weight.work.flops


def test_gradient_of_linear_reads_weight_and_rows_as_they_lie() -> None:
    """The input's is `nn`, the weight's `tn`: nothing is copied."""
    graph = lower("""graph @g(%g: f32[64,32], %x: f32[64,16], param %w: f32[32,16]) {
      %a = matmul(%g, %w) : ?
      %t = transpose(%g) {perm = [1, 0]} : ?
      %b = matmul(%t, %x) : ?
      return %a, %b }""")
    found = [(k.op, k.params["layout"], k.params["k"]) for k in kernels(graph)]

    assert [("gemm", "nn", 32), ("gemm", "tn", 64)] == found


@pytest.mark.parametrize(
    ("m", "n", "k", "target", "parts"),
    [
        (32, 1000, 2048, "v100", 2),
        (32, 2048, 1000, "v100", 2),
        (1000, 2048, 32, "v100", 1),
        (16, 512, 512, "v100", 2),
        (16, 512, 256, "v100", 1),
        (256, 256, 1024, "a100", 2),
        (1024, 256, 256, "a100", 1),
        (15, 647, 98304, "a100", 2),
        (512, 660, 1024, "a100", 1),
    ],
)
def test_deep_gemms_are_split(m: int, n: int, k: int, target: str, parts: int) -> None:
    """Shapes in traces of ResNet-50 and DLRM training: two kernels, or one."""
    text = one_op(f"%a: f32[{m},{k}], %b: f32[{k},{n}]", "matmul(%a, %b)")
    found = kernels(lower(text, target=target))

    assert parts == len(found)
    assert 2 * m * n * k == found[0].work.flops


def test_large_narrow_gemms_clear_counters() -> None:
    """In traces of an H100 a memset stands before them."""
    text = one_op("%a: bf16[8944,1024], %b: bf16[1024,2816]", "matmul(%a, %b)")
    graph = lower(text, target="h100")

    assert ["memset", "gemm"] == _kinds(kernels(graph))
    assert "cudaMemsetAsync" in graph.detail


def _attention(heads: str, target: str, rest: str = "") -> list[object]:
    node = "attention_backward(%g, %g, %k, %k, %g) {wants = [WANTS]" + rest + "}"
    arguments = f"%g: {heads}, %k: {heads}"
    return _kinds(_wanting(node, arguments, ["q", "k", "v"], target))


def test_flash_attention_backward_is_three_kernels() -> None:
    """Sums of rows, the gradients, and the conversion of the queries' from fp32."""
    assert ["attention_delta", "attention", "convert_dq"] == _attention(HEADS, "a100")


def test_attention_backward_depends_on_target_and_type() -> None:
    """The memory-efficient kernel sums in fp32, and on Volta, in steps before it."""
    steps = ["mul", "sum", "copy", "attention"]

    assert steps == _attention(HEADS.replace("f16", "f32"), "a100")
    assert ["cast", "cast", *steps] == _attention(HEADS, "v100")


def test_grouped_heads_are_summed_up() -> None:
    """Flash attention writes a gradient for each query head: sums of them follow."""
    node = "attention_backward(%g, %g, %k, %k, %g) {wants = [WANTS]}"
    arguments = f"%g: {HEADS}, %k: f16[4,4,512,64]"
    found = _wanting(node, arguments, ["q", "k", "v"], "h100")

    assert ["sum", "sum"] == _kinds(found)[-2:]


def _joined_heads(x: str, made: str) -> dict[str, list[str]]:
    """Return what is launched to join the heads of a gradient of attention."""
    graph = lower(
        f"""graph @g(%x: {x}) {{
      %q = {made} : ?
      %a = attention_backward(%q, %q, %q, %q, %q) {{wants = ["q"]}} : ?
      %t = transpose(%a) {{perm = [0, 2, 1, 3]}} : ?
      %f = flatten(%t) {{axis = 2}} : ?
      return %f }}""",
        target="a100",
    )
    return launched(graph)


def test_gradients_of_heads_lie_as_heads_do() -> None:
    """Flash attention makes them like its operands: joined they are a view, or not."""
    side_by_side = "transpose(%x) {perm = [0, 2, 1, 3]}"
    apart = "copy(%x)"

    assert [] == _joined_heads("f16[4,512,12,64]", side_by_side)["aten::view"]
    assert ["elementwise"] == _joined_heads(HEADS, apart)["aten::reshape"]


def test_attention_lies_as_its_queries_do() -> None:
    """Of heads made contiguous, flash attention's result is contiguous, too."""
    text = f"""graph @g(%q: {HEADS}) {{
      %a = attention(%q, %q, %q) : ?
      %t = transpose(%a) {{perm = [0, 2, 1, 3]}} : ?
      %f = flatten(%t) {{axis = 2}} : ?
      return %f }}"""

    assert "aten::reshape" in launched(lower(text, target="a100"))
    assert "aten::view" in launched(lower(text, target="v100"))


def test_sums_keep_the_first_layout() -> None:
    """Of two full-size inputs the first decides how the result lies."""

    def found(first: str, second: str) -> dict[str, list[str]]:
        return launched(
            lower(f"""graph @g(%x: f32[2,8,12,64], %y: f32[2,12,8,64]) {{
          %t = transpose(%x) {{perm = [0, 2, 1, 3]}} : ?
          %a = add({first}, {second}) : ?
          %b = transpose(%a) {{perm = [0, 2, 1, 3]}} : ?
          %f = flatten(%b) {{axis = 2}} : ?
          return %f }}""")
        )

    assert "aten::view" in found("%t", "%y")
    assert "aten::reshape" in found("%y", "%t")


def test_weights_of_long_layer_norms_are_summed_in_two_steps() -> None:
    """From 65,536 rows on `layer_norm` sums parts of the weights' gradients."""
    node = "layer_norm_backward(%g, %x, %w) {wants = [WANTS], axis = -1}"

    def found(rows: int) -> list[object]:
        arguments = f"%g: f32[{rows},64], %x: f32[{rows},64], param %w: f32[64]"
        return _kinds(_wanting(node, arguments, ["x", "weight", "bias"]))

    assert ["backward", "sum"] == found(65536)
    assert ["backward", "sum", "sum", "sum"] == found(65537)


def test_gradient_that_nobody_wants_is_not_launched() -> None:
    """Of frozen weights only the input's gradient is computed."""
    node = "layer_norm_backward(%g, %x, %w) {wants = [WANTS], axis = -1}"
    arguments = "%g: f32[8,64], %x: f32[8,64], param %w: f32[64]"

    assert ["backward"] == _kinds(_wanting(node, arguments, ["x"]))


def test_gradient_of_a_mean_of_images_is_a_division() -> None:
    """Of a pool without a window."""
    text = one_op(
        "%g: f32[8,64,1,1], %x: f32[8,64,7,7]",
        'pool_backward(%g, %x) {kind = "average"}',
    )

    assert {"aten::div": ["elementwise"]} == launched(lower(text))


def test_pooling_backward_of_an_average_is_one_kernel() -> None:
    """Each element of the images gathers what its windows give it."""
    text = one_op(
        "%g: f32[8,64,4,4], %x: f32[8,64,8,8]",
        'pool_backward(%g, %x) {kind = "average", window = [2, 2], stride = [2, 2]}',
    )

    assert {"aten::avg_pool2d_backward": ["pool"]} == launched(lower(text))


@pytest.mark.parametrize(
    ("kind", "forward", "backward"),
    [
        ("mse", 2, 2),
        ("l1", 3, 3),
        ("smooth_l1", 2, 2),
        ("huber", 2, 2),
        ("bce", 2, 2),
        ("bce_with_logits", 5, 4),
    ],
)
def test_launches_of_losses(kind: str, forward: int, backward: int) -> None:
    """A loss is its steps and a mean; its gradient is steps, some of them zeros."""
    arguments = "%g: f32[], %x: f32[64,1], %z: f32[64,1]"
    attributes = f'{{kind = "{kind}", reduction = "mean"}}'
    loss = one_op(arguments, f"loss(%x, %z) {attributes}")
    gradient = one_op(arguments, f"loss_backward(%g, %x, %z) {attributes}")

    assert forward == len(kernels(lower(loss)))
    assert backward == len(kernels(lower(gradient)))


def test_weights_of_a_loss_are_steps_of_their_own() -> None:
    """A weight is multiplied in; a weight of positives takes four steps."""
    arguments = "%x: f32[64,1], %z: f32[64,1], %w: f32[64,1], %p: f32[64,1]"
    attributes = '{kind = "bce_with_logits", reduction = "none"}'

    def count(operands: str) -> int:
        return len(kernels(lower(one_op(arguments, f"loss({operands}) {attributes}"))))

    assert (4, 5, 9) == (count("%x, %z"), count("%x, %z, %w"), count("%x, %z, %w, %p"))


def test_values_that_are_put_are_not_sorted() -> None:
    """Only to add are indices sorted; out of place, the tensor is copied first."""
    arguments = "%x: f32[100,8], %v: f32[50,8], %i: i64[50]"
    put = one_op(arguments, "index_put(%x, %v, %i)")
    kinds = _kinds(kernels(lower(put)))
    added = one_op(arguments, "index_put(%x, %v, %i) {accumulate = true}")

    assert ["copy", "index_put"] == kinds
    assert "single_tile" in _kinds(kernels(lower(added)))


def test_indices_that_are_known_come_from_the_host() -> None:
    """They are made linear there, and copied: as DLRM's pairs of vectors are."""
    graph = lower("""graph @g(%x: f32[16,27,27], %v: f32[16,3]) {
      %i = constant() {dtype = !i64, shape = [3], elements = [1, 2, 2]} : i64[3]
      %j = constant() {dtype = !i64, shape = [3], elements = [0, 0, 1]} : i64[3]
      %y = index_put(%x, %v, %i, %j) {accumulate = true, axis = 1} : ?
      return %y }""")
    kinds = [
        "copy",
        "h2d",
        "h2d",
        "add",
        "copy",
        "floor_divide",
        "arange",
        "single_tile",
    ]

    assert [*kinds, "index_put"] == _kinds(kernels(graph))


def test_indices_on_the_host_are_copied_for_a_lookup() -> None:
    """Each list by itself, before the one kernel; on a CPU nothing is copied."""
    text = """graph @g(%x: f32[16,27,27]) {
      %i = constant() {dtype = !i64, shape = [3], host = true} : i64[3]@host
      %j = constant() {dtype = !i64, shape = [3], host = true} : i64[3]@host
      %y = index(%x, %i, %j) {axes = [1, 2]} : ?
      return %y }"""

    assert ["h2d", "h2d", "index"] == _kinds(kernels(lower(text, target="v100")))
    assert ["index"] == _kinds(kernels(lower(text, target="cpu")))


def test_additions_know_their_warps() -> None:
    """How often an index counts, by the axes before it, and what it names behind."""
    text = one_op(
        "%x: f32[16,27,8], %v: f32[16,3,8], %i: i64[3]",
        "index_put(%x, %v, %i) {accumulate = true, axis = 1}",
    )
    (added,) = (k for k in kernels(lower(text)) if k.op == "index_add")

    assert (3, 16, 8) == tuple(added.params[n] for n in ("indices", "outer", "inner"))


@pytest.mark.parametrize(
    ("node", "scattered"),
    [
        ("relu(%x)", False),
        ("add(%x, %y)", False),
        ("add(%x, %row)", True),
        ("add(%x, %one)", False),
        ("relu(%turned)", False),
        ("add(%x, %turned)", True),
        ("assign(%x, %y)", False),
        ("assign(%x, %turned)", True),
        ("cast(%x) {dtype = !bf16}", False),
        ("cast(%half) {dtype = !f32}", True),
        ("cast(%x) {dtype = !f64}", True),
        ("assign(%half, %x)", False),
        ("assign(%x, %half)", True),
        ("add(%x, %half)", True),
        ("mul(%x, %mask)", True),
        ("less(%x, %y)", False),
        ("where(%mask, %x, %y)", False),
    ],
)
def test_elements_moved_one_at_a_time(node: str, scattered: bool) -> None:
    """A row for all, one operand turned, or elements of another type.

    Not one number, both turned, what is compared, nor what narrows fp32.
    """
    text = f"""graph @g(%x: f32[64,64], %y: f32[64,64], %row: f32[64], %one: f32[],
      %half: bf16[64,64], %mask: bool[64,64]) {{
      %turned = transpose(%x) {{perm = [1, 0]}} : ?
      %z = {node} : ?
      return %z }}"""
    (kernel,) = kernels(lower(text))

    assert scattered == kernel.params.flag("scattered", default=False)


def test_many_indices_are_sorted_in_passes() -> None:
    """A histogram, its sums, and a pass for 8 bits of the rows at a time."""
    text = one_op(
        "%x: f32[100000,8], %v: f32[5000,8], %i: i64[5000]",
        "index_put(%x, %v, %i) {accumulate = true, in_place = true}",
    )
    kinds = _kinds(kernels(lower(text)))

    assert ["histogram", "bins", *["onesweep"] * 3] == [
        kind for kind in kinds if kind in ("histogram", "bins", "onesweep")
    ]


@pytest.mark.parametrize(
    ("shape", "passes"), [("64,4096", 0), ("5000", 4), ("64,5000", 4 + 1)]
)
def test_long_rows_are_sorted_in_passes(shape: str, passes: int) -> None:
    """A block sorts a short row; long ones go by elements, then by the row."""
    node = "%y, %i = sort(%x) {axis = -1} : ?, ?"
    graph = lower(f"graph @g(%x: f32[{shape}]) {{ {node}\n return %y }}")
    kinds = _kinds(kernels(graph))

    assert "arange" == kinds[0]
    assert passes == kinds.count("onesweep")
    assert (["copy", "rows"] if not passes else []) == [
        kind for kind in kinds if kind in ("copy", "rows")
    ]


def test_in_place_ops_have_names_of_their_own() -> None:
    """`relu_` launches what `relu` does."""
    text = one_op("%x: f32[8,64]", "relu(%x) {in_place = true}")

    assert {"aten::relu_": ["elementwise"]} == launched(lower(text))


def test_recurrent_backward_walks_the_steps_back() -> None:
    """Two kernels a step; a GEMM for each weight over all steps."""
    node = 'recurrent_backward(%h, %t, %u, %r) {wants = [WANTS], kind = "gru"}'
    weights = "param %u: f32[1,12,16], param %r: f32[1,12,4]"
    arguments = f"%h: f32[7,1,8,4], %t: f32[7,8,16], {weights}"
    found = _wanting(node, arguments, ["x", "weight", "recurrence"])

    assert ["elementwise", "gemm"] * 7 + ["gemm"] * 3 == [k.op for k in found]
    assert ["nn", "tn", "tn"] == [k.params["layout"] for k in found[-3:]]
