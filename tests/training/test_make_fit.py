"""`make fit` on made-up tables: no step looks at rows marked `split=test`."""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import attrs
import numpy as np
import pytest
from training.gemm_residual import Distillation, fit_residuals
from training.network_fit import Training

from perfc.costmodels import cost_models, load_target, price
from perfc.costmodels.collectives import MAKERS_SYSTEMS
from perfc.ir import Record
from perfc.measurements import (
    FIT,
    MEASUREMENTS,
    TEST,
    Measurement,
    kernel_of,
    write_rows,
)

ROOT = Path(__file__).parents[2]
SHORT = Distillation(drawn=300, training=Training(hidden=(8,), epochs=4), processes=1)
WITHOUT_ROWS = frozenset({"errors", "hosts"})
"""Steps that learn from traces, which have no marks."""

TAME, WILD, SLOW = (1.0,), (100.0, 0.01), (3.0,)
"""By what the times of rows that are held out are wrong, in turn."""

EVENTS = ("a100-pcie-40g", "t4", "v100-pcie-32g")
GRAPHS = ("a100-sxm-80g", "h100-sxm-80g")
SIZES = (1, 3, 10, 30)


def _shapes(op: str) -> Iterator[Record]:
    """Yield shapes of an op, small and large."""
    sides = (64, 128, 500, 1000, 2048, 4096)
    if op == "gemm":
        for m, n, k in itertools.product((1, 30), sides, sides):
            yield Record({"b": 1, "m": 32 * m, "n": n, "k": k})
    elif op == "conv2d":
        square = Record({"kernel": 3, "size": 28, "stride": 1, "padding": 1})
        for n, c in itertools.product(SIZES, (16, 64, 100, 256, 300)):
            yield square.updated(n=n, c_in=c, c_out=2 * c)
    elif op == "attention":
        heads = Record({"heads": 8, "head_dim": 64, "causal": True})
        for batch, length in itertools.product(SIZES, sides[:-1]):
            yield heads.updated(batch=batch, q_len=length, kv_len=length)
    else:
        kind = Record({"kind": "add", "tensor_inputs": 2})
        for rows, cols in itertools.product((8, 30, 300, 9000), sides):
            shape = Record({"rows": rows, "cols": cols})
            yield shape.updated(**kind) if op == "elementwise" else shape


def _kernels(op: str, dtype: str, timing: str, target: str) -> Iterator[Measurement]:
    """Yield rows that say what perfc does, up to a tenth off."""
    random = np.random.default_rng(0)
    around_us = 20.0 if timing == "event" else 1.0
    for params in _shapes(op):
        row = Measurement(
            target=target,
            op=op,
            dtype=dtype,
            params=params,
            latency_us=1.0,
            timing=timing,
            source="made up",
            split=FIT,
        )
        seconds = price([kernel_of(row)], load_target(target), cost_models()).seconds
        us = 1e6 * float(seconds[0]) * float(np.exp(random.normal(0, 0.05)))
        yield attrs.evolve(row, latency_us=max(us, around_us) + around_us)


def _collectives(target: str) -> Iterator[Measurement]:
    system = load_target(MAKERS_SYSTEMS.get(target, target))
    ops = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    for op, dtype, ranks, octave in itertools.product(
        ops, ("fp16", "int8"), (2, 4), range(9, 28)
    ):
        row = Measurement(
            target=target,
            op=op,
            dtype=dtype,
            params=Record({"bytes": 1 << octave, "ranks": ranks, "nodes": 1}),
            latency_us=1.0,
            timing="nccl",
            source="aiconfigurator nccl 2.27.3",
            split=FIT,
        )
        seconds = price([kernel_of(row)], system, cost_models()).seconds
        yield attrs.evolve(row, latency_us=1e6 * float(seconds[0]))


@functools.cache
def _tables() -> Mapping[str, Sequence[Measurement]]:
    """Return rows of all ops that are fitted, by table."""
    of_events = ("elementwise", "softmax", "layer_norm", "gemm", "conv2d")
    events = itertools.product(of_events, EVENTS)
    graphs = [*itertools.product(("gemm", "attention"), GRAPHS), ("gemm", "l40s")]
    return {
        "events": [r for op, t in events for r in _kernels(op, "fp32", "event", t)],
        "graphs": [r for op, t in graphs for r in _kernels(op, "bf16", "graph", t)],
        "collectives_made": [r for target in GRAPHS for r in _collectives(target)],
    }


def _held_out(
    rows: Sequence[Measurement], factors: Sequence[float]
) -> Iterator[Measurement]:
    """Yield rows that are held out: shapes of others, and shapes of their own."""
    for row, factor in zip(rows, itertools.cycle(factors), strict=False):
        held = attrs.evolve(row, split=TEST, latency_us=row.latency_us * factor)
        yield held
        size = "bytes" if "bytes" in row.params else next(iter(row.params))
        if isinstance(side := row.params[size], int):
            yield attrs.evolve(held, params=row.params.updated(**{size: 2 * side}))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which writes into a folder of the test and trains short."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    fit = importlib.import_module("fit")
    quick = functools.partial(fit_residuals, how=SHORT)
    monkeypatch.setattr("training.shipped_gemms.fit_residuals", quick)
    monkeypatch.setattr("training.shipped_gemms._FEWEST_NETWORK", 20)
    crossed = functools.partial(fit.cross_fitted, how=SHORT)
    monkeypatch.setattr(fit, "cross_fitted", crossed)
    monkeypatch.setattr(fit, "FITTED_FOLDER", tmp_path / "fitted")
    for name in ("RESIDUAL_FILE", "ATTENTION_RESIDUAL_FILE"):
        monkeypatch.setattr(fit, name, tmp_path / "fitted" / f"{name}.npz")
    return fit


def _fitted(
    script: ModuleType,
    step: str,
    folder: Path,
    factors: Sequence[float],
    mark: str = TEST,
) -> Mapping[str, bytes]:
    """Return the files that a step writes."""
    (folder / "measurements").mkdir(exist_ok=True)
    (folder / "fitted").mkdir(exist_ok=True)
    for name, rows in _tables().items():
        held = [attrs.evolve(row, split=mark) for row in _held_out(rows, factors)]
        path = folder / "measurements" / f"{name}.parquet"
        write_rows(path, [*rows, *held], MEASUREMENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fit.py", str(folder), "--what", step])
        script.main()
    files = sorted((folder / "fitted").iterdir())
    return {file.name: file.read_bytes() for file in files}


STEPS = ("streams", "gemms", "attention", "convolutions", "collectives", "intervals")


def test_all_steps_are_known(script: ModuleType) -> None:
    """Whoever adds a step adds it to those that are checked."""
    assert {*STEPS, *WITHOUT_ROWS} == {*script.STEPS}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_no_step_looks_at_rows_held_out(
    script: ModuleType, step: str, tmp_path: Path
) -> None:
    """Parameters, networks and intervals are the same, byte for byte."""
    tame = _fitted(script, step, tmp_path, TAME)
    wild = _fitted(script, step, tmp_path, WILD)

    assert tame
    assert tame == wild
    assert tame != _fitted(script, step, tmp_path, SLOW, FIT)
