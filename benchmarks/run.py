"""Speed of perfc: `python benchmarks/run.py [--only NAME] [--model FILE]`.

Prints, with the bar each has to stay under:

- cold: the whole process `perfc analyze MODEL --batch 2048 --target a100`,
  measured in turn with `python -c "import numpy, onnx"`;
- warm: file to report, another target, another batch, in one process;
- scale: seconds, microseconds per node and peak memory at 1k, 10k, 100k nodes;
- trace: seconds to write a trace of 100,000 slices;
- price: microseconds for one kernel, and for each row of a table (`pricing.py`).

Timings are medians; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "examples" / "models" / "dlrm_mlperf.onnx"
BATCH = 2048
MS = 1e3
OWN = {"trace": "trace.py", "price": "pricing.py"}
"""Benchmarks that are scripts of their own."""
SIZES = (1_000, 10_000, 100_000)


def main() -> int:
    """Run the benchmarks asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("cold", "warm", "scale", *OWN))
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--runs", type=int, default=15)
    args = parser.parse_args()
    ok = True
    if args.only in (None, "cold"):
        ok &= bench_cold(args.model, args.runs)
    if args.only in (None, "warm"):
        ok &= bench_warm(args.model, args.runs)
    if args.only in (None, "scale"):
        ok &= bench_scale()
    for name, script in OWN.items():
        if args.only in (None, name):
            ok &= bench_alone(script)
    return 0 if ok else 1


def _row(name: str, value: float, unit: str, bar: float) -> bool:
    verdict = "ok" if value <= bar else "MISSED"
    print(f"{name:<52} {value:10.2f} {unit:<8} bar {bar:9.2f}  {verdict}")
    return value <= bar


def _wall_s(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
    return time.perf_counter() - started


def bench_cold(model: Path, runs: int) -> bool:
    """Whole processes, measured in turn."""
    base = [sys.executable, "-c", "import numpy, onnx"]
    ours = [sys.executable, "-m", "perfc", "analyze", str(model)]
    ours += ["--batch", str(BATCH), "--target", "a100"]
    _wall_s(base), _wall_s(ours)
    pairs = [(_wall_s(base), _wall_s(ours)) for _ in range(runs)]
    base_ms = statistics.median(b for b, _ in pairs) * MS
    ours_ms = statistics.median(o for _, o in pairs) * MS
    print(f"import numpy, onnx: {base_ms:.0f} ms")
    return _row(
        "cold: perfc analyze, whole process", ours_ms, "ms", 1.5 * base_ms + 100
    )


def _median_ms(call: Callable[[int], object], runs: int) -> float:
    times: list[float] = []
    for index in range(runs + 2):
        started = time.perf_counter()
        call(index)
        times.append(time.perf_counter() - started)
    return statistics.median(times[2:]) * MS


def bench_warm(model: Path, runs: int) -> bool:
    """One process: load and analyze again, retarget, rebind."""
    import perfc  # noqa: PLC0415 - the scale benchmark runs in processes of its own
    from perfc.costmodels import load_target  # noqa: PLC0415

    targets = [load_target(name) for name in ("a100", "h100", "v100", "l4")]
    loaded = perfc.load(model, batch=BATCH)

    def whole(index: int) -> str:
        return str(perfc.analyze(perfc.load(model, batch=BATCH), "a100"))

    def retarget(index: int) -> float:
        return perfc.analyze(loaded, targets[index % len(targets)]).time_us

    def rebind(index: int) -> float:
        rebound = loaded.bind(batch=BATCH + index)
        return perfc.analyze(rebound, targets[0]).time_us

    ok = _row("warm: file to printed report", _median_ms(whole, runs), "ms", 40)
    ok &= _row("warm: another target", _median_ms(retarget, 4 * runs), "ms", 3)
    ok &= _row("warm: another batch", _median_ms(rebind, 4 * runs), "ms", 3)
    return ok


def bench_scale() -> bool:
    """Each size in a process of its own, so that peak memory is its own."""
    ok = True
    for size in SIZES:
        command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), str(size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own script
        seconds, megabytes, passes = done.stdout.strip().split(maxsplit=2)
        per_node_us = float(seconds) / size * 1e6
        print(f"scale: {size} nodes, {per_node_us:.1f} us a node: {passes}")
        if size == SIZES[-1]:
            ok &= _row(f"scale: {size} nodes", float(seconds), "s", 3.0)
            ok &= _row(f"scale: {size} nodes, peak memory", float(megabytes), "MB", 600)
    return ok


def bench_alone(script: str) -> bool:
    """Run a benchmark in a process of its own, which prints what it measures."""
    command = [sys.executable, str(ROOT / "benchmarks" / script)]
    return subprocess.run(command, check=False).returncode == 0  # noqa: S603 - our own script


if __name__ == "__main__":
    raise SystemExit(main())
