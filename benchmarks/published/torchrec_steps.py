"""Training on four V100, from the model alone: `torchrec_steps.py TRACES`.

The model of the traces `torchrec_v100_a2a_3` and `a2a_5` (a `torchrec` test of its
training pipeline, BSD-3): 64 tables of 1,024 x 1,024 sharded over four GPUs, 4,096
samples each, in fp32. Steps beside those measured that did not stall, and the large
collectives in the order in which a step has them, each beside what it took on the rank
that waited least.

Rows come by functional collectives, as the traces show (`_AlltoAllSingleBackward`).

A model knows nothing of three things in these steps: `cudaMalloc`, which a settled
run does not call; DDP's statistics of its first iterations, which wait for events; and
20 ms that rank 2 stands still before each exchange of rows, forward and backward, in
every step of both runs, while the others wait: the runs were made with a straggler. So
the prediction is also held against the replay of the same traces without them, one
after the other; and a prediction told of the straggler against what was measured.
"""

from __future__ import annotations

import operator
import statistics
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import perfc
from perfc.fitting.trace_host import HostTime, Stall, host_times
from perfc.passes import ShardEmbeddings
from perfc.passes.parallel import Straggler
from perfc.tools.replay.replay import Replayed, replay_joint
from perfc.tools.replay.step_times import StepTimes
from perfc.traces import Recorded
from perfc.traces.collectives import align_collectives, read_ranks

MODEL = (
    "dlrm-default:embedding=batched,tables=64,rows=1024,dim=1024,pooling=1,top=512-1,"
    "bottom=1024-2049-2049-2049-2049-2049-2049"
)
"""Sizes are those of the traced script."""

TARGET = "p3.16xlarge"
RANKS, BATCH = 4, 4096
LEAST_US = 150.0
STALLED = 1.5
"""A step that takes so many times as long as the shortest has waited for memory."""

STRAGGLED_US = 15e3
"""A stretch of the host's time between two calls that is no one's work."""

ALLOCATOR, STATISTICS = {Stall.ALLOCATOR}, {Stall.ALLOCATOR, Stall.STATISTICS}


DELAY_US = 20e3
"""How long it stands still."""


RUNS = ("a2a_3", "a2a_5")
"""Names of the runs that are traced."""


def predicted_us() -> float:
    """Return the microseconds of a step from the model alone."""
    return perfc.analyze(_model(), TARGET).time_us


def read_run(folder: Path, name: str) -> list[Recorded]:
    """Return the ranks of a run."""
    return read_ranks(sorted(folder.glob(f"torchrec_v100_{name}_r*.json.gz")))


def steady_steps(replayed: Sequence[Replayed]) -> list[StepTimes]:
    """Return the steps, of all ranks, that did not wait for memory."""
    steps = [step for one in replayed for step in one.steps]
    most_us = STALLED * min(step.measured_us for step in steps)
    return [step for step in steps if step.measured_us < most_us]


def measured_us(replayed: Sequence[Replayed]) -> float:
    """Return the microseconds that a steady step took."""
    return statistics.mean(step.measured_us for step in steady_steps(replayed))


def _model(*late: Straggler) -> perfc.Model:
    """Return the step that the traces are of, with ranks that stand still."""
    return perfc.load(
        MODEL,
        batch=BATCH,
        mode="training",
        optimizer="rowwise_adagrad",
        ranks=RANKS,
        transforms=[ShardEmbeddings(RANKS, functional=True), *late],
    )


def straggling_us() -> float:
    """Return the microseconds of a step where rank 2 stands still as in the traces."""
    forward = "table_wise.output.all_to_all"
    exchanges = (forward, f"{forward}.all_to_all")
    model = _model(*(Straggler(2, DELAY_US, before=name) for name in exchanges))
    return perfc.analyze(model, TARGET).time_us


def say(*words: object) -> None:
    """Print one line."""
    print(*words)


def main() -> None:
    """Print both beside each other."""
    folder = Path(sys.argv[1])
    model = _model()
    alone = perfc.analyze(model, TARGET, passes=["stream-schedule{contention=false}"])
    report = perfc.analyze(model, TARGET)
    for text, one in (("", report), (" without contention", alone)):
        say(f"predicted{text}: {one.time_us / 1e3:.1f} ms")
    with_straggler_us = straggling_us()
    say(f"predicted with the straggler: {with_straggler_us / 1e3:.1f} ms")
    for name in RUNS:
        ranks = read_run(folder, name)
        _print_measured(name, ranks, report.time_us, with_straggler_us)
        _print_collectives(ranks, alone, report)


