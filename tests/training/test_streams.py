"""Fitting streams: parameters that made the rows come back; GPUs left out."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import pytest
from training.baselines import lin_formula_s
from training.samples import FITTED, Sample
from training.streams import fit_kind, fit_memory
from training.unseen import Unseen

from perfc.costmodels import load_target
from perfc.costmodels.kernels import ColumnTable, KernelColumns
from perfc.costmodels.pricing import call_seconds
from perfc.costmodels.streaming import IDLE, STREAMING, StreamingModel
from perfc.fitting.scores import GroupKey

GPUS = ("v100-pcie-32g", "t4", "p100-pcie-16g", "a100-pcie-40g")
ROWS = 300
SHARE = 0.6
MEMORY: Mapping[str, float] = {
    "stacked_share": 0.8,
    "pascal_share": 0.9,
    "planar_share": 0.7,
    "l2_bytes_per_clock": 24.0,
    "l2_held": 1.0,
    "spill": 0.3,
}


def rows_of(
    target: str,
    op: str,
    model: StreamingModel,
    kind: str = "add",
) -> Sample:
    """Return event rows that took what *model* says, on the GPU's host."""
    random = np.random.default_rng(len(target))
    rows = np.exp2(random.uniform(5, 15, ROWS)).astype(np.int64)
    columns = np.exp2(random.uniform(6, 13, ROWS)).astype(np.int64)
    nbytes = np.multiply(rows, columns, dtype=np.float64) * 4
    table = ColumnTable.of(
        KernelColumns(
            op=op,
            dtype="fp32",
            math="fp32",
            params={
                "rows": rows,
                "cols": columns,
                **({"kind": np.full(ROWS, kind)} if op == "elementwise" else {}),
            },
            flops=nbytes / 4,
            bytes_read=nbytes,
            bytes_written=nbytes,
        )
    ).with_param(IDLE, np.ones(ROWS, dtype=np.bool_))
    system = load_target(target)
    call_s, _ = call_seconds(table, system)
    kernel_s = model.estimate(table, system).seconds
    measured_s = SHARE * call_s + np.maximum(kernel_s, (1 - SHARE) * call_s)
    key = GroupKey(target, op, "fp32", "event")
    return Sample(key, system, table, measured_s, np.full(ROWS, FITTED))


def test_rates_of_memory_come_back() -> None:
    """Elementwise rows say the shares and what of a call is before its kernel."""
    truth = STREAMING.with_memory(MEMORY)

    found = fit_memory([rows_of(gpu, "elementwise", truth) for gpu in GPUS])

    shares = ("stacked_share", "pascal_share", "planar_share")
    assert pytest.approx(SHARE, abs=0.01) == found.share
    for name in shares:
        assert pytest.approx(MEMORY[name], rel=0.01) == found.values[name]


def test_kinds_come_back() -> None:
    """Rows of softmax say what its model took, clocks of an idle GPU among it."""
    truth = {"share": 0.8, "element_cycles": 0.4, "idle_slowdown": 0.5}
    model = STREAMING.with_fit("softmax", truth)

    found = fit_kind(
        "softmax", [rows_of(gpu, "softmax", model) for gpu in GPUS], STREAMING
    )

    assert pytest.approx(SHARE, abs=0.02) == found.share
    for name, value in truth.items():
        assert pytest.approx(value, rel=0.1) == found.values[name]


def test_a_gpu_left_out_says_nothing() -> None:
    """Its rows may be ten times as slow: what is predicted for it is the same."""
    samples = [
        rows_of(gpu, op, STREAMING) for op in ("elementwise", "softmax") for gpu in GPUS
    ]
    slower = [
        attrs.evolve(s, measured_s=10 * s.measured_s) if s.key.target == "t4" else s
        for s in samples
    ]

    one, other = Unseen(samples), Unseen(slower)

    for sample in samples:
        first, second = one.kernel_s(sample), other.kernel_s(sample)
        assert first is not None
        assert second is not None
        assert (sample.key.target == "t4") == np.array_equal(first, second)
    assert one.kernel_s(rows_of("t4", "reduction", STREAMING)) is None


def test_formulas_of_lin() -> None:
    """Sums by their bytes, exponentials by their flops; nothing on layer norm."""
    adds = rows_of("v100-pcie-32g", "elementwise", STREAMING)
    pows = rows_of("t4", "elementwise", STREAMING, kind="pow")
    elements = adds.table.param("rows") * adds.table.param("cols")

    added, powered = lin_formula_s(adds), lin_formula_s(pows)

    assert added is not None
    assert powered is not None
    assert np.allclose(added, adds.timed_s(elements * 12 / 900e9))
    elements = pows.table.param("rows") * pows.table.param("cols")
    assert np.allclose(powered, pows.timed_s(elements * 8 / 320e9))
    assert lin_formula_s(rows_of("t4", "layer_norm", STREAMING)) is None
