"""`perfc shard` as it is typed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.html_page import HtmlPage
from tests.tools.command import Command, Outcome

from perfc.costmodels import load_target

MODEL = ("dlrm-ddp:tables=6,rows=100000,pooling=20", "--batch", "2048")
ON = ("--target", "dgx-a100", "--ranks", "4")
ROW = {"name": "a", "rows": 9, "dim": 4}
NAMES = {"local", "dim", "size", "lookup", "size-lookup"}


def _shard(command: Command, *arguments: str) -> Outcome:
    return command("shard", *MODEL, *ON, "-q", *arguments)


def _json(outcome: Outcome) -> dict[str, Any]:
    assert "" == outcome.err
    assert 0 == outcome.code
    found: dict[str, Any] = outcome.report
    assert "perfc.shard/1" == found["schema"]
    return found


def _listed(path: Path, *tables: Mapping[str, object], **more: object) -> str:
    path.write_text(json.dumps({"tables": tables, **more}), encoding="utf-8")
    return str(path)


def test_plans_are_ranked(command: Command) -> None:
    """The baselines, given plans and what was found, the fastest first."""
    report = _json(
        _shard(command, "--plan", "row-wise", "--plan", "grid", "--format", "json")
    )
    plans = report["plans"]
    steps = [plan["step_us"] for plan in plans]

    assert NAMES | {"row-wise", "grid"} == {plan["name"] for plan in plans}
    assert sorted(steps) == steps
    assert {"pipeline"} == {plan["priced_by"] for plan in plans}
    assert all(plan["fits"] for plan in plans)
    assert {6} == {len(plan["plan"]["tables"]) for plan in plans}
    assert [0, 1, 2, 3] == [one["rank"] for one in plans[0]["ranks"]]


def test_tables_have_what_the_step_leaves(command: Command) -> None:
    """Of what a process can have of a GPU, as `analyze` and `parallel` count it."""
    report = _json(_shard(command, "--format", "json"))
    usable_bytes = load_target("dgx-a100").device.memory.usable_bytes
    held_bytes = report["room_bytes_per_rank"] + report["dense_bytes_per_rank"]

    assert usable_bytes == pytest.approx(held_bytes)


def test_the_keys_are_documented(command: Command) -> None:
    """The reference lists each key, those that may be null too."""
    page = (Path(__file__).parents[3] / "docs/reference/shard.md").read_text("utf-8")
    report = _json(_shard(command, "--format", "json"))
    best = report["plans"][0]
    table = best["plan"]["tables"]["emb_l.0"]
    documents = (report, best, best["ranks"][0], table, best["exposed_us"])
    keys = {key for document in documents for key in document}
    listed = set(re.findall(r"`([^`]+)`", page))

    assert set() == keys - listed


@pytest.mark.parametrize("format_", ["plan", "json"])
def test_the_step_is_what_analyze_says(
    command: Command, tmp_path: Path, format_: str
) -> None:
    """The best plan is a file that `shard-embeddings` reads: the same step."""
    best = _json(_shard(command, "--format", "json"))["plans"][0]
    plan = tmp_path / "plan.json"
    assert 0 == _shard(command, "--format", format_, "-o", str(plan)).code
    sharding = f"shard-embeddings{{ranks=4,plan={plan},per-node=4}}"
    arguments = ("--mode", "training", "--ranks", "4", "--pass", sharding)
    outcome = command(
        "analyze", *MODEL, "--target", "dgx-a100", *arguments, "--format", "json"
    )

    if format_ == "plan":
        assert json.loads(plan.read_text(encoding="utf-8")) == best["plan"]
    assert best["pipeline_us"] == pytest.approx(outcome.report["summary"]["time_us"])


@pytest.mark.parametrize("back", ["int8", "bf16", "fp32"])
def test_both_prices_know_the_codecs(command: Command, back: str) -> None:
    """The compact step is the pipeline's where rows and gradients are encoded."""
    sent = ("--qcomm", "int8", "--qcomm-backward", back, "--format", "json")
    types = ("--types", "table-wise,row-wise")
    plans = _json(_shard(command, *types, *sent))["plans"]
    plain = _json(_shard(command, *types, "--format", "json"))["plans"]

    for plan in plans:
        assert plan["cost_us"] == pytest.approx(plan["pipeline_us"], rel=0.12)
    assert plans[0]["pipeline_us"] != plain[0]["pipeline_us"]


