"""Training steps of language models that were measured: `llm_steps.py FILE`.

FILE is `llm_training_steps.csv`: MPT of 1, 7 and 30 billion parameters on A100 and H100
(FSDP, 8 to 512 GPUs; mosaicml/llm-foundry, Apache-2.0). They ran version 1 of flash
attention, whose time over version 2 is fitted to those on A100: the last lines of the
whole table score these with that factor fitted to the other models alone. Nothing else
is fitted to these steps: what a board draws, and its clock under its cap, are from one
H100 of perfc's own rows (`fit_power.py`). A step of several microbatches is one of a
single microbatch, and what that takes without the optimizer for each other: FSDP
gathers and scatters at every one.

The model is written as llm-foundry's: decoder blocks without biases, layer norms,
learned positions, fourfold MLP with GELU, fused attention, the head tied to the token
table.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

import perfc
from perfc.costmodels import load_target
from perfc.costmodels.attention.tiles import FLASH_1_TIME
from perfc.frontends.workloads.attention import Heads, attend, split_heads
from perfc.frontends.workloads.builder import I64, Builder
from perfc.ir import DTYPES, Graph, Program, Value, single
from perfc.passes import Fsdp, Pass
from perfc.passes.precision import ConvertDtype
from perfc.passes.training import CheckpointActivations, Training
from perfc.tools.models import Dimensions, parallel_passes, prepare, training_passes

sys.path.append(str(Path(__file__).parents[1]))
from published.step_errors import print_errors

SIZES = {"mpt-1b": (2048, 16, 24), "mpt-7b": (4096, 32, 32), "mpt-30b": (7168, 56, 48)}
"""Elements of a position's vector, heads, layers."""

VOCABULARY = 50_368
LONG = 4096
"""Tokens of a sequence from which on attention decides."""

MANY = 128
"""GPUs from which on steps are compared with those on more."""

_ALIKE = ("model", "system", "seq", "micro_batch", "grad_accum", "act_ckpt", "dp_kind")

OUTLIERS = {
    "mpt-020": "memory at its limit: 30b, 8 GPUs",
    "mpt-021": "memory at its limit: 30b, 8 GPUs",
    "mpt-024": "memory at its limit: 30b, 8 GPUs",
    "mpt-025": "memory at its limit: 30b, 8 GPUs",
    **{f"mpt-{n:03}": "memory at its limit: 30b, 8 GPUs" for n in range(79, 84)},
    "mpt-178": "slower than 128 GPUs of the same",
}
"""Steps that are measured, but not by what is modelled, and why."""

_ROW = "{:9}{:9}{:6}{:>6}{:>7}{:>5}{:>4}{:>7}{:>12}{:>12}{:>8}  {}"


@attrs.frozen
class Step:
    """One measured step.

    Attributes:
        row: As the file has it.
        attention: Which kernels attention runs by.

    """

    row: Mapping[str, str]
    attention: str

    @property
    def microbatches(self) -> int:
        """How many a GPU computes before the optimizer."""
        return int(self.row["grad_accum"])

    @property
    def measured_s(self) -> float:
        """Seconds of the step."""
        tokens = int(self.row["micro_batch"]) * int(self.row["seq"]) * self.microbatches
        return tokens / float(self.row["tokens_per_s_gpu"])

    @property
    def is_long(self) -> bool:
        """Whether attention decides."""
        return int(self.row["seq"]) > LONG

    def passes(self) -> Sequence[Pass]:
        """Return the passes that make a forward pass the step of one microbatch."""
        row, ranks = self.row, int(self.row["gpus"])
        fsdp = Fsdp(
            ranks=ranks,
            strategy="grad-op" if row["dp_kind"] == "fsdp-grad-op" else "full",
            param_dtype="bf16",
            reduce_dtype=row["reduce_dtype"],
        )
        casts = [ConvertDtype("bf16", autocast=True)] * (row["precision"] == "amp_bf16")
        again = [CheckpointActivations(modules="transformer.blocks.*")]
        kept = again if row["act_ckpt"] == "full" else []
        passes = [fsdp, *casts, Training(optimizer=row["optimizer"]), *kept]
        return parallel_passes(ranks, training_passes("training", None, passes))

    def predicted(self) -> perfc.Report:
        """Return the report of the step of one microbatch."""
        row = self.row
        program = build(row["model"], int(row["seq"]))
        wanted = Dimensions(int(row["micro_batch"]))
        model = prepare(program, wanted, None, self.passes())
        passes = (f"lower-kernels{{attention={self.attention}}}",)
        return perfc.analyze(model, load_target(row["system"]), passes=passes)


