"""`make bench-ratios`: what it prints and how it ends, of made-up measurements."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
cpu_time: Any = importlib.import_module("speed.cpu_time")
measures: Any = importlib.import_module("speed.ratio_measures")
ratios: Any = importlib.import_module("ratios")

UNITS = {"cold": "x", "beyond": "ms", "modules": "modules", "wheel": "bytes"}
VALUES = {"cold": 2.0, "beyond": 300.0, "modules": 400, "wheel": 1_000_000}
"""As committed, of a machine named A."""


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """Write values that others are compared with."""
    path = tmp_path / "ratios.json"
    ratios.Ratios("A", VALUES, {"cold": "It checks more."}).write(path)
    return path


def _compare(path: Path, machine: str = "A", *, write: bool = False, **now: Any) -> int:
    values = {**VALUES, **now}
    found = ratios.Ratios(machine, values)
    return int(ratios.compare(found, path, UNITS, write=write))


def _verdict(**fields: Any) -> str:
    row = {"name": "cold", "unit": "x", "now": 2.0, "committed": 2.0, **fields}
    return str(ratios.Row(**row).verdict)


def test_the_table(committed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every measure has a line with both values, and what changed is named."""
    expected = """\
now: A
committed: A

                                                  now  committed unit       change
beyond                                            300        300 ms          +0.0%
cold                                              2.3          2 x          +15.0%  WORSE
modules                                           350        400 modules    -12.5%  better
wheel                                               -  1,000,000 bytes              not measured
note, cold: It checks more.
"""  # noqa: E501 - as wide as the table

    code = _compare(committed, cold=2.3, modules=350, wheel=None)

    assert expected == capsys.readouterr().out
    assert code == 1


def test_the_same_values_end_well(committed: Path) -> None:
    """Nothing is worse than itself."""
    assert _compare(committed) == 0


@pytest.mark.parametrize(
    ("now", "expected"),
    [(2.19, ""), (2.21, "WORSE"), (1.81, ""), (1.79, "better"), (None, "not measured")],
)
def test_a_tenth(now: float | None, expected: str) -> None:
    """Up to a tenth either way nothing is said."""
    assert expected == _verdict(now=now)


def test_a_measure_that_is_new() -> None:
    """What was never committed is not worse than anything."""
    assert _verdict(committed=None) == "new"


def test_milliseconds_of_another_machine(committed: Path) -> None:
    """A ratio is held to on any machine, milliseconds only on the same."""
    assert _compare(committed, "A", beyond=600.0) == 1
    assert _compare(committed, "B", beyond=600.0) == 0
    assert _compare(committed, "B", cold=4.0) == 1
    assert _verdict(unit="ms", elsewhere=True) == "of another machine"