def test_a_table_says_why(command: Command) -> None:
    """The last rank, what the step is made of, and a bar for each rank."""
    outcome = _shard(command, "--types", "table-wise")
    lines = outcome.out.splitlines()

    assert lines[0].startswith("dlrm-ddp: training step of 2,048 samples on each of 4")
    assert "less" in lines[1]
    assert any(line.startswith("The step, ") for line in lines)
    bars = [line for line in lines if "█" in line]
    assert 4 == len(bars)
    assert sum(line.split()[1] == "2" for line in bars) >= 2


def test_a_page_has_bars_of_ranks(command: Command, tmp_path: Path) -> None:
    """Each rank has a bar of its time and of its memory, under each of three plans."""
    path = tmp_path / "page.html"
    outcome = _shard(command, "--format", "html", "-o", str(path))
    page = HtmlPage.of(path.read_text("utf-8"))
    firsts = [row[0].removesuffix(", last") for row in page.rows if row]

    assert (0, "") == (outcome.code, outcome.out)
    for rank in range(4):
        assert 2 * 3 == firsts.count(f"rank {rank}")
    assert set(NAMES) <= set(firsts)
    assert {f"emb_l.{n}" for n in range(6)} <= set(firsts)


def test_equal_calls_print_the_same(command: Command) -> None:
    """Nothing depends on the clock."""
    assert _shard(command).out == _shard(command).out


def test_inference_has_no_updates(command: Command) -> None:
    """Only lookups load the ranks."""
    report = _json(_shard(command, "--mode", "inference", "--format", "json"))
    ranks = report["plans"][0]["ranks"]

    assert {0.0} == {one["update_us"] for one in ranks}
    assert any(one["lookup_us"] > 0 for one in ranks)


def test_types_are_kept_to(command: Command) -> None:
    """A search that may only share rows shares all."""
    report = _json(_shard(command, "--types", "row-wise", "--format", "json"))
    plan = report["plans"][0]["plan"]["tables"]

    assert {"row_wise"} == {entry["sharding_type"] for entry in plan.values()}


def test_plans_that_cannot_be_searched_are_compared(command: Command) -> None:
    """Data-parallel tables have no compact price; the pipeline has one."""
    report = _json(_shard(command, "--plan", "data-parallel", "--format", "json"))
    (one,) = (p for p in report["plans"] if p["name"] == "data-parallel")

    assert (None, None) == (one["cost_us"], one["ranks"])
    assert one["pipeline_us"] > 0


def test_gradients_and_states_of_data_parallel_tables_must_fit(
    command: Command,
) -> None:
    """Each rank has them of all tables: with Adam more than four times the rows."""
    given = ("--plan", "data-parallel", "--optimizer", "adam", "--memory", "0.6GB")
    tables = "dlrm-ddp:tables=6,rows=100000", "--batch", "2048"
    outcome = command("shard", *tables, *ON, "-q", *given)

    assert 1 == outcome.code
    assert "plan data-parallel does not fit: tables take" in outcome.error


def test_without_the_pipeline(command: Command) -> None:
    """`--full 0` shows what the search goes by, marked so."""
    outcome = _shard(command, "--full", "0")

    assert "~ is the compact model" in outcome.out
    assert 5 == outcome.out.count("  ~")


def test_a_list_of_tables(command: Command, tmp_path: Path) -> None:
    """Tables without a dense part, alike, in unequal sizes, by other words."""
    path = _listed(
        tmp_path / "tables.json",
        {"name": "ü b", "rows": 1000, "dim": 32, "hotness": 3},
        {"rows": 2000.0, "dim": 64, "pooling": 2.5, "count": 3},
        batch=256,
    )
    report = _json(command("shard", path, *ON, "-q", "--format", "json"))

    assert (256, 4) == (report["batch_per_rank"], report["tables"])
    assert {"ü b", "t1.0", "t1.1", "t1.2"} == set(report["plans"][0]["plan"]["tables"])
    assert 4 * (1000 * 32 + 3 * 2000 * 64) == report["table_bytes"]


