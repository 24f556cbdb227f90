"""ATen ops to perfc ops."""

from __future__ import annotations

from perfc.frontends.aten.node import Handler
from perfc.frontends.aten.op_map.elementwise_names import NAMED
from perfc.lazy_table import LazyTable

HANDLERS: LazyTable[Handler] = LazyTable(
    "perfc.frontends.aten.op_map",
    {
        "attention:ATTENTION_HANDLERS": (
            "aten.scaled_dot_product_attention "
            "aten._scaled_dot_product_flash_attention "
            "aten._scaled_dot_product_efficient_attention "
            "aten._scaled_dot_product_cudnn_attention "
            "aten._scaled_dot_product_flash_attention_for_cpu "
            "aten._scaled_dot_product_fused_attention_overrideable "
            "aten._scaled_dot_product_flash_attention_backward "
            "aten._scaled_dot_product_efficient_attention_backward "
            "aten._scaled_dot_product_cudnn_attention_backward "
            "aten._scaled_dot_product_flash_attention_for_cpu_backward "
            "aten._scaled_dot_product_fused_attention_overrideable_backward "
            "aten._flash_attention_forward aten._efficient_attention_forward "
            "aten._flash_attention_backward aten._efficient_attention_backward "
            "torch_attn._varlen_attn torch_attn._varlen_attn_backward"
        ),
        "cell:CELL_HANDLERS": (
            "aten.lstm_cell aten.gru_cell aten._thnn_fused_lstm_cell "
            "aten._thnn_fused_gru_cell aten._thnn_fused_lstm_cell_backward_impl "
            "aten._thnn_fused_gru_cell_backward aten.rnn_tanh_cell aten.rnn_relu_cell"
        ),
        "composite:COMPOSITE_HANDLERS": (
            "aten.prelu aten.fft_fft aten.fft_fft2 aten.fft_fftn aten.fft_ifft "
            "aten.fft_ifft2 aten.fft_ifftn aten.fft_rfft aten.fft_rfft2 aten.fft_rfftn "
            "aten.fft_irfft aten.fft_irfft2 aten.fft_irfftn aten.fft_hfft "
            "aten.fft_hfft2 aten.fft_hfftn aten.fft_ihfft aten.fft_ihfft2 "
            "aten.fft_ihfftn aten._fft_r2c aten._fft_c2c aten._fft_c2r"
        ),
        "convolution:CONVOLUTION_HANDLERS": (
            "aten.convolution aten._convolution aten.cudnn_convolution "
            "aten.miopen_convolution aten.conv1d aten.conv2d aten.conv3d "
            "aten.cudnn_convolution_transpose aten.conv_transpose1d "
            "aten.conv_transpose2d aten.conv_transpose3d aten.convolution_overrideable "
            "aten._conv_depthwise2d aten.conv_depthwise3d aten.thnn_conv2d "
            "aten._slow_conv2d_forward aten.mkldnn_convolution aten.conv_tbc "
            "aten.convolution_backward aten.max_pool1d aten.max_pool1d_with_indices "
            "aten.max_pool2d aten.max_pool2d_with_indices aten.max_pool3d "
            "aten.max_pool3d_with_indices aten.avg_pool1d aten.avg_pool2d "
            "aten.avg_pool3d aten.avg_pool2d_backward aten.avg_pool3d_backward "
            "aten.max_pool2d_with_indices_backward "
            "aten.max_pool3d_with_indices_backward aten.adaptive_avg_pool1d "
            "aten.adaptive_avg_pool2d aten.adaptive_avg_pool3d "
            "aten._adaptive_avg_pool2d aten._adaptive_avg_pool3d "
            "aten.adaptive_max_pool1d aten.adaptive_max_pool2d "
            "aten.adaptive_max_pool3d aten.fractional_max_pool2d "
            "aten.fractional_max_pool3d aten.fractional_max_pool2d_backward "
            "aten.fractional_max_pool3d_backward aten.max_unpool2d aten.max_unpool3d "
            "aten._adaptive_avg_pool2d_backward aten._adaptive_avg_pool3d_backward "
            "aten.adaptive_max_pool2d_backward aten.adaptive_max_pool3d_backward"
        ),
        "creation:CREATION_HANDLERS": (
            "aten.empty aten.empty_like aten.new_empty aten.empty_strided "
            "aten.new_empty_strided aten.empty_permuted aten.resize aten.resize_as "
            "aten.zeros aten.zeros_like aten.new_zeros aten.ones aten.ones_like "
            "aten.new_ones aten.full aten.full_like aten.new_full aten.scalar_tensor "
            "aten.fill aten.zero aten.arange aten.linspace aten.logspace aten.eye "
            "aten.randn aten.randn_like aten.normal aten.log_normal "
            "aten.normal_functional aten.rand aten.rand_like aten.uniform aten.randint "
            "aten.randint_like aten.random aten.randperm aten.exponential "
            "aten.geometric aten.cauchy aten.bernoulli"
        ),
        "distance:DISTANCE_HANDLERS": (
            "aten._pdist_forward aten._pdist_backward aten._cdist_forward "
            "aten._cdist_backward"
        ),
        "elementwise:ELEMENTWISE_HANDLERS": (
            f"{' '.join(f'aten.{name}' for name in NAMED)} "
            "aten.clamp aten.clip aten.clamp_min aten.clamp_max aten.hardtanh "
            "aten.hardtanh_backward aten.gelu aten.gelu_backward "
            "aten.leaky_relu_backward aten.elu_backward aten.log_sigmoid_forward "
            "aten.glu aten.glu_backward aten._prelu_kernel_backward aten.hardshrink "
            "aten.hardshrink_backward aten.rrelu_with_noise "
            "aten.rrelu_with_noise_backward aten.deg2rad aten.rad2deg"
        ),
        "embedding:EMBEDDING_HANDLERS": (
            "aten.embedding aten.embedding_renorm aten.embedding_backward "
            "aten.embedding_dense_backward aten.embedding_sparse_backward "
            "aten.embedding_bag aten._embedding_bag aten._embedding_bag_forward_only "
            "aten._embedding_bag_backward aten._embedding_bag_dense_backward "
            "aten._embedding_bag_per_sample_weights_backward "
            "aten._embedding_bag_sparse_backward perfc.embedding_bag "
            "perfc.embedding_bag_backward"
        ),
        "few_bits:FEW_BITS_HANDLERS": (
            "fbgemm.bounds_check_indices "
            "fbgemm.int_nbit_split_embedding_codegen_lookup_function "
            "fbgemm.int_nbit_split_embedding_uvm_caching_codegen_lookup_function "
            "fbgemm.FloatOrHalfToFused8BitRowwiseQuantized "
            "fbgemm.FloatToFused8BitRowwiseQuantized "
            "fbgemm.HalfToFused8BitRowwiseQuantized "
            "fbgemm.Fused8BitRowwiseQuantizedToFloat "
            "fbgemm.Fused8BitRowwiseQuantizedToFloatOrHalf "
            "fbgemm.Fused8BitRowwiseQuantizedToHalf "
            "fbgemm.FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf "
            "fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf "
            "fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat "
            "fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloatOrHalf "
            "fbgemm.FusedNBitRowwiseQuantizedSBHalfToHalf "
            "quantized.embedding_bag_byte_rowwise_offsets "
            "quantized.embedding_bag_byte_unpack quantized.embedding_bag_byte_prepack "
            "quantized.embedding_bag_4bit_rowwise_offsets "
            "quantized.embedding_bag_4bit_unpack quantized.embedding_bag_4bit_prepack "
            "quantized.embedding_bag_2bit_rowwise_offsets "
            "quantized.embedding_bag_2bit_unpack quantized.embedding_bag_2bit_prepack"
        ),
        "host:HOST_HANDLERS": (
            "aten.sym_size aten.sym_numel aten.sym_stride aten.sym_storage_offset "
            "aten.sym_constrain_range aten.sym_constrain_range_for_size "
            "aten.sym_is_contiguous aten.is_same_size aten.record_stream "
            "aten._assert_scalar aten._assert_tensor_metadata aten._assert_async "
            "aten._functional_assert_scalar aten._functional_assert_async "
            "aten._version aten.is_pinned aten.dim aten.size aten.stride "
            "aten._functional_sym_constrain_range "
            "aten._functional_sym_constrain_range_for_size "
            "profiler._record_function_enter_new profiler._record_function_exit "
            "profiler._record_function_enter prim.device aten._print _operator.add "
            "_operator.mul _operator.sub _operator.floordiv aten._local_scalar_dense "
            "aten._nested_tensor_from_mask_left_aligned aten.item aten.is_nonzero "
            "aten.equal"
        ),
        "image:IMAGE_HANDLERS": (
            "aten.upsample_nearest1d aten.upsample_nearest2d aten.upsample_nearest3d "
            "aten._upsample_nearest_exact1d aten._upsample_nearest_exact2d "
            "aten._upsample_nearest_exact3d aten.upsample_linear1d "
            "aten.upsample_bilinear2d aten.upsample_trilinear3d "
            "aten._upsample_bilinear2d_aa aten.upsample_bicubic2d "
            "aten._upsample_bicubic2d_aa aten.upsample_nearest1d_backward "
            "aten.upsample_nearest2d_backward aten.upsample_nearest3d_backward "
            "aten._upsample_nearest_exact1d_backward "
            "aten._upsample_nearest_exact2d_backward "
            "aten._upsample_nearest_exact3d_backward aten.upsample_linear1d_backward "
            "aten.upsample_bilinear2d_backward aten.upsample_trilinear3d_backward "
            "aten._upsample_bilinear2d_aa_backward aten.upsample_bicubic2d_backward "
            "aten._upsample_bicubic2d_aa_backward aten.grid_sampler_2d "
            "aten.grid_sampler_3d aten.grid_sampler aten.grid_sampler_2d_backward "
            "aten.grid_sampler_3d_backward aten.affine_grid_generator "
            "aten.constant_pad_nd aten.pad aten.reflection_pad1d aten.reflection_pad2d "
            "aten.reflection_pad3d aten.replication_pad1d aten.replication_pad2d "
            "aten.replication_pad3d aten.reflection_pad1d_backward "
            "aten.reflection_pad2d_backward aten.reflection_pad3d_backward "
            "aten.replication_pad1d_backward aten.replication_pad2d_backward "
            "aten.replication_pad3d_backward"
        ),
        "indexing:INDEXING_HANDLERS": (
            "aten.index aten._unsafe_index aten.index_put aten._index_put_impl "
            "aten._unsafe_index_put aten.index_select aten.index_add aten.index_reduce "
            "aten.index_copy aten.index_fill aten.gather aten.take_along_dim aten.take "
            "aten.scatter aten.scatter_add aten.scatter_reduce aten.slice_scatter "
            "aten.select_scatter aten.slice_backward aten.select_backward "
            "aten.diagonal_backward aten.unfold_backward "
            "aten.value_selecting_reduction_backward aten.masked_select "
            "aten.masked_scatter"
        ),
        "loss:LOSS_HANDLERS": (
            "aten.mse_loss aten.l1_loss aten.smooth_l1_loss aten.huber_loss "
            "aten.binary_cross_entropy aten.binary_cross_entropy_with_logits "
            "aten.soft_margin_loss aten.multi_margin_loss aten.multilabel_margin_loss "
            "aten.multilabel_margin_loss_forward aten.mse_loss_backward "
            "aten.smooth_l1_loss_backward aten.huber_loss_backward "
            "aten.binary_cross_entropy_backward aten.soft_margin_loss_backward "
            "aten.multi_margin_loss_backward aten.multilabel_margin_loss_backward "
            "aten.nll_loss aten.nll_loss_forward aten.nll_loss_nd aten.nll_loss2d "
            "aten.nll_loss2d_forward aten.nll_loss_backward aten.nll_loss2d_backward "
            "aten._ctc_loss aten._ctc_loss_backward aten.cross_entropy_loss"
        ),
        "normalization:NORMALIZATION_HANDLERS": (
            "aten.layer_norm aten.native_layer_norm aten.native_layer_norm_backward "
            "aten.rms_norm aten._fused_rms_norm aten._fused_rms_norm_backward "
            "aten.group_norm aten.native_group_norm aten.native_group_norm_backward "
            "aten.instance_norm aten._weight_norm_interface aten._weight_norm "
            "aten._weight_norm_interface_backward aten.batch_norm "
            "aten.native_batch_norm aten.cudnn_batch_norm aten.miopen_batch_norm "
            "aten._native_batch_norm_legit aten._native_batch_norm_legit_functional "
            "aten._batch_norm_no_update aten._native_batch_norm_legit_no_training "
            "aten._batch_norm_with_update aten._batch_norm_with_update_functional "
            "aten.native_batch_norm_backward aten.cudnn_batch_norm_backward "
            "aten.miopen_batch_norm_backward aten.batch_norm_backward aten.dropout "
            "aten.native_dropout aten._fused_dropout aten.feature_dropout "
            "aten.alpha_dropout"
        ),
        "optimizer:OPTIMIZER_HANDLERS": (
            "aten._foreach_add aten._foreach_sub aten._foreach_mul aten._foreach_div "
            "aten._foreach_neg aten._foreach_sqrt aten._foreach_rsqrt "
            "aten._foreach_reciprocal aten._foreach_pow aten._foreach_abs "
            "aten._foreach_sign aten._foreach_exp aten._foreach_log "
            "aten._foreach_maximum aten._foreach_minimum aten._foreach_clamp_min "
            "aten._foreach_clamp_max aten._foreach_addcmul aten._foreach_addcdiv "
            "aten._foreach_lerp aten._foreach_copy aten._foreach_zero "
            "aten._foreach_norm aten._foreach_max aten._fused_adam aten._fused_adamw "
            "aten._fused_sgd aten._fused_adagrad "
            "aten._amp_foreach_non_finite_check_and_unscale_ aten._amp_update_scale_"
        ),
        "matmul:MATMUL_HANDLERS": (
            "aten.linear aten.addmm aten._addmm_activation aten.mm aten.bmm "
            "aten.matmul aten.mv aten.dot aten.vdot aten.baddbmm aten.addmv aten.outer "
            "aten.ger aten.einsum aten._grouped_mm aten._scaled_mm "
            "aten._scaled_mm_v2 aten._scaled_grouped_mm aten._scaled_grouped_mm_v2 "
            "aten._linalg_det aten.linear_backward"
        ),
        "quantization:QUANTIZATION_HANDLERS": (
            "aten._int_mm aten._weight_int4pack_mm aten._weight_int4pack_mm_for_cpu "
            "aten._weight_int4pack_mm_with_scales_and_zeros aten._weight_int8pack_mm "
            "quantized_decomposed.dequantize_per_channel "
            "quantized_decomposed.dequantize_per_channel_group "
            "quantized_decomposed.dequantize_per_tensor "
            "quantized_decomposed.dequantize_per_token "
            "quantized_decomposed.quantize_per_channel "
            "quantized_decomposed.quantize_per_channel_group "
            "quantized_decomposed.quantize_per_tensor "
            "quantized_decomposed.quantize_per_token "
            "quantized_decomposed.choose_qparams "
            "quantized_decomposed.choose_qparams_symmetric "
            "quantized_decomposed.choose_qparams_per_token "
            "quantized_decomposed.choose_qparams_per_token_asymmetric "
            "quantized_decomposed._choose_qparams_per_token_asymmetric_impl "
            "fbgemm.f8f8bf16 fbgemm.f8f8bf16_rowwise fbgemm.f8f8bf16_tensorwise "
            "fbgemm.f8f8bf16_cublas fbgemm.f8f8bf16_blockwise fbgemm.i8i8bf16 "
            "fbgemm.bf16i4bf16_rowwise fbgemm.quantize_fp8_per_row "
            "fbgemm.quantize_fp8_per_tensor mslk.f8f8bf16 mslk.f8f8bf16_rowwise "
            "mslk.f8f8bf16_tensorwise mslk.f8f8bf16_cublas mslk.f8f8bf16_blockwise "
            "mslk.i8i8bf16 mslk.bf16i4bf16_rowwise mslk.quantize_fp8_per_row "
            "mslk.quantize_fp8_per_tensor torchao._scaled_embedding_bag "
            "torchao.choose_qparams_affine torchao.choose_scale_float8 "
            "torchao.dequantize_affine torchao.dequantize_affine_float8_non_decomposed "
            "torchao.quantize_affine torchao.quantize_affine_float8_non_decomposed"
        ),
        "recurrent:RECURRENT_HANDLERS": (
            "aten.lstm aten.gru aten.rnn_tanh aten.rnn_relu aten._cudnn_rnn "
            "aten._cudnn_rnn_backward"
        ),
        "reduction:REDUCTION_HANDLERS": (
            "aten.sum aten.nansum aten.mean aten.nanmean aten.prod aten.amax aten.amin "
            "aten.any aten.all aten.var aten.std aten.logsumexp aten.count_nonzero "
            "aten.max aten.min aten.median aten.nanmedian aten.mode aten.aminmax "
            "aten.var_mean aten.std_mean aten.norm aten.linalg_norm "
            "aten.linalg_vector_norm aten.argmax aten.argmin aten.histc aten.bincount "
            "aten.cumsum aten.cumprod aten.logcumsumexp aten.cummax aten.cummin "
            "aten.softmax aten._softmax aten._safe_softmax aten.log_softmax "
            "aten._log_softmax"
        ),
        "selection:SELECTION_HANDLERS": (
            "aten.sort aten.msort aten.argsort aten.topk aten.kthvalue aten.nonzero "
            "aten._unique2 aten.unique_dim aten.unique_consecutive aten.repeat "
            "aten.tile aten.repeat_interleave aten.flip aten.roll aten.rot90 "
            "aten.diag_embed aten.diag aten.channel_shuffle aten.pixel_shuffle "
            "aten.pixel_unshuffle aten.im2col aten.col2im aten.tril aten.triu "
            "aten.one_hot aten.multinomial"
        ),
        "sparse:SPARSE_HANDLERS": (
            "aten._indices aten.indices aten._values aten.values aten.clone "
            "aten.detach aten.alias perfc.sparse_optimizer_step aten.add"
        ),
        "trilinear:TRILINEAR_HANDLERS": "aten._trilinear aten.bilinear",
        "views:VIEW_HANDLERS": (
            "aten.view aten._unsafe_view aten._reshape_alias aten.view_as "
            "aten.unflatten aten.reshape aten.flatten aten.reshape_as aten.as_strided "
            "aten.diagonal aten.unfold aten.real aten.imag aten.view_as_real "
            "aten.view_as_complex aten._conj aten._neg_view aten.lift_fresh aten.lift "
            "aten._fw_primal aten.requires_grad aten._nested_view_from_buffer "
            "aten.positive aten.lift_fresh_copy aten.resolve_conj aten.resolve_neg "
            "aten._autocast_to_full_precision aten.permute aten.transpose "
            "aten.swapaxes aten.swapdims aten.t aten.numpy_T aten.mT aten.mH "
            "aten.matrix_H aten.adjoint aten.movedim aten.moveaxis aten.squeeze "
            "aten.unsqueeze aten.expand aten.expand_as aten.broadcast_to "
            "aten.broadcast_tensors aten.slice aten.narrow aten.select aten.split "
            "aten.split_with_sizes aten.chunk aten.tensor_split aten.unsafe_split "
            "aten.unsafe_chunk aten.unsafe_split_with_sizes aten.unbind aten.cat "
            "aten.concat aten.concatenate aten.stack aten.contiguous aten._to_copy "
            "aten.to aten.type_as aten.copy"
        ),
    },
)
"""Namespace and name of an op (`aten.add`; all its overloads) to the function that
writes it. An op that works in place has the name of the one that does not."""


def find_handler(target: str) -> Handler | None:
    """Return the function that writes calls of *target*, or None."""
    namespace, _, rest = target.partition(".")
    name = f"{namespace}.{rest.split('.')[0]}"
    return HANDLERS.get(name) or HANDLERS.get(name.removesuffix("_"))
