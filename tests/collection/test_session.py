"""A run of parts: each ends in time, and none of them ends the others."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from perfc.ir import PerfcError
from perfc.measure.device import Device
from perfc.measure.fatal import DeviceFailedError

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
clock: Any = importlib.import_module("collection.clock")
collect: Any = importlib.import_module("collect")
estimate: Any = importlib.import_module("collection.estimate")
output: Any = importlib.import_module("collection.output")
parts: Any = importlib.import_module("collection.parts")
session: Any = importlib.import_module("collection.session")

Measure = Callable[[Any, float], None]


def _run(folder: Path, *chosen: tuple[str, Measure], seconds: float = 30.0) -> Any:
    """Run parts, each with the same share; return the last run of the manifest."""
    made = output.Output(folder, "cpu")
    made.open()
    begin = time.monotonic()
    run = session.Session(made, "cpu", begin, begin + seconds)
    listed = [parts.Part(name, 1.0, measure) for name, measure in chosen]
    ends = [begin + seconds] * len(listed)
    try:
        failed = run._measured(listed, ends)
    finally:
        made.close()
    return failed, _last(folder)


def _last(folder: Path) -> dict[str, Any]:
    runs: list[dict[str, Any]]
    runs = json.loads((folder / "manifest.json").read_text())["runs"]
    return runs[-1]


def _endings(run: dict[str, Any]) -> dict[str, str]:
    return {part["part"]: part["ended"] for part in run["parts"]}


def _nothing(run: object, end: float) -> None:
    pass


def _raising(error: BaseException) -> Measure:
    def measure(run: object, end: float) -> None:
        raise error

    return measure


def test_a_part_that_fails_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it raises is one line, and the traceback is in the log."""
    failed, run = _run(
        tmp_path,
        ("wrong", _raising(PerfcError("no such op"))),
        ("broken", _raising(ValueError("two\nlines"))),
        ("good", _nothing),
    )

    assert not failed
    assert _endings(run) == {
        "wrong": "failed: no such op",
        "broken": "failed: ValueError: two",
        "good": "done",
    }
    assert "broken failed: ValueError: two" in capsys.readouterr().out


def test_a_part_ends_in_time_whatever_it_does(tmp_path: Path) -> None:
    """A part that never looks at the clock is cut off."""

    def endless(run: object, end: float) -> None:
        while True:
            pass

    begin = time.monotonic()
    failed, run = _run(tmp_path, ("endless", endless), seconds=1.5)

    assert not failed
    assert {"endless": "time was over"} == _endings(run)
    assert time.monotonic() - begin < 20