def test_progress_goes_to_stderr(command: Command) -> None:
    """What is being done is said, one line each."""
    outcome = command("shard", *MODEL, *ON, "--full", "1")

    assert all(line.startswith("perfc: ") for line in outcome.err.splitlines())
    assert "beam search" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("--plan", "nosuch"), 2, "plan 'nosuch' is neither a file nor one of"),
        (("--types", "diagonal"), 2, "table-row-wise, grid"),
        (("--types", ""), 2, "'' is none of"),
        (("--types", "data-parallel"), 2, "'data-parallel' is none of"),
        (("--cost", "nosuch"), 2, "--cost 'nosuch' is none of physical"),
        (("--memory", "12 apples"), 2, "expected a size above 0"),
        (("--memory", "0GB"), 2, "expected a size above 0"),
        (("--memory", "10MB", "--types", "table-wise"), 1, "takes at least"),
        (("--memory", "20MB"), 1, "too much; use more ranks"),
        (("--tiers", "disk"), 2, "--tiers: 'disk' is none of hbm, uvm-caching, uvm"),
        (("--tiers", ""), 2, "--tiers: '' is none of"),
        (("--cache", "0.1"), 2, "--cache 0.1: no tier of --tiers hbm has a cache; add"),
        (("--cache", "0.2", "--tiers", "hbm,uvm"), 2, "no tier of --tiers hbm,uvm has"),
        (("--cache", "0"), 2, "--cache 0: expected more than 0, up to 1"),
        (("--cache", "1.01"), 2, "--cache 1.01: expected more than 0, up to 1"),
        (("--cache", "nan"), 2, "--cache nan: expected more than 0, up to 1"),
        (("--host-memory", "-1GB"), 2, "--host-memory '-1GB': expected a size"),
        (
            ("--memory", "60MB", "--tiers", "hbm,uvm", "--host-memory", "1MB"),
            1,
            "use more ranks, or more host memory (--host-memory)",
        ),
        (("--popularity", "x=zipf"), 2, "the model has no table 'x'"),
        (("--popularity", "a", "--popularity", "b"), 2, "is given twice; give it"),
        (("--plan", "grid", "--plan", "grid"), 2, "--plan grid is given twice"),
        (("--mode", "inference", "--optimizer", "adam"), 2, "needs mode training"),
        (("--optimizer", "adamw"), 2, "--optimizer adamw: takes no sparse gradients"),
        (("--ranks", "12"), 1, "12 ranks do not fill nodes of 8 GPUs"),
        (("--ranks", "1000000"), 1, "raise it: --budget parts=6000000"),
        (("--ranks", "1000000", "--plan", "grid"), 1, "--budget parts=6000000"),
        (
            ("--ranks", "1000000", "--cost", "torchrec", "--memory", "50GB"),
            1,
            "6 tables on 1,000,000 ranks: 6,000,000 parts of embedding tables",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    command: Command, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    """Each ends in a line that says what was expected."""
    outcome = _shard(command, *arguments)

    assert code == outcome.code
    assert problem in outcome.error
    assert "" == outcome.out


def test_a_plan_that_is_too_full(command: Command, tmp_path: Path) -> None:
    """The rank and its memory are named; nothing is written."""
    entry = {"sharding_type": "table_wise", "ranks": [2]}
    plan = tmp_path / "plan.json"
    tables = {f"emb_l.{n}": entry for n in range(6)}
    plan.write_text(json.dumps({"tables": tables}), encoding="utf-8")
    out = tmp_path / "out.txt"
    given = ("--plan", str(plan), "--memory", "0.3GB", "-o", str(out))
    outcome = _shard(command, *given)

    assert 1 == outcome.code
    assert "does not fit: tables take" in outcome.error
    assert "of rank 2" in outcome.error
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "code", "problem"),
    [
        ("", 1, "cannot be read as a JSON file"),
        ("[]", 1, 'expected {"tables"'),
        ('{"tables": []}', 1, "no list with tables in it"),
        ('{"tables": [3]}', 1, "table 0 is no object"),
        ('{"tables": [{"rows": 0, "dim": 4}]}', 1, "rows is 0, expected a whole"),
        ('{"tables": [{"rows": 9, "dim": 0}]}', 1, "dim is 0, expected a whole"),
        ('{"tables": [{"rows": 9, "dim": true}]}', 1, "dim is True"),
        ('{"tables": [{"rows": 1e99, "dim": 4}]}', 1, "rows is 1e+99"),
        ('{"tables": [{"rows": NaN, "dim": 4}]}', 1, "rows is nan"),
        ('{"tables": [{"dim": 4}]}', 1, "rows is None"),
        ('{"tables": [{"rows": 9, "dim": 4, "pooling": -1}]}', 1, "pooling is -1"),
        ('{"tables": [{"rows": 9, "dim": 4, "name": 7}]}', 1, "its name is 7"),
        ('{"tables": [{"rows": 9, "dim": 4, "dtype": "int4"}]}', 1, "dtype 'int4'"),
        ('{"tables": [{"rows": 9, "dim": 4}]}', 2, "says no batch; add --batch N"),
        ('{"tables": [{"rows": 9, "dim": 4}], "batch": 0}', 1, "batch is 0"),
        (
            '{"tables": [{"rows": 9, "dim": 4, "count": 1e9}]}',
            1,
            "more than 4,000 tables",
        ),
        (json.dumps({"tables": [ROW, ROW]}), 1, "2 tables are called 'a'"),
        (
            json.dumps({"tables": [{**ROW, "count": 3000}, {**ROW, "count": 1001}]}),
            1,
            "more than 4,000 tables, with their counts",
        ),
        ('{"a": {"tables": []}, "b": {"tables": []}}', 2, "say which as"),
    ],
)
def test_lists_that_are_none(
    command: Command, tmp_path: Path, content: str, code: int, problem: str
) -> None:
    """Each ends in a line that names the file and the table."""
    path = tmp_path / "tables.json"
    path.write_text(content, encoding="utf-8")
    outcome = command("shard", str(path), *ON)

    assert code == outcome.code
    assert problem in outcome.error
    assert "tables.json" in outcome.error


