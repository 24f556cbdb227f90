"""The suite `workloads`: the kernels of the planned models, one by one.

They tell errors of kernels apart from errors of what a model makes of them.
"""

from __future__ import annotations

from collections.abc import Collection

from perfc.measure.case import Case, Family
from perfc.measure.families import (
    Coalesce,
    EmbeddingBackward,
    Foreach,
    Indexed,
    IndexPut,
    MaskedAttention,
    NllLoss,
    Pool,
    SparseAdd,
)
from perfc.measure.kernel_table import workload_table

WORKLOADS = "workloads"

GIVEN: tuple[Family, ...] = (
    Foreach(),
    Pool(),
    NllLoss(),
    EmbeddingBackward(),
    IndexPut(),
    Coalesce(),
    SparseAdd(),
    Indexed(),
    MaskedAttention(),
)
"""Families of calls that only models have: they are asked before others."""


def workload_cases(
    families: Collection[Family], ops: Collection[str] = ()
) -> list[tuple[Family, Case]]:
    """Return all kernels of the models in their order, with the families that run them.

    Args:
        families: All that may run one; the first that takes it does.
        ops: Only these ops, or all.

    """
    cases = [Case(*row) for row in workload_table()]
    return [
        (family_of(families, case), case) for case in cases if not ops or case.op in ops
    ]


def family_of(families: Collection[Family], case: Case) -> Family:
    """Return the first family that runs a case.

    Raises:
        LookupError: none does.

    """
    for family in families:
        if family.op == case.op and family.takes(case):
            return family
    msg = f"no family runs {case}"
    raise LookupError(msg)
