"""`perfc shard --cost torchrec`: plans by the rules of TorchRec's planner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command

from perfc.ir.choices import OPTIMIZERS
from perfc.passes import Placement, World
from perfc.passes.embeddings import TABLE_WISE
from perfc.planning import PerfRules, Topology, TorchRecCost, plan_times
from perfc.planning.plans import Table

TABLES = {"a": 30, "b": 20, "c": 20, "d": 10}
"""Rows of a bag. Whole tables share them evenly: a and d, b and c."""


@pytest.fixture
def tables(tmp_path: Path) -> str:
    """A list of four tables, as a file."""
    listed = [
        {"name": name, "rows": 1000, "dim": 128, "pooling": pooling}
        for name, pooling in TABLES.items()
    ]
    path = tmp_path / "tables.json"
    path.write_text(json.dumps({"tables": listed, "batch": 256}), encoding="utf-8")
    return str(path)


def _best(command: Command, tables: str, *options: str) -> Any:
    arguments = ("--target", "dgx-a100", "--ranks", "2", "--types", "table-wise")
    asked = ("--cost", "torchrec", "--full", "0", "--seconds", "2", *options)
    result = command("shard", tables, *arguments, *asked, "--format", "json", "-q")
    assert 0 == result.code, result.err
    return result.report["plans"][0]


def test_best_plan_is_torchrecs(command: Command, tables: str) -> None:
    """The plan shares lookups evenly, and takes what the rules say."""
    world = World(ranks=2, per_node=2)
    rules = PerfRules(topology=Topology(world=world), batch=256)
    listed = [Table(name=n, rows=1000, dim=128, pooling=p) for n, p in TABLES.items()]
    ranks = {"a": 0, "b": 1, "c": 1, "d": 0}
    plan = {name: Placement(TABLE_WISE, (rank,)) for name, rank in ranks.items()}
    seconds = plan_times(TorchRecCost(rules=rules), listed, {"": plan}, world)[""]

    best = _best(command, tables)
    assert pytest.approx(seconds * 1e6) == best["step_us"]
    assert "look-ups and updates" == best["decides"]
    assert pytest.approx(0, abs=1e-6) == best["exposed_us"]["dense"]


def test_options_reach_the_rules(command: Command, tables: str) -> None:
    """Inference has no backward pass, half the bytes are sent in half the time."""
    training = _best(command, tables)
    inference = _best(command, tables, "--mode", "inference")
    assert all(rank["update_us"] == 0 for rank in inference["ranks"])
    assert pytest.approx(training["exposed_us"]["exchange"]) == (
        2 * inference["exposed_us"]["exchange"]
    )
    halved = _best(command, tables, "--qcomm", "fp16")
    assert pytest.approx(training["exposed_us"]["exchange"]) == (
        2 * halved["exposed_us"]["exchange"]
    )


def test_directions_have_their_own_precision(command: Command, tables: str) -> None:
    """A quarter of the bytes forward, as many as ever backward: five eighths in all."""
    whole, mixed = (
        _best(command, tables, *said)["exposed_us"]["exchange"]
        for said in ((), ("--qcomm", "int8", "--qcomm-backward", "fp32"))
    )
    assert pytest.approx(whole * 5 / 8) == mixed


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_has_states(
    command: Command, tables: str, optimizer: str
) -> None:
    """TorchRec's rules know, or count one state for, whatever perfc trains with."""
    assert _best(command, tables, "--optimizer", optimizer)["fits"]


def test_unknown_cost(command: Command, tables: str) -> None:
    """A cost that is none is refused with those there are."""
    arguments = ("--target", "dgx-a100", "--ranks", "2", "--cost", "best")
    result = command("shard", tables, *arguments)
    expected = "perfc: error: --cost 'best' is none of physical, torchrec\n"
    assert (2, "", expected) == (result.code, result.out, result.err)
