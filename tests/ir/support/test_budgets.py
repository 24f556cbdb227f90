"""Budgets refuse what would take too much, before it is held."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from perfc.ir import PerfcError, UsageError, parse_json, spend
from perfc.ir.support import (
    BUDGETS,
    BudgetError,
    budget,
    damage_as,
    parse_budgets,
    parse_toml,
    raised_budgets,
    read_text,
    read_whole,
)
from perfc.ir.text import parse_graph

_TEXT = "graph @g(%x: f32[2]) {\n  %y = relu(%x) : f32[2]\n  return %y\n}\n"


def test_the_message_says_how_to_raise_it() -> None:
    """The budget, what was found and the option that lets it through are all said."""
    with pytest.raises(BudgetError) as caught:
        spend("nodes", 300_000, "g.onnx")

    assert (
        "g.onnx: 300,000 nodes of a graph that is read, expected at most 200,000; if "
        "that is meant, raise it: --budget nodes=400000 (or PERFC_BUDGETS)"
    ) == str(caught.value)


@pytest.mark.parametrize("name", sorted(BUDGETS))
def test_raised_budgets_end(name: str) -> None:
    """A budget is another one inside, and what it was outside."""
    before = budget(name)
    with raised_budgets({name: 3}):
        inside = budget(name)
        with pytest.raises(BudgetError):
            spend(name, 4)

    assert (3, before) == (inside, budget(name))


def test_the_environment_raises_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the variable says holds, unless an option says otherwise."""
    monkeypatch.setenv("PERFC_BUDGETS", "nodes=7, seconds=1e3")
    with raised_budgets({"seconds": 5}):
        assert (7, 5) == (budget("nodes"), budget("seconds"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("node=1", "--budget: no budget 'node'; did you mean nodes? known: file-bytes"),
        ("nodes", "--budget: nodes is '', expected a number above 0"),
        ("nodes=-1", "--budget: nodes is '-1', expected a number above 0"),
        ("nodes=nan", "--budget: nodes is 'nan', expected a number above 0"),
    ],
)
def test_bad_budgets(text: str, problem: str) -> None:
    """What is no budget is a mistake of usage, and says what there is."""
    with pytest.raises(UsageError) as caught:
        parse_budgets([text], "--budget")

    assert str(caught.value).startswith(problem)


def test_a_device_without_end_is_not_read_to_its_end() -> None:
    """What is no regular file is read up to the budget."""
    with raised_budgets({"file-bytes": 5_000_000}), pytest.raises(BudgetError):
        read_whole(Path("/dev/zero"), PerfcError)


@pytest.mark.parametrize("name", ["values", "nodes"])
def test_text_is_counted(name: str) -> None:
    """Tokens and nodes of perfc assembly have budgets."""
    assert 1 == len(parse_graph(_TEXT))
    with raised_budgets({name: 0.5}), pytest.raises(BudgetError):
        parse_graph(_TEXT)


def test_json_is_counted_before_it_is_parsed() -> None:
    """A few megabytes of brackets would be a gigabyte of lists."""
    begun_s = time.process_time()
    with pytest.raises(BudgetError, match=r"^f: 10,000,002 values of JSON"):
        parse_json("[" + "[]," * 5_000_000, PerfcError, "f", "a plan")

    assert time.process_time() - begun_s < 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5_000, "Exceeds the limit"),
        (b'"\xff"', "no UTF-8 text at byte 1"),
        ("", "Expecting value"),
    ],
)
def test_damaged_json_is_one_line(text: str | bytes, reason: str) -> None:
    """Whatever the parser raises, the file, what it should be and why are said."""
    with pytest.raises(PerfcError) as caught:
        parse_json(text, PerfcError, "f", "a plan")

    assert re.match(rf"f: cannot be read as a plan \({reason}", str(caught.value))


@pytest.mark.parametrize(
    "key", [".".join(["a"] * 100_000), '"a" . ' * 70 + "b", ".".join(["'x'"] * 66)]
)
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "x = {{ {} = 1 }}"])
def test_keys_of_many_parts_are_refused_at_once(key: str, form: str) -> None:
    """The parser of the standard library takes minutes over some hundred kilobytes."""
    begun_s = time.process_time()
    with pytest.raises(PerfcError, match="f: not valid TOML: a key of more than 64"):
        parse_toml(form.format(key), PerfcError, "f")

    assert time.process_time() - begun_s < 2


def test_long_words_of_toml_are_no_long_keys() -> None:
    """Texts of a megabyte pass, and take no time."""
    begun_s = time.process_time()
    found = parse_toml(f"{'a' * 500_000} = '{'b ' * 250_000}'", PerfcError, "f")

    assert 1 == len(found)
    assert time.process_time() - begun_s < 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "it needs more memory than there is"),
        (RecursionError("maximum"), "nested too deeply"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (EOFError(), "EOFError"),
        (ValueError("a\nb"), "a b"),
    ],
)
def test_damage_is_one_line(error: Exception, reason: str) -> None:
    """What a library raises becomes an error of perfc with a reason in words."""

    def damaged() -> None:
        with damage_as(BudgetError, "f.npz", ".npz"):
            raise error

    with pytest.raises(BudgetError) as caught:
        damaged()

    assert f"f.npz: cannot be read as .npz ({reason})" == str(caught.value)


def test_faults_of_perfc_are_not_hidden() -> None:
    """An error that perfc raised itself passes unchanged."""

    def refused() -> None:
        with damage_as(BudgetError, "f", "g"):
            msg = "its own"
            raise UsageError(msg)

    with pytest.raises(UsageError, match=r"^its own$"):
        refused()


def test_text_that_is_no_text(tmp_path: Path) -> None:
    """The byte that is none is named."""
    path = tmp_path / "f"
    path.write_bytes(b"ab\xff")

    with pytest.raises(PerfcError, match=r"a plan \(no UTF-8 text at byte 2\)$"):
        read_text(path, PerfcError, "a plan")
