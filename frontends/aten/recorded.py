"""Ops of a trace, each on its own, to one op graph.

A trace says what an op was given, by places, and mostly not what it returned; that
follows from the op. What it does not say (numbers, in old traces) must not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from perfc.frontends.aten.builder import AtenBuilder
from perfc.frontends.aten.call import Argument, AtenCall, AtenTensor
from perfc.frontends.aten.node import AtenNode, Misfit, NodeArgument, inferred_types
from perfc.frontends.aten.op_map import find_handler
from perfc.frontends.aten.recorded_layouts import declare
from perfc.frontends.aten.recorded_windows import Windows
from perfc.frontends.aten.signatures import Signature, find_signature
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue, DType, PerfcError, Program, TensorType
from perfc.ir.location import Location
from perfc.traces import RecordedArgument, RecordedOp, RecordedTensor
from perfc.traces.inputs import UNRECORDED

_INDIFFERENT = frozenset(
    (
        *("alpha", "beta", "eps", "epsilon", "threshold", "min", "max"),
        *("min_val", "max_val", "negative_slope", "lambd", "scale", "input_scale"),
        *("momentum", "exponential_average_factor", "approximate", "nan", "posinf"),
        *("neginf", "non_blocking", "scalar", "accumulate"),
        *("unsafe", "dtype", "input_dtype", "self_is_result"),
        *("benchmark", "deterministic", "allow_tf32", "output_padding", "bias_sizes"),
        *("beta1", "beta2", "is_result", "half_to_float", "reduction"),
        *(
            "ignore_index",
            "total_weight",
            "lower",
            "upper",
            "rounding_mode",
            "dropout_p",
        ),
    )
)
"""Arguments that do not change what is launched, or hardly: factors, bounds, which
element is done what with."""

_STAND_INS: Mapping[str, RecordedArgument] = {
    **dict.fromkeys(("other", "exponent", "value"), 1.0),
    "output_mask": (True, True, True),
}
"""What such an argument is taken to be where a trace has none. Gradients that nobody
asks for are rare: those of the first layer's input."""

_LIKE: Mapping[str, Sequence[str]] = {
    "_flash_attention_forward": ("query",),
    "_efficient_attention_forward": ("query",),
    "_flash_attention_backward": ("query", "key", "value"),
    "_efficient_attention_backward": ("query", "key", "value"),
    "_scaled_dot_product_flash_attention_backward": ("query", "key", "value"),
    "native_layer_norm_backward": ("input", "weight", "bias"),
    "_fused_rms_norm_backward": ("input", "weight"),
    "cudnn_batch_norm_backward": ("input", "weight", "weight"),
    "miopen_batch_norm_backward": ("input", "weight", "weight"),
    "native_batch_norm_backward": ("input", "weight", "weight"),
    "convolution_backward": ("input", "weight"),
    "max_pool2d_with_indices_backward": ("self",),
    "avg_pool2d_backward": ("self",),
    "_adaptive_avg_pool2d_backward": ("self",),
    "nll_loss_backward": ("self",),
    "embedding_dense_backward": (),
}
"""Results that are as large as an argument, where the op does not say so itself."""

_OLDER: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "aten.cudnn_convolution_backward.1_9": (
        "aten.convolution_backward.default",
        {"self": "input"},
    )
}
"""Ops that PyTorch has no more, by those that do the same and names of arguments."""


class NotRecordedError(PerfcError):
    """A trace does not say enough of an op."""


