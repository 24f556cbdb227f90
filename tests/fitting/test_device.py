"""From rows of a machine to its coefficients, and back through a profile."""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import pytest
from tests.fitting.rows import copies, gemms, noisy

from perfc import analyze, load
from perfc.costmodels import Provenance, cost_models, load_profile, load_target, price
from perfc.costmodels.machine import TargetError
from perfc.ir import Kernel, PerfcError, Record, UsageError
from perfc.measurements import Measurement, kernel_of
from perfc.tools.calibration.calibration import calibrate_rows, profile_of, summary


def _twice_and_three_us(kernel: Kernel, seconds: float) -> float:
    return 3e-6 + 2 * seconds


def _as_perfc(kernel: Kernel, seconds: float) -> float:
    return seconds


def _profile(rows: list[Measurement], folder: Path) -> str:
    path = folder / "mine.toml"
    path.write_text(profile_of(calibrate_rows(rows), path, rows), encoding="utf-8")
    return str(path)


def _written(value: float) -> float:
    """Return a number as a profile has it."""
    return float(f"{value:.6g}")


def test_a_slower_gpu_is_found_to_be_slower(tmp_path: Path) -> None:
    """Rows of twice perfc's time and 3 us give those numbers.

    The price of what was held out is fitted, that of the others what was measured.
    """
    rows = gemms("v100", noisy(_twice_and_three_us))
    found = calibrate_rows(rows)

    assert found.device is not None
    (family,) = found.device.families
    assert family.before is not None
    assert family.after is not None
    assert family.before.mape > 0.4
    assert family.after.mape < 0.06
    target = load_target(_profile(rows, tmp_path))
    kernels = [kernel_of(row) for row in rows]
    before = price(kernels, load_target("v100"), cost_models())
    after = price(kernels, target, cost_models())
    expected = (3e-6 + 2 * before.seconds).tolist()
    assert pytest.approx(expected, rel=0.12) == after.seconds.tolist()
    measured = [row.split == "fit" for row in rows]
    assert measured == [p is Provenance.MEASURED for p in after.provenance]
    assert {Provenance.MEASURED, Provenance.FITTED} == set(after.provenance)
    assert after.sigma_independent.max() < 0.1


def test_only_rows_to_fit_are_fitted_and_only_the_others_reported() -> None:
    """Rows that are marked `test` may say anything: the coefficients stay."""
    rows = gemms("v100", _twice_and_three_us)
    others = [
        attrs.evolve(row, latency_us=row.latency_us * 10)
        if row.split == "test"
        else row
        for row in rows
    ]
    one, other = calibrate_rows(rows).device, calibrate_rows(others).device

    assert one is not None
    assert other is not None
    values = [[fit.values for fit in device.fits] for device in (one, other)]
    assert values[0] == values[1]
    assert other.families[0].after is not None
    assert other.families[0].after.bias < -0.8
    tests = sum(row.split == "test" for row in rows)
    assert (len(rows) - tests, tests) == (
        other.families[0].fitted,
        other.families[0].after.rows,
    )


def test_a_profile_says_what_calibrate_found(tmp_path: Path) -> None:
    """Coefficients, sigmas, fields and host times survive the file, to six digits."""
    rows = gemms("cpu", noisy(_twice_and_three_us), "event")
    found = calibrate_rows(rows)
    path = _profile(rows, tmp_path)
    target, host = load_target(path), load_profile(path)

    assert found.device is not None
    assert found.host is not None
    for fit in found.device.fits:
        read = target.fits.by_family[fit.family]
        written = {name: _written(value) for name, value in fit.values.items()}
        assert written == dict(read.values)
        assert _written(fit.sigma_shared) == read.sigma_shared
        assert _written(fit.sigma_independent) == read.sigma_independent
        assert fit.rows == read.rows
    dispatch_us = _written(found.host.profile.t2_s.default_s * 1e6)
    assert pytest.approx(dispatch_us, rel=1e-15) == host.t2_s.default_s * 1e6
    assert 6 == target.device.sm_count
    assert "mine" == target.profile
    assert path == target.host.overheads
    report = analyze(load("dlrm-default:tables=2", batch=64), path)
    assert "mine" == report.header["target"]["profile"]


def test_new_pages_cost_gemms_what_they_cost_others() -> None:
    """No GEMM's result is large here: that of elementwise kernels are believed."""

    def with_slow_pages(kernel: Kernel, seconds: float) -> float:
        written, new = kernel.work.bytes_written, kernel.params.flag("new_pages")
        return 2e-6 + seconds + (2e-6 * written / 4096 if new else 0.0)

    rows = copies("cpu", with_slow_pages) + gemms("cpu", _as_perfc, "event")
    device = calibrate_rows(rows).device

    assert device is not None
    page_us = {
        fit.family.op: fit.values["page_us"]
        for fit in device.fits
        if not fit.family.kind
    }
    assert page_us["elementwise"] > 1.5
    assert pytest.approx(page_us["elementwise"]) == page_us["gemm"]


