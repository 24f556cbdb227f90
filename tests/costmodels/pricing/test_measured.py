"""The measured row decides: a kernel in a profile's table costs what was measured."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.costmodels.signatures import ALL_MODELS, gemm, over_rows

from perfc.costmodels import (
    KernelTable,
    MeasuredKernels,
    Provenance,
    Target,
    load_target,
    lower_bound,
    price,
)
from perfc.costmodels.machine import Family, KernelFit, MeasuredKernel, fits_of
from perfc.costmodels.pricing import MEASURED, measured_signature
from perfc.costmodels.streaming import IDLE, REPEATED
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.ir import AttrValue, Kernel

TURING = load_target("2080ti")
"""No network corrects its GEMMs, which would say other last digits in a table."""
MODELS = (MEASURED, *ALL_MODELS)
HEAD = ProfileHead(name="mine", source="a test", date="2026-11-22", software="none")
FIT = KernelFit(Family("gemm", "fp32"), {"start_us": 5.0, "scale": 3.0}, 0.1, 0.1, 10)

SIZES = st.integers(1, 4096)
SECONDS = st.floats(1e-3, 1e3)


def _timed(
    kernel: Kernel, seconds: float = 1e-3, *, repeated: bool = False
) -> MeasuredKernel:
    signature = measured_signature(kernel)
    return MeasuredKernel(signature, seconds, 0.01, 30, "graph", "a test", repeated)


def _with(*kernels: MeasuredKernel, target: Target = TURING) -> Target:
    return attrs.evolve(target, measured=MeasuredKernels.of(kernels))


def _price(kernel: Kernel, target: Target) -> float:
    return float(price([kernel], target, MODELS).seconds[0])


@given(SIZES, SIZES, SIZES, SECONDS)
def test_a_measured_kernel_costs_what_was_measured(
    m: int, n: int, k: int, seconds: float
) -> None:
    """Neither a fit nor a published interval changes it; a table twice as slow is."""
    kernel = gemm(m, n, k)
    assume(seconds > lower_bound(KernelTable([kernel]), TURING)[0])
    target = attrs.evolve(_with(_timed(kernel, seconds)), fits=fits_of((FIT,)))

    priced = price([kernel], target, MODELS)

    assert (seconds, "measured") == (priced.seconds[0], priced.model[0])
    assert [Provenance.MEASURED] == list(priced.provenance)
    assert 0.01 < priced.sigma_independent[0] < 0.03
    assert 0.02 == priced.sigma_shared[0]
    assert 2 * seconds == _price(kernel, _with(_timed(kernel, 2 * seconds)))


@given(SIZES, SIZES, SIZES, st.sampled_from(["m", "n", "k", "b", "layout", "dtype"]))
def test_any_other_kernel_is_left_to_the_models(
    m: int, n: int, k: int, changed: str
) -> None:
    """One size more, another layout or type: bit for bit as without the table."""
    kernel = gemm(m, n, k)
    changes: dict[str, AttrValue] = {"layout": "nt"}
    other = attrs.evolve(kernel, dtype="fp16", math="fp16")
    if changed != "dtype":
        number = kernel.params.get(changed)
        value = changes.get(changed, number + 1 if isinstance(number, int) else None)
        other = attrs.evolve(kernel, params=kernel.params.updated(**{changed: value}))
    target = _with(_timed(kernel))
    both = price([kernel, other], target, MODELS)

    assert ["measured", "gemm"] == list(both.model)
    assert price([kernel, other], TURING, MODELS).seconds[1] == both.seconds[1]


@pytest.mark.parametrize(
    ("kernel", "row"),
    [
        (gemm(64, 32, 16), {"m": 64, "n": 32, "k": 16}),
        (gemm(64, 32, 16), {"m": 64, "n": 32, "k": 16, "bias": False}),
        (over_rows("softmax", 8, 8), {"rows": 8, "cols": 8, "phase": "forward"}),
    ],
)
def test_what_goes_without_saying_need_not_be_said(
    kernel: Kernel, row: dict[str, AttrValue]
) -> None:
    """A row without `b`, `layout` or `phase` is of one GEMM, `nn`, forward."""
    said = attrs.evolve(kernel, params=type(kernel.params)(row))

    assert 1e-3 == _price(kernel, _with(_timed(said)))


def test_backward_of_a_softmax_is_called_otherwise_in_rows() -> None:
    """A launch graph says `kind`, a row `phase`."""
    kernel = over_rows("softmax", 8, 8)
    launched, row = (
        attrs.evolve(kernel, params=kernel.params.updated(**{name: "backward"}))
        for name in ("kind", "phase")
    )

    assert 1e-3 == _price(launched, _with(_timed(row)))


def test_what_is_launched_beside_a_gemm_is_taken_off() -> None:
    """A row is of the whole call; the other kernels of it have a price of their own."""
    kernel = gemm(64, 32, 16)
    params = kernel.params.updated(beside=1, beside_bytes=1 << 20)
    split = attrs.evolve(kernel, params=params)

    priced = price([split], _with(_timed(kernel)), MODELS)

    assert "measured" == priced.model[0]
    assert 0.9e-3 < priced.seconds[0] < 0.999e-3


def test_hot_operands_are_not_cold_ones() -> None:
    """A kernel timed again and again costs what a row says that was timed so, too."""
    kernel = over_rows("elementwise", 512, 512)
    params = kernel.params.updated(**{REPEATED: True, IDLE: True})
    hot = attrs.evolve(kernel, params=params)

    for repeated in (True, False):
        target = _with(_timed(kernel, repeated=repeated))
        assert 1e-3 == _price(kernel, target)
        assert (1e-3 == _price(hot, target)) is repeated


def test_an_unknown_op_is_not_looked_up() -> None:
    """An op without a model is costed by its bytes, whatever its name."""
    kernel = gemm(64, 32, 16)
    unknown = attrs.evolve(kernel, known=False)

    priced = price([unknown], _with(_timed(kernel)), MODELS)

    assert [Provenance.ASSUMED] == list(priced.provenance)


def test_no_row_beats_the_bound() -> None:
    """A profile written by hand cannot make a kernel faster than its flops."""
    kernel = gemm(4096, 4096, 4096)

    (bound_s,) = lower_bound(KernelTable([kernel]), TURING)
    assert bound_s == _price(kernel, _with(_timed(kernel, 1e-9)))


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    """What is written is read: signatures as they are, numbers to six digits."""
    kernels = [
        _timed(gemm(64, 32, 16), 1.25e-5),
        _timed(gemm(64, 32, 17, b=8, layout="nt"), 2.5e-5, repeated=True),
        _timed(over_rows("elementwise", 77, 3), 3.5e-6),
        attrs.evolve(_timed(over_rows("softmax", 1, 3)), source='it\'s "quoted"'),
    ]
    path = tmp_path / "mine.toml"
    measured = MeasuredKernels.of(kernels)
    path.write_text(profile_text(HEAD, target="v100", measured=measured))

    read = load_target(str(path)).measured.by_signature
    assert list(measured.by_signature) == list(read)
    for wrote, found in zip(kernels, read.values(), strict=True):
        assert pytest.approx(wrote.seconds, rel=1e-6) == found.seconds
        assert wrote == attrs.evolve(found, seconds=wrote.seconds)


def test_what_is_set_by_hand_wins(tmp_path: Path) -> None:
    """`--set` describes another machine: nothing was measured on that."""
    kernel = gemm(64, 32, 16)
    path = tmp_path / "mine.toml"
    measured = MeasuredKernels.of([_timed(kernel)])
    path.write_text(profile_text(HEAD, target="v100", measured=measured))
    plain = load_target(str(path))
    slower = load_target(str(path), {"gpu.sm_clock_mhz": "700"})

    other_host = load_target(str(path), {"host.speed": "2"})

    assert (1, 0) == (len(plain.measured), plain.measured_unused)
    assert (1, 0) == (len(other_host.measured), other_host.measured_unused)
    assert (0, 1) == (len(slower.measured), slower.measured_unused)
    assert 1e-3 == _price(kernel, plain)
    assert 1e-3 != _price(kernel, slower)


def test_a_kernel_alone_is_priced_as_in_a_table() -> None:
    """What was measured and what was not, one by one and together."""
    kernels = [gemm(64, 32, n) for n in range(1, 9)]
    target = _with(*map(_timed, kernels[::2]))

    together = price(kernels, target, MODELS)

    assert ["measured", "gemm"] * 4 == list(together.model)
    alone = np.array([_price(kernel, target) for kernel in kernels])
    assert pytest.approx(alone, rel=1e-9) == together.seconds
