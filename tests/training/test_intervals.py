"""Intervals: as wide as errors are, by the size of kernels and from GPU to GPU."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tests.training.test_streams import GPUS, ROWS, rows_of
from training.intervals import kernel_sigmas, stated
from training.priced_rows import Misses, PricedRows, power_of
from training.samples import CALIBRATION, FITTED, TEST, Sample
from training.unseen import Unseen
from training.unseen_intervals import unseen_coverage, unseen_sigmas

from perfc.costmodels.streaming import STREAMING
from perfc.fitting.scores import Z90


def _scattered(sample: Sample) -> Sample:
    """Return rows whose kernels scatter by 5 %, half of them for intervals."""
    random = np.random.default_rng(len(sample.key.target))
    kernel_s = STREAMING.estimate(sample.table, sample.target).seconds
    kernel_s *= np.exp(random.normal(0, 0.05, ROWS))
    parts = np.arange(ROWS) % 2 * CALIBRATION
    return attrs.evolve(sample, measured_s=sample.timed_s(kernel_s), part=parts)


def _misses(
    sigma: float, power: float = 0.0, rows: int = 1000, seed: int = 0
) -> Misses:
    """Return errors of kernels alone, of all sizes, that are as uncertain as that."""
    random = np.random.default_rng(seed)
    sizes = np.exp(random.uniform(np.log(0.03), np.log(30), rows))
    logs = random.normal(0, sigma * sizes**power)
    return Misses(logs, np.zeros(rows), np.ones(rows), sizes)


def test_rows_of_a_gpu_left_out_are_inside_what_the_others_say() -> None:
    """If they scatter alike on all GPUs."""
    samples = [_scattered(rows_of(gpu, "elementwise", STREAMING)) for gpu in GPUS]
    unseen = Unseen(samples)
    one = samples[0]
    known = unseen.calibrating(frozenset({one.key.target}))

    told = unseen_sigmas(known)["elementwise fp32"]
    seconds = unseen.kernel_s(one)
    assert seconds is not None
    priced = PricedRows.of(one, seconds)
    visible = priced.take(np.flatnonzero(~priced.hidden))
    inside, width = unseen_coverage(visible, told)

    assert set(GPUS[1:]) == set(known["elementwise fp32"])
    assert pytest.approx(0.05, rel=0.4) == np.hypot(told[0], told[1])
    assert pytest.approx(0.9, abs=0.07) == inside.mean()
    assert pytest.approx(2 * 1.645 * 0.05, rel=0.4) == width


def test_what_others_say_is_not_told_by_the_gpu() -> None:
    """Rows of a GPU change neither parameters nor the interval it is scored with."""
    samples = [_scattered(rows_of(gpu, "elementwise", STREAMING)) for gpu in GPUS]
    changed = [attrs.evolve(samples[0], measured_s=3 * samples[0].measured_s)]
    without = frozenset({samples[0].key.target})

    one, other = (
        unseen_sigmas(Unseen(rows).calibrating(without))
        for rows in (samples, changed + samples[1:])
    )

    assert one == other


@pytest.mark.parametrize("power", [-0.5, -0.2, 0.0])
def test_errors_grow_as_kernels_get_smaller(power: float) -> None:
    """The power that made the errors is found, and small and large are inside alike."""
    misses = _misses(0.1, power, rows=4000)

    found = power_of([misses])
    whole = misses.least(found)
    inside = misses.inside(whole, found)

    assert pytest.approx(power, abs=0.1) == found
    assert pytest.approx(0.1, rel=0.1) == whole
    for half in (misses.sizes < 1, misses.sizes >= 1):
        assert pytest.approx(0.9, abs=0.03) == inside[half].mean()


def test_gpus_that_differ_widen_the_interval_of_the_next() -> None:
    """Of one more from the same kind of GPUs nine in ten rows are inside on average."""
    random = np.random.default_rng(0)
    shares: list[float] = []
    for trial in range(20):
        sigmas = 0.1 * np.exp(random.normal(0, 0.4, (6, 4)))
        left_out = {
            str(op): {
                str(gpu): _misses(sigma, rows=400, seed=100 * trial + 10 * op + gpu)
                for gpu, sigma in enumerate(row[:-1].tolist())
            }
            for op, row in enumerate(sigmas)
        }
        told = unseen_sigmas(left_out)
        for op, sigma in enumerate(sigmas[:, -1].tolist()):
            shared, own, power = told[str(op)]
            misses = _misses(sigma, rows=400, seed=7000 + 10 * trial + op)
            shares.append(misses.inside(float(np.hypot(shared, own)), power).mean())

    assert pytest.approx(0.9, abs=0.03) == np.mean(shares)


def test_gpus_alike_widen_nothing() -> None:
    """What all GPUs of all ops need is stated as it is."""
    gpus = {str(gpu): _misses(0.1, rows=20_000, seed=gpu) for gpu in range(4)}

    shared, own, _ = unseen_sigmas({"one": gpus, "other": gpus})["one"]

    assert pytest.approx(0.1, rel=0.04) == np.hypot(shared, own)


def _stated(sample: Sample) -> dict[str, object]:
    """Return what is stated of the kernels of one GPU."""
    return kernel_sigmas([sample], [STREAMING]).get(sample.key.target, {})


def test_fitted_rows_count_where_no_network_is() -> None:
    """All rows but those that are reported say how far off elementwise kernels are."""
    sample = _scattered(rows_of("t4", "elementwise", STREAMING))
    parts = np.where(sample.part == CALIBRATION, FITTED, TEST)
    fitted = attrs.evolve(sample, part=parts)
    slower_s = np.where(parts == TEST, 2, 1) * sample.measured_s

    known = _stated(fitted)

    assert {"elementwise fp32"} == set(known)
    assert known == _stated(attrs.evolve(fitted, measured_s=slower_s))
    assert known != _stated(attrs.evolve(sample, part=np.full(ROWS, FITTED)))


def test_rows_that_a_network_was_fitted_to_do_not_count() -> None:
    """Elsewhere only those set apart do, as if of attention."""
    sample = _scattered(rows_of("t4", "elementwise", STREAMING))
    key = attrs.evolve(sample.key, op="attention")
    rows = attrs.evolve(sample, key=key)

    assert _stated(rows) == _stated(rows.of(CALIBRATION)) != _stated(sample)
    assert {} == _stated(attrs.evolve(rows, part=np.full(ROWS, FITTED)))


def test_few_rows_say_nothing() -> None:
    """Of forty rows no interval is stated."""
    assert {} == unseen_sigmas({"one": {"gpu": _misses(0.1, rows=40)}})


def test_shared_and_own_make_up_the_whole() -> None:
    """What is off on average is shared, but never all of it."""
    assert [0.06, 0.08, -0.2] == stated(0.1, -0.06, -0.2)
    shared, own, _ = stated(0.1, 0.5, 0.0)
    assert 0.1 == pytest.approx(float(np.hypot(shared, own)), rel=0.01)
    assert 0 < own < shared < 0.1


def test_hidden_kernels_are_told_apart() -> None:
    """Rows that show the host's call count where calls do, others where kernels do."""
    rows = rows_of("t4", "elementwise", STREAMING)
    priced = PricedRows.of(rows, STREAMING.estimate(rows.table, rows.target).seconds)

    hidden, showing = (Misses.of([priced], hidden=which) for which in (True, False))

    assert len(Misses.of([priced])) == len(hidden) + len(showing) == ROWS
    assert not hidden.share.any()
    assert (showing.share > 0).all()
    assert np.allclose(
        Z90 * showing.sigma(0.1, 0.0),
        Z90 * np.sqrt(showing.host + 0.01 * showing.share),
    )
