"""`perfc parallel` as it is typed, and against what MAD-Max publishes."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command

from perfc.costmodels.reference import madmax_model, madmax_system
from perfc.frontends.reference import MadMaxStep, read_strategy
from perfc.tools.strategies.parallel import Outcome, outcome

DATA = Path(os.environ.get("PERFC_DATA", Path(__file__).parents[4] / "shared" / "data"))
ROWS = DATA / "madmax" / "madmax_golden.csv"
_ON = ("--target", "zionex", "--compat", "madmax")


def _compared(command: Command, *arguments: str) -> list[dict[str, Any]]:
    report = command("parallel", *arguments, *_ON, "--format", "json").report
    assert "perfc.parallel/1" == report["schema"]
    found: list[dict[str, Any]] = report["strategies"]
    return found


def test_a_published_step(command: Command) -> None:
    """DLRM-A on 128 GPUs: 54.0 ms, two thirds of them exposed, 1.21 M samples/s."""
    size = ("--ranks", "128", "--batch", "65536")

    (one,) = _compared(command, "dlrm_a", *size, "--strategy", "mlp=ddp emb=mp")

    assert "mlp=ddp:128 emb=mp:128" == one["strategy"]
    assert 54002.4 == pytest.approx(one["step_us"], rel=1e-5)
    assert 35992.3 == pytest.approx(one["exposed_comm_us"], rel=1e-5)
    assert 1.21358e6 == pytest.approx(one["samples_per_s"], rel=1e-5)
    assert one["fits"]


def test_all_strategies_are_ranked(command: Command) -> None:
    """What fits comes first, then what is fast."""
    size = ("--ranks", "128", "--mode", "inference")

    found = _compared(command, "DLRM-A", *size)

    assert 21 == len({one["strategy"] for one in found})
    order = [(not one["fits"], one["step_us"]) for one in found]
    assert sorted(order) == order
    assert {True, False} == {one["fits"] for one in found}


def test_one_node_has_one_level(command: Command) -> None:
    """Three ways for layers, one for tables, and a table that says what it is of."""
    size = ("--ranks", "8", "--batch", "4096")

    outcome = command("parallel", "dlrm_i", *size, *_ON)

    title, _, header, *rows = outcome.out.splitlines()
    assert "dlrm_i: training step of 4,096 samples on 8 A100 40 GB (zionex)" in title
    assert header.startswith("strategy")
    assert 3 == len(rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("dlrm_z", "--ranks", "8"), "has no model 'dlrm_z'; it has dlrm_a, "),
        (("dlrm_a", "--ranks", "12"), "12 ranks on zionex: expected a multiple of the"),
        (("dlrm_a", "--ranks", "0"), "0 is not in the range x>=1"),
        (("dlrm_a", "--ranks", "8", "--strategy", "mlp=ddp"), "expected both mlp and"),
        (("dlrm_a", "--ranks", "8", "--strategy", "mlp"), "'mlp' is not NAME=VALUE"),
        (
            ("dlrm_a", "--ranks", "8", "--strategy", "mlp=pp emb=mp"),
            "'pp' is none of ddp, fsdp, tp",
        ),
        (
            ("dlrm_a", "--ranks", "8", "--strategy", "mlp=ddp:x emb=mp"),
            "'x' is not a number of GPUs",
        ),
        (
            ("dlrm_a", "--ranks", "8", "--strategy", "mlp=ddp:4 emb=mp"),
            "is for 4 GPUs, but there are 8",
        ),
        (
            ("dlrm_a", "--ranks", "16", "--strategy", "mlp=ddp:2+tp:8 emb=mp"),
            "the first level is in the node, which has 8 GPUs, not 2",
        ),
        (
            ("dlrm_a", "--ranks", "16", "--strategy", "mlp=ddp:8+fsdp:2 emb=mp"),
            "fsdp is for the first level",
        ),
        (
            ("dlrm_a", "--ranks", "8", "--strategy", "mlp=tp:2+tp:2+tp:2 emb=mp"),
            "has 3 levels; there are two",
        ),
    ],
)
def test_what_cannot_be(
    command: Command, arguments: tuple[str, ...], says: str
) -> None:
    """One line says what was expected; it is the command that is at fault."""
    outcome = command("parallel", *arguments, "--batch", "64", *_ON)

    assert 2 == outcome.code
    assert says in outcome.error


def test_a_machine_that_the_studies_have_not(command: Command) -> None:
    """A target of perfc is none of theirs."""
    arguments = ("--ranks", "8", "--batch", "64", "--compat", "madmax")

    outcome = command("parallel", "dlrm_a", "--target", "a100", *arguments)

    assert 2 == outcome.code
    assert "MAD-Max has no system 'a100'; it has zionex, " in outcome.error


@pytest.mark.skipif(
    not ROWS.is_file(), reason="MAD-Max's figures are not here; set PERFC_DATA"
)
def test_all_published_rows_of_recommendation_models() -> None:
    """Every time agrees to 1e-5, every size of weights to the digits printed."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if _is_covered(row["model"])]
    assert 1786 == len(rows)
    for row in rows:
        made = _outcome(row)
        for column, value in _times_ms(made).items():
            assert float(row[column]) == pytest.approx(value, rel=1e-5), row
        assert float(row["qps"]) == pytest.approx(made.samples_per_s, rel=1e-5)
        weights_gb = made.weight_bytes / 1e9
        assert float(row["weights_gb_per_dev"]) == pytest.approx(
            weights_gb, rel=5e-6, abs=6e-4
        )
        assert bool(int(row["fits"])) == made.fits


def _is_covered(model: str) -> bool:
    """Whether it is one of plain layers: no experts, no transformer."""
    return model.startswith("dlrm") and not model.endswith(("moe", "transformer"))


def _outcome(row: dict[str, str]) -> Outcome:
    name, _, ranks = row["system"].rpartition("_")
    system = madmax_system(name)
    text = f"mlp={row['mlp_strategy']} emb={row['emb_strategy']}"
    return outcome(
        MadMaxStep(
            model=madmax_model(row["model"]),
            system=system,
            ranks=int(ranks),
            strategy=read_strategy(text, int(ranks), system.gpus_per_node),
            batch=int(row["global_batch"]),
            training=row["phase"] == "pretrain",
        )
    )


def _times_ms(made: Outcome) -> dict[str, float]:
    columns = {
        "gemm_ms": made.seconds["gemm"],
        "emb_ms": made.seconds["emb"],
        "all2all_ms": made.seconds["all_to_all"],
        "allreduce_ms": made.seconds["all_reduce"],
        "allgather_ms": made.seconds["all_gather"],
        "reducescatter_ms": made.seconds["reduce_scatter"],
        "exposed_comm_ms": made.exposed_s,
        "iter_ms": made.step_s,
    }
    return {name: seconds * 1e3 for name, seconds in columns.items()}