@attrs.define(eq=False)
class RecordedGraph:
    """An op graph of calls that know nothing of each other.

    Attributes:
        default: The element type of tensors of which the trace does not tell it.

    """

    name: str
    default: DType
    _builder: AtenBuilder = attrs.field(init=False)
    _windows: Windows = attrs.field(factory=Windows, init=False)
    _outputs: list[str] = attrs.field(factory=list[str], init=False)
    _count: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        """Begin with an empty graph."""
        self._builder = AtenBuilder(self.name)

    def learn(self, op: RecordedOp) -> None:
        """Note what a call tells of others: do so for all before the first `add`."""
        signature = find_signature(op)
        if signature is not None:
            self._windows.learn(signature.target, _named(signature, op))

    def add(self, op: RecordedOp) -> str:
        """Append a call; return what the names of its nodes begin with."""
        signature = find_signature(op)
        if signature is None:
            msg = "perfc does not know it"
            raise NotRecordedError(msg)
        target, renamed = _OLDER.get(signature.target, (signature.target, {}))
        if find_handler(target) is None:
            msg = "perfc has no op"
            raise NotRecordedError(msg)
        given = _named(signature, op)
        self._windows.fill(target, given)
        # Fill in what is not recorded and hardly matters, or follows from the rest.
        weight = given.get("weight")
        follows = dict(_STAND_INS)
        if isinstance(weight, RecordedTensor):
            follows["normalized_shape"] = weight.shape
        given = {
            name: follows.get(name, value) if value is UNRECORDED else value
            for name, value in given.items()
        }
        _check_recorded(signature, given)
        given = {renamed.get(name, name): value for name, value in given.items()}
        results = _results(target, signature, given, op, self.default)
        self._count += 1
        prefix = f"r{self._count}"
        arguments = {
            name: self._argument(value, f"{prefix}.{name}", given, target)
            for name, value in given.items()
            if value is not UNRECORDED and value is not None
        }
        made = tuple(
            None if type_ is None else AtenTensor(f"{prefix}.{place}", type_)
            for place, type_ in enumerate(results)
        )
        self._builder.call(AtenCall(target, arguments, made, Location(name=prefix)))
        self._outputs += [tensor.name for tensor in made if tensor is not None]
        return prefix

    def program(self) -> Program:
        """Return the verified program; nothing can be added any more."""
        self._builder.outputs(self._outputs)
        return self._builder.program()

    def _argument(
        self,
        value: RecordedArgument,
        name: str,
        given: Mapping[str, RecordedArgument],
        target: str,
    ) -> Argument:
        if isinstance(value, RecordedTensor):
            type_ = _operand_type(value, given, self.default)
            call = _base(target), given.values()
            return declare(self._builder, name, type_, value, call)
        if isinstance(value, tuple) and any(
            isinstance(item, RecordedTensor) for item in value
        ):
            return tuple(
                self._argument(item, f"{name}{i}", given, target)
                for i, item in enumerate(value)
            )
        return value  # type: ignore[return-value]  # plain values are arguments


def _base(target: str) -> str:
    return target.split(".")[1]


def _named(signature: Signature, op: RecordedOp) -> dict[str, RecordedArgument]:
    return dict(zip(signature.names, op.arguments, strict=False))


def _check_recorded(
    signature: Signature, given: Mapping[str, RecordedArgument]
) -> None:
    """Refuse a call of which something is missing that decides what is launched."""
    kinds = dict(zip(signature.names, signature.kinds, strict=False))
    for name, value in given.items():
        missing = value is UNRECORDED and name not in _INDIFFERENT
        if missing and kinds[name] != "T":  # a tensor would have had a type
            msg = f"its argument {name!r} is not recorded"
            raise NotRecordedError(msg)


def _operand_type(
    tensor: RecordedTensor, given: Mapping[str, RecordedArgument], default: DType
) -> TensorType:
    """Return a tensor's type; a number does not widen the tensors beside it."""
    if tensor.shape:
        return tensor.device_type(default)
    beside = (t for t in given.values() if isinstance(t, RecordedTensor) and t.shape)
    first = next(beside, None)
    return (
        tensor.device_type(default)
        if first is None
        else TensorType(first.device_type(default).dtype, ())
    )


