"""The rows of a Dask cluster are those of this process, also where a worker dies."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perfc
from perfc.tools.request import Request
from perfc.tools.sweeping import (
    Progress,
    Space,
    find_executor,
    read_varied,
    run_sweep,
)

distributed: Any = pytest.importorskip(
    "distributed", reason="Dask is not installed: pip install 'perfc[dask]'"
)

ONNX = Path(__file__).parents[2] / "fixtures" / "onnx" / "bag_dynamo_sum_offsets.onnx"
MODEL = "dlrm-ddp:tables=2,rows=1000"
VARY: dict[str, Any] = {"batch": range(64, 364), "dim": [16], "dtype": ["fp32", "fp16"]}

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Start a scheduler and two workers on this machine."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        silence_logs="CRITICAL",
    ) as started:
        yield started


def _executor(cluster: Any) -> str:
    address: str = cluster.scheduler_address
    return address.replace("tcp://", "dask://")


def test_a_worker_dies_midway(cluster: Any) -> None:
    """What it was pricing goes to the other one; rows are those of this process."""
    pids = [worker.pid for worker in cluster.workers.values()]
    told: list[Progress] = []

    def kill_once(progress: Progress) -> None:
        if progress.new and not any(one.new for one in told):
            os.kill(pids[0], signal.SIGKILL)
        told.append(progress)

    swept = perfc.sweep(
        MODEL, ["a100", "t4"], VARY, executor=_executor(cluster), progress=kill_once
    )

    assert [*perfc.sweep(MODEL, ["a100", "t4"], VARY).rows] == [*swept.rows]
    assert 1 < len(told)
    assert 1200 == told[-1].done


def test_a_scheduler_goes_midway(cluster: Any, tmp_path: Path) -> None:
    """One line says so, and the rows that were there stay for another executor."""
    path = tmp_path / "rows.csv"
    executor = _executor(cluster)

    def close(progress: Progress) -> None:
        if progress.new:
            cluster.close()

    with pytest.raises(perfc.PerfcError, match=r"the Dask scheduler at .* is gone"):
        perfc.sweep(MODEL, "a100", VARY, executor=executor, output=path, progress=close)
    told: list[Progress] = []
    swept = perfc.sweep(
        MODEL, "a100", VARY, output=path, resume=True, progress=told.append
    )

    assert told[0].done > 0
    assert [*perfc.sweep(MODEL, "a100", VARY).rows] == [*swept.rows]


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said after some seconds, in one line."""
    module = importlib.import_module("perfc.tools.sweeping.dask_executor")
    monkeypatch.setattr(module, "_CONNECT_S", 1)

    with pytest.raises(
        perfc.PerfcError, match="no Dask scheduler answers at localhost:9 in 1 s"
    ):
        perfc.sweep(MODEL, "a100", VARY, executor="dask://localhost:9")


def test_a_worker_says_what_is_wrong(cluster: Any, tmp_path: Path) -> None:
    """A file that workers do not find ends the sweep with their line: no row has it."""
    model = tmp_path / "model.onnx"
    model.write_bytes(ONNX.read_bytes())
    space = Space.of(Request(model=str(model)), ["a100"], [read_varied("batch=8")])
    model.unlink()

    with pytest.raises(perfc.PerfcError, match=r"a worker finds no file .*model\.onnx"):
        run_sweep(space, find_executor(_executor(cluster)))
