"""Short spellings, so that the declarations of kernels read as tables."""

from __future__ import annotations

from typing import Any

from perfc.ir.kernels.definition import REQUIRED, KernelDef, KernelParam, ParamType

COUNT, NUMBER, FLAG = ParamType.COUNT, ParamType.NUMBER, ParamType.FLAG
WORD, SIZES, PER_AXIS = ParamType.WORD, ParamType.SIZES, ParamType.PER_AXIS
SHAPES, RECORDS = ParamType.SHAPES, ParamType.RECORDS


def param(  # noqa: PLR0913 - the columns of a declaration
    name: str,
    type_: ParamType,
    summary: str,
    *,
    unit: str = "",
    default: Any = REQUIRED,  # noqa: ANN401 - whatever a parameter may be
    choices: str = "",
    by: str = "",
    fields: tuple[KernelParam, ...] = (),
) -> KernelParam:
    """Declare a parameter; *choices* and *by* (its writers) stand between spaces."""
    return KernelParam(
        name=name,
        type=type_,
        summary=summary,
        unit=unit,
        default=default,
        choices=tuple(choices.split()),
        writers=tuple(by.split()),
        fields=fields,
    )


def kernel(name: str, summary: str, *params: KernelParam, by: str) -> KernelDef:
    """Declare a kernel that *by* write."""
    return KernelDef(
        name=name, summary=summary, params=params, writers=tuple(by.split())
    )


def kind(summary: str, *, default: Any = "", by: str = "") -> KernelParam:  # noqa: ANN401
    """Declare which kernel of its op it is."""
    return param("kind", WORD, summary, default=default, by=by)


ROWS = param("rows", COUNT, "rows that it goes over", unit="rows")
COLS = param("cols", COUNT, "elements of a row", unit="elements")
