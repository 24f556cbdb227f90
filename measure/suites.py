"""Suites: the shapes of all ops, in an order whose every beginning has them all."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

import attrs

from perfc.ir import UsageError
from perfc.measure.case import Case, Family
from perfc.measure.design import SEED, points
from perfc.measure.device import Device
from perfc.measure.families import (
    Attention,
    BatchedGemm,
    BatchNorm,
    Concat,
    Conv2d,
    Elementwise,
    EmbeddingBag,
    EmbeddingBagBackward,
    Gather,
    Gemm,
    LayerNorm,
    Memcpy,
    OptimizerStep,
    Reduction,
    Softmax,
    Transpose,
)
from perfc.measure.workload_suite import GIVEN, WORKLOADS, workload_cases

FAMILIES: tuple[Family, ...] = (
    Gemm(),
    BatchedGemm(),
    Conv2d(),
    Elementwise(),
    Softmax(),
    LayerNorm(),
    BatchNorm(),
    Reduction(),
    Attention(),
    EmbeddingBag(),
    EmbeddingBagBackward(),
    Gather(),
    Concat(),
    Transpose(),
    Memcpy(),
    OptimizerStep(),
)
"""Everything whose shapes are chosen."""

_ALL = (*GIVEN, *FAMILIES)
"""All families; those that know which cases they take come first."""

LARGE = "large"
"""The suite whose tensors no cache holds."""

_PATIENCE = 400
"""Points in a row that give nothing new: the space is used up."""


@attrs.frozen
class Limits:
    """What is too large to be measured, or too small.

    Attributes:
        rounds: How often every family has its turns.
        flops: Of one call.
        bytes: That one call moves.
        memory: Bytes of its operands and results.
        seconds: Spent on each way of timing a case, on a CPU in each round.
        least_bytes: That one call moves.

    """

    rounds: int
    flops: float
    bytes: float
    memory: float
    seconds: float
    least_bytes: float = 0.0


SUITES: Mapping[tuple[str, str], Limits] = MappingProxyType(
    {
        ("cuda", "quick"): Limits(12, 5e11, 1e9, 4e9, 0.01),
        ("cuda", "full"): Limits(120, 4e12, 8e9, 3.2e10, 0.02),
        ("cuda", LARGE): Limits(40, 4e12, 8e9, 3.2e10, 0.02, 2e8),
        ("cuda", WORKLOADS): Limits(1, math.inf, math.inf, math.inf, 0.01),
        ("cpu", "quick"): Limits(24, 1e9, 2.5e7, 2e8, 0.001),
        ("cpu", "full"): Limits(60, 2e10, 4e8, 2e9, 0.01),
        ("cpu", LARGE): Limits(20, 2e10, 4e8, 1e9, 0.01, 2.5e7),
        ("cpu", WORKLOADS): Limits(1, 2e10, 4e8, 2e9, 0.01),
    }
)
"""Limits of the suites, by kind of device and name."""

MEMORY_SHARE = 4
"""One set of operands takes no more than this part of the memory."""


def suite(
    name: str, device: Device, ops: Collection[str] = (), seed: int = SEED
) -> list[tuple[Family, Case]]:
    """Return the cases of a suite in their order, without duplicates."""
    measured = _ALL if name == WORKLOADS else FAMILIES
    families = [f for f in measured if not ops or f.op in ops]
    known = sorted({family.op for family in measured})
    unknown = [op for op in ops if op not in known]
    if unknown:
        msg = f"no op {', '.join(unknown)} is measured; known: {', '.join(known)}"
        raise UsageError(msg)
    limits = SUITES.get((device.kind, name))
    if limits is None:
        names = ", ".join(sorted({name for _, name in SUITES}))
        msg = f"suite {name!r}: expected {names}"
        raise UsageError(msg)
    if name == WORKLOADS:
        pairs = workload_cases(families, ops)
        return [(f, case) for f, case in pairs if _fits(f, case, device, limits)]
    streams = [
        _turns(index, family, device, limits, seed)
        for index, family in enumerate(families)
    ]
    return [(families[index], case) for _, index, case in heapq.merge(*streams)]


def runs(case: Case) -> bool:
    """Whether there is a family that runs a case."""
    return any(family.op == case.op and family.takes(case) for family in _ALL)


def _turns(
    index: int, family: Family, device: Device, limits: Limits, seed: int
) -> Iterator[tuple[float, int, Case]]:
    count = limits.rounds * family.turns
    cases = itertools.islice(_cases(family, device, limits, seed), count)
    for number, case in enumerate(cases):
        yield (number + 0.5) / family.turns, index, case


def _cases(family: Family, device: Device, limits: Limits, seed: int) -> Iterator[Case]:
    space = family.space(device)
    seen: set[Case] = set()
    missed = 0
    for point in points(space, seed) if space else ():
        case = family.case(point)
        if case is None or case in seen or not _fits(family, case, device, limits):
            missed += 1
            if missed == _PATIENCE:
                return
            continue
        missed = 0
        seen.add(case)
        yield case


def _fits(family: Family, case: Case, device: Device, limits: Limits) -> bool:
    if not family.runs_on(case, device):
        return False
    work = case.work
    if work.flops > limits.flops:
        return False
    if not limits.least_bytes <= work.bytes <= limits.bytes:
        return False
    memory = min(limits.memory, device.memory_bytes // MEMORY_SHARE)
    return family.memory_bytes(case) <= memory
