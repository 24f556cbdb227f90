"""`perfc parallel` by perfc's own pipeline, as it is typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command

from perfc.costmodels import load_target
from perfc.tools.strategies.pricer import Pricer

GPT = "gpt2:layers=2,hidden=64,heads=4,seq=16,vocab=101"
WIDE = "gpt2:layers=2,hidden=512,heads=8,seq=16,vocab=101"
DLRM = "dlrm-ddp:tables=4,rows=20000"
DGX = ("--target", "dgx-a100")
AMP = ("--dtype", "amp-bf16", "--optimizer", "adamw")
AGAIN = ("--pass", "checkpoint-activations{modules=transformer.h.*}")
MONEY = ("--price", "3.6")
FOUR = (*DGX, "--ranks", "4", "--batch", "16")

FIXED = """
program @fixed {
  ranks [0] {
    graph @fixed(%x: f32[8,64], param %w: f32[128,64], param %v: f32[64,128]) {
      %a = linear(%x, %w) : ?
      %b = relu(%a) : ?
      %c = linear(%b, %v) : ?
      return %c
    }
  }
}
"""


def _compared(command: Command, *arguments: str) -> dict[str, Any]:
    report: dict[str, Any] = command("parallel", *arguments, "--format", "json").report
    assert "perfc.parallel/1" == report["schema"]
    return report


def _rows(command: Command, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return strategies by name, in their order."""
    report = _compared(command, *arguments)
    return {row["strategy"]: row for row in report["strategies"]}


def _first(command: Command, *arguments: str) -> str:
    return next(iter(_rows(command, *arguments)))


@pytest.mark.parametrize(
    ("objective", "asked"),
    [
        ("memory", (GPT, *FOUR, "--runtime", "cudagraph", "--microbatches", "2,4")),
        ("throughput", (GPT, *FOUR, "--mode", "inference")),
        (
            "throughput",
            (GPT, *FOUR, *AMP, "--memory", "0.0045", "--microbatches", "4"),
        ),
        (
            "throughput",
            (GPT, *FOUR, "--runtime", "compiled", "--microbatches", "2"),
        ),
        ("price", (DLRM, *DGX, "--ranks", "4", "--batch", "512", *MONEY)),
    ],
)
def test_the_fast_search_finds_the_best(
    command: Command, objective: str, asked: tuple[str, ...]
) -> None:
    """What it prices costs the same, and the first is the first of all."""
    fast, every = (
        _compared(command, *asked, "--objective", objective, "--search", method)
        for method in ("fast", "all")
    )

    assert every["strategies"][0] == fast["strategies"][0]
    assert not every["not_priced"]
    rows = {row["strategy"]: row for row in every["strategies"]}
    refused = {one["strategy"] for one in every["refused"]}
    assert all(rows[row["strategy"]] == row for row in fast["strategies"])
    left = {one["strategy"]: one for one in fast["not_priced"]}
    for name, one in left.items():
        if name not in refused:
            assert rows[name]["step_us"] >= one["step_us_at_least"]
            assert rows[name]["peak_memory_bytes"] >= one["memory_bytes_at_least"]
    priced = {row["strategy"] for row in fast["strategies"]}
    assert rows.keys() | refused == priced | left.keys() | {
        one["strategy"] for one in fast["refused"]
    }


@pytest.mark.parametrize(
    ("model", "strategy", "options"),
    [
        (GPT, "fsdp-grad-op:2 tp:2", AMP),
        (GPT, "tp:2 pp:2 mb:2 gpipe", ("--set", "host.speed=2")),
        (DLRM, "dense=fsdp:4 emb=row-wise", ("--runtime", "compiled")),
        (DLRM, "dense=dp:4 emb=dp", ("--inputs", "device", "--mode", "inference")),
        (GPT, "dp:2 pp:2 mb:2 1f1b", (*AGAIN, "--pass", "faster-host{times=2}")),
        (GPT, "dp:2 pp:2 mb:4 interleaved:3", AMP),
        (GPT, "fsdp:4", (*AGAIN, "--pass", "data-parallel{bucket-mb=1}")),
        (GPT, "fsdp:4 mb:2", AGAIN),
        (GPT, "dp:2 tp:2 mb:8", (*AMP, "--accumulate", "8")),
    ],
)
def test_analyze_says_the_same(
    command: Command, model: str, strategy: str, options: tuple[str, ...]
) -> None:
    """The command under the table takes as long, and as much memory."""
    asked = (model, *FOUR, *options, "--strategy", strategy)
    (row,) = _rows(command, *asked).values()

    text = command("parallel", *asked).out
    shown = text[text.index("perfc analyze") :].splitlines()[0]
    report = command(*shlex.split(shown)[1:], "--format", "json").report

    assert strategy == row["strategy"]
    assert row["step_us"] == report["summary"]["time_us"]
    assert row["step_us_p95"] == report["summary"]["time_us_p95"]
    assert row["exposed_comm_us"] == report["summary"]["exposed_comm_us"]
    assert row["peak_memory_bytes"] == report["memory"]["peak_bytes"]
    assert 4 == row["ranks"] == sum(len(rank["ranks"]) for rank in report["ranks"])
    assert all(text in shown for text in row["passes"])


