"""`perfc parallel --network`, as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command

import perfc
from perfc.passes import PipelineParallel
from perfc.passes.graphs import typed
from perfc.passes.parallel import Compress

_SIX_SITES = "examples/networks/six-sites.toml"
_MODEL = "gpt2:layers=4"


def _network(folder: Path, names: str, rate: str, target: str = "t4") -> str:
    nodes = [f'[[nodes]]\nname = "{name}"\ntarget = "{target}"\n' for name in names]
    path = folder / "lab.toml"
    path.write_text("".join(nodes) + f"[default]\nmbit_per_s = {rate}\n")
    return str(path)


def _asked(command: Command, network: str, *words: str) -> dict[str, Any]:
    always = ("--batch", "4", "--microbatches", "4", "--format", "json", "-q")
    report: dict[str, Any] = command(
        "parallel", "gpt2", "--network", network, *always, *words
    ).report
    return report


def test_an_activation_of_gpt2(command: Command, tmp_path: Path) -> None:
    """It takes 3.146 s over 8 Mb/s, and 62.9 ms if one value in 100 is sent."""
    network = _network(tmp_path, "ab", "8")

    whole = _asked(command, network)
    kept = _asked(command, network, "--compress", "topk:100")

    assert [s["node"] for s in whole["stages"]] == ["a", "b"]
    assert whole["stages"][0]["link_us"] == pytest.approx(3.146e6, rel=2e-4)
    assert kept["stages"][0]["link_us"] == pytest.approx(62.9e3, rel=1e-3)
    assert kept["stages"][0]["ratio"] == 100
    assert kept["step_us"] < whole["step_us"]


def test_inference_is_the_formula(command: Command, tmp_path: Path) -> None:
    """All stages and links once, and the slowest for each microbatch behind."""
    network = _network(tmp_path, "abc", "800")

    found = _asked(command, network, "--mode", "inference")

    parts = [s["time_us"] for s in found["stages"]]
    parts += [s["link_us"] for s in found["stages"][:-1]]
    expected = sum(parts) + 3 * max(parts)
    assert found["step_us"] == pytest.approx(expected, rel=1e-9)
    assert 0 <= found["bubble"] < 1


def test_one_gpu_is_the_analysis(command: Command, tmp_path: Path) -> None:
    """A network of one node takes what one GPU takes."""
    network = _network(tmp_path, "a", "8")
    words = ("--batch", "2", "--format", "json")

    found = command("parallel", "gpt2", "--network", network, *words, "-q").report
    alone = command("analyze", "gpt2", "--mode", "training", "--target", "t4", *words)

    expected = alone.report["summary"]["time_us"]
    assert found["step_us"] == pytest.approx(expected, rel=1e-9)


def test_fast_equal_nodes_are_a_pipeline(command: Command, tmp_path: Path) -> None:
    """It is that of `pipeline-parallel` on a machine of such GPUs."""
    network = _network(tmp_path, "abcd", "3600000", "h100")
    words = ("--batch", "32", "--format", "json", "-q")

    found = command(
        "parallel", "gpt2", "--network", network, "--microbatches", "8", *words
    ).report
    strategy = ("--ranks", "4", "--strategy", "pp:4 mb:8 gpipe")
    today = command("parallel", "gpt2", "--target", "dgx-h100", *strategy, *words)

    expected = today.report["strategies"][0]["step_us"]
    assert found["step_us"] == pytest.approx(expected, rel=0.03)


def test_a_ratio_of_one_changes_nothing(command: Command, tmp_path: Path) -> None:
    """All times are equal to the last bit."""
    network = _network(tmp_path, "ab", "100")

    plain, same = (
        _asked(command, network, *more) for more in ((), ("--compress", "topk:1"))
    )

    assert plain["stages"] == same["stages"]
    assert plain["step_us"] == same["step_us"]


@pytest.mark.parametrize(
    "compress", [{"kind": "topk", "ratio": 50}, {"kind": "int8"}, {"kind": "fp16"}]
)
def test_the_pass_sends_what_the_verb_counts(
    command: Command, tmp_path: Path, compress: dict[str, Any]
) -> None:
    """As many bytes of a microbatch, each way, and as many messages."""
    network = _network(tmp_path, "ab", "80\nlatency_ms = 7")
    text = f"topk:{compress['ratio']}" if "ratio" in compress else compress["kind"]

    found = _asked(command, network, "--compress", text)
    model = perfc.load(
        "gpt2",
        batch=4,
        mode="training",
        transforms=[PipelineParallel(2, 4), Compress(**compress)],
    )

    graphs = [rank.ops for rank in model.program.classes if rank.ops is not None]
    sends = [[node for node in graph if node.op == "send"] for graph in graphs]
    assert [4, 4] == [len(each) for each in sends]
    for key, each in zip(("link_us", "backward_link_us"), sends, strict=True):
        (type_,) = {typed(node.operands[0]) for node in each}
        expected_us = 7e3 + type_.bind({"batch": 4}).nbytes / 10
        assert found["stages"][0][key] == pytest.approx(expected_us, rel=1e-4)


def test_energy_is_that_of_the_gpus_in_use(command: Command, tmp_path: Path) -> None:
    """Of one it is the analysis's; waiting draws what idle boards do."""
    words = ("--batch", "2", "--format", "json")
    alone = command("analyze", "gpt2", "--mode", "training", "--target", "h100", *words)
    expected_j = alone.report["summary"]["energy_j"]

    def joules(names: str, rate: str, target: str = "h100") -> float | None:
        network = _network(tmp_path, names, rate, target)
        always = ("--microbatches", str(len(names)), *words, "-q")
        asked = ("parallel", "gpt2", "--network", network, *always)
        found: float | None = command(*asked).report["plans"][0]["energy_j"]
        return found

    one, fast, slow = joules("a", "8"), joules("ab", "1e6"), joules("ab", "800")
    assert one == pytest.approx(expected_j, rel=1e-9)
    assert fast is not None
    assert slow is not None
    assert fast < slow
    assert joules("ab", "1e6", "t4") is None


