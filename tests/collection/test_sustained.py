"""Loads that run for seconds, with clock and power beside them."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from tests.collection.fake_nvml import NVMLError, fake_nvml, see_a_gpu

from perfc.measure.device import open_device

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
sustained: Any = importlib.import_module("collection.sustained")
sustained_loads: Any = importlib.import_module("collection.sustained_loads")
nvml: Any = importlib.import_module("collection.nvml")
tables: Any = importlib.import_module("collection.tables")

DEVICE = open_device("cpu")


def load(name: str, seconds: float = 0.2, made: Callable[[], object] = float) -> Any:
    """Make a load whose call is *made*."""
    return sustained.Load(name=name, seconds=seconds, make=lambda: made)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    columns = tables.read_table(path, sustained.SUSTAINED)
    fields = sustained.SUSTAINED.fields
    cells = [field.unpack(columns[field.name]) for field in fields]
    names = [field.name for field in fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]


def watch(monkeypatch: pytest.MonkeyPatch, **answers: object) -> None:
    """Let NVML be there, beside the CPU that works."""
    see_a_gpu(monkeypatch)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**answers))
    opened = nvml.open_nvml()
    monkeypatch.undo()
    monkeypatch.setattr(sustained, "open_nvml", lambda: opened)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let threads not wait for each other on a machine at work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Made:
    """A clock that stands still unless somebody works or sleeps."""

    now_s = 1000.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return what the module takes for the time."""
    made = Made()
    monkeypatch.setattr(sustained, "time", made)
    return made


@pytest.fixture
def said() -> list[str]:
    """Return what was said."""
    return []


def test_all_loads_on_a_cpu(tmp_path: Path, said: list[str]) -> None:
    """Those that a CPU has give chunks, and kernels have names."""
    table = tmp_path / "sustained.parquet"
    loads = [attrs.evolve(x, seconds=0.1) for x in sustained_loads.loads_of(DEVICE)]

    sustained.run(loads, DEVICE, time.monotonic() + 600, table, said.append)

    rows = rows_of(table)
    skipped = [line for line in said if "skipped" in line]
    expected = {
        *("gemm-randn", "gemm-zeros", "gemm-m32", "gemm-m8", "gemm-fp32", "block-7b"),
        *("attention-flash-forward", "attention-flash-backward"),
        *("copy", "gelu", "layer-norm"),
    }
    assert expected == {row["load"] for row in rows}
    assert {"chunk"} == {row["kind"] for row in rows}
    assert [
        f"sustained: attention-{backend}-{phase}: skipped: No "
        for backend in ("cudnn", "efficient")
        for phase in ("forward", "backward")
    ] == [line[: line.index("No ") + 3] for line in skipped]
    assert all(row["duration_us"] > 0 and row["calls"] >= 1 for row in rows)
    assert {("bf16", 128, "zeros")} == {
        (
            row["dtype"],
            json.loads(row["params"])["m"],
            json.loads(row["params"])["data"],
        )
        for row in rows
        if row["load"] == "gemm-zeros"
    }
    flash = next(row for row in rows if row["load"] == "attention-flash-forward")
    assert "scaled_dot_product" in json.loads(flash["params"])["kernel"]


def test_what_nvml_says(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a row every 50 ms, in watts, joules of the load and MHz."""
    spent = iter(range(1_000_000, 9_000_000, 20_000))
    instant = SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=512_000))
    watch(
        monkeypatch,
        ClockInfo={1: 1410, 2: 2619}.get,
        PowerUsage=698_500,
        FieldValues=[instant],
        TotalEnergyConsumption=lambda: next(spent),
        Temperature=61,
        CurrentClocksThrottleReasons=4,
    )
    idle = sustained.Load(name="idle-cold", seconds=1.0)
    table = tmp_path / "sustained.csv"

    sustained.run([idle, load("x")], DEVICE, time.monotonic() + 600, table, said.append)

    samples = [row for row in rows_of(table) if row["kind"] == "sample"]
    expected = {
        "calls": None,
        "duration_us": None,
        "sm_clock_mhz": 1410.0,
        "mem_clock_mhz": 2619.0,
        "watts": 698.5,
        "watts_now": 512.0,
        "temperature_c": 61.0,
        "throttle_reasons": 4,
    }
    assert [expected] * len(samples) == [{k: x[k] for k in expected} for x in samples]
    cold = [row for row in samples if row["load"] == "idle-cold"]
    assert 2 <= len(cold) <= 21
    assert [20.0 * (n + 1) for n in range(len(cold))] == [x["joules"] for x in cold]
    assert all(row["t_s"] >= 0.05 * n for n, row in enumerate(cold))
    chunks = [row for row in rows_of(table) if row["kind"] == "chunk"]
    assert {("x", None, None)} == {(x["load"], x["watts"], x["joules"]) for x in chunks}


def test_what_nvml_does_not_say(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is nothing, where a driver has no such function, and where it fails."""
    failing = SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(uiVal=7))
    watch(
        monkeypatch,
        ClockInfo=NVMLError("lost"),
        FieldValues=[failing],
        CurrentClocksEventReasons=0,
    )
    idle = sustained.Load(name="idle-cold", seconds=0.1)

    table = tmp_path / "sustained.parquet"
    sustained.run([idle], DEVICE, time.monotonic() + 600, table, said.append)

    untold = ("sm_clock_mhz", "watts", "watts_now", "joules", "temperature_c")
    assert {(None,) * 5 + (0,)} == {
        (*(row[name] for name in untold), row["throttle_reasons"])
        for row in rows_of(table)
    }