def test_the_price_of_the_sheet(command: Command) -> None:
    """Without a price a GPU costs what its sheet says; two options say another."""
    price = load_target("dgx-a100").usd_per_hour
    asked = (GPT, *FOUR, "--strategy", "dp:4")
    usual, given, older = (
        command("parallel", *asked, *more, "--format", "json").report
        for more in ((), MONEY, ("--price-per-hour", "3.6"))
    )

    assert given == older
    assert (price, 3.6) == (usual["usd_per_gpu_hour"], given["usd_per_gpu_hour"])
    cheap, dear = (
        report["strategies"][0]["usd_per_million_samples"] for report in (given, usual)
    )
    assert price is not None
    assert dear * 3.6 == pytest.approx(cheap * price, rel=1e-12)


def test_a_row_adds_up(command: Command) -> None:
    """Samples a second, the interval, money and the share of the bubble."""
    few = ("--microbatches", "2,8")
    rows = _rows(command, GPT, *FOUR, *MONEY, *few, "--search", "all")

    for row in rows.values():
        step_s = row["step_us"] / 1e6
        assert 16 == row["batch"]
        assert 16 / step_s == pytest.approx(row["samples_per_s"])
        assert row["step_us_p05"] <= row["step_us"] <= row["step_us_p95"]
        assert 4 * step_s * 1000 / 16 == pytest.approx(row["usd_per_million_samples"])
        assert row["fits"]
        staged = "pp:" in row["strategy"]
        assert staged == (row["bubble_us"] > 0)
        assert row["bubble_us"] < row["step_us"]
        assert row["bound"] in {*row["bound_shares"], "bubble"}


def test_a_longer_pipeline_waits_more(command: Command) -> None:
    """The bubble falls with microbatches, and grows with stages."""
    texts = ("pp:2 mb:2 1f1b", "pp:2 mb:8 1f1b", "pp:4 mb:2 1f1b", "dp:4")
    given = [word for text in texts for word in ("--strategy", text)]
    model = "gpt2:layers=8,hidden=64,heads=4,seq=16,vocab=101"
    rows = _rows(command, model, *FOUR, *given, "--runtime", "cudagraph")

    share = {
        name.removeprefix("dp:2 "): row["bubble_us"] / row["step_us"]
        for name, row in rows.items()
    }

    few, many, long, none = (share[text] for text in texts)
    assert many < few < long
    assert 0 == none


def test_shares_take_less_memory(command: Command) -> None:
    """Of a model whose parameters are most of it."""
    texts = ("dp:4", "fsdp:4", "fsdp-grad-op:4", "tp:4", "pp:4 mb:1")
    given = [word for text in texts for word in ("--strategy", text)]
    asked = (WIDE, *DGX, "--ranks", "4", "--batch", "4", "--optimizer", "adamw")

    rows = _rows(command, *asked, *given)

    weights = {name.split(":")[0]: row["weight_bytes"] for name, row in rows.items()}
    peaks = {name.split(":")[0]: row["peak_memory_bytes"] for name, row in rows.items()}
    assert 5 == len(peaks)
    for name in ("fsdp", "fsdp-grad-op"):
        assert weights[name] == pytest.approx(weights["dp"] / 4, rel=0.01)
    for name in ("fsdp", "tp", "pp"):
        assert weights[name] < 0.6 * weights["dp"]
        assert peaks[name] < 0.6 * peaks["dp"]
    assert peaks["fsdp"] <= peaks["fsdp-grad-op"] < peaks["dp"]