def test_a_list_by_a_name_that_is_not_there(command: Command, tmp_path: Path) -> None:
    """A file of one list has the name of the file, no other."""
    path = _listed(tmp_path / "tables.json", {"rows": 9, "dim": 4}, batch=8)

    assert 0 == command("shard", f"{path}:tables", *ON, "-q").code
    outcome = command("shard", f"{path}:other", *ON)
    assert 2 == outcome.code
    assert "no list 'other'; say which as" in outcome.error


def test_no_room_for_any_table(command: Command, tmp_path: Path) -> None:
    """Where the rest of the step fills the memory, that is what is said."""
    table = {"rows": 9, "dim": 8, "pooling": 1e9}
    path = _listed(tmp_path / "tables.json", table, batch=64)
    outcome = command("shard", path, *ON, "-q")

    assert 1 == outcome.code
    assert "no room for tables: the rest of the step takes" in outcome.error
    assert "use a smaller batch" in outcome.error


@pytest.mark.parametrize("ranks", [4096, pytest.param(65536, marks=pytest.mark.slow)])
def test_ranks_without_number(command: Command, tmp_path: Path, ranks: int) -> None:
    """What each rank could do more is found without a table of ranks x ranks."""
    path = _listed(tmp_path / "tables.json", {"rows": 9, "dim": 8}, batch=8)
    types = ("--types", "table-wise", "--full", "0", "-q")
    outcome = command(
        *("shard", path, "--target", "dgx-a100", "--ranks", str(ranks), *types)
    )

    assert (0, "") == (outcome.code, outcome.err)
    assert f"{ranks - 32} more" in outcome.out


def test_a_slow_plan_is_not_the_best(command: Command) -> None:
    """Without the pipeline too, `best` is the fastest, not what was given."""
    given = ("--plan", "data-parallel", "--full", "0", "--format", "json")
    plans = _json(_shard(command, *given))["plans"]

    assert "data-parallel" == plans[-1]["name"]
    assert plans[-1]["step_us"] > plans[0]["step_us"]


def test_of_equal_plans_the_search_is_first(command: Command, tmp_path: Path) -> None:
    """The best plan, given again under whatever name, is its equal."""
    plan = tmp_path / "a.json"
    assert 0 == _shard(command, "--format", "plan", "-o", str(plan)).code
    plans = _json(_shard(command, "--plan", str(plan), "--format", "json"))["plans"]
    (given,) = (one for one in plans if one["name"] == str(plan))

    assert "local" == plans[0]["name"]
    assert plans[0]["step_us"] == pytest.approx(given["step_us"])


def test_a_model_without_tables(command: Command) -> None:
    """There is nothing to shard."""
    outcome = command("shard", "resnet50", "--batch", "2", *ON)

    assert 1 == outcome.code
    assert "has no embedding bags: there are no tables to shard" in outcome.error


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_interrupted_searches_have_a_plan(tmp_path: Path) -> None:
    """Ctrl-C takes the best plan so far."""
    tables = [{"rows": 1000 * n, "dim": 64, "pooling": n} for n in range(1, 200)]
    path = _listed(tmp_path / "t.json", *tables, batch=512)
    command = [sys.executable, "-m", "perfc", "shard", path, "--target", "dgx-a100"]
    with subprocess.Popen(
        [*command, "--ranks", "16", "--full", "0", "--seconds", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "beam search" in line:
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)

    assert 0 == process.returncode
    assert "stopping with the best plan so far" in err
    assert "local" in out
