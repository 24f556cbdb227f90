"""`make collect`: pieces that go on, failures that are said, a manifest."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from perfc.ir import PerfcError
from perfc.measurements import MEASUREMENTS, read_rows

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "collect.py"


def _script() -> Any:  # noqa: ANN401 - a module
    """Load the script, as its own module."""
    spec = importlib.util.spec_from_file_location("collect", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["collect"] = module  # attrs looks its classes' module up
    spec.loader.exec_module(module)
    return module


collect = _script()
COPIES = collect.Job("copies", ("kernels", "--op", "memcpy"), "kernels", 0.02)


def test_a_collection(tmp_path: Path) -> None:
    """Tables, a manifest of the machine, and nothing to do the second time."""
    folder = tmp_path / "cpu"

    assert 0 == collect.collect(collect.Collection(folder, "cpu", [COPIES]), 1)
    rows = read_rows(folder / "kernels.parquet", MEASUREMENTS)
    made = json.loads((folder / "manifest.json").read_text())
    state = (folder / "state.json").read_text()

    assert ("perfc.collection/1", "cpu") == (made["schema"], made["target"])
    assert {"kernels.parquet": len(rows)} == made["rows"]
    assert {rows[0].source} == {made["source"]}
    assert 0 == collect.collect(collect.Collection(folder, "cpu", [COPIES]), 1)
    assert state == (folder / "state.json").read_text()


def test_a_job_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are run, the error is said, and the next time it is tried again."""
    wrong = collect.Job("wrong", ("kernels", "--op", "nothing"), "kernels")
    collection = collect.Collection(tmp_path, "cpu", [wrong])

    assert 1 == collect.collect(collection, 1)

    assert "failed: wrong: perfc: error: no op nothing is" in capsys.readouterr().out
    again = collect.Collection(tmp_path, "cpu", [wrong])
    again.load()
    assert wrong == again.next_job()


def test_a_job_that_a_piece_cuts_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is interrupted, is not done, and comes first in the next piece."""
    monkeypatch.setattr(collect, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(collect, "PIECE_SECONDS", collect.STOP_SECONDS + 2)
    long = collect.Job("long", ("kernels", "--suite", "full"), "kernels")
    collection = collect.Collection(tmp_path, "cpu", [long])

    assert 0 == collect.collect(collection, 1)

    again = collect.Collection(tmp_path, "cpu", [long])
    again.load()
    assert (False, "") == (again.progress["long"].done, again.progress["long"].failed)
    assert long == again.next_job()


def test_a_folder_of_another_device(tmp_path: Path) -> None:
    """Rows of two devices do not mix."""
    collect.Collection(tmp_path, "cuda", [COPIES]).save()

    with pytest.raises(PerfcError, match="is a collection of cuda: name another"):
        collect.Collection(tmp_path, "cpu", [COPIES]).load()


def test_a_damaged_state(tmp_path: Path) -> None:
    """A state that cannot be read is not taken for none."""
    (tmp_path / "state.json").write_text("{")

    with pytest.raises(PerfcError, match=r"cannot read .*state\.json: Expecting"):
        collect.Collection(tmp_path, "cpu", [COPIES]).load()


def test_the_time_that_a_gpu_is_asked_for() -> None:
    """What is given a time takes less than half of the 25 minutes."""
    assert sum(job.minutes for job in collect.JOBS["cuda"]) < 12.5
    assert len({job.name for job in collect.JOBS["cuda"]}) == len(collect.JOBS["cuda"])


def test_a_gpu_that_fails_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job goes on without what it failed at, but not forever."""
    failed = "perfc: error: the GPU failed at gemm: no; the same command continues"
    ends = [(1, failed, False), (0, "", False)]

    def run(*_: object) -> tuple[int, str, bool]:
        return ends.pop(0)

    def fail(*_: object) -> tuple[int, str, bool]:
        return 1, failed, False

    monkeypatch.setattr(collect, "run_command", run)
    collection = collect.Collection(tmp_path, "cpu", [COPIES])
    assert 0 == collect.collect(collection, 1)
    assert collection.progress["copies"].done

    monkeypatch.setattr(collect, "run_command", fail)
    endless = collect.Collection(tmp_path / "endless", "cpu", [COPIES])
    assert 1 == collect.collect(endless, 1)
    assert failed == endless.progress["copies"].failed