def _print_collectives(ranks: Sequence[Recorded], *reports: perfc.Report) -> None:
    """Print each collective of a step beside its measured times."""
    predicted = [_predicted(report) for report in reports]
    for place, taken_us in enumerate(_measured(ranks, len(predicted[0]))):
        middle_us = statistics.median(taken_us)
        told = " ".join(f"{us / 1e3:5.2f}" for us in taken_us)
        line = f"  {predicted[0][place][0]}: {told}, median {middle_us / 1e3:.2f} ms"
        for text, nodes in zip(("alone", "with contention"), predicted, strict=True):
            us = nodes[place][1]
            line += f"; {text} {us / 1e3:.2f} {us / middle_us - 1:+.0%}"
        say(line)


def _predicted(report: perfc.Report) -> list[tuple[str, float]]:
    """Return large collectives by id, from the first that sums on: those of backward.

    The exchange of forward comes last, as in the traces, which begin in a backward.
    """
    nodes = [
        node
        for node in sorted(report.nodes, key=operator.itemgetter("start_us"))
        if node["op"].startswith("c10d::") and node["duration_us"] > LEAST_US
    ]
    forward, *backward = [(node["id"], node["duration_us"]) for node in nodes]
    return [*backward, forward]


def _measured(ranks: Sequence[Recorded], count: int) -> list[list[float]]:
    """Return the microseconds of each of *count* collectives, step by step.

    Those of which a trace lacks a rank, at its beginning, are left out.
    """
    found: list[list[float]] = [[] for _ in range(count)]
    place = 0
    joint = align_collectives(ranks)
    for group in joint.groups:
        rank, task = next(iter(group.items()))
        us = joint.ranks[rank].graph.stated_s[task] * 1e6
        if us > LEAST_US:
            if len(group) == len(ranks):
                found[place % count].append(us)
            place += 1
    return found


def _print_measured(
    name: str, ranks: Sequence[Recorded], alone_us: float, told_us: float
) -> None:
    replayed = replay_joint(ranks)
    steady = {step.name for step in steady_steps(replayed)}
    taken_us = measured_us(replayed)
    error = alone_us / taken_us - 1
    told = told_us / taken_us - 1
    say(f"{name}: {taken_us / 1e3:.1f} ms a steady step, predicted {error:+.1%}")
    say(f"  with the straggler {told:+.1%}")
    for what, seconds in (
        ("without cudaMalloc", [_without(rank, ALLOCATOR) for rank in ranks]),
        ("nor DDP's statistics", [_without(rank, STATISTICS) for rank in ranks]),
        ("nor stragglers", [_settled(rank) for rank in ranks]),
    ):
        without = replay_joint(ranks, kernels=seconds)
        steps = [step for one in without for step in one.steps if step.name in steady]
        replayed_us = statistics.mean(step.simulated_us for step in steps)
        error = alone_us / replayed_us - 1
        say(f"  {replayed_us / 1e3:.1f} ms {what}, predicted {error:+.1%}")
    for rank in ranks:
        for time in _straggling(rank):
            say(f"  rank {rank.trace.rank} stood {time.us / 1e3:.1f} ms ({time.kind})")
    errors = (f"{one.error:+.1%}" for one in replayed)
    say(f"  replayed with measured kernels, all ranks: {', '.join(errors)}")


def _without(rank: Recorded, stalls: Collection[Stall]) -> dict[int, float]:
    """Return seconds of 0 for what stalled the host."""
    return {time.task: 0.0 for time in host_times(rank) if time.stall in stalls}


def _straggling(rank: Recorded) -> list[HostTime]:
    """Return where a host stood still for no reason that its trace shows."""
    times = host_times(rank)
    return [t for t in times if t.stall is None and t.us > STRAGGLED_US]


def _settled(rank: Recorded) -> dict[int, float]:
    """Return seconds of 0 for all that."""
    straggling = {time.task: 0.0 for time in _straggling(rank)}
    return _without(rank, STATISTICS) | straggling


if __name__ == "__main__":
    main()
