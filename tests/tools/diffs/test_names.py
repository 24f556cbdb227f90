"""Names of measured kernels and ops, as perfc calls them."""

from __future__ import annotations

import pytest

from perfc.tools.diffs.kernel_names import kernel_class, short_name
from perfc.tools.diffs.op_names import plain_op

VECTORIZED = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>"
)

BAG = "void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel<float>"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("volta_sgemm_64x64_nn", "gemm"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "gemm"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT64x64x16", "gemm"),
        ("volta_scudnn_128x64_relu_small_nn_v1", "conv2d"),
        ("void cudnn::winograd_nonfused::winogradForward<float>(int)", "conv2d"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, 512>(float)", "batch_norm"),
        (VECTORIZED, "elementwise"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>(params)", "attention"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", "all_reduce"),
        (BAG, "embedding_bag"),
        ("void at::native::reduce_kernel<512, 1, ReduceOp<float>>", "reduction"),
        ("void mine::mystery<float>(int*)", "mystery"),
    ],
)
def test_kernels_have_classes(name: str, expected: str) -> None:
    """They are told by the names that libraries give; others keep their own."""
    assert expected == kernel_class(name)


def test_names_are_shown_short() -> None:
    """Types, arguments and namespaces are left out."""
    assert "vectorized_elementwise_kernel" == short_name(VECTORIZED)
    assert "EmbeddingBag_updateOutputKernel" == short_name(BAG)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::relu_", "aten::relu"),
        ("aten::cudnn_convolution_backward", "aten::convolution_backward"),
        ("aten::_softmax", "aten::_softmax"),
        ("aten::mm", "aten::matmul"),
        ("aten::addmm", "aten::matmul"),
        ("aten::_foreach_add_", "aten::_foreach_add_"),
        ("aten::native_layer_norm", "aten::layer_norm"),
        ("mine::op_", "mine::op_"),
        ("ReluBackward0", "ReluBackward0"),
    ],
)
def test_ops_have_plain_names(name: str, expected: str) -> None:
    """Libraries, places and versions are left out of PyTorch's own."""
    assert expected == plain_op(name)
