"""A kernel costs the same to the last bit whatever it is priced with, and in what form.

The kernels are those of whole steps, so that every family is there as it is launched.
"""

from __future__ import annotations

import functools
import pickle
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import perfc
from perfc.costmodels import Estimate, KernelTable, cost_models, load_target, price
from perfc.costmodels.kernels import ColumnTable, KernelColumns
from perfc.costmodels.pricing import price_table
from perfc.ir import Kernel

STEPS: tuple[tuple[str, int, str, Mapping[str, str]], ...] = (
    ("dlrm-mlperf", 128, "training", {}),
    ("gpt2:layers=2", 2, "training", {"dtype": "amp-bf16"}),
    ("resnet50", 4, "training", {"dtype": "fp16"}),
    ("bert-base:layers=2", 4, "training", {"runtime": "compiled"}),
)
TARGETS = ("a100", "h100", "h200", "t4", "mi300x", "cpu")
FAMILIES = (
    *("attention", "concat", "conv2d", "elementwise", "embedding_bag", "foreach"),
    *("gather", "gemm", "layer_norm", "memcpy", "pool", "reduction", "softmax"),
    *("triton_per", "triton_poi", "triton_red"),
)


@functools.cache
def _families() -> dict[str, list[Kernel]]:
    """Return the kernels of the steps by op."""
    found: dict[str, list[Kernel]] = defaultdict(list)
    for source, batch, mode, options in STEPS:
        model = perfc.load(source, batch=batch, mode=mode, dtype=options.get("dtype"))
        runtime = options.get("runtime", "eager")
        (graph,) = perfc.analyze(model, "h100", runtime=runtime).results.graphs
        for kernel in graph.kernels:
            found[kernel.op].append(kernel)
    return dict(found)


def _said(estimate: Estimate) -> list[tuple[object, ...]]:
    """Return all that an estimate says, row by row."""
    return list(
        zip(
            estimate.seconds.tolist(),
            estimate.sigma_shared.tolist(),
            estimate.sigma_independent.tolist(),
            estimate.model,
            estimate.provenance,
            strict=True,
        )
    )


def _columns(kernels: Sequence[Kernel]) -> ColumnTable:
    """Return kernels as columns, of each run that is alike a part."""
    parts: list[list[Kernel]] = []
    for kernel in kernels:
        if not parts or not _alike(parts[-1][-1], kernel):
            parts.append([])
        parts[-1].append(kernel)
    return ColumnTable.of(*map(_part, parts))


def _alike(one: Kernel, other: Kernel) -> bool:
    named = ((k.op, k.dtype, k.math, list(k.params)) for k in (one, other))
    return len({repr(each) for each in named}) == 1


def _part(kernels: Sequence[Kernel]) -> KernelColumns:
    first, work = kernels[0], [kernel.work for kernel in kernels]
    return KernelColumns(
        op=first.op,
        dtype=first.dtype,
        math=first.math,
        params={name: _column(name, kernels) for name in first.params},
        flops=np.array([each.flops for each in work], dtype=np.float64),
        bytes_read=np.array([each.bytes_read for each in work], dtype=np.float64),
        bytes_written=np.array([each.bytes_written for each in work], dtype=np.float64),
    )


def _column(name: str, kernels: Sequence[Kernel]) -> NDArray[Any]:
    """Return numbers and words as such, all else as objects."""
    values = [kernel.params[name] for kernel in kernels]
    if all(isinstance(v, int | float) for v in values) or (
        all(isinstance(v, str) for v in values)
    ):
        return np.array(values)
    found = np.empty(len(values), dtype=np.object_)
    for place, value in enumerate(values):
        found[place] = value
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", FAMILIES)
def test_a_kernel_costs_the_same_in_any_company(
    op: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, and in tables of 2, 6 and 300, shuffled, as objects and as columns."""
    found, models = load_target(target), cost_models()
    runs = found.device.flops_per_s
    kernels = [k for k in _families()[op] if k.math in runs or not k.work.flops]
    alone = {k: _said(price([k], found, models))[0] for k in kernels}
    draw = random.Random(op)

    for few in (32, 0):  # priced one by one, as far as may be, and all in arrays
        for name in ("FEW", "FEW_OF_COLUMNS"):
            monkeypatch.setattr(f"perfc.costmodels.pricing.select.{name}", few)
        for rows in (1, 2, 6, 300):
            chosen = draw.choices(kernels, k=rows) if kernels else []
            expected = [alone[kernel] for kernel in chosen]
            table = KernelTable(chosen)

            assert expected == _said(price_table(table, found, models))
            assert expected == _said(price_table(table, found, models))  # read once
            if chosen:
                assert expected == _said(price_table(_columns(chosen), found, models))


def test_a_step_costs_the_same_as_columns() -> None:
    """All families in one table, which is read once for several targets."""
    kernels = [kernel for family in _families().values() for kernel in family]
    random.Random(0).shuffle(kernels)
    objects, columns = KernelTable(kernels), _columns(kernels)

    for name in ("h100", "h200", "h100"):
        target = load_target(name)
        expected = [_said(price([k], target, cost_models()))[0] for k in kernels]
        for table in (objects, columns):
            assert expected == _said(price_table(table, target, cost_models()))


@pytest.mark.parametrize("form", ["objects", "columns"])
def test_a_table_that_was_priced_pickles(form: str) -> None:
    """It goes to another process without what was worked out, and costs the same."""
    kernels, target = _families()["embedding_bag"], load_target("a100")
    table = _columns(kernels) if form == "columns" else KernelTable(kernels)
    expected = _said(price_table(table, target, cost_models()))

    copied = pickle.loads(pickle.dumps(table))  # noqa: S301 - our own

    assert type(copied) is type(table)
    assert expected == _said(price_table(copied, target, cost_models()))