def test_loads_that_fail(tmp_path: Path, said: list[str]) -> None:
    """Each is said in one line and skipped; what it measured before stays."""
    calls = iter(range(10**9))

    def fails_late() -> None:
        time.sleep(0.01)
        if next(calls) > 15:
            msg = "CUDA error: lost\nand more"
            raise RuntimeError(msg)

    def fails() -> None:
        raise torch.OutOfMemoryError

    loads = [load("late", 3.0, fails_late), load("full", made=fails), load("good")]
    table = tmp_path / "sustained.parquet"

    sustained.run(loads, DEVICE, time.monotonic() + 600, table, said.append)

    assert {"late", "good"} == {row["load"] for row in rows_of(table)}
    assert "sustained: late: skipped: CUDA error: lost" == said[0]
    assert said[1].startswith("sustained: full: skipped: ")
    assert "chunks, a call" in said[2]


def test_an_interrupt(tmp_path: Path, said: list[str]) -> None:
    """It ends the run, and the table has what was measured until then."""
    calls = iter(range(10**9))

    def interrupted() -> None:
        time.sleep(0.01)
        if next(calls) > 25:
            raise KeyboardInterrupt

    loads = [load("first"), load("cut", 5.0, interrupted), load("never")]
    table = tmp_path / "sustained.parquet"
    threads = torch.get_float32_matmul_precision()

    with pytest.raises(KeyboardInterrupt):
        sustained.run(loads, DEVICE, time.monotonic() + 600, table, said.append)

    assert {"first", "cut"} == {row["load"] for row in rows_of(table)}
    assert threads == torch.get_float32_matmul_precision()
    assert [table] == [*tmp_path.iterdir()]


def test_a_table_that_is_there(tmp_path: Path, said: list[str]) -> None:
    """Other loads stay in it; a load that runs again has its new rows alone."""
    table = tmp_path / "sustained.parquet"
    sustained.run(
        [load("a"), load("b")], DEVICE, time.monotonic() + 600, table, said.append
    )
    before = [row for row in rows_of(table) if row["load"] == "a"]

    again = sustained.Load(
        name="b", seconds=0.1, params={"size": 2}, make=lambda: float
    )
    sustained.run([again], DEVICE, time.monotonic() + 600, table, said.append)

    after = rows_of(table)
    assert before == [row for row in after if row["load"] == "a"]
    assert {'{"size": 2}'} == {row["params"] for row in after if row["load"] == "b"}


def test_too_little_time(tmp_path: Path, said: list[str], clock: Made) -> None:
    """All get less of it; where that is too little, the last are left out."""
    names = ("best", "good", "least")
    loads = [load(name, 2.0, lambda: clock.sleep(1e-3)) for name in names]
    table = tmp_path / "sustained.parquet"
    deadline = clock.now_s + 2.4

    sustained.run(loads, DEVICE, deadline, table, said.append)

    assert clock.now_s < deadline
    assert "sustained: no time for least" == said[0]
    assert ["best", "good"] == [*dict.fromkeys(row["load"] for row in rows_of(table))]

    sustained.run(loads, DEVICE, clock.now_s + 0.1, table, said.append)
    assert "sustained: no time for best, good, least" == said[-1]


def test_how_far_ahead_the_host_is(clock: Made) -> None:
    """There are never more than two chunks that the device has not done."""
    log: list[str] = []

    class Mark:
        """A mark whose device works when it is waited for."""

        def __init__(self) -> None:
            self.number = log.count("mark")
            log.append("mark")

        def wait(self) -> None:
            log.append("wait")

        def since_us(self, earlier: Mark) -> float:
            return 1e4 * (self.number - earlier.number)

    def call() -> None:
        clock.sleep(0.001)

    found = [*sustained.timed_chunks(call, 4, Mark, clock.now_s + 0.1)]

    waiting = 0
    most = 0
    for what in log:
        waiting += 1 if what == "mark" else -1
        most = max(most, waiting)
    assert (3, 1) == (most, waiting)  # one of them begins the first chunk
    assert [4] * (len(found) - 1) == [calls for _, calls, _ in found[:-1]]
    assert [n / 100 for n in range(len(found))] == pytest.approx([x[0] for x in found])
    assert [1e4 / calls for _, calls, _ in found] == [x[2] for x in found]


def test_a_call_that_grows_slow(clock: Made) -> None:
    """A chunk of a CPU ends with the time, after fewer calls."""

    def call() -> None:
        clock.sleep(0.02)

    end = clock.now_s + 0.1
    found = [*sustained.timed_chunks(call, 10**6, sustained.CpuMark, end - 1e-6)]

    ((begin_s, calls, call_us),) = found
    assert (0.0, 5) == (begin_s, calls)
    assert 0.02e6 == pytest.approx(call_us)


def test_calls_of_a_chunk() -> None:
    """They take some 30 ms together; a long call is a chunk of its own."""

    class Mark:
        """A mark of a device on which each call takes `cost` microseconds."""

        cost, done = 10.0, 0

        def __init__(self) -> None:
            self.at = Mark.done

        def wait(self) -> None:
            pass

        def since_us(self, earlier: Mark) -> float:
            return (self.at - earlier.at) * Mark.cost

    def call() -> None:
        Mark.done += 1

    assert 3000 == sustained.calls_of_a_chunk(call, Mark)
    Mark.cost = 90_000.0
    assert 1 == sustained.calls_of_a_chunk(call, Mark)
