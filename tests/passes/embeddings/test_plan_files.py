"""Plan files that are not of this model and these ranks are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfc.frontends.workloads import build_workload
from perfc.ir import PerfcError
from perfc.passes import PassManager, ShapeInference, ShardEmbeddings

MODEL = "dlrm-ddp:tables=6,rows=1000,dim=16,pooling=4"


def _shard(path: Path) -> None:
    sharding = ShardEmbeddings(ranks=4, per_node=2, plan=str(path))
    PassManager([ShapeInference(), sharding]).run(build_workload(MODEL))


def _plan(folder: Path, tables: object) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps({"tables": tables}))
    return path


def _entries(**changes: object) -> dict[str, object]:
    entry = {"sharding_type": "table_wise", "ranks": [1]}
    return {f"emb_l.{n}": dict(entry) for n in range(6)} | changes


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ([], 'expected {"tables"'),
        (_entries(emb_x=[]), "has no table 'emb_x'; it has emb_l.0, emb_l.1"),
        ({}, "nothing is said of the tables emb_l.0, .*emb_l.5"),
        (_entries(**{"emb_l.0": 1}), "'emb_l.0': sharding_type None is none of"),
        (
            _entries(**{"emb_l.0": {"sharding_type": "table_wise", "ranks": [4]}}),
            "'emb_l.0': rank 4 is not among 0 to 3",
        ),
        (
            _entries(**{"emb_l.0": {"sharding_type": "table_wise", "ranks": [0, 1]}}),
            "table_wise wants one rank",
        ),
        (
            _entries(**{"emb_l.0": {"sharding_type": "column_wise", "ranks": [1, 1]}}),
            "hold two parts of it",
        ),
        (
            _entries(
                **{"emb_l.0": {"sharding_type": "column_wise", "ranks": [0, 1, 2]}}
            ),
            "16 columns do not go evenly into 3 parts",
        ),
        (
            _entries(**{"emb_l.0": {"sharding_type": "row_wise", "ranks": [0, 1]}}),
            "expected all 4",
        ),
        (
            _entries(**{"emb_l.0": {"sharding_type": "table_wise", "ranks": "0"}}),
            "ranks '0' are no list of numbers",
        ),
    ],
)
def test_bad_plans(tmp_path: Path, tables: object, problem: str) -> None:
    """A plan that is not one of this model and these ranks says what is wrong."""
    with pytest.raises(PerfcError, match=problem):
        _shard(_plan(tmp_path, tables))


def test_a_plan_that_is_no_json(tmp_path: Path) -> None:
    """The file is named."""
    path = tmp_path / "plan.json"
    path.write_text("{")

    with pytest.raises(
        PerfcError, match=r"plan .*plan\.json: cannot be read as a JSON file"
    ):
        _shard(path)
