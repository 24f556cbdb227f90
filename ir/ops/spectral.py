"""Fourier transforms and what goes with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perfc.ir.dims import Dim
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import DType, TensorType

_COMPLEX = 2
"""Real and imaginary part, the last axis."""


def _fft_flops(transforms: Dim, length: Dim) -> Any:  # noqa: ANN401
    """Count 5 n log2 n flops a transform, the field's convention (FFTW's)."""
    if not isinstance(length, int):
        length_log = 10  # of a length that is not known yet: that of 1024
    else:
        length_log = max(1, math.ceil(math.log2(max(length, 1))))
    return 5 * length_log * transforms * length


def _infer_dft(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0].type
    if x.rank < 2:
        msg = f"expected [..., 1 or 2], got {x}"
        raise VerifyError(msg)
    axis = rules.normalize_axis(attributes.integer("axis", -2), x.rank)
    shape = list(x.shape)
    if len(operands) > 1:
        stated = rules.only_element(operands[1])
        shape[axis] = rules.UNKNOWN_DIM if stated is None else stated
    inverse, onesided = attributes.flag("inverse"), attributes.flag("onesided")
    if onesided and not inverse:
        shape[axis] = shape[axis] // 2 + 1
    elif onesided and len(operands) < 2:
        shape[axis] = 2 * (shape[axis] - 1)
    shape[-1] = 1 if onesided and inverse else _COMPLEX
    return [Abstract(TensorType(x.dtype, tuple(shape)))]


def _work_dft(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    out = results[0]
    axis = rules.normalize_axis(attributes.integer("axis", -2), out.rank)
    others = [dim for i, dim in enumerate(out.shape[:-1]) if i != axis]
    flops = _fft_flops(math.prod(others), out.shape[axis])
    return Work(flops, operands[0].nbytes, out.nbytes)


DFT = OpDef(
    name="dft",
    arity=(1, 2),
    infer=_infer_dft,
    work=_work_dft,
    attributes={
        "axis": rules.OPTIONAL_INT,
        "inverse": rules.OPTIONAL_BOOL,
        "onesided": rules.OPTIONAL_BOOL,
    },
    summary="x[..., 1 or 2], length: the discrete Fourier transform along one axis",
)


def _infer_stft(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    """Operands are the signal and the step, then window and frame length."""
    signal, step = operands[0].type, rules.only_element(operands[1])
    frame = _frame_length(attributes, operands)
    if signal.rank not in (2, 3):
        msg = f"expected [batch, samples] or [batch, samples, 1 or 2], got {signal}"
        raise VerifyError(msg)
    frames: Dim = rules.UNKNOWN_DIM
    if step is not None and step != 0:
        frames = (signal.shape[1] - frame) // step + 1
    bins = frame // 2 + 1 if attributes.flag("onesided") else frame
    shape = (signal.shape[0], frames, bins, _COMPLEX)
    return [Abstract(TensorType(signal.dtype, shape))]


def _frame_length(attributes: Record, operands: Sequence[Abstract]) -> Dim:
    last = operands[-1]
    if attributes.flag("has_length"):
        length = rules.only_element(last)
        return rules.UNKNOWN_DIM if length is None else length
    if attributes.flag("has_window") and last.type.rank == 1:
        return last.type.shape[0]
    msg = "neither a window nor a frame length is given"
    raise VerifyError(msg)


def _work_stft(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    out = results[0]
    transforms = out.shape[0] * out.shape[1]
    moved = rules.touch_all(attributes, operands, results)
    flops = _fft_flops(transforms, out.shape[2])
    return Work(flops, moved.bytes_read, moved.bytes_written)


STFT = OpDef(
    name="stft",
    arity=(2, 4),
    infer=_infer_stft,
    work=_work_stft,
    attributes={
        "onesided": rules.OPTIONAL_BOOL,
        "has_window": rules.OPTIONAL_BOOL,
        "has_length": rules.OPTIONAL_BOOL,
    },
    summary="signal, step, window, length: Fourier transforms of overlapping frames",
)


def _infer_window(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    size = rules.only_element(operands[0])
    shape = (rules.UNKNOWN_DIM if size is None else size,)
    return [Abstract(TensorType(attributes.dtype("dtype"), shape))]


WINDOW = OpDef(
    name="window",
    arity=(1, 1),
    infer=_infer_window,
    work=rules.per_result(10),
    attributes={"kind": (str,), "dtype": (DType,)},
    summary="a hann, hamming or blackman window of a computed size",
)


def _infer_mel(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    bins, length = rules.only_element(operands[0]), rules.only_element(operands[1])
    rows = rules.UNKNOWN_DIM if length is None else length // 2 + 1
    columns = rules.UNKNOWN_DIM if bins is None else bins
    return [Abstract(TensorType(attributes.dtype("dtype"), (rows, columns)))]


MEL_WEIGHT_MATRIX = OpDef(
    name="mel_weight_matrix",
    arity=(5, 5),
    infer=_infer_mel,
    work=rules.no_work,
    attributes={"dtype": (DType,)},
    summary="bins, length, rate, edges: weights from a spectrum to the mel scale",
)


def _work_fft(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Transform each axis; a spectrum of real numbers is half as long."""
    widest = results[0]
    length: Dim = 1
    for axis in attributes.integers("axes"):
        length = length * widest.shape[rules.normalize_axis(axis, widest.rank)]
    transforms = widest.numel // length if length else 0
    flops = _fft_flops(transforms, length)
    return Work(flops, operands[0].nbytes, results[0].nbytes)


FFT = OpDef(
    name="fft",
    arity=(1, 1),
    infer=rules.declared,
    work=_work_fft,
    attributes={"axes": (tuple,)},
    summary="the Fourier transform along some axes, of real or complex numbers",
)

OPS = named(FFT, DFT, STFT, WINDOW, MEL_WEIGHT_MATRIX)
