"""`perfc measure kernels`, as typed: tiny suites that are really timed, on the CPU."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from tests.interrupts import heed_interrupts
from tests.tools.command import Command

from perfc.ir import PerfcError
from perfc.measure import kernel_run
from perfc.measure.case import (
    Case,
    Family,
    Tensors,  # not public
)
from perfc.measure.clocks import Clock, ClockReader  # not public
from perfc.measure.device import Device, open_device, target_of
from perfc.measure.kernel_run import KernelRun
from perfc.measure.rounds import ROUNDS, Prepared  # not public
from perfc.measure.suites import suite
from perfc.measure.timing import Timed, Timer  # not public
from perfc.measurements import (
    MEASUREMENTS,
    Measurement,
    RowWriter,
    kernel_of,
    read_rows,
    write_rows,
)

CPU = open_device("cpu")
KERNELS = ("measure", "kernels", "--device", "cpu", "--suite", "quick")
SECOND = str(1 / 60)
ENOUGH = "30"
"""Minutes that no machine needs: a run ends when all is measured."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """The `perfc` command."""
    return Command(capsys)


def _silent(line: str) -> None:
    pass


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_rows_of_a_short_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Rows are of this machine, in the format, marked, and the models can take them."""
    path = tmp_path / name

    def some(*chosen: Any) -> list[tuple[Family, Case]]:
        return suite(*chosen)[::8]

    monkeypatch.setattr(kernel_run, "suite", some)
    done = command(*KERNELS, "--minutes", ENOUGH, "--op", "memcpy", "-o", str(path))
    rows = read_rows(path, MEASUREMENTS)

    assert (0, "") == (done.code, done.out)
    assert f"perfc: {len(rows)} rows in {path}" in done.err
    assert rows
    for row in rows:
        assert ("cpu", "memcpy", "event") == (row.target, row.op, row.timing)
        assert CPU.source == row.source
        assert Case(row.op, row.dtype, row.params).split == row.split
        assert row.n is not None
        assert row.n >= 2
        assert (row.p10_us or 0) <= row.latency_us <= (row.p90_us or 0)
        assert kernel_of(row).work.bytes > 0


def test_the_mean_of_rounds_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shape of a CPU is timed in all rounds; one that was disturbed is no row."""

    def visit(prepared: Prepared, _: Timer) -> None:
        number = len(prepared.rounds)
        us = 1000.0 if number == 1 else 100.0 + number
        prepared.rounds.append([Timed("event", us, us - 1, us + 1, 5, Clock())])

    monkeypatch.setattr(Prepared, "visit", visit)
    run = KernelRun(CPU, "quick", tmp_path / "rows.csv", ops=["concat"])
    run.measure(300.0, _silent)
    kept_us = [100.0 + number for number in range(ROUNDS) if number != 1]

    assert len(suite("quick", CPU, ["concat"])) == len(run.rows)
    for row in run.rows:
        assert pytest.approx(sum(kept_us) / len(kept_us)) == row.latency_us
        assert len(kept_us) == row.n
        assert min(kept_us) < (row.p10_us or 0.0) < row.latency_us
        assert row.latency_us < (row.p90_us or 0.0) < max(kept_us)
    assert 0 == run.left


def test_a_case_that_takes_long_is_timed_less_often(tmp_path: Path) -> None:
    """Some rounds at least: others have a share of the time, too."""
    timer = Timer(CPU, 0.0)
    (family, case), *_ = suite("quick", CPU, ["memcpy"])
    prepared = Prepared.of(family, case, Tensors(CPU), CPU)

    due: list[int] = []
    for number in range(ROUNDS):
        if prepared.is_due(number, timer):
            prepared.visit(timer)
            due.append(number)

    assert [0, 3, 6, 9] == due
    assert 4 == len(prepared.rounds)
    (timed,) = prepared.result()
    assert 1 <= timed.n <= 4  # rounds that were disturbed do not count


def test_a_run_goes_on(tmp_path: Path) -> None:
    """The same command measures what is missing, and nothing twice."""
    path = tmp_path / "rows.csv"
    wanted = {case for _, case in suite("quick", CPU, ["transpose"])}
    rows: list[Measurement] = []
    for _ in range(50):
        run = KernelRun(CPU, "quick", path, ops=["transpose"])
        assert rows == run.rows
        run.measure(0.5, _silent)
        assert rows == run.rows[: len(rows)]
        rows = run.rows[:]
        if len(rows) == len(wanted):
            break

    found = [(row.op, row.dtype, row.params) for row in rows]
    assert len(found) == len(set(found)) == len(wanted)
    assert {(case.op, case.dtype, case.params) for case in wanted} == set(found)
    assert rows == read_rows(path, MEASUREMENTS)


def test_a_run_keeps_to_its_time(tmp_path: Path) -> None:
    """It ends with the case at hand, and says what is left."""
    lines: list[str] = []
    run = KernelRun(CPU, "full", tmp_path / "rows.csv")
    begin = time.monotonic()
    run.measure(0.5, lines.append)

    assert time.monotonic() - begin < 20
    assert lines[-1].endswith("shapes left to measure")
    assert 0 < len(run.rows) == len(suite("full", CPU)) - run.left - len(run.skipped)


def test_a_killed_run_keeps_its_rows(tmp_path: Path) -> None:
    """After `kill -9` the same command continues with every row that was measured."""
    path = tmp_path / "rows.parquet"
    journal = tmp_path / "rows.parquet.part.csv"
    arguments = [sys.executable, "-m", "perfc", *KERNELS, "-o", str(path), "-q"]
    with subprocess.Popen(arguments) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if _lines_of(journal) > 3:
                break
            time.sleep(0.05)
        process.kill()
    lines = _lines_of(journal)

    run = KernelRun(CPU, "quick", path)
    kept = run.rows[:]
    run.measure(0.2, _silent)

    assert 3 <= lines - 1 == len(kept)
    assert kept == read_rows(path, MEASUREMENTS)[: len(kept)]
    assert not journal.exists()


def _lines_of(journal: Path) -> int:
    """Return how many lines a journal has, which may come and go meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return journal.read_bytes().count(b"\n")
    return 0


