"""A probe tries one case of everything, and nothing that fails ends it."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfc.measure.fatal import DeviceFailedError

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
output: Any = importlib.import_module("collection.output")
parts: Any = importlib.import_module("collection.parts")
plan: Any = importlib.import_module("collection.plan")
probe: Any = importlib.import_module("collection.probe")
session: Any = importlib.import_module("collection.session")


def test_all_models_have_their_turn_before_one_has_two() -> None:
    """A probe that is cut off has run each model once."""
    planned = plan.planned()
    models = list(dict.fromkeys(one.model for one in planned))
    chosen = probe.one_of_each(planned)

    assert models == [one.model for one in chosen[: len(models)]]
    assert {(p.model, p.mode, p.runtime, p.dtype) for p in planned} == {
        (p.model, p.mode, p.runtime, p.dtype) for p in chosen
    }
    assert len(chosen) == len({(p.model, p.mode, p.runtime, p.dtype) for p in chosen})


def test_later_parts_have_their_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long those before them would go on."""
    seen: list[float] = []

    def measured(_: object, __: object, ends: Sequence[float]) -> bool:
        seen[:] = ends
        return False

    names_seconds = (("kernels", 0.0), ("workloads", 15.0), ("profiler", 4.0))
    listed = [parts.Part(*one, print) for one in names_seconds]

    def probes(_: object) -> list[object]:
        return listed

    monkeypatch.setattr(session, "probes", probes)
    monkeypatch.setattr(session.Session, "_measured", measured)
    made = output.Output(tmp_path, "cpu")
    made.open()
    begin = time.monotonic()
    session.Session(made, "cpu", begin, begin + 80.0).probe()
    made.close()

    assert [58.0, 73.0, 77.0] == pytest.approx([end - begin for end in seen])


def test_what_made_the_gpu_fail_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe that begins anew in another context gets past it."""
    said: list[str] = []
    tries: list[str] = []

    def lost(*_: object) -> None:
        tries.append("once")
        msg = "CUDA error: an illegal memory access was encountered"
        raise RuntimeError(msg)

    run = SimpleNamespace(
        device=SimpleNamespace(is_cuda=True),
        output=SimpleNamespace(table=tmp_path.joinpath),
        say=said.append,
        log=said.append,
        failures=list[str](),
    )
    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(DeviceFailedError, match="the GPU failed at gemm: RuntimeErr"):
        probe._tried(run, "gemm", lost)
    del tries[:]

    assert not probe._tried(run, "gemm", lost)
    assert not tries
    assert ["gemm made the GPU fail: left out"] == said


def test_a_profiler_that_sees_nothing_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows would come back without kernels, and nobody would know."""

    def blind(*_: object) -> list[None]:
        return [None]

    monkeypatch.setattr(probe, "profiled_calls", blind)
    run = SimpleNamespace(device=None)

    with pytest.raises(RuntimeError, match="the profiler saw no kernel"):
        probe._profiled(run, print, None)
