"""`perfc shard` where tables may lie in host memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command, Outcome

MODEL = ("dlrm-ddp:tables=6,rows=100000,pooling=20", "--batch", "2048")
ON = ("--target", "dgx-a100", "--ranks", "4")


def _shard(command: Command, *arguments: str) -> Outcome:
    return command("shard", *MODEL, *ON, "-q", *arguments)


def _json(outcome: Outcome) -> dict[str, Any]:
    assert (0, "") == (outcome.code, outcome.err)
    found: dict[str, Any] = outcome.report
    return found


def test_tables_that_do_not_fit_go_to_host_memory(
    command: Command, tmp_path: Path
) -> None:
    """Device memory alone is too small; with a cache there, the tables fit.

    The plan goes through its file into `analyze`, with its tiers: the same step.
    """
    small = ("--memory", "60MB", "--types", "table-wise")
    refused = _shard(command, *small)
    tiers = (*small, "--tiers", "hbm,uvm-caching", "--cache", "0.1")
    report = _json(_shard(command, *tiers, "--format", "json"))
    best = report["plans"][0]
    plan = tmp_path / "plan.json"
    assert 0 == _shard(command, *tiers, "--format", "plan", "-o", str(plan)).code
    sharding = f"shard-embeddings{{ranks=4,plan={plan},per-node=4}}"
    arguments = ("--mode", "training", "--ranks", "4", "--pass", sharding)
    analyzed = command(
        "analyze", *MODEL, "--target", "dgx-a100", *arguments, "--format", "json"
    )
    on_host = [name for name, tier in best["tiers"].items() if tier == "uvm-caching"]
    entries = best["plan"]["tables"]
    host_bytes = sum(one["host_bytes"] for one in best["ranks"])

    assert 1 == refused.code
    assert "host memory (--tiers hbm,uvm-caching)" in refused.error
    assert 0 < len(on_host) < 6
    assert {"fused_uvm_caching"} == {entries[n]["compute_kernel"] for n in on_host}
    assert {0.1} == {entries[n]["cache_params"]["load_factor"] for n in on_host}
    assert host_bytes == len(on_host) * report["table_bytes"] / 6
    assert max(one["table_bytes"] for one in best["ranks"]) <= 60e6
    assert (["hbm", "uvm-caching"], None) == (
        report["tiers"],
        report["host_room_bytes_per_rank"],
    )
    assert best["pipeline_us"] == pytest.approx(analyzed.report["summary"]["time_us"])
    assert best["cost_us"] == pytest.approx(best["pipeline_us"], rel=0.12)


def test_a_model_whose_tables_were_placed(command: Command, tmp_path: Path) -> None:
    """The search places tables itself."""
    path = tmp_path / "placed.perfc"
    placing = ("-p", "shape-inference,place-embeddings{tier=uvm}", "-o", str(path))
    assert 0 == command("opt", MODEL[0], *placing).code
    outcome = command("shard", str(path), *MODEL[1:], *ON, "-q")

    assert 1 == outcome.code
    assert "table 'emb_l.0' lies in tier uvm already" in outcome.error


def test_the_table_says_what_lies_on_the_host(command: Command) -> None:
    """Both memories of each rank, the tables, and the limit."""
    tiers = ("--memory", "60MB", "--types", "table-wise", "--tiers", "hbm,uvm")
    free, limited = (
        _shard(command, *tiers),
        _shard(command, *tiers, "--host-memory", "1TB"),
    )

    assert "Tables in host memory under local: uvm: emb_l." in free.out
    assert "Host memory is not limited: no sheet says" in free.out
    assert re.search(r"slack +memory +host memory\n", free.out)
    page = _shard(command, *tiers, "--format", "html").out
    assert "Tables in host memory under local: uvm: emb_l." in page
    assert "They may take 931 GiB of host memory for each rank." in limited.out
    assert "host memory" not in _shard(command).out


@pytest.mark.parametrize("kernel", ["fused_uvm", "fused_uvm_caching"])
def test_a_plan_in_host_memory_is_slower(
    command: Command, tmp_path: Path, kernel: str
) -> None:
    """Its tables are not priced as if in device memory, whatever --tiers says."""
    entry = {"sharding_type": "row_wise", "compute_kernel": kernel}
    plan = tmp_path / "plan.json"
    tables = {f"emb_l.{n}": entry for n in range(6)}
    plan.write_text(json.dumps({"sparse": tables}), encoding="utf-8")
    given = ("--plan", str(plan), "--plan", "row-wise", "--search", "greedy")
    plans = _json(_shard(command, *given, "--format", "json"))["plans"]
    step_us = {one["name"]: one["step_us"] for one in plans}

    assert step_us[str(plan)] > 1.1 * step_us["row-wise"]
