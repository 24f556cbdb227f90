"""The host profile `lin-v100` from measured tables of overheads, a step of `make fit`.

    python benchmarks/fits/host_profile.py FOLDER

FOLDER holds the overheads that owensgroup/ml_perf_model measured on one V100 host
(columns type, op, model, batch_size, mean_us). Each value is the mean over the
DLRM workloads at batch 512 to 4096, of the later table (2022-11) where it has the
op and type, else of the earlier one; an op that no DLRM workload has takes the
mean over the others. What both tables lack takes the mean of its kind (see
`kind`) and is marked. The later table holds the ten ops that take most of an
iteration in each type, so a mean over kinds that differ would be far too large
for the ops it leaves out.
"""

from __future__ import annotations

import csv
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

TABLES = (
    "overheads_t1_t2_t3_t5_v100_2022-11_digitized.csv",
    "overheads_t1_t2_v100_2022-02.csv",
)
"""Best first."""

BATCHES = frozenset({512, 1024, 2048, 4096})
CALL_US = 4.0
COPY_US = 13.6
"""Their profiler says 16.7 to 22.6 us of a copy where it says 10 of a launch; less the
6 us that they take off there, 2 for a CPU event and 4 for one of the GPU."""
SYNC_US = 3.5

NAMES = {
    "LookupFunction": "fbgemm::split_embedding_codegen_lookup",
    "LookupFunctionBackward": "torch::autograd::CppNode<SplitLookupFunction_sgd_Op>",
    "All2All_Req": "All2All_Pooled_Req",
    "Optimizer.step#SGD.step": "Optimizer.step",
    "Optimizer.zero_grad#SGD.zero_grad": "Optimizer.zero_grad",
}
"""Ops by their names of today, where those differ."""

_UPDATES = frozenset({"aten::add_", "aten::zero_"})
"""What the optimizer calls for every parameter: straight from C++."""

_FIELDS = {"T2": "t2_us", "T3": "t3_us", "T5": "t5_us"}

HEADER = """\
# Written by `make fit`; do not edit.
# Microseconds: means over the DLRM workloads of the source (batch 512 to 4096).
# A value marked "mean of its kind" was not measured for that op.
name = "lin-v100"
source = "github.com/owensgroup/ml_perf_model (BSD-3): overheads of DLRM training on \
one V100 host, 2022-11 (read off plots) and 2022-02; T4 is their constant of 4 us, \
for copies what their profiler says less the same 6 us; \
synchronisation floor: Kineto traces of V100 hosts, 2 to 5 us"
date = "2022-11"
software = "PyTorch nightlies of 2022, CUDA 11, Kineto; fixed CPU clock without turbo"

# Means of single workloads lie within 10 % of these; single events around their
# own mean as in the table of 2022-02.
sigma_shared = 0.10"""

Values = Mapping[tuple[str, str], float]
"""Microseconds by type and op."""


def profile_lines(folder: Path) -> Iterable[str]:
    """Yield the lines of the profile."""
    tables = [_read(folder / name) for name in TABLES]
    values = merge([_means(table) for table in tables])
    return lines(values, _spread(tables[1]))


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _is_dlrm(row: Mapping[str, str]) -> bool:
    return row["model"].startswith("DLRM") and int(row["batch_size"]) in BATCHES


def _means(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], float]:
    """Mean over the DLRM workloads, or over all where none of them has the op."""
    dlrm: dict[tuple[str, str], list[float]] = defaultdict(list)
    others: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        wanted = dlrm if _is_dlrm(row) else others
        wanted[row["type"], row["op"]].append(float(row["mean_us"]))
    return {key: statistics.fmean(us) for key, us in {**others, **dlrm}.items()}


def merge(tables: Sequence[Values]) -> dict[tuple[str, str], float]:
    """Join tables; the first that has a value has the say."""
    merged: dict[tuple[str, str], float] = {}
    for table in reversed(tables):
        merged.update(table)
    return merged


def _spread(rows: Iterable[Mapping[str, str]]) -> float:
    """Standard deviation over mean of single events, mean over ops and types."""
    return statistics.fmean(
        float(row["std_us"]) / float(row["mean_us"]) for row in rows if _is_dlrm(row)
    )


def kind(op: str) -> str:
    """Return the kind of an op, whose mean stands in for a missing value."""
    if op.startswith("Lookup"):
        return "lookup"
    if op in _UPDATES:
        return "update"
    gemm = "GEMM " if re.search("Addmm|Bmm|Conv|linear|bmm|conv", op) else ""
    if re.search(r"Backward\d*$", op) or "AccumulateGrad" in op:
        return f"{gemm}backward"
    return f"{gemm}forward" if op.startswith("aten::") else "other"


def lines(values: Values, spread: float) -> Iterable[str]:
    """Yield the lines of the profile."""
    yield HEADER
    yield f"sigma_independent = {spread:.2f}"
    yield ""
    yield f"t1_us = {values['T1', '(between ops)']:.2f}"
    if (linear := values.get(("T5", "aten::linear"))) is not None:
        # Its second launch is the kernel that adds up the parts of the GEMM.
        yield f"join_us = {linear + CALL_US:.2f}"
    launching = sorted({op for type_, op in values if type_ in ("T2", "T3")})
    for type_, field in _FIELDS.items():
        measured = {op: us for (t, op), us in values.items() if t == type_}
        idle = {op: us for op, us in measured.items() if op not in launching}
        measured = {op: us for op, us in measured.items() if op in launching}
        yield from _table(field, launching, measured)
        if type_ == "T5":
            yield from _table("t0_us", sorted(idle), idle)
    yield ""
    yield "[calls_us]"
    yield f"default = {CALL_US}"
    yield f"cudaMemcpyAsync = {COPY_US}"
    for call in ("cudaLaunchKernel", "cudaMemsetAsync"):
        yield f"{call} = {CALL_US}"
    for call in ("cudaEventRecord", "cudaStreamWaitEvent"):
        yield f"{call} = 1.5"
    for call in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
        yield f"{call} = {SYNC_US}"


def _table(
    field: str, ops: Sequence[str], measured: Mapping[str, float]
) -> Iterable[str]:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for op, us in measured.items():
        by_kind[kind(op)].append(us)
    means = {name: statistics.fmean(us) for name, us in by_kind.items()}
    default = means.get("forward", statistics.fmean(measured.values()))
    yield ""
    yield f"[{field}]"
    yield f"default = {default:.2f} # mean of the plain forward ops, or of all"
    for op in ops:
        name = json.dumps(NAMES.get(op, op))
        if op in measured:
            yield f"{name} = {measured[op]:.2f}"
        elif kind(op) != "forward" and kind(op) in means:
            yield f"{name} = {means[kind(op)]:.2f} # mean of its kind"


if __name__ == "__main__":
    print("\n".join(profile_lines(Path(sys.argv[1]))))
