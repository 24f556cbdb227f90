"""`perfc place` as it is typed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.html_page import HtmlPage
from tests.tools.command import Command, Outcome

import perfc

SERVER = ("--target", "1s-server")
TIERS = (*SERVER, "--tiers", "dram=3GB,optane=x2")
PLAN_KEYS = {
    *("name", "time_us", "time_us_p05", "time_us_p95", "energy_j"),
    *("peak_memory_bytes", "probability_best"),
}
TABLE_KEYS = {
    *("name", "tier", "row_bytes", "lookups", "hits", "reads", "blocks_per_row"),
    "amplification",
}
TIER_KEYS = {
    *("name", "used_bytes", "reads_per_s", "read_bytes_per_s", "latency_us", "watts")
}
GB = 1e9


@pytest.fixture
def tables(tmp_path: Path) -> str:
    """Return a file of ten tables of 1 GB, of which six are of users."""
    listed = [
        {
            "name": f"t{number}",
            "rows": 8_000_000,
            "dim": 32,
            "pooling": 20,
            "popularity": "zipf(0.9)",
        }
        for number in range(10)
    ]
    path = tmp_path / "tables.json"
    path.write_text(json.dumps({"tables": listed}), "utf-8")
    return str(path)


def _json(outcome: Outcome) -> dict[str, Any]:
    assert "" == outcome.err
    assert 0 == outcome.code
    found: dict[str, Any] = outcome.report
    assert "perfc.place/1" == found["schema"]
    return found


def test_the_document(command: Command, tables: str) -> None:
    """Keys of the contract, sums that agree, and tables that all lie somewhere."""
    found = _json(
        command(
            *("place", tables, *TIERS, "--cache", "1GB", "--users", "t0-t5"),
            *("--candidates", "100", "--queries", "120", "--sla", "p99=10ms"),
            *("--objective", "power", "--compare", "dram,greedy", "-q"),
            *("--format", "json"),
        )
    )
    dram, optane = found["tiers"]
    there = [table for table in found["tables"] if table["tier"] == "optane"]

    assert found.keys() >= {"hosts", "watts", "saving", "exposed_us", "diagnostics"}
    assert all(plan.keys() >= PLAN_KEYS for plan in found["plans"])
    assert {"best", "dram", "greedy"} == {plan["name"] for plan in found["plans"]}
    assert all(table.keys() >= TABLE_KEYS for table in found["tables"])
    assert dram.keys() & optane.keys() >= TIER_KEYS
    assert ("dram", "optane") == (dram["name"], optane["name"])
    assert 10 * 8_000_000 * 128 == dram["used_bytes"] + optane["used_bytes"]
    assert dram["used_bytes"] <= 2 * GB
    assert [20.0] * 6 + [2000.0] * 4 == [each["lookups"] for each in found["tables"]]
    for table in found["tables"]:
        assert table["lookups"] == pytest.approx(table["hits"] + table["reads"])
    assert {(1.0, 4.0)} == {(t["blocks_per_row"], t["amplification"]) for t in there}
    reads = sum(table["reads"] * table["blocks_per_row"] for table in there)
    assert 120 * reads == pytest.approx(optane["reads_per_s"])
    assert optane["read_bytes_per_s"] == pytest.approx(512 * optane["reads_per_s"])
    base = next(plan for plan in found["plans"] if plan["name"] == "dram")
    assert 1 - found["watts"] / base["watts"] == pytest.approx(found["saving"])
    assert found["watts"] == pytest.approx(found["hosts"] * (220 + optane["watts"]))


@pytest.mark.parametrize(
    ("name", "hosts", "saving"),
    [("sdm-m1", 2400, 0.2), ("sdm-m2", 1500, 1 / 21), ("sdm-m3", 1, 0.293)],
)
def test_scenarios(command: Command, name: str, hosts: float, saving: float) -> None:
    """Arithmetic is exact on the inputs, each of which says where it is from."""
    found = _json(command("place", name, "-q", "--format", "json"))
    scenario = found["scenario"]

    assert hosts == found["hosts"]
    assert saving == pytest.approx(found["saving"], rel=1e-12)
    assert "recalled" in {each["source"] for each in scenario["inputs"]}
    assert all(
        each["source"].startswith(("recalled", "assumed"))
        for each in scenario["inputs"]
    )
    assert len(found["tables"]) == sum(
        each["value"] for each in scenario["inputs"] if each["name"].endswith("count")
    )


def test_a_scenario_prints_its_inputs(command: Command) -> None:
    """Recalled numbers say so beside them, and options go before them."""
    found = command("place", "sdm-m1", "-q", "--candidates", "10")

    recalled = [line for line in found.out.splitlines() if line.endswith("recalled")]

    assert any(line.startswith("base: large hosts: queries") for line in recalled)
    assert 7 < len(recalled)
    assert "20.0 % saved" in found.out
    assert "10 candidates" in found.out


@pytest.mark.parametrize("option", ["--candidates", "--batch"])
def test_all_tables_in_dram_are_an_analysis(command: Command, option: str) -> None:
    """The time is that of `perfc analyze` of such a batch, to the last bit."""
    model = "dlrm-default:tables=3,rows=1000"
    found = _json(
        command(
            *("place", model, *SERVER, "--tiers", "dram,optane", option, "64"),
            *("-q", "--format", "json"),
        )
    )
    report = perfc.analyze(model, "1s-server", batch=64)
    best = found["plans"][0]

    assert {"dram"} == {table["tier"] for table in found["tables"]}
    assert report.time_us == best["time_us"]
    assert report.interval_us == (best["time_us_p05"], best["time_us_p95"])
    assert 0 == found["exposed_us"]


def test_formats(command: Command, tables: str, tmp_path: Path) -> None:
    """Markdown, CSV and a page say what the table says."""
    asked = ("place", tables, *TIERS, "--cache", "1GB", "--compare", "none", "-q")
    text = command(*asked, "--format", "csv").out
    lines = list(csv.DictReader(io.StringIO(text)))
    page = tmp_path / "page.html"
    assert 0 == command(*asked, "--format", "html", "-o", str(page)).code
    found = HtmlPage.of(page.read_text("utf-8"))
    (chart,) = found.charts("chart")

    assert [f"t{number}" for number in range(10)] == [row["name"] for row in lines]
    assert {"best"} == {row["plan"] for row in lines}
    assert "| table | tier |" in command(*asked, "--format", "md").out
    assert "Tables under best" in command(*asked).out
    assert {f"t{number}" for number in range(10)} <= {
        row[0] for row in found.rows if row
    }
    assert 1 < len(chart["series"][1]["y"])


def test_savings_over_the_cache_are_drawn(
    command: Command, tables: str, tmp_path: Path
) -> None:
    """Where watts are known, the page has power saved over sizes of the cache."""
    page = tmp_path / "page.html"
    asked = (*TIERS, "--cache", "1GB", "-q", "--format", "html", "-o", str(page))

    assert 0 == command("place", tables, *asked).code
    assert "Power saved over the size of the cache" in page.read_text("utf-8")


def test_another_machine_is_compared(command: Command, tables: str) -> None:
    """`dram@2s-skylake` is all tables in the memory of another server."""
    found = _json(
        command(
            *("place", tables, *TIERS, "--compare", "dram@2s-skylake", "-q"),
            *("--format", "json", "--fleet", "1000"),
        )
    )
    base = next(plan for plan in found["plans"] if plan["name"] == "dram@2s-skylake")

    assert base["fits"]
    assert "2s-skylake" == base["target"]
    assert base["watts"] == 400 * base["hosts"]


def test_tables_of_devices(command: Command, tables: str) -> None:
    """A GPU's own memory comes first; its rows elsewhere cross the host link."""
    found = _json(
        command(
            *("place", tables, "--target", "zion", "--tiers", "hbm=3GB,dram"),
            *("-q", "--format", "json"),
        )
    )

    assert ["hbm", "dram"] == [tier["name"] for tier in found["tiers"]]
    assert {"hbm", "dram"} == {table["tier"] for table in found["tables"]}
    assert found["exposed_us"] > 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--tiers dram,optan", 2, "unknown tier optan; did you mean optane?"),
        ("--tiers dram=1GB", 1, "22.9 MiB are missing"),
        ("--tiers dram=0.5GB,optane=1GB", 1, "table t0: 977 MiB fit nowhere"),
        ("--tiers dram=0GB", 2, "expected a size above 0"),
        ("--tiers dram=900GB", 2, "the 96.0 GiB that 1s-server has of it"),
        ("--tiers optane=x0", 2, "expected xCOUNT from x1"),
        ("--tiers dram,dram", 2, "dram is named twice"),
        ("--tiers dram=,optane", 2, "expected NAME, NAME=SIZE or NAME=xCOUNT"),
        ("--tiers hbm", 2, "1s-server has no tier hbm"),
        (
            "--tiers dram=3GB,optane --cache 4GB",
            1,
            "a cache of 3.73 GiB: expected at most",
        ),
        ("--tiers dram=3GB,optane --cache 4Gx", 2, "--cache '4Gx': expected a size"),
        ("--tiers dram --cache 1GB", 2, "it is in front of slower tiers"),
        ("--tiers dram=3GB,optane --queries 1e6", 1, "reads a second asked for"),
        ("--tiers dram=3GB,optane --sla mean=1us", 1, "is within mean=0.001ms"),
        ("--tiers dram=3GB,optane --sla p95=1ms", 2, "expected mean=TIME or p99=TIME"),
        ("--tiers dram=3GB,cxl --sla p99=9s", 1, "tier cxl has no latency at p99"),
        ("--tiers dram=3GB,optane --users z*", 2, "no table is called so"),
        ("--tiers dram=3GB,nand --objective cost", 1, "its price is not known"),
        ("--tiers dram=3GB,optane --compare foo", 2, "unknown tier foo"),
        ("--tiers dram=3GB,optane --compare dram@foo", 2, "foo"),
        ("--tiers optane --set tiers.optane.granularity_b=0", 2, "granularity_b"),
        ("--tiers dram,optane --candidates 2 --batch 3", 2, "give one of them"),
        ("", 2, "Missing option '--tiers'"),
    ],
)
def test_refusals(
    command: Command, tables: str, tmp_path: Path, options: str, code: int, said: str
) -> None:
    """One line that says what is wrong, the right code, and no file."""
    output = tmp_path / "result.json"
    found = command("place", tables, *SERVER, *options.split(), "-q", "-o", str(output))

    assert code == found.code
    assert said in found.error
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("TABLES --target a100 --tiers hbm,optane --objective power", 1, "watts of a"),
        ("TABLES --tiers dram", 2, "Missing option '--target'"),
        ("none.toml", 2, "no scenario none.toml; there are sdm-m1, sdm-m2, sdm-m3"),
        ("dlrm-nothing --target 1s-server --tiers dram", 2, "dlrm-nothing"),
    ],
)
def test_more_refusals(
    command: Command, tables: str, arguments: str, code: int, said: str
) -> None:
    """What does not go with the server: watts nobody knows, models that are none."""
    words = [tables if word == "TABLES" else word for word in arguments.split()]
    found = command("place", *words, "-q")

    assert code == found.code
    assert said in found.error


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [[tables]]"),
        ("[[tables]]\nname = 't'\n", "expected count = { value"),
        ("[setup]\ntiers = 'dram'\n", "setup.tiers: expected tiers = { value"),
        ("tables = 3\n", "no [[tables]]"),
        ("x = [\n", "not valid TOML"),
    ],
)
def test_scenarios_of_users(
    command: Command, tmp_path: Path, text: str, said: str
) -> None:
    """A file that is no scenario ends in one line."""
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8")
    found = command("place", str(path), "-q")

    assert 1 == found.code
    assert said in found.error


def test_shard_names_the_verb_for_tiers_of_sheets(command: Command) -> None:
    """Tiers that `shard` has not, but sheets have, are told to be for `place`."""
    asked = ("shard", "dlrm-ddp", "--target", "dgx-a100", "--ranks", "4", "--tiers")
    found = command(*asked, "hbm,optane")
    other = command(*asked, "hbm,nothing")

    assert (2, 2) == (found.code, other.code)
    assert "'optane' is none of hbm" in found.error
    assert found.error.endswith("perfc place puts tables into tiers of sheets")
    assert "perfc place" not in other.error
