"""Kernels are declared: what is not is refused, in a line that names both sides."""

from __future__ import annotations

import re

import attrs
import pytest

from perfc.ir import NO_WORK, AttrValue, Kernel, ParseError, Record
from perfc.ir.kernels import (
    BUILTIN_KERNELS,
    COMMON,
    WRITERS,
    KernelDef,
    KernelParam,
    ParamType,
    default_of,
)
from perfc.ir.kernels.definition import PHASES
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_program

ADD: dict[str, AttrValue] = {"kind": "add", "rows": 4, "cols": 8}
TABLE = Record({"rows": 10, "dim": 4, "pooling": 2})


def _kernel(op: str, **params: AttrValue) -> Kernel:
    return Kernel(op, "fp32", "fp32", Record(params), NO_WORK)


def _refused(op: str, **params: AttrValue) -> str:
    with pytest.raises(VerifyError) as caught:
        _kernel(op, **params)
    (line,) = str(caught.value).splitlines()
    return line


def test_a_parameter_that_nobody_declares_is_refused() -> None:
    """The line names the kernel, the parameter, the nearest one and all of them."""
    line = _refused("elementwise", **ADD, scatered=True)

    assert line.startswith(
        "kernel 'elementwise' has no parameter 'scatered'; did you mean 'scattered'? "
        "declared: kind, rows, cols, tensor_inputs, bytes, scattered, "
    )


def test_a_size_that_is_missing_is_named() -> None:
    """So is what was found, and what the size is."""
    assert _refused("gemm", m=1, n=2).startswith(
        "kernel 'gemm' lacks k; expected k, a whole number (columns of A, rows of B); "
        "found: m, n; declared: b, m, n, k, "
    )


@pytest.mark.parametrize(
    ("op", "params", "line"),
    [
        ("elementwise", {**ADD, "rows": "4"}, 'rows is "4", expected a whole number'),
        ("elementwise", {**ADD, "rows": 4.5}, "rows is 4.5, expected a whole number"),
        ("elementwise", {**ADD, "rows": True}, "rows is true, expected a whole number"),
        ("elementwise", {**ADD, "rows": None}, "rows is none, expected a whole number"),
        ("elementwise", {**ADD, "kind": 3}, "kind is 3, expected a word"),
        (
            "elementwise",
            {**ADD, "scattered": 1},
            "scattered is 1, expected true or false",
        ),
        (
            "gemm",
            {"m": 1, "n": 1, "k": 1, "layout": "ntt"},
            'layout is "ntt", expected one of nn, nt, tn, tt',
        ),
        (
            "elementwise",
            {**ADD, "phase": "backwards"},
            f'phase is "backwards", expected one of {", ".join(PHASES)}',
        ),
        (
            "concat",
            {"axis": 0, "shapes": (4, 4)},
            "shapes is [4, 4], expected a list of lists of whole numbers",
        ),
        (
            "embedding_bag",
            {"batch": 1, "tables": (3,)},
            "tables is [3], expected a list of records",
        ),
    ],
)
def test_a_value_of_another_type_is_refused(
    op: str, params: dict[str, AttrValue], line: str
) -> None:
    """The line says what was expected and what was found."""
    assert f"kernel {op!r}: {line}" == _refused(op, **params)


def test_fields_of_tables_are_declared_too() -> None:
    """A typo in one of a hundred tables is no parameter either."""
    wrong = TABLE.updated(poolling=3)
    line = _refused("embedding_bag", batch=1, tables=(TABLE, wrong))

    assert line.startswith(
        "a record of 'tables' has no parameter 'poolling'; did you mean 'pooling'?"
    )


def test_a_kernel_that_nobody_declares_is_refused() -> None:
    """The nearest is named; one of no model is known = false and is not looked at."""
    line = _refused("gem", m=1)
    unknown = Kernel("gem", "", "", Record({"m": "?"}), NO_WORK, known=False)

    assert "kernel 'gem' is not declared; did you mean 'gemm'? declared: gemm," in line
    assert "?" == unknown.params["m"]


def test_what_was_found_right_for_one_kernel_is_not_right_for_another() -> None:
    """The same record is held against each declaration."""
    params = Record({"rows": 4, "cols": 8})
    kernel = Kernel("softmax", "fp32", "fp32", params, NO_WORK)

    with pytest.raises(VerifyError, match="kernel 'gemm' has no parameter 'rows'"):
        attrs.evolve(kernel, op="gemm")


def test_text_names_the_line() -> None:
    """In a launch graph the error is one of its text."""
    text = """launches @t {
  signature "elementwise" {dtype = "fp32", math = "fp32", flops = 0, bytes_read = 0,
    bytes_written = 0, params = {rows = 1, cols = 1, scatered = true}}
}"""
    expected = "line 3: signature: kernel 'elementwise' has no parameter 'scatered'; "
    with pytest.raises(ParseError, match=re.escape(expected)):
        parse_program(text)


_PARAM = KernelParam(name="us", type=ParamType.NUMBER, summary="its time")


@pytest.mark.parametrize(
    ("params", "writers", "line"),
    [
        ((_PARAM, _PARAM), ("plugin",), "kernel 'k' declares 'us' twice"),
        ((COMMON[0],), ("plugin",), "kernel 'k' declares 'phase' twice"),
        ((_PARAM,), ("me",), "kernel 'k' is written by 'me'; known: eager, "),
        (
            (attrs.evolve(_PARAM, default="soon"),),
            ("plugin",),
            "kernel 'k': the default of us is 'soon', expected a number",
        ),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(
    params: tuple[KernelParam, ...], writers: tuple[str, ...], line: str
) -> None:
    """Whoever declares a kernel learns at once what is wrong with it."""
    with pytest.raises(VerifyError) as caught:
        KernelDef(name="k", summary="a kernel", params=params, writers=writers)

    assert str(caught.value).startswith(line)


def test_defaults_are_those_of_the_declaration() -> None:
    """A parameter that is needed, and one that is not declared, have none."""
    names = ("b", "bias", "phase", "m", "rows")

    assert [1, False, "forward", None, None] == [default_of("gemm", n) for n in names]
    assert default_of("nobodys.kernel", "b") is None


@pytest.mark.parametrize("name", BUILTIN_KERNELS)
def test_every_parameter_says_what_it_is(name: str) -> None:
    """A sentence without a full stop, and known writers, of kernels and parameters."""
    definition = BUILTIN_KERNELS[name]
    sentences = [definition.summary, *(p.summary for p in definition.all_params)]
    writers = {w for p in definition.all_params for w in (*p.writers, "eager")}

    assert name == definition.name
    assert [s.strip().rstrip(".") for s in sentences] == sentences
    assert all(0 < len(sentence) <= 88 for sentence in sentences)
    assert writers | {*definition.writers} <= WRITERS.keys()
