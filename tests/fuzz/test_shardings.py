"""`perfc shard --tiers` on any list of tables: a plan, or one line that says why."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.fuzz.generate import Input
from tests.fuzz.shardings import COSTS, RANKS, SHARDINGS, TIERS, plain_sharding
from tests.fuzz.trial import run

from perfc.tools.cli.command_line import main

_FEW, _MANY = 24, 528
"""Lists in each run of the suite, and in that of slow tests."""


def _asked(number: int) -> Input:
    made = plain_sharding(random.Random(f"shard/{number}"), number)
    return Input(SHARDINGS, ".json", *made)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n >= _FEW else [])
        for n in range(_MANY)
    ],
)
def test_a_plan_or_one_line(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 2, 4, 8 and 16 ranks, with all costs, types and tiers."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    item = _asked(number)
    found = run(item, tmp_path)

    assert "" == found.problem, item.words


def test_all_ranks_costs_and_tiers_take_turns() -> None:
    """Each number of ranks is asked with each cost and each tier."""
    words = [_asked(number).words for number in range(_MANY)]
    seen = {
        (line[line.index("--ranks") + 1], line[line.index("--cost") + 1], tier)
        for line in words
        for tier in line[line.index("--tiers") + 1].split(",")
    }

    assert {(str(r), c, t) for r in RANKS for c in COSTS for t in TIERS} == seen


@pytest.mark.parametrize("number", [4, 17, 26, 39])
def test_plans_place_every_table_within_memory(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best plan names each table of the list once, and no rank is too full."""
    item = _asked(number)
    path = tmp_path / "tables.json"
    path.write_bytes(item.data)

    assert 0 == main(item.command(path))
    document = json.loads(capsys.readouterr().out)
    best = document["plans"][0]
    names = [table["name"] for table in json.loads(item.data)["tables"]]
    assert sorted(names) == sorted(best["tiers"])
    assert {*best["tiers"].values()} <= {*document["tiers"]}
    most = document["room_bytes_per_rank"] * (1 + 1e-9)
    assert all(rank["table_bytes"] <= most for rank in best["ranks"])