def test_a_measure_that_is_no_longer_taken(
    committed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A committed value is listed although nothing measures it now."""
    now = ratios.Ratios("A", {"cold": 2.0})
    code = ratios.compare(now, committed, {"cold": "x"}, write=False)

    unmeasured = [
        line.split()[0]
        for line in capsys.readouterr().out.splitlines()
        if line.endswith("not measured")
    ]
    assert ["beyond", "modules", "wheel"] == unmeasured
    assert code == 0


def test_what_is_written(committed: Path) -> None:
    """Sorted, ratios in four digits, counts whole, notes of measures that are left."""
    now = ratios.Ratios("B", {"wheel": 1_234_567, "cold": 2.345678})

    assert ratios.compare(now, committed, UNITS, write=True) == 0
    text = committed.read_text()
    assert {
        "machine": "B",
        "notes": {"cold": "It checks more."},
        "values": {"cold": 2.346, "wheel": 1_234_567},
    } == json.loads(text)
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_nothing_is_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a file every measure is new, which is said."""
    assert _compare(tmp_path / "ratios.json") == 0
    out = capsys.readouterr().out
    assert "committed: nothing" in out
    assert len(VALUES) == sum(line.endswith("new") for line in out.splitlines())


def test_the_committed_file_holds_every_measure() -> None:
    """A measure without a committed value would watch nothing."""
    held = ratios.Ratios.read(ratios.COMMITTED)

    assert set(measures.units()) == set(held.values)
    assert None not in held.values.values()
    assert set(held.notes) <= set(held.values)


def test_a_run_is_quick_or_written(capsys: pytest.CaptureFixture[str]) -> None:
    """A file of half the values is refused before anything is measured."""
    with pytest.raises(SystemExit) as ended:
        ratios.main(["--quick", "--write"])

    assert ended.value.code == 2
    assert "--write wants every value" in capsys.readouterr().err


def test_the_exit_code_is_that_of_what_was_measured(
    committed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ratios.py` ends with 1 where a measure is worse, with 0 where none is."""

    def measured(*, quick: bool) -> dict[str, float]:
        return {**VALUES, "cold": 2.3}

    monkeypatch.setattr(ratios, "COMMITTED", committed)
    monkeypatch.setattr(measures, "measured", measured)
    monkeypatch.setattr(measures, "units", lambda: UNITS)

    assert ratios.main([]) == 1
    assert ratios.main(["--write"]) == 0
    assert ratios.main([]) == 0


def test_what_is_worse_once_is_measured_again(
    committed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A neighbour on the machine that lengthens one run of two fails neither."""
    taken = iter([{"cold": 2.3, "wheel": None}, {"cold": 2.1, "wheel": None}])

    def measured(*, quick: bool) -> dict[str, float | None]:
        return next(taken)

    monkeypatch.setattr(ratios, "COMMITTED", committed)
    monkeypatch.setattr(measures, "measured", measured)
    monkeypatch.setattr(measures, "units", lambda: UNITS)

    assert ratios.main([]) == 0
    printed = capsys.readouterr()
    assert "measuring again" in printed.err
    assert "cold                                              2.1 " in printed.out


def test_quick_leaves_out_what_takes_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The large graph and the wheel, and nothing else."""

    def made_up(name: str) -> Any:
        def step() -> dict[str, float]:
            return {name: 1.0}

        return step

    for name in ("cold", "modules", "warm", "scale", "wheel"):
        monkeypatch.setattr(measures, name, made_up(name))

    assert ["cold", "modules", "warm"] == list(measures.measured(quick=True))
    assert {"scale", "wheel"} < set(measures.measured(quick=False))


def test_the_least_of_calls_done_in_turn() -> None:
    """Each round takes every call once; the first round is not counted."""
    called: list[str] = []
    times = iter([3.0, 30.0, 1.0, 20.0, 2.0, 40.0])

    def clock(call: Any) -> float:
        call()
        return next(times)

    calls = {"a": lambda: called.append("a"), "b": lambda: called.append("b")}

    assert {"a": 1.0, "b": 20.0} == cpu_time.least(calls, 3, clock)
    assert ["a", "b"] * 4 == called


def test_what_cannot_be_measured_ends_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A command that fails is named with what it said; it is no time."""
    with pytest.raises(SystemExit) as ended:
        measures.run(["-c", "raise SystemExit('no such model')"])

    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "exit code 1" in err
    assert "no such model" in err


def test_a_wheel_that_cannot_be_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The measure is none, and pip's reason is printed."""
    attempt = measures.attempt

    def refused(arguments: Sequence[str]) -> Any:
        return attempt(["-c", "raise SystemExit('no setuptools')"])

    monkeypatch.setattr(measures, "attempt", refused)

    assert {"wheel": None} == measures.wheel()
    assert "the wheel is not measured:\nno setuptools" in capsys.readouterr().err


def test_modules_are_counted() -> None:
    """An analysis imports more than perfc; all of perfc that it imports is counted."""
    counts = measures.modules()

    assert 0 < counts["cold: modules of perfc"] < counts["cold: modules of all"]
