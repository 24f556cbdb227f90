"""Ops that copy elements to other places: padded, repeated, cut, shuffled."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, Expr
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import DType, TensorType


def _written_and_read(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Read operand 0 once, whatever its shape arithmetic says, and write."""
    return Work(0, operands[0].nbytes, results[0].nbytes)


def _infer_tile(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x, repeats = operands[0], operands[1].elements
    if repeats is None:
        return [Abstract(TensorType(x.type.dtype, (rules.UNKNOWN_DIM,) * x.type.rank))]
    if len(repeats) != x.type.rank:
        msg = f"{len(repeats)} repeats for {x.type}"
        raise VerifyError(msg)
    shape = tuple(n * times for n, times in zip(x.type.shape, repeats, strict=True))
    type_ = TensorType(x.type.dtype, shape).checked()
    return [Abstract(type_, _tiled(x, repeats, type_.numel))]


def _tiled(x: Abstract, repeats: Sequence[Dim], numel: Dim) -> tuple[Dim, ...] | None:
    axes = rules.all_of(x)
    if (
        axes is None
        or not isinstance(numel, int)
        or not 0 < numel <= rules.MAX_ELEMENTS
    ):
        return None
    picks = [
        [*axis] * rules.as_int(times) for axis, times in zip(axes, repeats, strict=True)
    ]
    return rules.picked(x, picks)


TILE = OpDef(
    name="tile",
    arity=(2, 2),
    infer=_infer_tile,
    work=_written_and_read,
    summary="x, repeats: copies side by side along each axis",
)


def _infer_pad(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x, pads = operands[0], operands[1].elements
    shape = list(x.type.shape)
    axes: Sequence[Dim] | None = tuple(range(len(shape)))
    if len(operands) > 2:
        axes = operands[2].elements
    if pads is None or axes is None:
        return [Abstract(TensorType(x.type.dtype, (rules.UNKNOWN_DIM,) * len(shape)))]
    if len(pads) != 2 * len(axes):
        msg = f"{len(pads)} pads for {len(axes)} axes"
        raise VerifyError(msg)
    for place, axis in enumerate(axes):
        at = rules.normalize_axis(rules.as_int(axis), len(shape))
        shape[at] = shape[at] + pads[place] + pads[place + len(axes)]
    type_ = TensorType(x.type.dtype, tuple(shape)).checked()
    return [Abstract(type_, _padded(x, pads, attributes.get("value")))]


def _padded(x: Abstract, pads: Sequence[Dim], value: object) -> tuple[Dim, ...] | None:
    """Fold a padded list; one that is cut, or filled with other elements, is not."""
    if x.elements is None or x.type.rank != 1 or not isinstance(value, int):
        return None
    if len(pads) != 2:
        return None
    if any(isinstance(n, Expr) or not 0 <= n <= rules.MAX_ELEMENTS for n in pads):
        return None
    before, behind = ((value,) * rules.as_int(n) for n in pads)
    return (*before, *x.elements, *behind)


PAD = OpDef(
    name="pad",
    arity=(2, 3),
    infer=_infer_pad,
    work=_written_and_read,
    attributes={"mode": rules.OPTIONAL_TEXT, "value": rules.OPTIONAL_INT},
    summary="x, sizes in front and behind, axes: borders added, or cut off",
)


def _infer_pad_backward(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    grad, shape = operands[0].type, attributes.dims("shape")
    if len(shape) != grad.rank:
        msg = f"a tensor of {len(shape)} axes does not fit {grad}"
        raise VerifyError(msg)
    return [Abstract(TensorType(grad.dtype, shape).checked())]


def _work_pad_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Each element is added to the one that it is a copy of."""
    grad, x = operands[0], results[0]
    return Work(grad.numel, grad.nbytes, x.nbytes)


PAD_BACKWARD = OpDef(
    name="pad_backward",
    arity=(1, 1),
    infer=_infer_pad_backward,
    work=_work_pad_backward,
    attributes={"mode": (str,), "shape": (tuple,)},
    summary="gradient of a pad whose borders are copies: added to what they copy",
)


def _infer_center_crop_pad(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, wanted = operands[0].type, operands[1].elements
    shape = list(x.shape)
    axes = attributes.integers("axes") or tuple(range(len(shape)))
    sizes = (rules.UNKNOWN_DIM,) * len(axes) if wanted is None else wanted
    if len(sizes) != len(axes):
        msg = f"{len(sizes)} sizes for {len(axes)} axes"
        raise VerifyError(msg)
    for axis, size in zip(axes, sizes, strict=True):
        shape[rules.normalize_axis(axis, len(shape))] = size
    return [Abstract(TensorType(x.dtype, tuple(shape)))]


CENTER_CROP_PAD = OpDef(
    name="center_crop_pad",
    arity=(2, 2),
    infer=_infer_center_crop_pad,
    work=_written_and_read,
    attributes={"axes": rules.OPTIONAL_INTS},
    summary="x, sizes: cut, or padded, alike on both sides",
)


def _infer_blocks(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, block = operands[0].type, attributes.integer("block")
    if x.rank != 4 or block < 1:
        msg = f"cannot move blocks of {block} in {x}"
        raise VerifyError(msg)
    n, c, h, w = x.shape
    if attributes.flag("to_space"):
        shape = (n, c // block**2, h * block, w * block)
    else:
        shape = (n, c * block**2, h // block, w // block)
    return [Abstract(TensorType(x.dtype, shape))]


PIXEL_SHUFFLE = OpDef(
    name="pixel_shuffle",
    arity=(1, 1),
    infer=_infer_blocks,
    work=rules.touch_all,
    attributes={"block": (int,), "to_space": rules.OPTIONAL_BOOL},
    summary="channels to blocks of pixels, or blocks of pixels to channels",
)
TRILU = OpDef(
    name="trilu",
    arity=(1, 2),
    infer=rules.first_operand,
    work=_written_and_read,
    attributes={"upper": rules.OPTIONAL_BOOL},
    summary="matrices with the other triangle 0 (diagonal: operand 1)",
)


def _infer_eye_like(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0].type
    dtype = x.dtype
    if attributes.get("dtype") is not None:
        dtype = attributes.dtype("dtype")
    return [Abstract(TensorType(dtype, x.shape))]


def _only_written(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    return Work(0, 0, results[0].nbytes)


EYE_LIKE = OpDef(
    name="eye_like",
    arity=(1, 1),
    infer=_infer_eye_like,
    work=_only_written,
    attributes={"dtype": rules.OPTIONAL_DTYPE},
    summary="ones on a diagonal, zeros elsewhere, in the shape of x",
)


def _infer_rearranged(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = attributes.dims("shape")
    return [Abstract(TensorType(operands[0].type.dtype, shape).checked())]


REARRANGE = OpDef(
    name="rearrange",
    arity=(1, 1),
    infer=_infer_rearranged,
    work=_written_and_read,
    attributes={"kind": (str,), "shape": (tuple,)},
    summary="elements copied to other places: flip, roll, repeat_interleave, ...",
)


def _infer_random(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape: tuple[Dim, ...] = attributes.integers("shape")
    if operands:
        shape = operands[0].type.shape
    return [Abstract(TensorType(attributes.dtype("dtype"), shape).checked())]


def _work_random(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Write the numbers; only `bernoulli` reads: the probabilities."""
    reads = operands if attributes.text("kind") == "bernoulli" else ()
    return Work(10 * results[0].numel, sum(o.nbytes for o in reads), results[0].nbytes)


RANDOM = OpDef(
    name="random",
    arity=(0, 1),
    infer=_infer_random,
    work=_work_random,
    attributes={"kind": (str,), "dtype": (DType,), "shape": rules.OPTIONAL_INTS},
    traits=frozenset({Trait.RANDOM}),
    summary="normal, uniform or bernoulli numbers, in a shape or in that of x",
)


def _infer_multinomial(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, samples = operands[0].type, attributes.integer("samples")
    if x.rank != 2:
        msg = f"expected [batch, classes], got {x}"
        raise VerifyError(msg)
    return [Abstract(TensorType(attributes.dtype("dtype"), (x.shape[0], samples)))]


MULTINOMIAL = OpDef(
    name="multinomial",
    arity=(1, 1),
    infer=_infer_multinomial,
    work=rules.touch_all,
    attributes={"dtype": (DType,), "samples": (int,)},
    traits=frozenset({Trait.RANDOM}),
    summary="samples of classes from each row of probabilities",
)

OPS = named(
    *(
        TILE,
        REARRANGE,
        PAD,
        PAD_BACKWARD,
        CENTER_CROP_PAD,
        PIXEL_SHUFFLE,
        TRILU,
        EYE_LIKE,
    ),
    *(RANDOM, MULTINOMIAL),
)
