"""Fit what a board draws to loads that ran for seconds: `fit_power.py FOLDER`.

FOLDER has `sustained.parquet` (docs/reference/collection.md). Watts, clock and time of
each load's second half give the joules of its arithmetic or its bytes; every load is
then slowed down by what the others say, and compared with how much slower its second
half was than its first calls. A transformer's block is predicted from the sheet, with
perfc's prices: it is not fitted. What is printed stands, rounded, in the target's sheet
and in `costmodels/fitted/constants/power.toml`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from collection.tables import Field, Format, read_table, table_path
from published.llm_steps import block

import perfc
from perfc.costmodels import load_target
from perfc.costmodels.kernels import Flags
from perfc.costmodels.machine import Power, Target
from perfc.costmodels.power import held_share
from perfc.frontends.workloads.attention import Heads
from perfc.frontends.workloads.builder import Builder
from perfc.ir import DTYPES, Graph, single
from perfc.passes.precision import ConvertDtype
from perfc.tools.models import Dimensions, prepare, training_passes

_TABLE = Format(
    "perfc.sustained/1",
    (
        Field("load", "text"),
        Field("kind", "text"),
        Field("t_s", "float"),
        Field("calls", "int"),
        Field("duration_us", "float"),
        Field("sm_clock_mhz", "float"),
        Field("watts_now", "float"),
    ),
)
"""What of `sustained.parquet` is read."""

_SQUARE = 8192
_ATTENTION = 4 * 16 * 16384**2 * 128 / 2
"""Flops that a causal mask leaves of 16 heads of 16,384 tokens."""
_BACKWARD = 2.5
_STREAMED = 2 * 65536 * 4096 * 2

FLOPS: Mapping[str, float] = {
    "gemm-randn": 2 * _SQUARE**3,
    "gemm-m2048": 2 * 2048 * _SQUARE**2,
    "gemm-m512": 2 * 512 * _SQUARE**2,
    **{
        f"attention-{kernel}-{phase}": _ATTENTION * times
        for kernel in ("cudnn", "flash", "efficient")
        for phase, times in (("forward", 1.0), ("backward", _BACKWARD))
    },
    "gemm-fp32": 2 * _SQUARE**3,
}
"""Flops of a call of each load that computes; all but the last in bf16."""

BYTES: Mapping[str, float] = {
    "copy": 2 * 2**30,
    "gelu": _STREAMED,
    "layer-norm": _STREAMED,
}
"""Bytes that a call of each load moves."""

REPLAYED = ("gemm-randn", "gemm-m2048")
"""Whose first half second says what the driver leaves of the clock by then."""
_PER_PICO = 1e-12
_FIRST_S = 0.5
_FELT = 1.01
"""A slow-down that is more than noise."""


@attrs.frozen
class Load:
    """What a load did.

    Attributes:
        first_s: Seconds of one of its first calls.
        half_s: The mean of the first half second.
        late_s: The mean of its second half; watts and clock are that half's, too.
        watts: Of the board.
        clock_share: SM clock over the boost clock.

    """

    first_s: float
    half_s: float
    late_s: float
    watts: float
    clock_share: float


def loads_of(folder: Path, target: Target) -> dict[str, Load]:
    """Return the loads of a table by name; those that idle are left out.

    Raises:
        MeasurementError: there is no such table.

    """
    table = read_table(table_path(folder, "sustained"), _TABLE)
    names, kinds = (np.array(table[key]) for key in ("load", "kind"))
    at_s, calls, took_us, clock_mhz, watts = (
        np.asarray(table[field.name], dtype=np.float64) for field in _TABLE.fields[2:]
    )
    found: dict[str, Load] = {}
    for name in dict.fromkeys(names.tolist()):
        chunks = (names == name) & (kinds == "chunk")
        samples = (names == name) & (kinds == "sample")
        if not chunks.any():
            continue
        late = at_s >= at_s[samples].max() / 2

        def mean_s(rows: Flags) -> float:
            return float(np.average(took_us[rows], weights=calls[rows])) / 1e6

        clock_hz = clock_mhz[samples & late].mean() * 1e6
        found[name] = Load(
            float(took_us[chunks][:2].min()) / 1e6,
            mean_s(chunks & (at_s < _FIRST_S)),
            mean_s(chunks & late),
            float(watts[samples & late].mean()),
            float(clock_hz / target.device.sm_clock_hz),
        )
    return found


def fitted(loads: Mapping[str, Load], power: Power) -> Power:
    """Return the power of a board with what loads say of watts and joules.

    Least squares of watts: x² busy + x² joules a flop * flop/s at the boost clock, and
    joules a byte * byte/s. Loads that are missing say nothing.
    """
    computing = [name for name in FLOPS if name in loads]
    columns: list[tuple[float, float, float]] = []
    for name in computing:
        load = loads[name]
        rate = FLOPS[name] / load.late_s * load.clock_share * _PER_PICO
        fp32 = name == "gemm-fp32"
        share2 = load.clock_share**2
        columns.append((share2, 0.0 if fp32 else rate, rate if fp32 else 0.0))
    watts = [loads[name].watts - power.idle_watts for name in computing]
    solved = np.linalg.lstsq(np.array(columns), np.array(watts), rcond=None)[0]
    busy, bf16, fp32 = solved.tolist()
    rates = np.array([BYTES[name] / loads[name].late_s for name in BYTES])
    moved = np.array([loads[name].watts - power.idle_watts for name in BYTES])
    return attrs.evolve(
        power,
        busy_watts=busy,
        joules_per_flop={"bf16": bf16 * _PER_PICO, "fp32": fp32 * _PER_PICO},
        joules_per_byte=float(rates @ moved / (rates @ rates)),
    )


def slowdown_of(name: str, load: Load, power: Power) -> float:
    """Return how much longer a load takes at the cap than its first calls took."""
    mode = "fp32" if name == "gemm-fp32" else "bf16"
    watts = np.array([power.joules_per_flop[mode] * FLOPS[name] / load.first_s])
    first = held_share(watts, power)
    boost = power.busy_watts + watts / first
    late = np.sqrt((power.cap_watts - power.idle_watts) / boost)
    return float(np.maximum(first / late, 1.0)[0])


def block_us(target: Target) -> float:
    """Return perfc's report of the block's step: forward and backward."""
    heads, seq = Heads(count=32, size=128), 2048
    builder = Builder(Graph("block-7b"), DTYPES["f32"])
    x = builder.input("x", seq, heads.width)
    builder.graph.outputs.append(block(builder, x, "block", heads, seq))
    passes = training_passes("training", None, [ConvertDtype("bf16")])
    model = prepare(single(builder.graph), Dimensions(2), None, passes)
    report = perfc.analyze(model, target, runtime="cudagraph", inputs="device")
    took = {phase["phase"]: phase["time_us"] for phase in report.phases}
    return float(took["forward"] + took["backward"])


def main(argv: Sequence[str]) -> int:
    """Fit, and print what comes of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="h100-sxm-80g")
    options = parser.parse_args(argv)
    target = load_target(options.target)
    if target.power is None:
        parser.error(f"{target.name} has no idle watts, no burst and no cap")
    loads = loads_of(options.folder, target)
    power = fitted(loads, target.power)
    print(f"busy_w        {power.busy_watts:8.1f}")
    print(f"pj_per_byte   {power.joules_per_byte / _PER_PICO:8.1f}")
    for mode, joules in power.joules_per_flop.items():
        print(f"pj_per_flop.{mode} {joules / _PER_PICO:6.3f}")
    replayed = np.mean([loads[name].first_s / loads[name].half_s for name in REPLAYED])
    print(f"replays.share {replayed:8.3f}")
    print_loads(loads, power)
    load = loads["block-7b"]
    print(
        f"block-7b: {load.first_s * 1e6:,.0f} us at first, then "
        f"{load.late_s * 1e6:,.0f}, predicted {block_us(target):,.0f}"
    )
    return 0


def print_loads(loads: Mapping[str, Load], power: Power) -> None:
    """Print how much each load slows down, and what the others say of it."""
    logs: list[tuple[float, float]] = []
    for name in FLOPS:
        others = {key: load for key, load in loads.items() if key != name}
        # The one load in fp32 says alone what fp32 takes.
        left_out = power if name == "gemm-fp32" else fitted(others, power)
        measured = loads[name].late_s / loads[name].first_s
        predicted = slowdown_of(name, loads[name], left_out)
        print(f"{name:30} slower by {measured:6.3f}, predicted {predicted:6.3f}")
        if max(measured, predicted) > _FELT:
            logs.append((math.log(measured), math.log(predicted)))
    off = math.fsum((said - found) ** 2 for found, said in logs)
    spread = math.sqrt(off / math.fsum(said**2 for _, said in logs))
    print(f"slowdown.spread {spread:.2f}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