def test_a_clock_that_is_set_moves_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends are on a clock that nobody sets."""
    monkeypatch.setattr(time, "time", iter(range(10**9, 0, -1000)).__next__)
    seen: list[float] = []
    _run(tmp_path, ("part", lambda _, end: seen.append(end - time.monotonic())))

    assert 20 < seen[0] < 30


def test_a_gpu_that_fails_ends_the_process(tmp_path: Path) -> None:
    """What was measured is in the folder, and the caller knows that it begins anew."""
    lost = DeviceFailedError("the GPU failed at gemm: unspecified launch failure")
    failed, run = _run(tmp_path, ("gemm", _raising(lost)), ("later", _nothing))

    assert failed
    assert {"gemm": "the device failed"} == _endings(run)


def test_an_interrupt_leaves_a_whole_folder(tmp_path: Path) -> None:
    """SIGTERM and Ctrl-C end the run; the manifest says in what part."""
    with pytest.raises(clock.Terminated):
        _run(tmp_path, ("part", _raising(clock.Terminated())), ("later", _nothing))

    assert {"part": "interrupted"} == _endings(_last(tmp_path))


def test_what_an_earlier_run_says_is_kept(tmp_path: Path) -> None:
    """Each start into the same folder is a run of the manifest."""
    _run(tmp_path, ("first", _nothing))
    _run(tmp_path, ("second", _nothing))
    found = json.loads((tmp_path / "manifest.json").read_text())

    assert ["first", "second"] == [run["parts"][0]["part"] for run in found["runs"]]
    assert ("cpu", "perfc.collection/2") == (found["kind"], found["schema"])


def test_every_part_has_its_share() -> None:
    """In a run of 570 seconds as planned; in a shorter one in proportion."""
    names = [part.name for part in parts.PARTS]
    ends = dict(zip(names, session.part_ends(parts.PARTS, 100.0, 670.0), strict=True))

    assert pytest.approx(225) == ends["unprofiled workloads"]
    assert pytest.approx(378) == ends["workloads"]
    assert pytest.approx(660) == ends["ceilings"]
    short = session.part_ends(parts.PARTS, 10.0, 120.0)
    assert pytest.approx(117) == short[-1]
    assert pytest.approx(10 + 107 * 125 / 560) == short[0]
    assert sorted(short) == short


def test_what_a_window_on_a_gpu_yields(capsys: pytest.CaptureFixture[str]) -> None:
    """At least 80 workloads of 7 models and 3,000 shapes in 570 seconds."""
    lines = estimate.estimate("h100-sxm-80g", 570.0)
    rows = {line.part: line.rows for line in lines}
    workloads, models = _numbers(rows["workloads"], 0, 2)
    kinds = ("workload kernels", "embedding bags", "GEMMs", "other kernels")
    shapes = sum(_numbers(rows[kind], 0)[0] for kind in kinds)

    assert workloads >= 80
    assert models >= 7
    assert shapes >= 3000
    assert sum(line.seconds for line in lines) <= 570
    assert not capsys.readouterr().out


def _numbers(text: str, *at: int) -> Sequence[int]:
    found = [int(w) for w in text.replace(",", "").split() if w.isdecimal()]
    return [found[index] for index in at]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dry-run", "--target", "cpu"], "expected a GPU that runs CUDA"),
        (["--dry-run", "--target", "h1000"], "h1000"),
        (["--window", "--device", "cuda", "--out", "OUT"], "--device cuda: PyTorch"),
    ],
)
def test_one_line_for_what_cannot_be_done(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    """No such target, no GPU: a line, and the exit code of perfc's errors."""

    def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(clock, "end_when_asked", nothing)
    monkeypatch.setattr(clock, "watch", nothing)
    given = [str(tmp_path) if word == "OUT" else word for word in arguments]

    assert collect.main(given) in {1, 2}

    printed = capsys.readouterr().out.splitlines()
    assert 1 == len(printed)
    assert printed[0].startswith("collect: error: ")
    assert said in printed[0]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Usage errors end with 2."""
    with pytest.raises(SystemExit, match="2"):
        collect.main(["--dry-run", "--seconds", seconds])

    assert "argument --seconds: invalid" in capsys.readouterr().err


def test_a_gpu_that_failed_is_tried_in_a_new_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same program with the time that is left; not for ever."""
    started: list[list[str]] = []

    def start(program: str, command: list[str]) -> None:
        started.append(command)

    monkeypatch.setattr(os, "execv", start)
    monkeypatch.setenv("PERFC_COLLECT_RESTARTS", "0")
    options = collect._options(["--window", "--device", "cuda", "--out", str(tmp_path)])

    collect._start_again(options, 60.0)
    assert "60.0" == started[0][started[0].index("--seconds") + 1]
    assert "1" == os.environ["PERFC_COLLECT_RESTARTS"]
    for restarts, left in (("1", 5.0), ("3", 60.0)):
        monkeypatch.setenv("PERFC_COLLECT_RESTARTS", restarts)
        with pytest.raises(SystemExit, match="1"):
            collect._start_again(options, left)


def test_sigterm_ends_a_run() -> None:
    """Also one that was started in the background, where SIGINT is ignored."""
    before = {number: signal.getsignal(number) for number in (15, 2, signal.SIGUSR1)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        clock.end_when_asked()
        with pytest.raises(clock.Terminated):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_thread_of_the_parent_that_ends_does_not_end_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Linux tells of the end of the thread that started it; the process counts."""
    before = {number: signal.getsignal(number) for number in (15, 2, signal.SIGUSR1)}
    try:
        clock.end_when_asked()
        signal.raise_signal(signal.SIGUSR1)
        monkeypatch.setattr(os, "getppid", lambda: 1)
        with pytest.raises(clock.Terminated):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_gpu_without_a_sheet_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says under which name its rows are kept until there is a sheet."""
    unknown = Device(
        kind="cuda",
        target="nvidia-x1000",
        name="NVIDIA X1000",
        driver="driver 1",
        dtypes=("fp32",),
        memory_bytes=1 << 30,
        cache_bytes=1 << 20,
    )

    def opened(kind: str) -> Device:
        return unknown

    monkeypatch.setattr(session, "open_device", opened)
    made = output.Output(tmp_path, "cuda")
    made.open()
    session.Session(made, "cuda", time.monotonic(), time.monotonic() + 30.0)
    made.close()

    (line,) = capsys.readouterr().out.splitlines()
    assert "no sheet of NVIDIA X1000: rows are of 'nvidia-x1000'" in line
