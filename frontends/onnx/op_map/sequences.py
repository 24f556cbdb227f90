"""ONNX ops over steps: recurrent layers, signals, strings."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map.indexing import optional_dtype
from perfc.ir import DTYPES, AttrValue

_CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}


def _recurrent(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {"kind": node.op.lower()}
    if node.integer("layout", 0):
        attributes["batch_first"] = True
    node.emit("recurrent", attributes=attributes)
    return True


def _linear_attention(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {
        "heads": node.integer("q_num_heads", 0),
        "kv_heads": node.integer("kv_num_heads", 0),
        "update_rule": node.text("update_rule", "gated_delta"),
        "has_state": node.operand(3) is not None,
    }
    node.emit("linear_attention", attributes=attributes)
    return True


def _dft(node: OnnxNode) -> bool:
    """The axis is an attribute, or since opset 20 an operand, that has to be known."""
    operands = tuple(v for v in node.operands[:2] if v is not None)
    if "axis" in node.attributes or node.opset < 20:
        axis: int | None = node.integer("axis", 1)
    else:
        axis = -2 if node.operand(2) is None else node.constant_integer(2)
    if axis is None:
        return False
    attributes: dict[str, AttrValue] = {
        "axis": axis,
        "inverse": bool(node.integer("inverse", 0)),
        "onesided": bool(node.integer("onesided", 0)),
    }
    node.emit("dft", operands, attributes)
    return True


def _stft(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {
        "onesided": bool(node.integer("onesided", 1)),
        "has_window": node.operand(2) is not None,
        "has_length": node.operand(3) is not None,
    }
    node.emit("stft", attributes=attributes)
    return True


_WINDOWS = {
    "HannWindow": "hann",
    "HammingWindow": "hamming",
    "BlackmanWindow": "blackman",
}


def _window(node: OnnxNode) -> bool:
    dtype = optional_dtype(node, "output_datatype") or DTYPES["f32"]
    node.emit("window", attributes={"kind": _WINDOWS[node.op], "dtype": dtype})
    return True


def _mel_weight_matrix(node: OnnxNode) -> bool:
    dtype = optional_dtype(node, "output_datatype") or DTYPES["f32"]
    node.emit("mel_weight_matrix", attributes={"dtype": dtype})
    return True


_TEXT = {
    "StringConcat": "concat",
    "StringNormalizer": "normalize",
    "StringSplit": "split",
    "RegexFullMatch": "match",
}


def _text(node: OnnxNode) -> bool:
    node.emit("host_text", attributes={"kind": _TEXT[node.op]})
    return True


def _tfidf(node: OnnxNode) -> bool:
    """Emit as many features as the largest index of an n-gram says."""
    indices = node.integers("ngram_indexes") or ()
    attributes: dict[str, AttrValue] = {
        "kind": "tfidf",
        "size": max(indices, default=-1) + 1,
    }
    node.emit("host_text", attributes=attributes)
    return True


def _decode_image(node: OnnxNode) -> bool:
    channels = _CHANNELS.get(node.text("pixel_format", "RGB"), 3)
    node.emit("host_text", attributes={"kind": "decode_image", "size": channels})
    return True


SEQUENCE_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    "LinearAttention": _linear_attention,
    "DFT": _dft,
    "STFT": _stft,
    **dict.fromkeys(_WINDOWS, _window),
    "MelWeightMatrix": _mel_weight_matrix,
    **dict.fromkeys(_TEXT, _text),
    "TfIdfVectorizer": _tfidf,
    "ImageDecoder": _decode_image,
}
