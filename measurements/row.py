"""The rows of the two formats, field by field as the columns of the files."""

from __future__ import annotations

import attrs

from perfc.ir import Record
from perfc.ir.support import brief

TIMINGS = ("kernel", "graph", "event", "nccl", "host")
"""How a row was timed.

`kernel`: device time of the kernels alone. `graph`: time per op inside the replay of a
CUDA graph. `event`: an event pair around one eager call on an idle GPU, the host's
dispatch included; on a CPU, which has no events, the time of the call. `nccl`:
nccl-tests, out of place. `host`: time of the host.
"""


@attrs.frozen(kw_only=True)
class Measurement:
    """One row of `perfc.measurements/1`: an op that was timed on a device.

    Attributes:
        target: Name of a perfc target.
        op: Canonical name of the op.
        dtype: What it computes in: fp32, tf32, bf16, fp8, ...
        params: Its sizes.
        latency_us: What it took; the median where it was repeated.
        timing: How it was timed, one of `TIMINGS`.
        source: Where the row comes from.
        kernel: Name of the kernel, if it is known.
        split: `fit`, `test`, or empty where nobody has decided.
        p10_us: Tenth percentile of the repetitions.
        p90_us: Ninetieth percentile.
        n: How often it was repeated.
        sm_clock_mhz: Clock of the SMs while it ran.
        throttled: Whether the device said that it slowed down.
        host_us: What the call took on the host.
        rotated_bytes: Bytes that one turn through all sets of its operands moves: fewer
            than the L2 holds, and the row is L2-warm.

    """

    __repr__ = brief

    target: str
    op: str
    dtype: str
    params: Record
    latency_us: float
    timing: str
    source: str
    kernel: str = ""
    split: str = ""
    p10_us: float | None = None
    p90_us: float | None = None
    n: int | None = None
    sm_clock_mhz: float | None = None
    throttled: bool | None = None
    host_us: float | None = None
    rotated_bytes: int | None = None


@attrs.frozen(kw_only=True)
class WorkloadMeasurement:
    """One row of `perfc.workloads/1`: iterations of a whole model.

    Attributes:
        target: Name of a perfc target.
        model: Name of a built-in workload, or of the file and its factory.
        params: Parameters of the model.
        mode: inference or training.
        runtime: eager, cudagraph or compiled.
        dtype: What the model computes in.
        batch: Samples in the batch.
        time_us: Wall time of an iteration, the median.
        p10_us: Tenth percentile of the iterations.
        p90_us: Ninetieth percentile.
        gpu_active_us: How long the device was busy.
        peak_memory_bytes: Most memory of the device in use.
        torch: Version of PyTorch.
        source: Where the row comes from.
        split: `fit`, `test`, or empty where nobody has decided.
        optimizer: Of a training step, with PyTorch's defaults.
        inputs: host-pinned, host-pinned-blocking, host-pageable or device.
        n: How many iterations were timed.
        reserved_memory_bytes: Most memory that PyTorch's allocator held.
        sm_clock_mhz: Clock of the SMs while it ran.
        throttled: Whether the device said that it slowed down.
        attention: `auto`, or the algorithm that PyTorch was told to take first.

    """

    target: str
    model: str
    params: Record
    mode: str
    runtime: str
    dtype: str
    batch: int
    time_us: float
    p10_us: float | None = None
    p90_us: float | None = None
    gpu_active_us: float | None = None
    peak_memory_bytes: int | None = None
    torch: str = ""
    source: str = ""
    split: str = ""
    optimizer: str = ""
    inputs: str = ""
    n: int | None = None
    reserved_memory_bytes: int | None = None
    sm_clock_mhz: float | None = None
    throttled: bool | None = None
    attention: str = ""
