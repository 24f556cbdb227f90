"""Logs that nccl-tests print (`all_reduce_perf`, `alltoall_perf`, …) as measured rows.

    # nThread 1 nGpus 4 minBytes 8 maxBytes … graph: 0
    # Using devices
    #  Rank  0 Group  0 Pid  1234 on   node-a device  0 [0x07] NVIDIA A100-SXM4-80GB
    #                                          out-of-place             in-place
    #  size  count   type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw …
    #   (B)  (elements)                 (us) (GB/s) (GB/s)         (us) (GB/s) (GB/s)
        4096   1024  float    sum    -1  14.1   0.29   0.29     0  13.9   0.29   0.29 …
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 0.29

Versions differ in the columns that they have (`error` for `#wrong`; no `redop` and
`root` where the op has none) and in what they say of themselves; columns are found by
the names in the header. Times are those out of place. Sizes that a test rounds down to
nothing are left out, and so is what `mpirun --tag-output` and `srun --label` put before
lines.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from perfc.costmodels import load_target, target_names, target_of_device
from perfc.ir import PerfcError, record_of
from perfc.ir.support import read_whole
from perfc.measurements.row import Measurement
from perfc.measurements.signature import BYTES

_RANK = re.compile(
    r"#\s*Rank\s+(?P<rank>[0-9]+)\s.*?\son\s+(?P<host>\S+)\s+device\s+\S+\s+"
    r"\[[0-9a-fA-Fx:.]+\]\s+(?P<device>.+)"
)
_TABLE = re.compile(r"#\s*size\s+count\s")
_UNITS = re.compile(r"#\s*\(B\)\s")
_END = re.compile(r"#\s*Avg bus bandwidth\s*:")
_TAG = re.compile(r"^(\[\d+,\d+\](<\w+>)?:|\s*\d+:)[ \t]?")
_UNMODELLED = re.compile(r"\b(?:reduce|gather|scatter|hypercube)_perf\b")
_VERSION = re.compile(r"NCCL version:?\s*(?P<version>[\d.]+)")
_ITERATIONS = re.compile(r"(?<!warmup)\siters:\s*(?P<n>[0-9]{1,9})\b")

_DTYPES: Mapping[str, str] = {
    "double": "fp64",
    "int64": "fp64",
    "uint64": "fp64",
    "float": "fp32",
    "int32": "fp32",
    "uint32": "fp32",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "f8e4m3": "fp8",
    "f8e5m2": "fp8",
    "int8": "int8",
    "uint8": "int8",
    "char": "int8",
}
"""Elements of one width are sent alike."""

_TESTS: Mapping[str, str] = {
    "all_?reduce": "all_reduce",
    "all_?gather": "all_gather",
    "reduce_?scatter": "reduce_scatter",
    "all_?to_?all": "all_to_all",
    "broadcast": "broadcast",
    "send_?recv": "send_recv",
}
"""Ops by what the program, or the log that is named after it, is called."""

_SUMS = frozenset({"all_reduce", "reduce_scatter"})

_MOST_DIGITS = 18
"""Most digits of a whole number: what 64 bits with a sign hold."""

_BUS_FACTOR_ERROR = 0.06
"""Bandwidths are printed to the hundredth of a GB/s: rates above 1 tell the factor."""


class NcclLogError(PerfcError):
    """A log of nccl-tests cannot be read."""


@attrs.frozen
class _Head:
    """What a log says before its table."""

    ranks: Sequence[int]
    hosts: Sequence[str]
    devices: Sequence[str]
    version: str
    iterations: int | None


def is_nccl_log(path: Path) -> bool:
    """Whether a file is to be read as a log rather than as a table."""
    return path.suffix.lower() in {".log", ".txt", ".out"}


def read_nccl_log(path: Path, target: str | None = None) -> list[Measurement]:
    """Return the rows of a log.

    Args:
        path: The file.
        target: What it ran on; by the names of its devices if not given.

    """
    data = read_whole(path, NcclLogError, "text-bytes")
    text = data.decode("utf-8", errors="replace")
    lines = [_TAG.sub("", line) for line in text.splitlines()]
    head = _head(lines)
    names, first = _columns(lines, path)
    if not any(_END.match(line.strip()) for line in lines):
        msg = (
            f"{path}: the log ends early: no line '# Avg bus bandwidth'; run the test "
            "to its end"
        )
        raise NcclLogError(msg)
    if len(head.hosts) < 2:  # noqa: PLR2004 - a pair
        msg = (
            f"{path}: expected a line '# Rank …' for each of at least 2 GPUs, found "
            f"{len(head.hosts)}"
        )
        raise NcclLogError(msg)
    _check_ranks(head, path)
    cells = _cells(lines, first, names, path)
    op = _op(path, lines, cells, len(head.hosts))
    where = _target(head, path) if target is None else _checked(target, head, path)
    return [
        _row(row, op, where, head, f"{path}: line {number}") for number, row in cells
    ]


def _head(lines: Sequence[str]) -> _Head:
    ranks: dict[int, tuple[str, str]] = {}
    version, iterations = "", None
    for line in lines:
        if found := _RANK.search(line):
            ranks[int(found["rank"][:_MOST_DIGITS])] = (
                found["host"],
                found["device"].strip(),
            )
        if found := _VERSION.search(line):
            version = version or found["version"].rstrip(".")
        if found := _ITERATIONS.search(line):
            iterations = iterations or int(found["n"])
    hosts = [host for host, _ in ranks.values()]
    return _Head(
        [*ranks], hosts, [device for _, device in ranks.values()], version, iterations
    )


def _check_ranks(head: _Head, path: Path) -> None:
    """Refuse ranks of which some are missing, or nodes that have unlike numbers."""
    ranks = {*head.ranks}
    lost = next(rank for rank in itertools.count() if rank not in ranks)
    if lost < len(ranks):  # not one after the other
        msg = (
            f"{path}: expected a line '# Rank …' for each of {max(ranks) + 1} "
            f"GPUs, found none of rank {lost}"
        )
        raise NcclLogError(msg)
    counts = Counter(head.hosts)
    if len({*counts.values()}) > 1:
        told = ", ".join(f"{n} on {host}" for host, n in counts.items())
        msg = f"{path}: expected as many GPUs on each node, found {told}"
        raise NcclLogError(msg)


def _columns(lines: Sequence[str], path: Path) -> tuple[list[str], int]:
    """Return the names of the table's columns, and where its rows begin."""
    heads = [
        number for number, line in enumerate(lines, 1) if _TABLE.match(line.strip())
    ]
    if len(heads) > 1:
        msg = (
            f"{path}: expected the log of one test, found a second table at line "
            f"{heads[1]}; give each in a file of its own"
        )
        raise NcclLogError(msg)
    for number, line in enumerate(lines):
        if not _TABLE.match(line.strip()):
            continue
        names = line.strip().lstrip("#").split()
        units = next((u for u in lines[number + 1 :] if _UNITS.match(u.strip())), "")
        unit = re.findall(r"\(([^)]*)\)", units)[1:]
        times = [text for text in unit if text not in {"elements", "GB/s"}]
        if {*times} != {"us"}:
            found = ", ".join(dict.fromkeys(times)) or "none"
            msg = f"{path}: line {number + 2}: expected times in (us), found {found}"
            raise NcclLogError(msg)
        if "time" not in names or "type" not in names:
            msg = f"{path}: line {number + 1}: expected columns type and time"
            raise NcclLogError(msg)
        return names, number + 1
    msg = (
        f"{path}: expected the log of an nccl-tests program, with a line '# size count "
        "type …', found none"
    )
    raise NcclLogError(msg)


