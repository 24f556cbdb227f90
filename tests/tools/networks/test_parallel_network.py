"""`perfc parallel --network`, as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command

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