def test_what_does_not_fit_is_shared(command: Command) -> None:
    """Replicas lack memory, and are at the end with how much."""
    asked = (WIDE, *DGX, "--ranks", "4", "--batch", "4", "--optimizer", "adamw")
    limit = ("--memory", "0.08", "--search", "all")

    report = _compared(command, *asked, *limit)

    rows = report["strategies"]
    assert rows[0]["fits"]
    alone = next(row for row in rows if row["strategy"] == "dp:4")
    assert not alone["fits"]
    assert 0.08e9 == report["memory_limit_bytes"]
    assert alone["peak_memory_bytes"] - 0.08e9 == alone["missing_bytes"] > 0
    lacking = [row["missing_bytes"] for row in rows]
    assert sorted(lacking) == lacking
    text = command("parallel", *asked, *limit).out
    assert "Too much for 76.3 MiB, by\nmissing" in text


def test_nothing_fits(command: Command) -> None:
    """Then there is no first one."""
    asked = (WIDE, *FOUR, "--memory", "0.0001")
    outcome = command("parallel", *asked, "--strategy", "dp", "--strategy", "fsdp")

    assert 0 == outcome.code
    assert "Nothing fits in 97.7 KiB of memory of a GPU." in outcome.out
    assert "The first in full" not in outcome.out


def test_objectives_change_the_ranking(command: Command) -> None:
    """More GPUs are faster, one is cheaper, and stages take least memory."""
    few = (*MONEY, "--microbatches", "2")
    asked = (GPT, *DGX, "--ranks", "1,4", "--batch", "4096", *few)

    fastest, cheapest, smallest = (
        _first(command, *asked, "--objective", name)
        for name in ("throughput", "price", "memory")
    )

    assert "dp:1" == cheapest
    assert fastest in {"dp:4", "fsdp:4", "fsdp-grad-op:4"}
    assert smallest not in {cheapest, fastest}


def test_sizes_are_compared(command: Command) -> None:
    """A strategy goes to the numbers of GPUs that it is for."""
    texts = ("--strategy", "fsdp", "--strategy", "dp:2")
    rows = _rows(command, GPT, *DGX, "--ranks", "2,4", "--batch", "16", *texts)

    assert {"fsdp:2": 2, "fsdp:4": 4, "dp:2": 2} == {
        name: row["ranks"] for name, row in rows.items()
    }
    text = command("parallel", GPT, *DGX, "--ranks", "2,4", "--batch", "16", *texts).out
    assert "on 2 or 4 GPUs of dgx-a100" in text
    assert "GPUs" in text.splitlines()[2]


def test_what_passes_refuse_is_named(command: Command) -> None:
    """With their reasons; heads that do not divide, stages that share parameters."""
    asked = (GPT, *DGX, "--ranks", "8", "--batch", "16")
    report = _compared(command, *asked)

    refused = {one["strategy"]: one["reason"] for one in report["refused"]}
    assert "do not divide by 8 ranks of tensor-parallel" in refused["tp:8"]
    assert "fsdp comes before" in refused["fsdp:4 pp:2"]
    text = command("parallel", *asked).out
    assert "Cannot be\n" in text
    assert "do not divide by 8 ranks" in " ".join(text.split())


def test_classes_of_layers(command: Command) -> None:
    """Tables go their way, other layers theirs, and perfc's passes do both."""
    texts = ("mlp=ddp emb=table-wise", "dense=fsdp emb=row-wise")
    given = [word for text in texts for word in ("--strategy", text)]
    rows = _rows(command, DLRM, *DGX, "--ranks", "4", "--batch", "512", *given)

    assert {
        "dense=dp:4 emb=table-wise": ["shard-embeddings{ranks=4,per-node=4}"],
        "dense=fsdp:4 emb=row-wise": [
            "shard-embeddings{ranks=4,plan=row-wise,per-node=4}",
            "fsdp{ranks=4}",
        ],
    } == {name: row["passes"] for name, row in rows.items()}


def test_passes_for_every_strategy(command: Command) -> None:
    """Activations that are computed again take less memory, and time."""
    asked = (GPT, *DGX, "--ranks", "4", "--batch", "1024", "--runtime", "cudagraph")
    given = ("--strategy", "dp", "--strategy", "tp", "--strategy", "pp:2 mb:2 1f1b")

    kept = _rows(command, *asked, *given)
    again = _rows(command, *asked, *given, *AGAIN)

    assert kept.keys() == again.keys()
    for name, row in kept.items():
        assert again[name]["peak_memory_bytes"] < row["peak_memory_bytes"]
        assert again[name]["step_us"] > row["step_us"]


