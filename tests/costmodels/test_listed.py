"""Entries of perfc's own cost models say what the models say."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from perfc.costmodels import cost_models, load_target
from perfc.costmodels.kernels import OneSignature
from perfc.costmodels.pricing.listed import (
    BOUND_BY,
    ENTRIES,
    INTERVALS_BY,
    ListedModel,
    listed,
)
from perfc.ir import COST_MODELS, Kernel, Record, Work
from perfc.ir.support import entry_points


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_its_model_says(name: str) -> None:
    """Name, priority and ops of an entry are those of the model that it loads."""
    entry, model = listed(name), listed(name).model

    assert (model.name, model.priority, model.ops) == (name, entry.priority, entry.ops)


def test_every_model_of_perfc_has_an_entry() -> None:
    """No model that perfc installs is left out, or loaded to be asked."""
    own = [n for n, p in entry_points(COST_MODELS).items() if p.value[:6] == "perfc."]

    assert sorted(ENTRIES) == sorted(own)
    asked = [model.name for model in cost_models() if isinstance(model, ListedModel)]
    assert sorted(ENTRIES) == sorted(asked)


def test_models_of_other_kernels_and_targets_stay_unloaded() -> None:
    """To price a copy on a GPU neither GEMMs nor CPUs nor profiles are loaded."""
    code = """
import sys
from perfc.costmodels import cost_models, load_target, price
from perfc.ir import Kernel, Record, Work
params = Record({"kind": "h2d", "bytes": 64})
kernel = Kernel("memcpy", "u8", "none", params, Work(0, 64, 64))
price([kernel, kernel], load_target("a100"), cost_models())
price([kernel], load_target("a100"), cost_models())
models = ("attention.attention", "conv.conv", "cpu.cpu", "gemm.gemm", "memcpy", "walk")
print(*(m for m in models if f"perfc.costmodels.{m}" in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "memcpy\n" == done.stdout


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_whose_bound_and_interval_its_model_says(name: str) -> None:
    """It says them of its own kernels, and has the methods if the entry names any."""
    entry, model = ENTRIES[name], listed(name).model

    assert (entry.bounds | entry.intervals) - (entry.ops or set()) == set()
    assert hasattr(model, "lower_bound") == bool(entry.bounds)
    assert hasattr(model, "lower_bound_of_one") == bool(entry.bounds)
    assert hasattr(model, "interval_groups") == bool(entry.intervals)
    assert hasattr(model, "interval_group_of_one") == bool(entry.intervals)


@pytest.mark.parametrize("target", ["a100", "cpu"])
@pytest.mark.parametrize("tier", ["", "uvm", "uvm-caching", "dram"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("name", ["embedding-tiers", "embedding-update"])
def test_what_is_passed_over_is_not_claimed(
    name: str, phase: str, tier: str, target: str
) -> None:
    """An entry answers for its model only where that would claim nothing."""
    table = {"rows": 1000, "dim": 64, "pooling": 10} | ({"tier": tier} if tier else {})
    params = Record({"batch": 64, "phase": phase, "tables": (Record(table),)})
    kernel = Kernel("embedding_bag", "fp32", "fp32", params, Work(0, 64, 64))
    one, gpu = OneSignature(kernel), load_target(target)
    entry = listed(name)
    asked: Any = entry.model

    assert entry.passes_over is not None
    passed = entry.passes_over(one, gpu)
    assert not (passed and asked.claims_one(one, gpu))
    assert asked.claims_one(one, gpu) == entry.claims_one(one, gpu)
    if target == "a100" and not tier and phase == "forward":
        assert passed


def test_one_model_says_the_bound_of_a_kernel() -> None:
    """No two entries name the same kernel, for bounds or for intervals."""
    bounds = [op for entry in ENTRIES.values() for op in entry.bounds]
    intervals = [op for entry in ENTRIES.values() for op in entry.intervals]

    assert sorted(BOUND_BY) == sorted(bounds)
    assert sorted(INTERVALS_BY) == sorted(intervals)
