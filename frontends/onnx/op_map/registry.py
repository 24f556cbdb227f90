"""ONNX op types to perfc ops."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.lazy_table import LazyTable

HANDLERS: LazyTable[Handler] = LazyTable(
    "perfc.frontends.onnx.op_map",
    {
        "blocked:BLOCKED_HANDLERS": (
            "com.microsoft.nchwc::Conv com.microsoft.nchwc::ReorderInput "
            "com.microsoft.nchwc::ReorderOutput com.microsoft.nchwc::Upsample "
            "com.microsoft.nchwc::AveragePool com.microsoft.nchwc::GlobalAveragePool "
            "com.microsoft.nchwc::GlobalMaxPool com.microsoft.nchwc::MaxPool"
        ),
        "contrib:CONTRIB_HANDLERS": (
            "com.microsoft::Attention com.microsoft::BiasGelu "
            "com.microsoft::EmbedLayerNormalization com.microsoft::FastGelu "
            "com.microsoft::Gelu com.microsoft::GroupQueryAttention "
            "com.microsoft::MultiHeadAttention com.microsoft::QAttention "
            "com.microsoft::QEmbedLayerNormalization com.microsoft::QuickGelu "
            "com.microsoft::RotaryEmbedding com.microsoft::SkipLayerNormalization "
            "com.microsoft::SkipSimplifiedLayerNormalization"
        ),
        "control:CONTROL_HANDLERS": (
            "If Loop Scan SequenceMap SequenceEmpty SequenceConstruct SequenceInsert "
            "SequenceErase SequenceAt SequenceLength SplitToSequence "
            "ConcatFromSequence Optional OptionalGetElement OptionalHasElement"
        ),
        "convolution:CONVOLUTION_HANDLERS": (
            "Conv ConvTranspose DeformConv Col2Im CausalConvWithState MaxPool "
            "AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool MaxUnpool "
            "MaxRoiPool RoiAlign"
        ),
        "elementwise:ELEMENTWISE_HANDLERS": (
            "Relu Elu Celu Selu Shrink Sigmoid Tanh Softplus Softsign PRelu Erf Exp "
            "Log Sqrt Reciprocal Neg Abs Sign Ceil Floor Round IsNaN IsInf Not Sin Cos "
            "Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Add Sub Mul Div Pow Equal "
            "Less Greater And Or Xor Where LeakyRelu ThresholdedRelu LessOrEqual "
            "GreaterOrEqual BitShift BitwiseNot BitwiseAnd BitwiseOr BitwiseXor Max "
            "Min Sum Mean Mod Clip HardSigmoid Swish SwiGLU"
        ),
        "embedding:EMBEDDING_HANDLERS": (
            "perfc::EmbeddingBag aten::ATen org.pytorch.aten::ATen"
        ),
        "fused:FUSED_HANDLERS": (
            "com.microsoft::BiasAdd com.microsoft::BiasSoftmax "
            "com.microsoft::BiasSplitGelu com.microsoft::FusedConv "
            "com.microsoft::FusedGemm com.microsoft::FusedMatMul "
            "com.microsoft::FusedMatMulActivation com.microsoft::GroupNorm "
            "com.microsoft::NhwcConv com.microsoft::NhwcFusedConv "
            "com.microsoft::NhwcMaxPool com.microsoft::SkipGroupNorm "
            "com.microsoft::TransposeMatMul"
        ),
        "fused_quantization:FUSED_QUANTIZATION_HANDLERS": (
            "com.microsoft::DequantizeLinear com.microsoft::DynamicQuantizeLSTM "
            "com.microsoft::DynamicQuantizeMatMul com.microsoft::MatMulBnb4 "
            "com.microsoft::MatMulIntegerToFloat com.microsoft::MatMulNBits "
            "com.microsoft::QGemm com.microsoft::QLinearAdd "
            "com.microsoft::QLinearAveragePool com.microsoft::QLinearConcat "
            "com.microsoft::QLinearConv com.microsoft::QLinearGlobalAveragePool "
            "com.microsoft::QLinearLeakyRelu com.microsoft::QLinearMul "
            "com.microsoft::QLinearReduceMean com.microsoft::QLinearSigmoid "
            "com.microsoft::QLinearSoftmax com.microsoft::QLinearWhere "
            "com.microsoft::QuantizeLinear"
        ),
        "indexing:INDEXING_HANDLERS": (
            "Gather GatherElements GatherND ScatterElements ScatterND TensorScatter "
            "ReverseSequence TopK NonZero Compress Unique NonMaxSuppression OneHot "
            "Tile Pad CenterCropPad DepthToSpace SpaceToDepth Trilu EyeLike "
            "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli "
            "Multinomial Resize GridSample AffineGrid"
        ),
        "quantization:QUANTIZATION_HANDLERS": (
            "QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger "
            "ConvInteger QLinearMatMul QLinearConv"
        ),
        "sequences:SEQUENCE_HANDLERS": (
            "LSTM GRU RNN LinearAttention DFT STFT HannWindow HammingWindow "
            "BlackmanWindow MelWeightMatrix StringConcat StringNormalizer StringSplit "
            "RegexFullMatch TfIdfVectorizer ImageDecoder"
        ),
        "shapes:SHAPE_HANDLERS": (
            "Constant ConstantOfShape Shape Unsqueeze Squeeze Reshape Transpose "
            "Flatten Expand Cast Concat Split Slice Identity Size Range CastLike "
            "BitCast"
        ),
        "tensors:TENSOR_HANDLERS": (
            "Gemm MatMul Einsum Det ReduceSum ReduceMean ReduceMax ReduceMin "
            "ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp "
            "ArgMax ArgMin CumSum CumProd Softmax LogSoftmax Hardmax "
            "BatchNormalization LpNormalization MeanVarianceNormalization LRN Dropout "
            "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"
        ),
        "transformer:TRANSFORMER_HANDLERS": (
            "Attention RotaryEmbedding LayerNormalization RMSNormalization "
            "SimplifiedLayerNormalization GroupNormalization InstanceNormalization "
            "Gelu HardSwish Mish"
        ),
    },
)
"""ONNX op type to the function that writes it."""

REGIONS: Mapping[str, tuple[str, ...]] = {
    "Loop": ("body",),
    "If": ("then_branch", "else_branch"),
    "Scan": ("body",),
    "SequenceMap": ("body",),
}
"""Ops whose graphs come in as regions, and the attributes that hold these."""


def is_known(op: str) -> bool:
    """Whether there is a handler for *op*."""
    return op in HANDLERS


def lower_node(node: OnnxNode) -> bool:
    """Write *node* into its graph; False if perfc has no op for it."""
    if not is_known(node.op):
        return False
    if not node.results:
        return True  # nobody reads what it computes
    return HANDLERS[node.op](node)