def test_progress_is_told(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a log now and then, and not with -q."""
    monkeypatch.setattr("perfc.tools.progress._EVERY_S", -1.0)
    asked = ("parallel", GPT, *DGX, "--ranks", "2", "--batch", "2")

    said = command(*asked, "--search", "all").err.splitlines()

    assert re.match(r"perfc: 1 of \d+ strategies priced", said[0])
    assert len(said) > 1
    assert "" == command(*asked, "-q").err


def test_given_ones_join_a_search(command: Command) -> None:
    """They are priced whatever the bounds say, once."""
    slow = "pp:4 mb:16 gpipe"
    found = _rows(command, GPT, *FOUR, "--strategy", slow, "--search")

    assert slow in found
    assert slow != next(iter(found))
    assert slow not in _rows(command, GPT, *FOUR)


def test_a_model_with_a_batch_of_its_own(command: Command, tmp_path: Path) -> None:
    """Every replica has it; samples a second compare what steps do not."""
    model = tmp_path / "fixed.perfc"
    model.write_text(FIXED)
    asked = (str(model), *DGX, "--ranks", "4", "--mode", "inference")

    report = _compared(command, *asked, "--search", "all")

    batches = {row["strategy"]: row["batch"] for row in report["strategies"]}
    assert (32, 16, 8) == (batches["dp:4"], batches["dp:2 tp:2"], batches["tp:4"])
    assert "dp:4" == report["strategies"][0]["strategy"]
    assert report["batch"] is None
    shared = _compared(command, *asked, "--batch", "16", "--search", "all")
    assert {16} == {row["batch"] for row in shared["strategies"]}
    outcome = command("parallel", *asked, "--batch", "12")
    assert "fixes 8 samples of a replica; expected a multiple of 8" in outcome.error


def test_a_function_that_makes_a_model(command: Command, tmp_path: Path) -> None:
    """Its training step is PyTorch's own: replicas share nothing of it."""
    pytest.importorskip("torch")
    source = tmp_path / "factory.py"
    source.write_text(
        "import torch\n\n\n"
        "def make():\n"
        "    layers = [torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)]\n"
        "    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])\n"
        "    return model, (torch.ones(4, 16),)\n"
    )
    asked = (f"{source}:make", *DGX, "--ranks", "2")

    training = _compared(command, *asked, "--search", "all")
    inference = _compared(command, *asked, "--mode", "inference", "--search", "all")

    assert "dp:2" in {row["strategy"] for row in training["strategies"]}
    assert all(row["batch"] in {4, 8} for row in training["strategies"])
    reasons = {one["strategy"]: one["reason"] for one in training["refused"]}
    assert "PyTorch's own backward pass" in reasons["fsdp:2"]
    assert "tp:2" in {row["strategy"] for row in inference["strategies"]}


def test_an_interrupt_shows_what_there_is(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are priced, a remark, and the exit code of an interrupt."""
    price, asked = Pricer.price, [0]

    def interrupted(self: Pricer, strategy: Any) -> Any:
        asked[0] += 1
        if asked[0] > 2:
            raise KeyboardInterrupt
        return price(self, strategy)

    monkeypatch.setattr(Pricer, "price", interrupted)
    outcome = command("parallel", GPT, *FOUR, "--search", "all")

    assert 130 == outcome.code
    assert "Interrupted: this is what has been priced so far." in outcome.out
    assert "interrupted: " in outcome.out
    outcome = command("parallel", GPT, *FOUR, "--search", "all", "--format", "json")
    assert (130, "") == (outcome.code, outcome.out)
    assert "interrupted" == outcome.error


def test_a_limit(command: Command) -> None:
    """No more than so many are priced."""
    report = _compared(command, GPT, *FOUR, "--search", "all", "--limit", "2")

    assert 2 == len(report["strategies"])
    assert {"--limit is reached"} == {one["reason"] for one in report["not_priced"]}


def test_the_table(command: Command, tmp_path: Path) -> None:
    """A title, a row a strategy, and the file is the same."""
    out = tmp_path / "table.txt"
    asked = (
        "parallel",
        GPT,
        *FOUR,
        "--strategy",
        "dp",
        "--strategy",
        "pp:2 mb:2 gpipe",
    )

    outcome = command(*asked)
    assert 0 == command(*asked, "-o", str(out)).code

    assert outcome.out == out.read_text()
    title, _, header, *rows = outcome.out.splitlines()
    assert title.startswith("gpt2: training step of 16 samples on 4 GPUs of dgx-a100")
    assert header.split()[:2] == ["strategy", "step"]
    assert header.split()[-3:] == ["bubble", "bound", "by"]
    assert 2 == sum(row.startswith("dp:") for row in rows)
