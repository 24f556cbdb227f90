"""Compare predicted peak memory of training with PyTorch's: run with `python -m`.

`python -m benchmarks.training_memory` prints, for each model and optimizer, what a
real step allocates on the CPU (hooks of its allocator) or holds at full size (storages
of the same step on fake tensors, which take no memory), what perfc predicts, and the
difference. The bar is 10 %.
"""

from __future__ import annotations

import sys

from tests.frontends.training_memory import (
    OPTIMIZERS,
    Case,
    allocated_bytes,
    counted_bytes,
    predicted_bytes,
)

BAR = 0.1
CASES = (
    (Case("resnet50", 4), allocated_bytes, "allocated"),
    (Case("bert-base", 4, 2), allocated_bytes, "allocated"),
    (Case("bert-base", 8, 4), allocated_bytes, "allocated"),
    (Case("resnet50", 64), counted_bytes, "counted"),
    (Case("bert-base", 32, 12), counted_bytes, "counted"),
)
_MIB = 2**20


def main() -> int:
    """Print the table; 1 if a difference is beyond the bar."""
    worst = 0.0
    print("model                batch  optimizer      PyTorch        perfc  difference")
    for case, measure, how in CASES:
        for optimizer in OPTIMIZERS:
            measured = measure(case, optimizer)
            predicted = predicted_bytes(case, optimizer)
            error = predicted / measured - 1
            worst = max(worst, abs(error))
            print(
                f"{case.name + (f' x {case.layers}' if case.layers else ''):20s} "
                f"{case.batch:5d}  {optimizer:9s} {measured / _MIB:8.1f} MiB "
                f"{predicted / _MIB:8.1f} MiB  {error:+.2%}  {how}"
            )
    print(f"worst {worst:.2%}, bar {BAR:.0%}  {'ok' if worst <= BAR else 'MISSED'}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
