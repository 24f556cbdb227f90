"""An evolutionary search for fusions: the best of all, in fewer questions."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
from tests.examples.modules import example

import perfc
from perfc import edits

evolution = example("autotune/evolve_fusion")
MODEL = "gpt2:layers=1,dtype=bf16"


@pytest.fixture(scope="module")
def oracle() -> Any:
    """The oracle of a small step."""
    return perfc.Oracle(MODEL, "a100", batch=8, mode="training")


def test_the_best_of_all_is_found(oracle: Any) -> None:
    """Of eight boundaries of the forward pass, in half of the questions at most."""
    fusions = evolution.Fusions.of(oracle, "transformer.h.0.mlp.*")
    fusions.open = fusions.open[:8]
    every = itertools.product((False, True), repeat=len(fusions.open))
    times_us = {choice: fusions.time_us(choice) for choice in every}
    least_us = min(times_us.values())

    assert 2**8 == len(times_us)
    for seed in range(3):
        fusions.known.clear()
        best = evolution.evolve(fusions, generations=15, size=12, seed=seed)
        assert pytest.approx(least_us, rel=1e-12) == times_us[best]
        assert 2**8 / 2 > len(fusions.known)


def test_a_choice_takes_what_the_oracle_says(oracle: Any) -> None:
    """Each group is one fusion, made together; none is the step as it stands."""
    fusions = evolution.Fusions.of(oracle, "transformer.h.0.mlp.act.gelu.mul*")
    all_of_them = (True,) * len(fusions.open)
    groups = fusions.groups(all_of_them)

    assert all(len(group) > 1 for group in groups)
    assert oracle.ask(*map(edits.Fuse, groups)) == fusions.time_us(all_of_them)
    assert oracle.time_us == fusions.time_us((False,) * len(fusions.open))


def test_two_gemms_are_no_kernel(oracle: Any) -> None:
    """What no kernel does is no boundary, and a choice that would need it is none."""
    fusions = evolution.Fusions.of(oracle, "transformer.h.0.mlp.c_*")
    nodes = fusions.nodes
    gemms = {at for at, node in enumerate(nodes) if "matmul" in node}
    chained = evolution.Fusions(oracle, nodes, sorted(gemms))

    assert gemms.isdisjoint(fusions.open)
    assert math.inf == chained.time_us((True,) * len(gemms))


def test_the_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints the best, and what was saved."""
    argv = ["evolve_fusion.py", "--mode", "inference", "--generations", "4"]
    monkeypatch.setattr("sys.argv", argv)
    evolution.main()

    printed = capsys.readouterr().out

    assert "transformer.h.0.attn.c_proj.addmm + transformer.h.0.add" in printed
    assert re.search(r"asked for \d+ of 32 choices", printed)