def _cells(
    lines: Sequence[str], first: int, names: Sequence[str], path: Path
) -> list[tuple[int, Mapping[str, str]]]:
    """Return the rows by the names of their columns; the first of two alike."""
    found: list[tuple[int, Mapping[str, str]]] = []
    for number, line in enumerate(lines[first:], first + 1):
        cells = line.split()
        if not cells or not re.fullmatch(r"[0-9]+", cells[0]):
            continue
        if len(cells[0]) > _MOST_DIGITS:
            msg = f"{path}: line {number}: expected bytes, found {cells[0][:40]}"
            raise NcclLogError(msg)
        if len(cells) != len(names):
            msg = (
                f"{path}: line {number}: expected {len(names)} columns as in the "
                f"header, found {len(cells)}"
            )
            raise NcclLogError(msg)
        if not int(cells[0]):
            continue
        pairs = reversed(list(zip(names, cells, strict=True)))
        found.append((number, dict(pairs)))
    if not found:
        msg = f"{path}: a table without rows"
        raise NcclLogError(msg)
    return found


def _op(
    path: Path,
    lines: Sequence[str],
    cells: Sequence[tuple[int, Mapping[str, str]]],
    ranks: int,
) -> str:
    """Return the op that the log, its name or its rates tell."""
    op = _named_op(path, lines) or _op_of_rates([row for _, row in cells], ranks)
    if not op:
        msg = (
            f"{path}: cannot tell the collective: the log does not name its program; "
            "name the file after it, as alltoall_perf.log"
        )
        raise NcclLogError(msg)
    number, row = cells[0]
    adds = row.get("redop", "none") != "none"
    if adds != (op in _SUMS):
        found = f"redop {row['redop']}" if adds else "no redop"
        msg = f"{path}: line {number}: a table of {op} with {found}"
        raise NcclLogError(msg)
    return op


