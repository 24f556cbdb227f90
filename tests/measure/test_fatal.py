"""What made a GPU fail is left out by the run that continues."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfc.ir import PerfcError
from perfc.measure.device import open_device
from perfc.measure.fatal import Fatal  # not public
from perfc.measure.kernel_run import KernelRun
from perfc.measure.models import Setting, WorkloadRun, find_subject
from perfc.measure.suites import suite


def _fail() -> None:
    msg = "CUDA error: an illegal memory access was encountered"
    raise RuntimeError(msg)


def _works() -> None:
    pass


def test_a_gpu_that_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says that it may go on, and the list what without."""
    fatal = Fatal(tmp_path / "rows.csv")
    monkeypatch.setattr(torch.cuda, "synchronize", _fail)
    assert frozenset() == fatal.known()
    for what in ("gemm", "conv2d"):
        with pytest.raises(PerfcError) as caught:
            fatal.check(f"{what}, short", "illegal", what)
        line = f"the GPU failed at {what}, short: illegal; the same command continues"
        assert line == str(caught.value)
    assert frozenset({"gemm", "conv2d"}) == fatal.known()


def test_a_gpu_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What merely did not run is on no list."""
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, _works)
    fatal = Fatal(tmp_path / "rows.csv")
    fatal.check("gemm", "not implemented", "gemm")
    assert not fatal.path.exists()


def test_a_list_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run will come there again, and says so."""
    monkeypatch.setattr(torch.cuda, "synchronize", _fail)
    fatal = Fatal(tmp_path / "none" / "rows.csv")
    with pytest.raises(PerfcError, match=r"there again, for .* cannot be written"):
        fatal.check("gemm", "illegal", "gemm")


def test_shapes_are_left_out(tmp_path: Path) -> None:
    """The others are measured, and the user told why these are not."""
    path, said = tmp_path / "rows.csv", list[str]()
    device = open_device("cpu")
    probe = KernelRun(device, "quick", path, ops=("memcpy",))
    probe.measure(0.05, said.append)
    rows = {(row.op, row.dtype, row.params) for row in probe.rows}
    first, *_ = rows
    path.unlink()
    op, dtype, params = first
    (tmp_path / "rows.csv.failed.txt").write_text(f"{op} {dtype} {params}\n")
    again = KernelRun(device, "quick", path, ops=("memcpy",))
    again.measure(0.5, said.append)
    assert first not in {(row.op, row.dtype, row.params) for row in again.rows}
    assert again.rows
    assert any(line.startswith("1 shapes made the GPU fail") for line in said)


def test_settings_are_left_out(tmp_path: Path) -> None:
    """A model in one setting may fail where it works in another."""
    said: list[str] = []
    run = WorkloadRun(
        open_device("cpu"),
        find_subject("dlrm-ddp:tables=2,rows=100,dim=16"),
        tmp_path / "rows.csv",
        iterations=3,
        seconds=0.1,
    )
    modes = {"training": "sgd", "inference": ""}
    settings = [
        Setting(
            batch=8,
            mode=mode,
            optimizer=optimizer,
            dtype="fp32",
            runtime="eager",
            inputs="device",
        )
        for mode, optimizer in modes.items()
    ]
    params = run.subject.params_on(run.device, settings[0])
    line = f"dlrm-ddp {params}, {settings[0]}, inputs device\n"
    (tmp_path / "rows.csv.failed.txt").write_text(line)
    run.measure(settings, said.append)
    assert ["inference"] == [row.mode for row in run.rows]
    assert "made the GPU fail: left out by" in said[0]

    run.path.unlink()
    again = WorkloadRun(run.device, run.subject, run.path, iterations=3, seconds=0.1)
    with pytest.raises(PerfcError, match=r"all of it is in .*failed\.txt; remove that"):
        again.measure(settings[:1], said.append)


def test_a_list_of_all_shapes_is_an_error(tmp_path: Path) -> None:
    """No table is no success."""
    device, path = open_device("cpu"), tmp_path / "rows.csv"
    cases = [case for _, case in suite("quick", device, ["memcpy"])]
    lines = [f"{case.op} {case.dtype} {case.params}\n" for case in cases]
    (tmp_path / "rows.csv.failed.txt").write_text("".join(lines))
    run = KernelRun(device, "quick", path, ops=("memcpy",))

    with pytest.raises(PerfcError, match="nothing could be measured: all of it is in"):
        run.measure(0.05, list[str]().append)
    assert not path.exists()
