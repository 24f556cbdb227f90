"""Host time of one DLRM iteration, from the overheads of Lin et al.

    python benchmarks/published/seed_host_time.py FOLDER

FOLDER holds what owensgroup/ml_perf_model recorded of DLRM_default at batch 1024
on a V100 host: the op sequence of one training iteration, the launches of each
op, T1 to T5. The script builds the launch graph of the iteration, puts the host
segments in with perfc's pass `overhead`, and prints the host thread's sum, by the
rules of their end-to-end algorithm. Two things are open in the tables:

- Rules. Their last version drops the launches of an op beyond the kernels that it
  models (`head`); the version of the HiPC paper charges every launch (`hipc`).
- Values that are not listed. The table of 2022-11 was read off plots that show,
  for each type, the ten ops that take most of an iteration. An op that is not
  shown takes less than the last one shown: `zero` and `bound` are the two ends of
  what it may take. `mean` gives it the mean of its type, which the ten largest
  put far above that bound.

Waiting for the device (a blocking `aten::to`) is no host work and is not in it.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from perfc.costmodels import HostProfile, PerName
from perfc.ir import NO_WORK, Kernel, LaunchGraph, LaunchOp, TaskKind
from perfc.ir.record import EMPTY
from perfc.passes.timing import host_launches

MODEL, BATCH = "DLRM_default", "1024"
RULES = ("head", "hipc")
UNLISTED = ("zero", "bound", "mean")
T4_US = 4.0
BETWEEN_OPS = "(between ops)"

SKIPPED = frozenset({"SliceBackward", "FusedDropoutBackward"})
MODELLED_KERNELS = {"IndexBackward": 1, "aten::mse_loss": 1, "MseLossBackward": 1}
"""Kernels that their last version models, where the op launches more."""

ALIASES = {
    "fbgemm::split_embedding_codegen_lookup_sgd_function": "LookupFunction",
    "torch::autograd::CppNode<SplitLookupFunction_sgd_Op>": "LookupFunctionBackward",
    "Optimizer.step#SGD.step": "aten::add_",
}
"""One op by the names of different years; SGD.step was one op of 12 `add_`."""

Row = Mapping[str, str]


@attrs.frozen
class Op:
    """A top-level op of the iteration.

    Attributes:
        name: Normalised name.
        children: Normalised names of the ops right below it.

    """

    name: str
    children: tuple[str, ...]


def main(folder: Path) -> None:
    """Print the host time by every rule and reading."""
    ops = read_ops(folder)
    launches = read_launches(folder)
    overheads = read_overheads(folder)
    print(f"{MODEL}, batch {BATCH}: {len(ops)} top-level ops")
    for rules in RULES:
        for unlisted in UNLISTED:
            time_ms = host_time_ms(ops, launches, overheads, rules, unlisted)
            print(f"{rules} rules, unlisted {unlisted:5}: {time_ms:.2f} ms")


def normalised(name: str) -> str:
    """Return an op's name without the autograd engine's prefix and number."""
    name = name.removeprefix("autograd::engine::evaluate_function: ")
    name = ALIASES.get(name, name)
    return re.sub(r"Backward\d*$", "Backward", name)


def _rows(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_ops(folder: Path) -> list[Op]:
    """Read the op sequence, pruned as theirs is.

    It starts at the first label (the two ops before it have no module and no
    label), and leaves out the distribution of embeddings and `SKIPPED`.
    """
    rows = _rows(folder / f"execution_graph_{MODEL.lower()}_{BATCH}.csv")
    children: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["op_depth"] == "1":
            children[row["toplevel_op_index"]].append(normalised(row["op"]))
    top = [row for row in rows if row["op_depth"] == "0"]
    first = next(i for i, row in enumerate(top) if row["module"])
    return [
        Op(name, tuple(children[row["toplevel_op_index"]]))
        for row in top[first:]
        if "distribute emb data" not in row["module"]
        and (name := normalised(row["op"])) not in SKIPPED
    ]


def read_launches(folder: Path) -> dict[str, int]:
    """Read the number of launches per op; a synchronisation is none."""
    rows = _rows(folder / f"launches_per_op_{MODEL.lower()}_2021-05.csv")
    counts: dict[str, int] = {}
    for row in rows:
        calls = row["launch_sequence"].split("|")
        count = sum(call != "cudaStreamSynchronize" for call in calls)
        name = normalised(row["op"])
        counts[name] = count // 12 if name == "aten::add_" else count
    return counts


def read_overheads(folder: Path) -> dict[str, dict[str, float]]:
    """Read T1 to T5 of the workload by type and op; 2022-11 has the say."""
    overheads: dict[str, dict[str, float]] = defaultdict(dict)
    for name in (
        "overheads_t1_t2_v100_2022-02.csv",
        "overheads_t1_t2_t3_t5_v100_2022-11_digitized.csv",
    ):
        for row in _rows(folder / name):
            if (row["model"], row["batch_size"]) == (MODEL, BATCH):
                us = float(row["mean_us"])
                overheads[row["type"]][normalised(row["op"])] = us
    return overheads


def launch_count(op: Op, launches: Mapping[str, int], rules: str) -> int:
    """Return how many launches of *op* are charged.

    An op that the launch list does not have launches what its children launch.
    """
    count = launches.get(op.name)
    if count is None:
        count = sum(launches.get(child, 0) for child in op.children)
    if rules == "head":
        return min(count, MODELLED_KERNELS.get(op.name, count))
    return count


def host_time_ms(
    ops: Sequence[Op],
    launches: Mapping[str, int],
    overheads: Mapping[str, Mapping[str, float]],
    rules: str,
    unlisted: str,
) -> float:
    """Return the sum over the host thread of one iteration."""
    counts = [launch_count(op, launches, rules) for op in ops]
    profile = make_profile(ops, counts, overheads, unlisted)
    hosted = host_launches(make_graph(ops, counts), profile)
    tasks = range(len(hosted.graph))
    return 1e3 * sum(
        float(hosted.host_s[task]) for task in tasks if hosted.graph.kernel[task] == -1
    )


def make_graph(ops: Sequence[Op], counts: Sequence[int]) -> LaunchGraph:
    """Build the launch graph of the iteration; its kernels are not of interest."""
    graph = LaunchGraph(MODEL)
    thread, stream = graph.thread(), graph.stream()
    kernel = graph.intern(
        Kernel("unknown", "fp32", "fp32", EMPTY, NO_WORK, known=False)
    )
    for op, count in zip(ops, counts, strict=True):
        index = graph.add_op(LaunchOp(op.name))
        for _ in range(count):
            call = graph.task(
                TaskKind.CALL, thread, op=index, detail="cudaLaunchKernel"
            )
            graph.task(TaskKind.KERNEL, stream, op=index, kernel=kernel, issue=call)
    return graph


def make_profile(
    ops: Sequence[Op],
    counts: Sequence[int],
    overheads: Mapping[str, Mapping[str, float]],
    unlisted: str,
) -> HostProfile:
    """Make the host profile of this workload."""
    launching = {op.name for op, count in zip(ops, counts, strict=True) if count}
    gaps = [op.name for op, n in zip(ops, counts, strict=True) for _ in range(n - 1)]
    launched = [op.name for op in ops if op.name in launching]
    idle = [op.name for op in ops if op.name not in launching]
    within = {op: us for op, us in overheads["T5"].items() if op in launching}
    whole = {op: us for op, us in overheads["T5"].items() if op not in launching}
    return HostProfile(
        name="seed",
        t1_s=overheads["T1"][BETWEEN_OPS] * 1e-6,
        t2_s=_per_op(overheads["T2"], launched, unlisted),
        t3_s=_per_op(overheads["T3"], launched, unlisted),
        t5_s=_per_op(within, gaps, unlisted),
        t0_s=_per_op(whole, idle, unlisted),
        calls_s=PerName(T4_US * 1e-6, {}),
        graph_node_s=0.0,  # it has no CUDA graphs
        sigma_shared=0.1,
        sigma_independent=0.1,
        source="owensgroup/ml_perf_model",
        date="2022-11",
        software="PyTorch of 2022",
    )


def _per_op(
    listed: Mapping[str, float], occurrences: Iterable[str], unlisted: str
) -> PerName:
    """Fill in what is not listed, for the ops that occur."""
    times = Counter(occurrences)
    values = dict(listed)
    smallest = min(us * times[op] for op, us in listed.items() if op in times)
    for op, count in times.items():
        if op not in listed:
            readings = {
                "zero": 0.0,
                "bound": smallest / count,
                "mean": statistics.fmean(listed.values()),
            }
            values[op] = readings[unlisted]
    return PerName(0.0, {op: us * 1e-6 for op, us in values.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
