"""Logs as nccl-tests print them, of numbers made up here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_BYTES: Mapping[str, int] = {"float": 4, "half": 2, "int8": 1, "double": 8}

HEAD = """\
# nThread 1 nGpus 4 minBytes 8 maxBytes 1024 step: 4(factor) warmup iters: 5 iters: 20 \
agg iters: 1 validation: 1 graph: 0
#
# Using devices
"""
TAIL = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.3
#
"""


def nccl_log(
    times_us: Mapping[int, float],
    *,
    hosts: Sequence[str] = ("node-a",) * 4,
    device: str = "NVIDIA B200",
    dtype: str = "half",
    program: str = "all_reduce_perf",
    factor: float = 1.5,
    redop: str = "sum",
    shared: bool = False,
    unit: str = "us",
    old: bool = False,
    end: str = TAIL,
) -> str:
    """Return a log with a row for each size; *old* is how early versions print."""
    ranks = len(hosts)
    lines = [HEAD.rstrip()]
    lines += [
        f"#  Rank {rank:2d} Pid  {4000 + rank} on {host:>10s} device {rank:2d} "
        f"[0x{rank + 7:02x}] {device}"
        for rank, host in enumerate(hosts)
    ]
    if program:
        lines.append(f"# Collective test starting: {program}")
        lines.append("# NCCL version 2.21.5+cuda12.4")
    wrong = "error" if old else "#wrong"
    named = "size count type" + ("" if old and redop == "none" else " redop root")
    rates = f"time algbw busbw {wrong}"
    lines += ["#", "#  out-of-place  in-place", f"# {named} {rates} {rates}"]
    lines.append(f"#  (B) (elements)  ({unit}) (GB/s) (GB/s)  ({unit}) (GB/s) (GB/s)")
    for size, time_us in times_us.items():
        count = size // _BYTES[dtype] // (ranks if shared else 1)
        kind = "" if old and redop == "none" else f"{redop:>6s} {-1:5d}"
        rate = size / time_us / 1e3
        cells = f"{time_us:9.2f} {rate:7.2f} {factor * rate:7.2f} "
        cells += "0e+00" if old else "    0"
        lines.append(f"{size:12d} {count:10d} {dtype:>8s} {kind} {cells} {cells}")
    return "\n".join(lines) + "\n" + end