def test_probabilities_of_plans(command: Command, tmp_path: Path) -> None:
    """One of those that fit is the fastest; equal plans share; links are exact."""
    network = _network(tmp_path, "ab", "8")

    plans = _asked(command, network, "--compare", "even,bandwidth")["plans"]

    chances = {plan["name"]: plan["probability_best"] for plan in plans}
    assert sum(chances.values()) == pytest.approx(1.0)
    assert chances["even"] == chances["bandwidth"]
    assert chances["placed"] >= chances["even"]


def test_within_is_held_to_what_is_printed(command: Command, tmp_path: Path) -> None:
    """Ratios that adapt make a step longer than one ratio does: so it is judged."""
    network = _network(tmp_path, "abc", "100")
    adapts = ("--compress", "topk:20,adaptive")
    least = _asked(command, network, *adapts)["plans"]
    limit_us = min(plan["time_us"] for plan in least) * 1.001

    found = _asked(command, network, *adapts, "--within", f"{limit_us:.0f}us")

    assert found["step_us"] <= limit_us
    assert found["within_us"] == pytest.approx(limit_us, rel=1e-6)


@pytest.mark.parametrize("compress", ["topk:10,adaptive", "topk:20,adaptive"])
def test_48_gpus_between_8_mbit_and_10_gbit(command: Command, compress: str) -> None:
    """Speedups lie within those that FusionLLM's abstract has: 1.45 to 9.39."""
    words = ("--batch", "64", "--microbatches", "8", "--compress", compress, "-q")

    found = command(
        "parallel", "gpt2", "--network", _SIX_SITES, *words, "--format", "json"
    ).report

    assert found["ranks"] == 48
    assert 1.45 <= found["speedup_over_even"] <= 9.39
    assert any("one message at a time" in d["message"] for d in found["diagnostics"])


def test_within_takes_the_fewest(command: Command, tmp_path: Path) -> None:
    """With more time fewer GPUs do."""
    network = _network(tmp_path, "abcd", "10000")

    slow = _asked(command, network, "--within", "1h")
    fast = _asked(command, network, "--within", f"{slow['step_us'] * 0.7:.0f}us")

    assert slow["ranks"] == 1
    assert fast["ranks"] > 1
    assert fast["step_us"] <= slow["step_us"] * 0.7
    assert fast["samples_per_s_per_gpu"] > 0


def test_within_without_a_network(command: Command) -> None:
    """Numbers of GPUs are tried from the fewest on."""
    words = ("parallel", _MODEL, "--target", "dgx-h100", "--batch", "16", "-q")
    asked = (*words, "--strategy", "dp", "--format", "json")
    one = command(*asked, "--ranks", "1").report["strategies"][0]["step_us"]

    found = command(*asked, "--within", f"{one * 0.8:.0f}us", "--ranks", "8").report

    assert found["ranks"] in (2, 4, 8)
    assert found["step_us"] <= one * 0.8
    outcome = command(*asked, "--within", "1us", "--ranks", "2")
    assert outcome.code == 1
    assert "no step on up to 2 GPUs ends in time" in outcome.error


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("--compress", "topk:0"), 2, "expected topk:R"),
        (("--compare", "odd"), 2, "--compare odd: expected even, bandwidth"),
        (("--ranks", "4"), 2, "--ranks does not go with --network"),
        (("--microbatches", "3"), 2, "--batch 4 does not divide into 3 microbatches"),
        (("--within", "5"), 2, "expected a time above 0 with its unit"),
        (("--within", "1us"), 1, "no step ends within"),
        (("--batch", "4096", "--microbatches", "1"), 1, "do not fit in the memory"),
    ],
)
def test_what_cannot_be(
    command: Command, tmp_path: Path, words: tuple[str, ...], code: int, problem: str
) -> None:
    """It is one line."""
    network = _network(tmp_path, "ab", "100")

    outcome = command("parallel", "gpt2", "--network", network, "--batch", "4", *words)

    assert (code, "") == (outcome.code, outcome.out)
    assert problem in outcome.error


def test_options_of_networks_need_one(command: Command) -> None:
    """`--compress` without `--network` is refused, and so is neither of all."""
    words = ("parallel", "gpt2", "--target", "dgx-h100", "--batch", "8")

    assert "goes with --network" in command(*words, "--compress", "fp16").error
    assert "give --ranks N" in command(*words).error
