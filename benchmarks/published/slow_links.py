"""Published figures of training over slow links, and of partitions under a deadline.

    python benchmarks/published/slow_links.py FOLDER

FOLDER holds `claims.csv` (abstracts of FusionLLM, arXiv 2410.12707, and FusionAI,
2309.01172) and `partition_policies.csv` (simulated outcomes of PAC-ML's policies,
2301.13799). Nothing is fitted to them. Assumed, and printed: the sites and links of
`examples/networks/six-sites.toml`, as FusionLLM's abstract says neither them nor what
its 1.45 to 9.39 are over, so that a grid of ratios, of rates between sites and of both
of its models shows what they give over an even split without compression; and that
FusionAI's GPUs are joined at 10 Gb/s and compute in half precision, each a stage or a
part of one, four samples at a time.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from perfc.costmodels import load_target
from perfc.planning.networks import completion_s

REPOSITORY = Path(__file__).parents[2]
SITES = REPOSITORY / "examples/networks/six-sites.toml"
CARDS, CARD, PARTS = 50, "rtx-3080", 4
RIVALS = ("h100-pcie-80g", "h100-sxm-80g")
MOST = 10_000
"""Mb/s of the fastest link."""

MODELS, RATIOS, FASTER = ("gpt2", "resnet101"), (10, 100, 1000), (1, 10)
SAMPLES = ("--batch", "64", "--microbatches", "8")
WHOLE = 1e-6
"""What a number of partitions may be off a whole one."""


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def placed(network: Path, *words: str) -> dict[str, Any]:
    """Return the document of `perfc parallel` for a network."""
    command = [sys.executable, "-m", "perfc", "parallel", *words]
    command += ["--network", str(network), "--format", "json", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def score_sites(claims: list[dict[str, str]]) -> None:
    """Print the speedups of 48 GPUs over a grid, beside those of the abstract."""
    low, high = sorted(float(r["value"]) for r in claims if r["system"] == "fusionllm")
    print(f"48 GPUs on six sites (assumed): published {low} to {high}")
    found: list[float] = []
    for model, faster, ratio in product(MODELS, FASTER, RATIOS):
        with sites(faster) as path:
            words = (model, *SAMPLES, "--compress", f"topk:{ratio},adaptive")
            speedup = float(placed(path, *words)["speedup_over_even"])
        found.append(speedup)
        inside = "inside" if low <= speedup <= high else "outside"
        between = f"rates between sites x {faster}"
        print(f"  {model:10} {between:26} 1/{ratio:<5} {speedup:6.2f}  {inside}")
    within = sum(low <= speedup <= high for speedup in found)
    print(
        f"  {min(found):.2f} to {max(found):.2f}; {within} of {len(found)} inside what "
        "is published"
    )


@contextmanager
def sites(faster: float) -> Iterator[Path]:
    """Write the six sites with links between them so much faster, 10 Gb/s at most."""
    parts = SITES.read_text(encoding="utf-8").split("[[links]]\n")
    made = [parts[0].replace("mbit_per_s = 100", f"mbit_per_s = {100 * faster:g}")]
    for text in parts[1:]:
        link = tomllib.loads(text)
        between = link["a"] != link["b"]
        rate = min(MOST, link["mbit_per_s"] * (faster if between else 1))
        lines = (f'a = "{link["a"]}"', f'b = "{link["b"]}"', f"mbit_per_s = {rate:g}")
        made.append("\n".join([*lines, f"latency_ms = {link['latency_ms']:g}", ""]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sites.toml"
        path.write_text("[[links]]\n".join(made), encoding="utf-8")
        yield path


def score_cards() -> None:
    """Print peaks and throughput of 50 RTX 3080 beside 4 H100."""
    print("FusionAI: 50 RTX 3080 beside 4 H100 (published: the same)")
    for rival in RIVALS:
        peaks = [
            float(load_target(name).fields["gpu.rates_tflops.fp16"])
            for name in (CARD, rival)
        ]
        ratio = CARDS * peaks[0] / (PARTS * peaks[1])
        speeds = [_samples_per_s(CARD, CARDS), _samples_per_s(rival, PARTS)]
        throughput = speeds[0] / speeds[1]
        of_peaks = f"{throughput / ratio:.2f} of that"
        print(
            f"  {rival:14} peaks {ratio:.2f}, throughput {throughput:.2f}, {of_peaks}"
        )


def _samples_per_s(target: str, gpus: int) -> float:
    """Return the rate at which a GPT trains on so many GPUs over 10 Gb/s links."""
    nodes = "".join(
        f'[[nodes]]\nname = "n{n}"\ntarget = "{target}"\n' for n in range(gpus)
    )
    text = f"{nodes}[default]\nmbit_per_s = 10000\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cards.toml"
        path.write_text(text, encoding="utf-8")
        words = ("gpt2:layers=48", "--dtype", "amp-fp16", "--batch", "1024")
        return float(placed(path, *words, "--microbatches", "256")["samples_per_s"])


def score_partitions(rows: list[dict[str, str]]) -> None:
    """Print completion times of rows whose partitions are a whole number."""
    print("partitions: completion = sequential / partitions + communication")
    for row in rows:
        parts = float(row["partitions"])
        if abs(parts - round(parts)) > WHOLE:
            continue
        sequential_s, communication_s = (
            float(row[name]) for name in ("sequential_s", "communication_s")
        )
        predicted_s = completion_s(sequential_s, round(parts), communication_s)
        error = predicted_s / float(row["completion_s"]) - 1
        print(f"  {row['policy']:9} {parts:3.0f} {predicted_s:9.1f} s {error:+.3%}")


def main() -> None:
    """Print all of them."""
    folder = Path(sys.argv[1])
    score_partitions(rows_of(folder / "partition_policies.csv"))
    score_sites(rows_of(folder / "claims.csv"))
    score_cards()


if __name__ == "__main__":
    main()
