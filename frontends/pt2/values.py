"""Tensors, sizes and arguments of an archive as the builder takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import attrs

from perfc.frontends.aten import Argument, AtenTensor, Ref
from perfc.frontends.pt2.expression import parse_expression
from perfc.frontends.pt2.fields import Fields
from perfc.ir import DTYPES, DType, TensorType
from perfc.ir.dims import Dim, symbol
from perfc.ir.support import UnsupportedModelError

_DTYPES: Mapping[int, str] = {
    1: "u8",
    2: "i8",
    3: "i16",
    4: "i32",
    5: "i64",
    6: "f16",
    7: "f32",
    8: "f64",
    10: "c64",
    11: "c128",
    12: "bool",
    13: "bf16",
    28: "u16",
    34: "u32",
    35: "u64",
    29: "f8e4m3",
    30: "f8e5m2",
    31: "f8e4m3",
    32: "f8e5m2",
    33: "f8e8m0",
}
"""Codes of `ScalarType` in the schema."""

_NOT_FINITE = ("Infinity", "-Infinity", "NaN")
"""Floats that JSON has not, as PyTorch writes them."""

_CONTIGUOUS = 1
"""The code of that memory format."""

_SPARSE = 1
"""The code of the layout of a sparse tensor: indices and values."""

_MAX_RANK = 64
_MAX_NAME = 200


def convert_dtype(code: object, where: str) -> DType:
    """Return the element type of a code."""
    if not isinstance(code, int) or code not in _DTYPES:
        msg = f"{where} has unknown element type {code!r:.60}"
        raise UnsupportedModelError(msg)
    return DTYPES[_DTYPES[code]]


@attrs.define(eq=False)
class Values:
    """What the graph declares of its values.

    Attributes:
        tensors: Types by name.
        sizes: Integers and expressions by name.
        names: What a tensor is called here, where that is another name.
        prefix: What stands before the names of all others.
        sparse: Tensors that are indices and values.

    """

    prefix: str = ""

    tensors: dict[str, TensorType] = attrs.field(factory=dict[str, TensorType])
    sizes: dict[str, Dim] = attrs.field(factory=dict[str, Dim])
    names: dict[str, str] = attrs.field(factory=dict[str, str])
    sparse: set[str] = attrs.field(factory=set[str])
    _declared: dict[str, str] = attrs.field(factory=dict[str, str], init=False)

    def read(self, graph: Fields) -> None:
        """Read the tables of tensors and of symbolic integers."""
        for name, meta in graph.members("tensor_values"):
            dtype = convert_dtype(meta.values.get("dtype"), f"tensor {name[:60]!r}")
            sizes = [self._size(size) for size in meta.records("sizes")]
            if len(sizes) > _MAX_RANK:
                msg = f"tensor {name[:60]!r} has {len(sizes)} dimensions"
                raise UnsupportedModelError(msg)
            self.tensors[name] = TensorType(dtype, tuple(sizes)).checked()
            if meta.values.get("layout") == _SPARSE:
                self.sparse.add(name)
        for name, value in graph.members("sym_int_values"):
            self.sizes[name] = self._size(value)

    def tensor(self, name: str) -> AtenTensor:
        """Return a tensor that the graph declares, under its name here."""
        type_ = self.tensors.get(name)
        if type_ is None:
            msg = f"the graph's tensor_values do not have {name[:60]!r}"
            raise UnsupportedModelError(msg)
        return AtenTensor(self.names.get(name, self.prefix + name), type_)

    def rename(self, name: str, new: str) -> None:
        """Call a tensor that a node makes otherwise."""
        self.names[name] = new
        self._declared[new] = name

    def declared(self, ref: Ref) -> str:
        """Return the graph's name of a tensor that a node makes."""
        return self._declared.get(ref.name, ref.name.removeprefix(self.prefix))

    def argument(self, union: Fields) -> Argument:
        """Return an argument of a call."""
        kind, value = union.only()
        reader = _READERS.get(kind)
        if reader is not None:
            return reader(self, union, kind)
        if kind == "as_scalar_type":
            return convert_dtype(value, union.where)
        if kind == "as_memory_format" and value == _CONTIGUOUS:
            return "contiguous"
        if kind in _IGNORED:
            return None
        msg = f"{union.where} is of unknown kind {kind[:40]!r}"
        raise UnsupportedModelError(msg)

    def _size(self, union: Fields) -> Dim:
        kind, _ = union.only()
        if kind == "as_int":
            return union.integer(kind)
        return parse_expression(union.record(kind).text("expr_str"))

    def ref(self, tensor: Fields) -> Ref:
        """Return a tensor that is an argument."""
        name = tensor.text("name")
        return Ref(self.names.get(name, self.prefix + name))

    def symbolic(self, union: Fields) -> Argument:
        """Return a number, or what the graph declares of the name for it."""
        kind, _ = union.only()
        if kind != "as_name":
            return _scalar(self, union, kind)
        name = union.text(kind)
        found = self.sizes.get(name)
        return symbol(name[:_MAX_NAME]) if found is None else found


def _scalar(values: Values, union: Fields, kind: str) -> Argument:
    value = union.values[kind]
    if kind == "as_float" and value in _NOT_FINITE:
        return float(value)
    if isinstance(value, bool | int | float | str):
        return value
    raise _unlike(union, kind)


def _scalars(values: Values, union: Fields, kind: str) -> Argument:
    given = union.values[kind]
    if not isinstance(given, list):
        raise _unlike(union, kind)
    items = cast("list[object]", given)
    found = tuple(v for v in items if isinstance(v, bool | int | float | str))
    if len(found) < len(items):
        raise _unlike(union, kind)
    return found


def _unlike(union: Fields, kind: str) -> UnsupportedModelError:
    value = repr(union.values[kind])[:60]
    return UnsupportedModelError(f"{union.where} cannot be {value} if it is {kind}")


_READERS: Mapping[str, Callable[[Values, Fields, str], Argument]] = {
    **dict.fromkeys(("as_int", "as_bool", "as_float", "as_string"), _scalar),
    **dict.fromkeys(("as_ints", "as_bools", "as_floats", "as_strings"), _scalars),
    "as_tensor": lambda values, union, kind: values.ref(union.record(kind)),
    "as_tensors": lambda values, union, kind: tuple(
        map(values.ref, union.records(kind))
    ),
    "as_optional_tensor": lambda values, union, kind: values.argument(
        union.record(kind)
    ),
    "as_optional_tensors": lambda values, union, kind: tuple(
        map(values.argument, union.records(kind))
    ),
    **dict.fromkeys(
        ("as_sym_int", "as_sym_float", "as_sym_bool"),
        lambda values, union, kind: values.symbolic(union.record(kind)),
    ),
    **dict.fromkeys(
        ("as_sym_ints", "as_sym_floats"),
        lambda values, union, kind: tuple(map(values.symbolic, union.records(kind))),
    ),
}
"""What reads each kind of argument."""

_IGNORED = frozenset(
    (
        *("as_none", "as_layout", "as_device", "as_memory_format", "as_operator"),
        *("as_custom_obj", "as_nested_tensors", "as_int_lists", "as_float_lists"),
        *("as_string_to_argument", "as_sym_bools", "as_complex", "as_graph"),
    )
)
"""Kinds of arguments that do not change what a call costs."""