def test_an_interrupted_run_writes_its_table(tmp_path: Path) -> None:
    """Ctrl-C ends with the rows in the file, a line, and the exit code of a shell."""
    path = tmp_path / "rows.csv"
    journal = tmp_path / "rows.csv.part.csv"
    arguments = [sys.executable, "-m", "perfc", *KERNELS, "-o", str(path)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    with subprocess.Popen(
        arguments,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - no threads are running
    ) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and _lines_of(journal) < 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)

    assert 130 == process.returncode
    assert "perfc: error: interrupted" == err.splitlines()[-1]
    assert read_rows(path, MEASUREMENTS)
    assert not journal.exists()


def _row(device: Device) -> Measurement:
    (_, case), *_ = suite("quick", CPU, ["memcpy"])
    return Measurement(
        target=device.target,
        op=case.op,
        dtype=case.dtype,
        params=case.params,
        latency_us=1.0,
        timing="event",
        source=device.source,
    )


@pytest.mark.parametrize(
    "other",
    [attrs.evolve(CPU, target="a100-sxm-80g"), attrs.evolve(CPU, name="another CPU")],
    ids=["target", "machine"],
)
def test_a_table_of_another_device(
    command: Command, tmp_path: Path, other: Device
) -> None:
    """Rows of two devices do not mix: the file stays as it is."""
    path = tmp_path / "rows.csv"
    write_rows(path, [_row(other)], MEASUREMENTS)
    content = path.read_bytes()

    error = command.refused([*KERNELS, "-o", str(path)], 1)

    assert error.startswith(f"{path} has rows of {other.target} (")
    assert error.endswith("name another file")
    assert content == path.read_bytes()


def test_a_gpu_that_is_not_there(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says why there is none, and what works."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arguments = ["measure", "kernels", "--device", "cuda", "-o"]

    error = command.refused([*arguments, str(tmp_path / "rows.csv")], 1)

    assert error.startswith(f"--device cuda: PyTorch {torch.__version__} ")
    assert error.endswith("; --device cpu works")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "gem"], "no op gem is measured; known: attention, batch_norm, "),
        (["--suite", "long"], "Invalid value for '--suite': 'long' is not one of"),
        (["--minutes", "0"], "Invalid value for '--minutes': 0.0 is not in the range"),
        (["--device", "tpu"], "Invalid value for '--device': 'tpu' is not one of"),
        (["-o", "rows.txt"], "table rows.txt: expected a name that ends in .parquet"),
    ],
)
def test_wrong_options(
    command: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """Exit code 2, and nothing is written."""
    path = tmp_path / "rows.csv"

    error = command.refused([*KERNELS, "-o", str(path), *arguments], 2)

    assert error.startswith(message)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [NotImplementedError, ValueError, IndexError])
def test_an_op_that_pytorch_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Its shapes are skipped and said; the others are measured."""
    (family, _), *_ = suite("quick", CPU, ["softmax"])

    def absent(*_: object) -> None:
        msg = "'softmax' is not implemented\nfor this type"
        raise error(msg)

    monkeypatch.setattr(type(family), "prepare", absent)
    lines: list[str] = []
    run = KernelRun(CPU, "quick", tmp_path / "rows.csv", ops=["softmax", "memcpy"])
    run.measure(3.0, lines.append)

    assert run.skipped
    assert {"memcpy"} == {row.op for row in run.rows}
    skipped = [line for line in lines if line.startswith("skipped softmax ")]
    assert len(run.skipped) == len(skipped)
    assert skipped[0].endswith("}: 'softmax' is not implemented")

    again = KernelRun(CPU, "quick", tmp_path / "rows.csv", ops=["softmax"])
    again.measure(60.0, _silent)  # nothing new, but no error: there are rows
    assert (0, run.rows) == (again.left, again.rows)


def test_memory_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing fits, that is an error."""
    (family, _), *_ = suite("quick", CPU, ["softmax"])

    def full(*_: object) -> None:
        torch.empty(1 << 60)

    monkeypatch.setattr(type(family), "prepare", full)
    run = KernelRun(CPU, "quick", tmp_path / "rows.csv", ops=["softmax"])

    with pytest.raises(PerfcError, match="nothing could be measured; softmax fp32"):
        run.measure(60.0, _silent)

    assert [] == list(tmp_path.iterdir())


