"""No better field of a target makes a kernel slower, and no worse one faster."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.costmodels.pricing.test_one_kernel import (
    OPS,
    SIZES,
    attentions,
    convolutions,
    gemms,
    lookups,
    others,
)
from tests.costmodels.signatures import copy, gemm, over_rows

from perfc.costmodels import KernelTable, Target, cost_models, load_target, target_names
from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import TargetError
from perfc.costmodels.pricing import price_table
from perfc.costmodels.sheets.sheet_fields import FIELDS, is_of_time
from perfc.ir import Kernel, UsageError

LESS_IS_BETTER = frozenset(
    {
        "gpu.warp_size",
        "host_link.latency_us",
        "network.latency_us",
        "runtime.graph_gap_us",
        "runtime.kernel_floor_us",
        "runtime.launch_latency_us",
        "runtime.stream_gap_us",
    }
)
"""Of other fields more is: also of those that no kernel reads."""

TIMES = (0.25, 0.5, 0.8, 0.95, 1.0, 1.05, 1.3, 2.0, 4.0)
"""By what a field is multiplied, one after another."""

SERVERS = frozenset({"1s-server", "2s-icelake", "2s-skylake"})
"""CPUs that a larger last cache may slow down.

What passes through a CPU's caches costs by rows of two cores of Zen 3, whose last cache
is 17 times as fast as memory. A server's is 5 to 6 times as fast, so that passes
through it may take longer than memory does.
"""

FP32 = "gpu.rates_tflops.fp32"

ROUNDING = 1e-12
"""A price is worked out in some tens of steps."""

MODELS = cost_models()

streams = st.builds(over_rows, st.sampled_from(OPS), SIZES, SIZES)
copies = st.builds(
    copy,
    st.integers(1, 1 << 32),
    st.sampled_from(["h2d", "d2h", "d2d"]),
    pinned=st.booleans(),
)
kernels = st.one_of(
    gemms(), attentions(), convolutions(), lookups(), others(), streams, copies
)


def numeric_fields(target: Target) -> list[str]:
    """Return the fields that are numbers and that a prediction may read.

    No price of a kernel knows tiers. Those of `SERVERS` that are not monotone are out.
    """
    return [
        name
        for name, value in target.fields.items()
        if not isinstance(value, str)
        and name in FIELDS
        and is_of_time(name)
        and not (name == "gpu.l2_mib" and target.name in SERVERS)
    ]


def from_worst_to_best(name: str, field: str) -> list[Target]:
    """Return a target with more and more of a field, as far as that can be."""
    held = float(load_target(name).fields[field])
    values = [held * times for times in TIMES]
    if FIELDS[field].whole:
        values = [float(max(1, round(value))) for value in values]
    found: list[Target] = []
    for value in dict.fromkeys(values):
        changed = {} if value == held else {field: repr(value)}
        try:
            found.append(load_target(name, changed))
        except (UsageError, TargetError):  # out of range
            continue
    return found[::-1] if field in LESS_IS_BETTER else found


def seconds_on(targets: Sequence[Target], some: Sequence[Kernel]) -> Floats:
    """Return the price of each kernel on each target; shape (targets, kernels)."""
    table = KernelTable(some)
    return np.array([price_table(table, each, MODELS).seconds for each in targets])


FIELDS_OF_TARGETS = [
    (name, field)
    for name in target_names()
    for field in numeric_fields(load_target(name))
]


@given(st.lists(kernels, min_size=8, max_size=8), st.sampled_from(FIELDS_OF_TARGETS))
@settings(max_examples=25, deadline=None)
def test_no_better_field_makes_a_kernel_slower(
    some: list[Kernel], of: tuple[str, str]
) -> None:
    """On any target, in any op: from its worst value to its best."""
    targets = from_worst_to_best(*of)
    possible = [k for k in some if k.math in targets[0].device.flops_per_s]
    assume(possible)

    seconds = seconds_on(targets, possible)

    assert (seconds[1:] <= seconds[:-1] * (1 + ROUNDING)).all()


@functools.cache
def many_kernels() -> list[Kernel]:
    """Return hundreds of kernels, the same each time."""
    found: list[Kernel] = []

    @settings(max_examples=500, database=None, deadline=None, derandomize=True)
    @given(kernels)
    def collect(kernel: Kernel) -> None:
        found.append(kernel)

    collect()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", target_names())
def test_no_better_field_of_a_target_makes_any_kernel_slower(name: str) -> None:
    """Every field, with hundreds of kernels."""
    gpu = load_target(name)
    some = [k for k in many_kernels() if k.math in gpu.device.flops_per_s]
    worse = [
        (field, some[place])
        for field in numeric_fields(gpu)
        for before, after in itertools.pairwise(
            seconds_on(from_worst_to_best(name, field), some)
        )
        for place in np.flatnonzero(after > before * (1 + ROUNDING)).tolist()
    ]

    assert worse == []


def test_a_sheet_of_a_users_own_is_held_to_it(tmp_path: Path) -> None:
    """What is set by hand is compared with the sheet as the user wrote it."""
    shipped = Path(str(files("perfc.costmodels") / "targets" / "l40s.toml"))
    mine = tmp_path / "mine.toml"
    mine.write_text(
        shipped.read_text("utf-8").replace('"l40s"', '"mine"', 1), encoding="utf-8"
    )
    rates = [load_target(str(mine), {FP32: str(rate)}) for rate in (46, 92, 183, 366)]
    some = [gemm(1 << 14, 768, 3072), gemm(50257, 768, 1024, layout="nt")]

    seconds = seconds_on(rates, some)

    assert (seconds[1:] <= seconds[:-1] * (1 + ROUNDING)).all()
    assert [each.unset is None for each in (load_target(str(mine)), *rates)] == [
        True,
        *[False] * 4,
    ]


def test_more_arithmetic_does_not_slow_a_gemm_down() -> None:
    """Of a board whose power holds its clock down, where another tile is chosen."""
    rates = [load_target("l40s", {FP32: str(rate)}) for rate in (92, 183, 366)]
    some = [gemm(1 << 17, 50257, 768), gemm(1 << 17, 3072, 768)]

    seconds = seconds_on([load_target("l40s"), *rates], some)

    assert (seconds[1:] <= seconds[:-1] * (1 + ROUNDING)).all()
    assert seconds[-1, 1] < seconds[0, 1]
