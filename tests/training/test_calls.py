"""What eager calls take is read off fitted rows, and comes back out of made ones."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping

import attrs
import numpy as np
import pytest
from tests.costmodels.signatures import gemm
from training.calls import REFERENCE, fit_calls, fit_gaps
from training.fitted_text import fitted_text
from training.samples import FITTED, TEST, Sample

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.fitted_files.fitted_file import fitted
from perfc.costmodels.kernels import SOFTWARE, ColumnTable, KernelColumns
from perfc.costmodels.pricing import MET, call_names
from perfc.costmodels.streaming import STREAMING
from perfc.fitting.scores import GroupKey

FLOORS_US: Mapping[str, float] = {
    "elementwise add 1": 20.0,
    "elementwise mul 1": 30.0,
}
HOSTS = {REFERENCE: 1.0, "t4": 1.5, "p100-pcie-16g": 2.0}
SHARE = 0.4
ROWS = 400


def _sample(
    target: str, part: int, factor: float = 1.0, timing: str = "event"
) -> Sample:
    """Return rows of calls, half of which hide their kernel."""
    random = np.random.default_rng(1)
    columns = np.exp(random.uniform(np.log(1e3), np.log(3e8), ROWS)).astype(np.int64)
    kinds = np.array(["add", "mul"])[np.arange(ROWS) % 2]
    nbytes = 4.0 * columns.astype(np.float64)
    table = ColumnTable.of(
        KernelColumns(
            op="elementwise",
            dtype="fp32",
            math="fp32",
            params={"rows": np.ones(ROWS), "cols": columns, "kind": kinds},
            flops=nbytes / 4,
            bytes_read=2 * nbytes,
            bytes_written=nbytes,
        )
    )
    system = load_target(target)
    kernel_s = STREAMING.estimate(table, system).seconds
    floor_us = np.array([FLOORS_US[name] for name in call_names(table).tolist()])
    call_s = floor_us * HOSTS.get(target, 1.0) * 1e-6
    measured_s = SHARE * call_s + np.maximum(kernel_s, (1 - SHARE) * call_s)
    key = GroupKey(target, "elementwise", "fp32", timing)
    return Sample(key, system, table, factor * measured_s, np.full(ROWS, part))


def _found(part: int, factor: float = 1.0) -> list[Sample]:
    return [_sample(target, part, factor) for target in HOSTS]


def test_floors_and_factors_come_back() -> None:
    """Rows made by the form say the parameters that they were made with."""
    found = fit_calls(_found(FITTED))

    assert FLOORS_US == pytest.approx({name: found.call_us[name] for name in FLOORS_US})
    assert HOSTS == pytest.approx(dict(found.host))
    for target, factor in HOSTS.items():
        known = {name: factor * us for name, us in FLOORS_US.items()}
        assert known == pytest.approx(dict(found.known_us[target]))
    assert 25.0 == pytest.approx(found.call_us["elementwise"])
    assert 3 ** (1 / 3) == pytest.approx(found.other_host)
    assert found.sigma < 1e-6 < found.sigma_other_host


@pytest.mark.parametrize(
    "sessions_us",
    [(40.0, 48.0), (40.0, 48.0, 40.0), (48.0, 40.0, 48.0), (40.0, 48.0, 56.0)],
)
def test_sessions_of_a_table_come_apart(sessions_us: tuple[float, ...]) -> None:
    """A call that takes longer from some row of a table on is known to, and again."""
    target, floors_us = load_target("v100-pcie-32g"), np.repeat(sessions_us, 225)
    count = len(floors_us)
    place = np.arange(float(count)) * 3 + 1
    table = KernelTable([gemm(16, 16, 16, b=2)] * count).with_param(MET, place)
    key = GroupKey(target.name, "gemm", "fp32", "event")
    rows = Sample(key, target, table, floors_us * 1e-6, np.full(count, FITTED))

    steady = attrs.evolve(rows, measured_s=np.full(count, 40e-6))
    reference = attrs.evolve(steady, target=load_target(REFERENCE))

    found = fit_calls([reference, rows]).sessions

    assert set(found) == {target.name}
    sessions = found[target.name]["gemm"]
    firsts = [675.0 * number for number in range(len(sessions_us))]

    assert list(sessions_us) == pytest.approx([us for _, us in sessions])
    assert firsts == pytest.approx([first for first, _ in sessions], abs=9)


def test_reported_rows_say_nothing() -> None:
    """Rows that are only reported do not change the fit, however wrong they are."""
    assert fit_calls(_found(FITTED)) == fit_calls(_found(FITTED) + _found(TEST, 9.0))


def test_gaps_of_software_come_back() -> None:
    """Short kernels of a graph say what was between them, by software and GPU."""
    samples: list[Sample] = []
    for target, gap_us in (("h100", 1.5), ("l40s", 0.5)):
        made = _sample(target, FITTED, timing="graph")
        software = np.where(np.arange(ROWS) % 4 < 2, "quick", "slow")
        slower_s = np.where(software == "slow", 1e-6, 0.0)
        kernel_s = STREAMING.estimate(made.table, made.target).seconds
        samples.append(
            attrs.evolve(
                made,
                table=made.table.with_param(SOFTWARE, software),
                measured_s=kernel_s + slower_s + gap_us * 1e-6,
            )
        )

    found = fit_gaps(samples)

    expected = {"quick": 1.0, "slow": 2.0}
    for name, us in expected.items():
        assert us == pytest.approx(found[name], abs=0.05)
        for sample, more in zip(samples, (0.5, -0.5), strict=True):
            own = found[f"{name}, {sample.target.name}"]
            assert us + more == pytest.approx(own, abs=0.05)


TABLES = {"": {"share": 0.5}, "call_us": {"elementwise add 1": 30.8, "gemm": 32.0}}


def test_a_second_fit_is_the_same_file() -> None:
    """The date of a fit stays until a value, a name or the source changes."""
    first = fitted_text(TABLES, "someone (MIT)", "2026-01-01", {})
    shipped = tomllib.loads(first)
    changed = {**TABLES, "call_us": {"gemm": 32.0}}

    assert {"source": "someone (MIT)", "date": "2026-01-01"} == {
        name: shipped[name] for name in ("source", "date")
    }
    assert TABLES["call_us"] == shipped["call_us"]
    assert first == fitted_text(TABLES, "someone (MIT)", "2026-02-02", shipped)
    for text in (
        fitted_text(changed, "someone (MIT)", "2026-02-02", shipped),
        fitted_text(TABLES, "someone else (MIT)", "2026-02-02", shipped),
    ):
        assert "2026-02-02" == tomllib.loads(text)["date"]


@pytest.mark.parametrize("name", ["event", "memory", "streaming", "intervals"])
def test_shipped_files_are_what_a_fit_writes(name: str) -> None:
    """They say their source and their date."""
    shipped = fitted(name)

    assert "(MIT)" in shipped["source"]
    assert dt.date.fromisoformat(shipped["date"])
