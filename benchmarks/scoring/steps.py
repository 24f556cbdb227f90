"""Whole steps that others published, and those of perfc's own rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from collection.calls import calls_of
from collection.collected import Collected, read_collected
from collection.plan import planned
from collection.predicted import Predictions
from collection.predictions import predict_all
from collection.score import ACTIVE, KERNELS, STEPS, Pair, pairs_of
from published import lin_steps, llm_steps, megatron_steps, torchrec_steps
from published.whole_steps import (
    WholeStep,
    language_models,
    lin_iterations,
    transformers,
)

from perfc.tools.replay import replay_joint
from scoring.group import Group

OWN_ROWS = Path(__file__).parents[1] / "rows"

WHOLE = "whole step"

FITTED = {"DLRM", "eager"}
"""Steps that the speed of the host `server-2023` is fitted to."""


def of_lin_iterations(data: Path) -> Iterator[Group]:
    """Yield training iterations of DLRM and CNNs on a V100 (Lin et al.)."""
    steps = list(lin_iterations(data / "end_to_end"))
    yield group_of("DLRM, V100", [step for step in steps if step.kind == "DLRM"])
    cnns = [step for step in steps if step.kind == "CNN"]
    yield group_of("CNNs, V100", cnns)
    kept = [
        s for s in cnns if (s.row["model"], s.row["batch_size"]) != lin_steps.DOUBTED
    ]
    yield group_of("CNNs, V100, without a doubted row", kept)


def of_transformers(data: Path) -> Iterator[Group]:
    """Yield whole transformers in fp32 (NeuSight), by GPU and mode."""
    steps = list(transformers(data / "end_to_end"))
    yield group_of("transformers fp32", steps)
    clean = [step for step in steps if step.row["label_clean"] == "True"]
    yield group_of("transformers fp32, clean labels", clean)
    modes = {"inf": "inference", "train": "training"}
    names = [f"{s.row['target']}, {modes[s.row['mode']]}" for s in steps]
    for name in sorted(set(names)):
        mine = [s for s, other in zip(steps, names, strict=True) if other == name]
        yield group_of(f"transformers fp32, {name}", mine)


def of_language_models(data: Path) -> Iterator[Group]:
    """Yield steps of MPT; those on A100 by a factor fitted to the other models."""
    found = list(language_models(data / "end_to_end"))
    steps = [s for s in found if s.row["id"] not in llm_steps.OUTLIERS]
    asked = [llm_steps.Step(step.row, "flash-1") for step in steps]
    held = llm_steps.held_out(asked, [step.time_us * 1e-6 for step in steps])
    seconds = {
        step.row["id"]: float(predicted_s)
        for step, predicted_s in zip(held.steps, held.predicted_s, strict=True)
    }
    for long, text in ((False, "up to 4,096 tokens"), (True, "longer")):
        mine = [
            step for step, one in zip(steps, asked, strict=True) if one.is_long == long
        ]
        h100 = [step for step in mine if step.row["id"] not in seconds]
        yield group_of(f"MPT on H100, {text}", h100)
        apart = [
            _at(step, seconds[step.row["id"]]) for step in mine if step not in h100
        ]
        yield group_of(f"MPT on A100, {text}", apart, kind="model")
    others = [step for step in found if step not in steps]
    yield group_of("MPT, steps at the limit of memory", others)


def _at(step: WholeStep, seconds: float) -> WholeStep:
    """Return a step that is predicted to take so long, as uncertain as it is."""
    factor = seconds * 1e6 / step.time_us
    ends = (factor * us for us in (step.low_us, step.time_us, step.high_us))
    return WholeStep(step.kind, step.row, step.measured_us, *ends)


def of_megatron(data: Path) -> Iterator[Group]:
    """Yield steps of GPT by Megatron-LM, each hidden size by the other one."""
    path = data / "end_to_end" / "llm_training_steps.csv"
    steps = megatron_steps.read_steps(path)
    machines = megatron_steps.machines_without(steps)
    groups = megatron_steps.pairs_by_group(steps, machines)
    every = [pair for pairs in groups.values() for pair in pairs]
    megatron = "Megatron-LM, A100"
    yield Group.of_pairs("model", megatron, every)
    for name, pairs in groups.items():
        what = f"{megatron}: {name}"
        yield Group.of_pairs("model", what, pairs, family=megatron)
    none = dict.fromkeys(machines, megatron_steps.Machine())
    without = megatron_steps.pairs_by_group(steps, none)
    unfitted = [pair for pairs in without.values() for pair in pairs]
    yield Group.of_pairs(WHOLE, "Megatron-LM, A100, nothing fitted", unfitted)


def of_torchrec(data: Path) -> Iterator[Group]:
    """Yield steps of TorchRec's pipeline on four V100, from the model alone."""
    folder = data / "traces" / "dlrm_torchrec_4xV100"
    alone_us, told_us = torchrec_steps.predicted_us(), torchrec_steps.straggling_us()
    measured_us = [
        torchrec_steps.measured_us(replay_joint(torchrec_steps.read_run(folder, name)))
        for name in torchrec_steps.RUNS
    ]
    for name, us in (("", alone_us), (", told of the straggler", told_us)):
        pairs = [(us, measured) for measured in measured_us]
        yield Group.of_pairs(WHOLE, f"TorchRec's pipeline, 4 V100{name}", pairs)


def of_own_rows(_: Path) -> Iterator[Group]:
    """Yield steps and kernels of perfc's own rows, which lie in the repository.

    The sizes of all of them are held out of all fits; other rows of the board are not.
    """
    for folder in sorted(OWN_ROWS.glob("*/")):
        yield from _of_collected(read_collected(folder))


def _of_collected(rows: Collected) -> Iterator[Group]:
    made = predict_all(calls_of, planned(), (rows.target,))
    pairs = pairs_of(rows, Predictions(*made, {}))
    for what, group in product((STEPS, ACTIVE), ("eager", "cudagraph")):
        mine = [p for p in pairs[what] if group in p.groups]
        if what == STEPS:
            mine = [p for p in mine if not {*p.groups} >= FITTED]
        yield _of_pairs("model", f"{what}, {rows.target}, {group}", mine)
    yield _of_pairs("size", f"kernels of whole models, {rows.target}", pairs[KERNELS])


def _of_pairs(kind: str, name: str, pairs: Sequence[Pair]) -> Group:
    columns = [
        (pair.predicted, pair.measured, *pair.interval)
        for pair in pairs
        if pair.interval is not None
    ]
    time, measured, low, high = np.log(np.array(columns)).T
    return Group(kind, name, time - measured, time - low, high - time)


def group_of(name: str, steps: Sequence[WholeStep], kind: str = WHOLE) -> Group:
    """Return whole steps as a group, with their intervals."""
    columns = [(s.time_us, s.measured_us, s.low_us, s.high_us) for s in steps]
    time, measured, low, high = np.log(np.array(columns)).T
    return Group(kind, name, time - measured, time - low, high - time)
