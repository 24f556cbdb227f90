"""Optuna over batch, dtype, sharding and placement of a DLRM, under a memory limit.

    python examples/autotune/optuna_dlrm.py [--trials N] [--memory-gib G] [--target T]

Searches the most samples a second of a training step of MLPerf's DLRM on eight GPUs,
each of which may allocate so much at most. One `perfc.Oracle` is asked for every trial;
what a trial changes are edits. Memory is a constraint (`Trial.set_constraint`), not a
penalty: the sampler learns from trials that are too large, and none of them is the
best. A configuration that PyTorch could not run is a pruned trial with perfc's reason.

It saves the runs: a trial takes about a quarter of a second here. To measure one, eight
GPUs build the model, warm up and time some steps. The last lines say how long that
would have been for the same trials, by the predicted times of their steps.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import optuna

import perfc
from perfc import edits

MODEL, RANKS = "dlrm-mlperf:embedding=batched", 8
GIB = 2**30
Change: TypeAlias = edits.Bind | edits.Dtype | edits.Place | edits.Shard

START_S, WARM_UP, TIMED = 30.0, 10, 50
"""What is assumed of measuring one configuration: seconds until a process on each GPU
has started and built the model, steps that warm up, and steps that are timed."""


@dataclass(frozen=True)
class Space:
    """What may be chosen.

    Attributes:
        batches: Samples on each GPU.
        dtypes: Types to compute in; fp32 is the model's own.
        plans: How the tables are sharded.
        tiers: Where their rows are.
        caches: Least and largest share of the rows in device memory, of `uvm-caching`.

    """

    batches: Sequence[int] = (2048, 4096, 8192, 16384, 32768)
    dtypes: Sequence[str] = ("fp32", "bf16", "amp-bf16")
    plans: Sequence[str] = ("table-wise", "column-wise", "row-wise", "data-parallel")
    tiers: Sequence[str] = ("hbm", "uvm", "uvm-caching")
    caches: tuple[float, float] = (0.02, 0.5)


def oracle_of(target: str) -> perfc.Oracle:
    """Return the oracle of the step, lowered and priced once."""
    return perfc.Oracle(MODEL, target, batch=4096, ranks=RANKS, mode="training")


def edits_of(
    trial: optuna.Trial | optuna.trial.FixedTrial, space: Space
) -> list[Change]:
    """Return the changes of a trial."""
    asked: list[Change] = [
        edits.Bind(batch=trial.suggest_categorical("batch", space.batches))
    ]
    dtype = trial.suggest_categorical("dtype", space.dtypes)
    if dtype != "fp32":
        asked.append(edits.Dtype("*", dtype))
    asked.append(edits.Shard("*", trial.suggest_categorical("plan", space.plans)))
    tier = trial.suggest_categorical("tier", space.tiers)
    if tier == "uvm-caching":
        share = trial.suggest_float("cache", *space.caches, log=True)
        asked.append(edits.Place("*", tier, share))
    elif tier != "hbm":
        asked.append(edits.Place("*", tier))
    return asked


def tune(
    oracle: perfc.Oracle,
    limit_bytes: float,
    trials: int,
    space: Space = Space(),
    seed: int = 0,
) -> optuna.Study:
    """Return a study of samples a second, within a limit of what each GPU allocates."""

    def samples_per_s(trial: optuna.Trial) -> float:
        try:
            report = oracle.report(*edits_of(trial, space))
        except perfc.PerfcError as error:
            trial.set_user_attr("refused", str(error))
            raise optuna.TrialPruned from error
        peak_bytes = report.memory_use.peak_bytes
        trial.set_user_attr("time_us", report.time_us)
        trial.set_user_attr("peak_bytes", peak_bytes)
        trial.set_constraint("memory", peak_bytes / limit_bytes - 1)
        return float(RANKS * trial.params["batch"] / report.time_us * 1e6)

    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(samples_per_s, n_trials=trials)
    return study


def measuring_s(study: optuna.Study) -> float:
    """Return the seconds that measuring the same configurations would take.

    Each is measured once, however many trials it had; refused ones take no time.
    """
    times_us = {
        tuple(sorted(trial.params.items())): trial.user_attrs["time_us"]
        for trial in study.trials
        if "time_us" in trial.user_attrs
    }
    steps_s = math.fsum(times_us.values()) * 1e-6 * (WARM_UP + TIMED)
    return START_S * len(times_us) + steps_s


def main() -> None:
    """Search, and print the best and what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=80)
    parser.add_argument("--memory-gib", type=float, default=8.0, help="of each GPU")
    parser.add_argument("--target", default="dgx-a100")
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    oracle = oracle_of(given.target)
    started = time.perf_counter()
    study = tune(oracle, given.memory_gib * GIB, given.trials)
    took_s = time.perf_counter() - started
    refused = sum("refused" in trial.user_attrs for trial in study.trials)
    large = sum(
        any(c > 0 for c in trial.constraints.values()) for trial in study.trials
    )
    print(f"{MODEL}, training on {RANKS} GPUs of {given.target}")
    print(f"{given.trials} trials: {refused} refused, {large} above the limit")
    try:
        best = study.best_trial
    except ValueError:
        print(f"no configuration is within {given.memory_gib:g} GiB")
        return
    chosen = ", ".join(f"{name} {value}" for name, value in best.params.items())
    peak_gib = best.user_attrs["peak_bytes"] / GIB
    print(f"best: {chosen}")
    time_ms = best.user_attrs["time_us"] / 1e3
    print(f"{best.value:,.0f} samples/s, {time_ms:.1f} ms, {peak_gib:.2f} GiB")
    print(f"asked in {took_s:.1f} s, {given.trials / took_s:.0f} evaluations/s")
    print(
        f"measuring the same takes {measuring_s(study) / 60:.0f} min on {RANKS} GPUs "
        f"({START_S:.0f} s to start, {WARM_UP} + {TIMED} steps each)"
    )


if __name__ == "__main__":
    main()
