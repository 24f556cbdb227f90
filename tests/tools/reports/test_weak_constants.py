"""How much of a report's time rests on constants that no rows hold."""

from __future__ import annotations

import math
import re
from types import MappingProxyType

import pytest
from tests.costmodels.signatures import gemm, over_rows
from tests.tools.command import Command

import perfc
from perfc.costmodels import Provenance, load_target
from perfc.costmodels.constants import Constant, constant_files, constants
from perfc.costmodels.pricing.listed import ENTRIES
from perfc.ir import AttrValue, Kernel, Record, Work
from perfc.tools.reports.weak_constants import FILES, WEAK_KINDS, weakest_constant

UNCOUNTED = MappingProxyType(
    {
        "attention.flash_since": "which kernel runs",
        "attention.head_dims": "which kernel runs",
        "collectives.channel_bytes_per_s": "the rest was fitted with it in place",
        "collectives.near_switch": "which protocol runs",
        "collectives.nvls_tree_chunks": "the rest was fitted with it in place",
        "collectives.staged_share": "of cards without peer access, which systems say",
        "collectives.sums_beside": "of kernels side by side, not of the price of one",
        "conv.winograd_channels": "which kernel runs",
        "cpu.": "the group that it is beside is counted",
        "gemm.": "the rest was fitted with it in place",
        "kernels.near_rows_most": "of corrections by rows",
        "locality.": "an input, if nothing else is said",
        "streaming.sharers": "the rest was fitted with it in place",
        "tiers.": "of queries and of what is planned with, which are no kernels",
        "traces.": "of traces that were measured",
    }
)
"""Weak constants of times that set no kernel's time by themselves, with the reason."""


def _weak() -> list[tuple[str, Constant]]:
    """Return the constants of weak kinds but for those of intervals, by full name."""
    return [
        (f"{file}.{constant.name}", constant)
        for file in constant_files()
        for constant in constants(file)
        if constant.kind in WEAK_KINDS and not constant.name.startswith("sigma")
    ]


def test_weak_constants_are_counted_or_said_why_not() -> None:
    """Each that was assumed, or of a single case, sets kernels' times, or is listed."""
    silent = {name for name, constant in _weak() if not constant.sets}
    listed = {n: [w for w in silent if n in {w, w[: len(n)]}] for n in UNCOUNTED}

    assert silent == {name for names in listed.values() for name in names}
    assert [] == [name for name, names in listed.items() if not names]


def test_what_a_constant_sets_can_be_found() -> None:
    """It names cost models that there are, whose files are read."""
    for name, constant in _weak():
        file = name.partition(".")[0]
        for entry in constant.sets:
            models, *others = entry.split()
            for model in models.split("|"):
                assert (True, True) == (model in ENTRIES, file in FILES[model])
            assert all(re.fullmatch(r"\w+(=[\w|]+|<=\d+)", other) for other in others)


def _copy(nbytes: int, **params: AttrValue) -> Kernel:
    work = Work(0, nbytes, nbytes)
    return Kernel("memcpy", "fp32", "fp32", Record({"bytes": nbytes, **params}), work)


@pytest.mark.parametrize(
    ("kernel", "model", "target", "expected"),
    [
        (over_rows("reduction", 64, 64), "streaming", "v100", "assumed"),
        (over_rows("reduction", 64, 64), "streaming", "h100", ""),
        (over_rows("elementwise", 64, 64), "streaming", "v100", ""),
        (gemm(64, 64, 64), "gemm", "b200", ""),
        (gemm(64, 64, 64), "cpu", "cpu", "assumed"),
        (gemm(64, 64, 64), "a-plugin", "v100", ""),
        (_copy(1000, kind="h2d"), "memcpy", "h100", "single"),
        (_copy(100_000, kind="h2d"), "memcpy", "h100", ""),
        (_copy(1000, kind="h2d"), "memcpy", "v100", ""),
        (_copy(1000, kind="h2d", pinned=False), "memcpy", "v100", "single"),
    ],
)
def test_kernels_rest_on_constants_of_their_device(
    kernel: Kernel, model: str, target: str, expected: str
) -> None:
    """By op, parameters and size of a kernel, its cost model, and what holds there."""
    found = weakest_constant(kernel, model, Provenance.ANALYTIC, load_target(target))

    assert expected == found


@pytest.mark.parametrize("provenance", [Provenance.MEASURED, Provenance.FITTED])
def test_what_rows_hold_rests_on_no_constant(provenance: Provenance) -> None:
    """A model that was fitted on the target had its constants in place."""
    target, kernel = load_target("cpu"), gemm(64, 64, 64)

    assert "" == weakest_constant(kernel, "cpu", provenance, target)


def test_the_roofline_is_assumed() -> None:
    """An op that nobody knows takes a share of the roofline that was chosen."""
    kernel = Kernel("my::op", "fp32", "fp32", Record({}), Work(0, 4, 4), known=False)
    found = weakest_constant(
        kernel, "roofline", Provenance.ASSUMED, load_target("v100")
    )

    assert "assumed" == found


def test_a_report_counts_time_that_no_rows_hold() -> None:
    """No more of it than kernels have whose model was not fitted; on a CPU all."""
    on_v100 = perfc.analyze(perfc.load("dlrm-default", batch=64), "v100").coverage
    on_cpu = perfc.analyze(perfc.load("dlrm-default", batch=64), "cpu").coverage

    weak, times = on_v100["time_by_weakest_constant"], on_v100["time_by_provenance"]
    assert {"assumed"} == set(weak)
    assert 0 < weak["assumed"] < times["analytic"] < math.fsum(times.values())
    assert on_cpu["time_by_provenance"]["analytic"] == pytest.approx(
        on_cpu["time_by_weakest_constant"]["assumed"]
    )


@pytest.mark.parametrize(
    ("model", "target", "expected"),
    [
        ("dlrm-default", "cpu", ["constants that were assumed for 100 %"]),
        ("resnet50", "v100", []),
    ],
)
def test_a_table_says_so_where_it_is_much(
    command: Command, model: str, target: str, expected: list[str]
) -> None:
    """One line below where device times come from; none for a few percent."""
    words = ("analyze", model, "--batch", "8", "--target", target)
    lines = [" ".join(line.split()) for line in command(*words).out.splitlines()]

    label = "they rest on "
    found = [line.removeprefix(label) for line in lines if line.startswith(label)]
    assert expected == found