def _named_op(path: Path, lines: Sequence[str]) -> str:
    """Return the op that the log or its name tells, empty if neither does."""
    said = [line for line in lines if "_perf" in line or "Collective test" in line]
    for text in (*said, path.name):
        for pattern, op in _TESTS.items():
            if re.search(pattern, text.lower()):
                return op
    for text in (*said, path.name):
        if found := _UNMODELLED.search(text):
            known = ", ".join(_TESTS.values())
            msg = f"{path}: {found[0]} tests none of what is modelled: {known}"
            raise NcclLogError(msg)
    return ""


def _op_of_rates(rows: Sequence[Mapping[str, str]], ranks: int) -> str:
    """Return the op that bus factor and sum tell; empty if several could be."""
    rates = [
        float(row["busbw"]) / float(row["algbw"])
        for row in rows
        if _is_number(row.get("algbw", "")) and float(row["algbw"]) > 1
        and _is_number(row.get("busbw", ""))
    ]  # fmt: skip
    if not rates:
        return ""
    factor = sorted(rates)[len(rates) // 2]
    sums = rows[0].get("redop", "none") != "none"
    share = (ranks - 1) / ranks
    if sums and abs(factor - 2 * share) < _BUS_FACTOR_ERROR and ranks > 2:  # noqa: PLR2004
        return "all_reduce"
    if sums and abs(factor - share) < _BUS_FACTOR_ERROR:
        return "reduce_scatter"
    return ""


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False


def _target(head: _Head, path: Path) -> str:
    names = sorted({*head.devices})
    found = target_of_device(names[0]) if len(names) == 1 else None
    if found is None:
        msg = (
            f"{path}: no target is known for {', '.join(names)}; say which it is with "
            "--target"
        )
        raise NcclLogError(msg)
    return found


def _checked(target: str, head: _Head, path: Path) -> str:
    """Return the target, whose GPUs are those of the log.

    GPUs whose names nobody knows may be any; so may those of a sheet of one's own. That
    a CPU has no collectives is said where they are fitted.
    """
    loaded = load_target(target)
    device, system = loaded.device, loaded.system
    gpu = device.name
    most = max(Counter(head.hosts).values())
    if system is not None and most > system.gpus_per_node:
        msg = (
            f"{path}: the test ran on {most} GPUs of a node; one of {target} has "
            f"{system.gpus_per_node}"
        )
        raise NcclLogError(msg)
    if device.synchronous or gpu not in target_names():
        return target
    for name in dict.fromkeys(head.devices):
        found = target_of_device(name)
        if found not in (None, gpu):
            msg = (
                f"{path}: the test ran on {name}, which is {found}; --target {target} "
                f"has {gpu}"
            )
            raise NcclLogError(msg)
    return target


def _row(
    row: Mapping[str, str], op: str, target: str, head: _Head, where: str
) -> Measurement:
    dtype = _DTYPES.get(row["type"])
    if dtype is None:
        known = ", ".join(_DTYPES)
        msg = f"{where}: expected a type of {known}, found {row['type']!r}"
        raise NcclLogError(msg)
    if not _is_number(row["time"]) or float(row["time"]) <= 0:
        msg = f"{where}: expected a time above 0 us, found {row['time']!r}"
        raise NcclLogError(msg)
    wrong = row.get("#wrong", "0")
    if _is_number(wrong) and float(wrong) > 0:
        msg = f"{where}: {wrong} wrong results; the test has failed"
        raise NcclLogError(msg)
    size, ranks, nodes = int(row["size"]), len(head.hosts), len({*head.hosts})
    _check_size(size, row["count"], dtype, ranks, where)
    version = f"nccl {head.version}" if head.version else "nccl"
    return Measurement(
        target=target,
        op=op,
        dtype=dtype,
        params=record_of(
            {
                "bytes": size,
                "ranks": ranks,
                "nodes": nodes,
                "gpus_per_node": -(-ranks // nodes),
            }
        ),
        latency_us=float(row["time"]),
        timing="nccl",
        source=f"nccl-tests, {version}",
        n=head.iterations,
    )


def _check_size(size: int, count: str, dtype: str, ranks: int, where: str) -> None:
    """Refuse a size that is neither that of a rank's elements nor that of all ranks."""
    known = re.fullmatch(rf"[0-9]{{1,{_MOST_DIGITS}}}", count)
    elements = int(count) if known else -1
    possible = {elements * BYTES[dtype], elements * BYTES[dtype] * ranks}
    if size not in possible:
        msg = (
            f"{where}: expected {elements} elements of {dtype} in each of {ranks} "
            f"ranks or in all, found {size} bytes"
        )
        raise NcclLogError(msg)