LIMITED = """
import resource, sys
import torch
from perfc.measure.device import open_device
from perfc.measure import kernel_run
from perfc.tools.cli.command_line import main

kind, limit = sys.argv[1], int(sys.argv[2])
whole = kernel_run.suite

def some(*chosen):  # of all sizes, in less time, and more than one of the largest
    cases = sorted(whole(*chosen), key=lambda one: one[1].params.integer("bytes"))
    return [*cases[::8], *cases[-4:]]

kernel_run.suite = some
torch.ones(1 << 20).add(1)  # threads have their stacks
if kind == "RLIMIT_AS":
    with open("/proc/self/status") as status:
        (held,) = (line.split()[1] for line in status if line.startswith("VmSize"))
    limit += int(held) << 10
resource.setrlimit(getattr(resource, kind), (limit, limit))
sys.exit(main(sys.argv[3:]))
"""


ROOM_BYTES = 24 << 20
"""Beside what a process has before it measures; some shapes want more."""

ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
"""A thread that waits for another's heap reserves 64 MiB for one of its own, which on a
busy machine may be more than there is."""


def _limited(
    kind: str, limit: int, suite_name: str, path: Path
) -> subprocess.CompletedProcess[str]:
    """Run the copies of a suite where the system gives only so much."""
    command = [*KERNELS[:-1], suite_name, "--op", "memcpy", "--minutes", ENOUGH]
    arguments = [sys.executable, "-c", LIMITED, kind, str(limit), *command]
    return subprocess.run(
        [*arguments, "-o", str(path)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_ARENA},
    )


def test_shapes_that_the_memory_cannot_hold(tmp_path: Path) -> None:
    """Under a real limit they are skipped and said; all others are rows."""
    path = tmp_path / "rows.csv"

    done = _limited("RLIMIT_AS", ROOM_BYTES, "full", path)
    rows = read_rows(path, MEASUREMENTS)
    skipped = [line for line in done.stderr.splitlines() if "skipped" in line]

    assert 0 == done.returncode
    assert skipped
    for line in skipped:
        assert line.startswith("perfc: skipped memcpy fp32 {")
        assert "can't allocate memory" in line
    assert f"perfc: {len(rows)} rows in {path}" in done.stderr
    assert len(rows) > 3
    assert max(row.params.integer("bytes") for row in rows) < ROOM_BYTES


def test_rows_of_a_throttling_device_are_flagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept, and say so; `perfc calibrate` leaves them out."""

    def slowed(_: ClockReader) -> Clock:
        return Clock(900.0, throttled=True)

    monkeypatch.setattr(ClockReader, "read", slowed)
    path = tmp_path / "rows.csv"
    KernelRun(CPU, "quick", path, ops=["memcpy"]).measure(1.0, _silent)
    rows = read_rows(path, MEASUREMENTS)

    assert rows
    assert {(900.0, True)} == {(row.sm_clock_mhz, row.throttled) for row in rows}


def test_large_shapes_are_in_no_cache() -> None:
    """The suite that tells of memory has none that a last-level cache could hold."""
    cases = [case for _, case in suite("large", CPU, ["elementwise", "memcpy"])]

    assert cases
    assert min(case.work.bytes for case in cases) >= 25e6


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Under a real limit of files: one line, and the rows that fitted are kept."""
    path = tmp_path / "rows.csv"

    done = _limited("RLIMIT_FSIZE", 1000, "quick", path)
    kept = KernelRun(CPU, "quick", path, ops=["memcpy"]).rows

    assert 1 == done.returncode
    (error,) = (line for line in done.stderr.splitlines() if "error" in line)
    assert error.startswith(f"perfc: error: cannot write {path}")
    assert error.endswith(f"; {len(kept)} rows are kept, the same command continues")
    assert "Traceback" not in done.stderr
    assert 1 < len(kept)


def test_a_full_disk_ends_the_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring on would lose rows: the error says how many are kept."""

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = command(*KERNELS, "-o", str(tmp_path / "rows.csv"), "-q")

    assert 1 == done.code
    assert "No space left on device; 0 rows are kept" in done.error


def test_rows_that_were_measured_before_stay(tmp_path: Path) -> None:
    """A row of the same machine is neither measured again nor changed."""
    path = tmp_path / "rows.csv"
    writer = RowWriter(path, MEASUREMENTS)
    writer.append([_row(CPU)])
    writer.flush()

    run = KernelRun(CPU, "quick", path, ops=["memcpy"])
    run.measure(0.3, _silent)

    assert _row(CPU) == run.rows[0]
    assert _row(CPU).params not in [row.params for row in run.rows[1:]]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80g"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40g"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16g"),
        ("NVIDIA GeForce RTX 3090", "nvidia-geforce-rtx-3090"),
    ],
)
def test_targets_of_gpus(name: str, target: str) -> None:
    """A GPU that perfc knows has its target; another one a name of its own."""
    assert target == target_of(name)