def build(name: str, seq: int) -> Program:
    """Return the forward pass of an MPT over token ids, [batch, seq]."""
    width, count, layers = SIZES[name]
    heads = Heads(count=count, size=width // count)
    builder = Builder(Graph(f"{name}-{seq}"), DTYPES["f32"])
    tokens = builder.input("input_ids", seq, dtype=I64)
    places = builder.integers("transformer.position_ids", range(seq), 1, seq)
    x = builder.embedding(tokens, "transformer.wte", VOCABULARY, width)
    y = builder.embedding(places, "transformer.wpe", seq, width)
    x = builder.op("add", "transformer.add", x, y)
    for layer in range(layers):
        x = block(builder, x, f"transformer.blocks.{layer}", heads, seq)
    x = builder.layer_norm(x, "transformer.norm_f", width, 1e-5)
    weight = builder.graph.value("transformer.wte.weight")
    builder.graph.outputs.append(builder.op("linear", "lm_head.linear", x, weight))
    return single(builder.graph)


def block(builder: Builder, x: Value, path: str, heads: Heads, seq: int) -> Value:
    """Return the result of a decoder block on [batch, seq, width]."""
    width, own = heads.width, f"{path}.attn"
    y = builder.layer_norm(x, f"{path}.norm_1", width, 1e-5)
    y = _linear(builder, y, f"{own}.Wqkv", width, 3 * width)
    q, k, v = (
        split_heads(builder, piece, own, heads, seq)
        for piece in builder.split(y, f"{own}.split", width, width, width)
    )
    y = attend(builder, own, (q, k, v), heads, seq, causal=True)
    y = _linear(builder, y, f"{own}.out_proj", width, width)
    x = builder.op("add", f"{path}.add", x, y)
    y = builder.layer_norm(x, f"{path}.norm_2", width, 1e-5)
    y = _linear(builder, y, f"{path}.ffn.up_proj", width, 4 * width)
    y = builder.op("gelu", f"{path}.ffn.act.gelu", y)
    y = _linear(builder, y, f"{path}.ffn.down_proj", 4 * width, width)
    return builder.op("add", f"{path}.add_1", x, y)


def _linear(builder: Builder, x: Value, path: str, inner: int, outer: int) -> Value:
    weight = builder.parameter(f"{path}.weight", outer, inner)
    return builder.op("linear", f"{path}.linear", x, weight)


def whole_s(report: perfc.Report, microbatches: int) -> float:
    """Return the seconds of a step of so many microbatches."""
    phases: dict[str, float] = {p["phase"]: p["time_us"] for p in report.phases}
    one_s, optimizer_s = report.time_us / 1e6, phases.get("optimizer", 0.0) / 1e6
    return one_s + (microbatches - 1) * (one_s - optimizer_s)


def score(steps: Iterable[Step]) -> list[float]:
    """Print every step and how far groups of them are off; return their seconds."""
    whole: list[float] = []
    print(
        _ROW.format(
            *("row", "model", "GPU", "GPUs", "seq", "mb", "acc", "ckpt"),
            *("measured", "predicted", "error", ""),
        )
    )
    groups: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for step in steps:
        row = step.row
        predicted_s = whole_s(step.predicted(), step.microbatches)
        whole.append(predicted_s)
        pair = predicted_s, step.measured_s
        chip = row["gpu"].partition("-")[0]
        length = "longer" if step.is_long else "up to 4k"
        left_out = OUTLIERS.get(row["id"], "")
        groups["left out" if left_out else f"{chip}, {length}"].append(pair)
        print(
            _ROW.format(
                *(row["id"], row["model"], chip, row["gpus"], row["seq"]),
                *(row["micro_batch"], row["grad_accum"], row["act_ckpt"]),
                f"{pair[1]:.3f} s",
                f"{pair[0]:.3f} s",
                f"{pair[0] / pair[1] - 1:+.1%}",
                left_out,
            ),
            flush=True,
        )
    for name, pairs in sorted(groups.items()):
        print_errors(name, pairs)
    return whole


def score_scaling(steps: Sequence[Step], whole: Sequence[float]) -> None:
    """Print how much longer the same step takes on more GPUs, measured and predicted.

    Of steps that differ in their GPUs alone, against the one on the fewest of `MANY`
    or more. The difference is in points of that step's time.
    """
    groups: defaultdict[tuple[str, ...], list[tuple[int, float, float]]] = defaultdict(
        list
    )
    for step, predicted_s in zip(steps, whole, strict=True):
        if int(step.row["gpus"]) >= MANY and step.row["id"] not in OUTLIERS:
            alike = tuple(step.row[name] for name in _ALIKE)
            groups[alike].append((int(step.row["gpus"]), step.measured_s, predicted_s))
    for alike, found in sorted(groups.items()):
        (few, first_s, base_s), *rest = sorted(found)
        for gpus, measured_s, predicted_s in rest:
            ratios = measured_s / first_s - 1, predicted_s / base_s - 1
            print(
                f"{alike[0]} on {alike[1]}, {few} to {gpus} GPUs: measured "
                f"{ratios[0]:+.1%}, predicted {ratios[1]:+.1%}, off by "
                f"{100 * (ratios[1] - ratios[0]):+.1f} points"
            )


def _median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the weighted median: errors linear in a factor sum to the least there."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


@attrs.frozen(eq=False)
class HeldOut:
    """Steps on A100, each by the factor that is fitted to the other models.

    Attributes:
        steps: Which.
        predicted_s: Shape (steps,).
        factors: The factor without each model.

    """

    steps: Sequence[Step]
    predicted_s: NDArray[np.float64]
    factors: Mapping[str, float]


def held_out(steps: Sequence[Step], first_s: Sequence[float]) -> HeldOut:
    """Return steps on A100 with their model left out of the factor's fit.

    A step is linear in the time of the first version over the second, so what it
    takes by both says what it takes at any factor.

    Args:
        steps: Steps that run the first version; those on other GPUs are not used.
        first_s: What they take by the factor that perfc ships.

    """
    fitted = [
        (step, first)
        for step, first in zip(steps, first_s, strict=True)
        if step.row["gpu"].startswith("a100") and step.row["id"] not in OUTLIERS
    ]
    second = [attrs.evolve(step, attention="flash-2") for step, _ in fitted]
    base = np.array([whole_s(one.predicted(), one.microbatches) for one in second])
    slope = (np.array([first for _, first in fitted]) - base) / (FLASH_1_TIME - 1)
    measured = np.array([step.measured_s for step, _ in fitted])
    models = np.array([step.row["model"] for step, _ in fitted])
    right = 1 + (measured - base) / slope
    whole = np.zeros_like(base)
    factors: dict[str, float] = {}
    for model in sorted(set(models)):
        own = models == model
        factors[model] = _median(right[~own], (slope / measured)[~own])
        whole[own] = (base + slope * (factors[model] - 1))[own]
    return HeldOut([step for step, _ in fitted], whole, factors)


def score_left_out(steps: Sequence[Step], first_s: Sequence[float]) -> None:
    """Print the errors on A100 with a model left out of the factor's fit."""
    found = held_out(steps, first_s)
    for model, factor in found.factors.items():
        print(f"A100 without {model}: factor {factor:.3f}")
    measured = np.array([step.measured_s for step in found.steps])
    longer = np.array([step.is_long for step in found.steps])
    for name, part in (("up to 4k", ~longer), ("longer", longer)):
        pairs = list(zip(found.predicted_s[part], measured[part], strict=True))
        print_errors(f"held out, {name}", pairs)


def main(argv: Sequence[str]) -> int:
    """Score the steps of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="Part of a row's id or model.")
    parser.add_argument("--attention", default="flash-1", help="Its kernels.")
    options = parser.parse_args(argv)
    with options.file.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] in SIZES]
    steps = [
        Step(row, options.attention)
        for row in rows
        if row["precision"] != "amp_fp8"
        and (options.only in row["id"] or options.only in row["model"])
    ]
    whole = score(steps)
    score_scaling(steps, whole)
    if options.attention == "flash-1" and not options.only:
        score_left_out(steps, whole)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
