"""Damaged files end in a result or in one clear line, and `make fuzz` would notice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz import run as fuzz
from tests.fuzz import trial
from tests.fuzz.corpus import (
    COMMANDS,
    GENERATORS,
    ROOT,
    by_kind,
    make_input,
    project_files,
    read,
)
from tests.fuzz.generate import Input
from tests.fuzz.state import State, Tally
from tests.fuzz.trial import Verdict
from tests.fuzz.worker import numbered_input

KINDS = by_kind(path for path in project_files() if path.stat().st_size < 2**16)
_ITEM = Input("g.perfc", ".perfc", b"", ("analyze", "FILE"))
RANDOM = st.randoms(use_true_random=False)
SHARED_FOLDER = [HealthCheck.function_scoped_fixture]


def _try_one(kind: str, rng: random.Random, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)
        item = make_input(rng, {kind: KINDS[kind]})

        assert "" == trial.run(item, folder).problem


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(rng=RANDOM)
@settings(max_examples=20, suppress_health_check=SHARED_FOLDER)
def test_damaged_files_end_in_one_clear_line(
    tmp_path: Path, kind: str, rng: random.Random
) -> None:
    """Whatever becomes of a file: a result, or one line that says what is wrong."""
    _try_one(kind, rng, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
@given(rng=RANDOM)
@settings(max_examples=100, suppress_health_check=SHARED_FOLDER)
def test_many_damaged_files_do(tmp_path: Path, kind: str, rng: random.Random) -> None:
    """As above; `make fuzz` tries hundreds of thousands."""
    _try_one(kind, rng, tmp_path)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - GENERATORS.keys()))
def test_the_files_are_sound_before(tmp_path: Path, kind: str, every: int) -> None:
    """Most of what is damaged reads without an error, so damage has a way to go."""
    sound = 0
    paths = KINDS[kind][::every]
    for path in paths:
        data = read(path)
        inputs = [Input(path.name, path.suffix, data, w) for w in COMMANDS[kind]]
        sound += any(trial.run(item, tmp_path).code == 0 for item in inputs)

    assert sound > len(paths) / 2


@given(number=st.integers(0, 10**6))
def test_an_input_can_be_made_again_from_its_number(number: int) -> None:
    """The same number is the same damage, another one is another."""
    one, two, other = (numbered_input(0, n, KINDS) for n in (number, number, -1))

    assert one == two
    assert one != other


def _verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: tuple[int, str, str]
) -> Verdict:
    code, out, err = seen

    def main(argv: Sequence[str]) -> int:
        print(out, end="")  # noqa: T201 - as the command does
        print(err, end="", file=sys.stderr)  # noqa: T201
        return code

    monkeypatch.setattr(trial, "main", main)
    return trial.run(_ITEM, tmp_path)


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        ((0, "a table\n", ""), ""),
        ((1, "", "perfc: error: no such op\n"), ""),
        ((1, "", "perfc: 5 tables\nperfc: error: none fits\n"), ""),
        ((1, "", "perfc: 5 tables\n"), "0 lines on stderr: 'perfc: 5 tables\\n'"),
        ((0, "", ""), "exit code 0, and nothing printed"),
        ((1, "half", "perfc: error: x\n"), "exit code 1, and a result of 4 characters"),
        ((3, "", "perfc: error: x\n"), "exit code 3"),
        (
            (1, "", "perfc: error: a\nb\n"),
            "2 lines on stderr: 'perfc: error: a\\nb\\n'",
        ),
        ((1, "", "oops\n"), "1 lines on stderr: 'oops\\n'"),
        ((1, "", "perfc: error: \n"), "an empty message"),
        ((1, "", "perfc: error: this is a bug of perfc"), "this is a bug of perfc"),
    ],
)
def test_judges_what_a_user_would_see(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    seen: tuple[int, str, str],
    problem: str,
) -> None:
    """Only a result, or one line with a message, is in order."""
    found = _verdict(monkeypatch, tmp_path, seen).problem

    assert problem == found.removeprefix("perfc: error: ")


def test_a_slow_run_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What takes longer than the limit is told with its time."""
    monkeypatch.setattr(trial, "MAX_SECONDS", -1.0)

    problem = _verdict(monkeypatch, tmp_path, (0, "a table\n", "")).problem

    assert problem.startswith("took 0.0 s")


@pytest.mark.parametrize("known", [True, False])
def test_sleeping_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, known: bool
) -> None:
    """What sleeps or waits for a disk is slow, whether or not the system tells more."""

    def main(argv: Sequence[str]) -> int:
        print("a table")  # noqa: T201 - as the command does
        time.sleep(0.05)
        return 0

    monkeypatch.setattr(trial, "main", main)
    monkeypatch.setattr(trial, "MAX_SECONDS", 0.04)
    if not known:
        monkeypatch.setattr(trial, "SCHEDSTAT", tmp_path / "absent")

    assert trial.run(_ITEM, tmp_path).problem.startswith("took 0.")