@pytest.mark.parametrize(("target", "mib"), [("t4", 64), ("cpu", 8)])
def test_rows_without_mapped_pages_are_fitted_as_others(target: str, mib: int) -> None:
    """On a GPU nothing is mapped, nor are small results on a CPU, whatever rows say."""
    rows = copies(target, lambda _, seconds: 2e-6 + 2 * seconds)
    new = [
        attrs.evolve(row, params=row.params.updated(new_pages=True))
        for row in rows
        if kernel_of(row).work.bytes_written <= mib << 20
    ]
    held = [row for row in rows if "new_pages" not in row.params]
    device = calibrate_rows([*held, *new]).device

    assert device is not None
    for fit in device.fits:
        assert all(map(math.isfinite, fit.values.values()))
        assert fit.values.get("page_us", 0.6) == pytest.approx(0.6)


def test_a_profile_changes_the_digest(tmp_path: Path) -> None:
    """Other coefficients are another target: results of the two never mix."""
    paths: list[str] = []
    for number, law in enumerate((_twice_and_three_us, _as_perfc)):
        folder = tmp_path / str(number)
        folder.mkdir()
        paths.append(_profile(gemms("v100", law), folder))
    one, other = (load_target(path).spec_sha256 for path in paths)

    assert one != other
    assert load_target("v100").spec_sha256 not in {one, other}


@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_few_rows_of_a_gpu_say_its_factor_alone(slower: float) -> None:
    """Four rows of a type are no fit: a factor, as far as it is likely."""

    def measured_s(_: Kernel, seconds: float) -> float:
        return slower * seconds

    rows = [row for row in gemms("v100", measured_s) if row.split == "fit"][:4]
    found = calibrate_rows(rows)

    assert found.device is not None
    (fit,) = found.device.fits
    assert fit.values["start_us"] == 0
    assert 0.7 * math.log(slower) <= math.log(fit.values["scale"])
    assert fit.values["scale"] <= slower
    assert fit.near is None
    shipped = price([kernel_of(rows[0])], load_target("v100"), cost_models())
    assert fit.sigma_shared < shipped.sigma_common[0]
    assert any("no held-out row" in line for line in summary(found))


def test_a_rate_that_cannot_be_is_not_taken() -> None:
    """Rows of a machine that stood still leave the sheet's rates as they are."""
    rows = gemms("cpu", lambda kernel, _: float(kernel.work.bytes), "event")
    found = calibrate_rows(rows)

    assert "gpu.l2_gb_per_s" in found.refused
    assert not set(found.refused) & set(found.fields)
    assert any(
        line.startswith("gpu.l2_gb_per_s: ") and line.endswith("the sheet's is kept")
        for line in summary(found)
    )


def test_rows_of_two_machines_are_no_profile() -> None:
    """One profile is of one target."""
    rows = [*gemms("v100", _as_perfc), *gemms("t4", _as_perfc)]
    with pytest.raises(PerfcError, match="rows of one target, found of t4, v100-sxm2"):
        calibrate_rows(rows)
    with pytest.raises(PerfcError, match="found no rows"):
        calibrate_rows([])
    unknown = [attrs.evolve(row, target="abacus") for row in rows]
    with pytest.raises(UsageError, match="unknown target abacus"):
        calibrate_rows(unknown)


def test_host_rows_make_a_host(tmp_path: Path) -> None:
    """T1 and the times of an op come from `host_overhead` rows."""
    rows = [
        Measurement(
            target="v100-sxm2-16g",
            op="host_overhead",
            dtype="",
            params=Record({"type": type_, "op": op}),
            latency_us=us,
            timing="host",
            source="made up",
            n=100,
            p10_us=us / 2,
            p90_us=us * 2,
        )
        for type_, op, us in (
            ("T1", "", 4.0),
            ("T2", "aten::relu", 9.0),
            ("T3", "", 2.0),
        )
    ]
    host = load_profile(_profile(rows, tmp_path))

    assert pytest.approx(4e-6) == host.t1_s
    assert pytest.approx(9e-6) == host.t2_s.of("aten::relu")
    assert load_profile("shared").t2_s.default_s == host.t2_s.default_s
    assert pytest.approx(2e-6) == host.t3_s.of("aten::never")
    with pytest.raises(TargetError, match=r"no \[device\]: it holds a host only"):
        load_target(str(tmp_path / "mine.toml"))