def _results(
    target: str,
    signature: Signature,
    given: Mapping[str, RecordedArgument],
    op: RecordedOp,
    default: DType,
) -> tuple[TensorType | None, ...]:
    """Return the types of what a call returns."""
    if op.results:
        return tuple(tensor.device_type(default) for tensor in op.results)
    name = _base(target)
    if name.endswith("_") or name == "_index_put_impl":
        first = next(iter(given.values()))
        if isinstance(first, tuple):  # a list of tensors, each of which is written
            return tuple(_tensor_type(one, default) for one in first)
        return (_tensor_type(first, default),) if signature.returns else ()
    if name == "cat":
        return (_concatenated(given, default),)
    if name in _LIKE:
        return tuple(_like(_LIKE[name], given, default))
    return _followed(target, signature, given, default)


def _tensor_type(value: RecordedArgument, default: DType) -> TensorType:
    if not isinstance(value, RecordedTensor):
        msg = "its result is not recorded"
        raise NotRecordedError(msg)
    return value.device_type(default)


def _like(
    names: Sequence[str], given: Mapping[str, RecordedArgument], default: DType
) -> Iterator[TensorType | None]:
    mask = given.get("output_mask")
    wanted = mask if isinstance(mask, tuple) else (True,) * len(names)
    for name, asked in zip(names, wanted, strict=False):
        tensor = given.get(name)
        there = isinstance(tensor, RecordedTensor) and asked
        yield _tensor_type(tensor, default) if there else None


def _concatenated(given: Mapping[str, RecordedArgument], default: DType) -> TensorType:
    tensors, axis = given["tensors"], given.get("dim", 0)
    if not isinstance(tensors, tuple) or not isinstance(axis, int):
        msg = "its result is not recorded"
        raise NotRecordedError(msg)
    every = [
        _tensor_type(tensor, default)
        for tensor in tensors
        if isinstance(tensor, RecordedTensor)
    ]
    types = [type_ for type_ in every if type_.shape != (0,)] or every
    if not all(-type_.rank <= axis < type_.rank for type_ in types):
        msg = f"its tensors have no axis {axis}"
        raise NotRecordedError(msg)
    shape = list(types[0].shape)
    shape[axis] = sum(type_.shape[axis] for type_ in types)
    return attrs.evolve(types[0], shape=tuple(shape))


def _followed(
    target: str,
    signature: Signature,
    given: Mapping[str, RecordedArgument],
    default: DType,
) -> tuple[TensorType | None, ...]:
    """Let the op say what it returns."""
    operands: list[Operand] = []

    def resolved(value: RecordedArgument) -> NodeArgument:
        if isinstance(value, RecordedTensor):
            type_ = _operand_type(value, given, default)
            operands.append(Operand(len(operands), type_))
            return operands[-1]
        if isinstance(value, tuple):
            return tuple(resolved(item) for item in value)
        return None if value is UNRECORDED else value

    arguments = {name: resolved(value) for name, value in given.items()}
    node = _Followed(target, arguments, (None,) * signature.returns, tuple(operands))
    handler = find_handler(target)
    try:
        if handler is not None:
            handler(node)
    except (Misfit, LookupError, ValueError, ArithmeticError, PerfcError) as error:
        msg = f"what it returns is not recorded ({error})"
        raise NotRecordedError(msg) from None
    return tuple(node.made.get(place) for place in range(signature.returns))


@attrs.define(eq=False)
class _Followed(AtenNode):
    """A call of which the results follow from the ops that it becomes."""

    made: dict[int, TensorType] = attrs.field(factory=dict[int, TensorType], init=False)

    def emit(
        self,
        op: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, AttrValue] | None = None,
        *,
        results: Sequence[int] = (0,),
    ) -> None:
        """Note what an op makes."""
        types = inferred_types(op, operands, attributes)
        self.made.update(zip(results, types, strict=False))

    def alias(self, index: int, operand: Operand) -> None:
        """Note what a result is."""
        self.made[index] = operand.type