def test_waiting_for_a_processor_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a starved machine an input answers for its own time alone."""
    stat = tmp_path / "schedstat"
    stat.write_text("0 0 1\n", encoding="ascii")

    def main(argv: Sequence[str]) -> int:
        print("a table")  # noqa: T201 - as the command does
        stat.write_text("0 3600000000000 2\n", encoding="ascii")
        return 0

    monkeypatch.setattr(trial, "main", main)
    monkeypatch.setattr(trial, "MAX_SECONDS", -3000.0)
    monkeypatch.setattr(trial, "SCHEDSTAT", stat)

    assert "" == trial.run(_ITEM, tmp_path).problem


_WORKER = """
import json, os, sys, time
for line in sys.stdin:
    number = int(line)
    if number == 1:
        time.sleep(600)
    if number == 2:
        os._exit(7)
    print(json.dumps({"problem": "", "code": 0, "seconds": 0.0}), flush=True)
"""


def test_a_worker_that_hangs_or_dies_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The input that did it is told, and the next one has a new process."""
    script = tmp_path / "worker.py"
    script.write_text(_WORKER, encoding="utf-8")
    monkeypatch.setattr(fuzz, "WORKER", (str(script),))
    monkeypatch.setattr(fuzz, "GRACE_S", 0.0)
    worker = fuzz.Worker(0, tmp_path)

    problems: list[str] = []
    for number in range(4):  # others have the time that a process takes to start
        monkeypatch.setattr(fuzz, "MAX_SECONDS", 0.4 if number == 1 else 300.0)
        problems.append(worker.ask(number)["problem"])
    worker.stop()

    assert ["", "no end after 0 s", "the process died (7)", ""] == problems


def test_memory_is_limited() -> None:
    """A worker that takes more than a gigabyte gets a MemoryError."""
    code = "from tests.fuzz.trial import limit_memory as f; f(); bytearray(3 * 10**9)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.stderr.endswith("MemoryError\n")


def _no_models(folder: Path) -> list[Path]:
    return []


def test_a_failing_input_is_kept_with_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make fuzz` writes what failed and how to run it again, and exits with 1."""
    script = tmp_path / "worker.py"
    script.write_text(
        _WORKER.replace('"problem": ""', '"problem": "bad"'), encoding="utf-8"
    )
    monkeypatch.setattr(fuzz, "WORKER", (str(script),))
    monkeypatch.setattr(fuzz, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(fuzz, "write_node_models", _no_models)

    code = fuzz.main(["--inputs", "1", "--jobs", "1"])

    kept_files = [*(tmp_path / "kept").iterdir()]
    (kept,) = (p for p in kept_files if p.stem == "0-0" and p.suffix != ".txt")
    assert 1 == code
    assert f"input 0 ({kept}): bad" in capsys.readouterr().out
    assert str(kept) in kept.with_suffix(".txt").read_text(encoding="utf-8")


def _fine(seconds: float = 0.1) -> dict[str, object]:
    return {"problem": "", "code": 0, "seconds": seconds}


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    """What was tried is not tried again; other sources or another seed begin anew."""
    state, tally = State(tmp_path / "fuzz" / "s.json", "0/a"), Tally(6)
    for number in (0, 1, 4):
        tally.add(number, _fine(number))
    tally.add(3, {"problem": "bad", "code": 1, "seconds": 0.5})
    state.save(tally)

    again = state.load(6)
    assert ([2, 5], 4, [(3, "bad")]) == ([*again.left()], again.done, again.failures)
    assert tally.line() == again.line()
    assert 6 == len([*State(state.path, "0/b").load(6).left()])


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        ('{"time_us": 1.0, "error": -0.5}', ""),
        ('{"a": [{"time_us": -1.0}]}', "time_us is -1.0"),
        ('{"flops": -1}', "flops is -1"),
        ('{"x": NaN}', "x is nan"),
        ('{"x": Infinity}', "x is inf"),
        ("graph \x1b[31m", "the control character '\\x1b' in the output"),
    ],
)
def test_results_are_judged(out: str, problem: str) -> None:
    """Numbers that cannot be, and what steers a terminal, are failures."""
    assert problem == trial.judge(0, out, "")


@pytest.mark.parametrize(
    ("relation", "other_us", "holds"),
    [("slower", 100.5, True), ("slower", 102, False), ("faster", 90, False)],
)
def test_relations_are_judged(relation: str, other_us: float, *, holds: bool) -> None:
    """The second command must not be slower, or faster, than the first."""
    base, other = (f'{{"summary": {{"time_us": {us}}}}}' for us in (100, other_us))

    assert holds == (trial.compare(base, other, relation) == "")
