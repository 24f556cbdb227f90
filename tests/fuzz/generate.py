"""Inputs that are made up, not damaged: rows, logs, traces, arrays, command lines."""

from __future__ import annotations

import csv
import importlib
import io
import json
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np
from tests.fuzz.mutate import NUMBERS, damage_bytes
from tests.fuzz.shardings import SHARDINGS, sharding
from tests.measurements.nccl_logs import nccl_log
from tests.traces.synthetic import Made

MODEL = "dlrm-ddp:tables=2,rows=1000"
"""What sheets, profiles and options are tried on."""

FILE = "FILE"
_FLOATS = (0.0, -1.0, 1e-9, 0.5, 3.25, 1e9, 1e30, 1e308, float("inf"), float("nan"))
_NAMES = ("", "a", "é", "=1+1", "\x1b[31m", "x" * 300, "\0", "../x", "a\nb", "\ud800")


@attrs.frozen
class Input:
    """One input and the command that reads it.

    Attributes:
        source: What it was made from.
        suffix: Of its file.
        data: Bytes of its file.
        words: The command, `FILE` standing for the path.
        relation: What another command must not do: `slower` or `faster` than this one.
        other: That command.

    """

    source: str
    suffix: str
    data: bytes
    words: tuple[str, ...]
    relation: str = ""
    other: tuple[str, ...] = ()

    def command(self, path: Path) -> list[str]:
        """Return the command with the file at *path*."""
        return [word.replace(FILE, str(path)) for word in self.words]


def number(rng: random.Random) -> Any:
    """Return an ordinary number mostly, an odd one at times."""
    kind = rng.random()
    if kind < 0.9:
        return rng.choice((1, 2, 4, 7, 8, 32, 64, 100, 512, 1000, 4096))
    return rng.choice(NUMBERS) if kind < 0.97 else rng.choice(_FLOATS)


_PARAMS: Mapping[str, Sequence[str]] = {
    "gemm": ("b", "m", "n", "k", "layout", "bias"),
    "conv2d": ("n", "c_in", "c_out", "kernel", "size", "stride", "padding", "groups"),
    "elementwise": ("kind", "rows", "cols", "tensor_inputs", "bytes"),
    "softmax": ("rows", "cols"),
    "layer_norm": ("rows", "cols", "kind"),
    "reduction": ("rows", "cols", "kind"),
    "attention": ("batch", "heads", "q_len", "kv_len", "head_dim", "causal"),
    "embedding_bag": ("batch", "tables", "popularity", "weighted", "optimizer"),
    "all_reduce": ("bytes", "ranks", "nodes", "gpus_per_node"),
    "all_to_all": ("bytes", "ranks", "nodes", "gpus_per_node"),
    "memcpy": ("bytes", "kind", "pinned"),
    "concat": ("rows", "cols"),
    "optimizer_step": ("elements", "tensors", "kind"),
}
_WORDS: Mapping[str, Sequence[str]] = {
    "layout": ("nn", "nt", "tn", "tt", "xx"),
    "kind": ("add", "relu", "h2d", "d2h", "d2d", "sum", "adam", "?"),
    "popularity": ("uniform", "zipf(1.05)", "zipf(-1)", "hist(1:1)", "x"),
    "optimizer": ("sgd", "adam", "none"),
}
_TARGETS = (
    "a100-sxm-80g",
    "v100-sxm2-16g",
    "t4",
    "l4",
    "h100-sxm-80g",
    "cpu",
    "dgx-a100",
)


def _param(rng: random.Random, name: str) -> Any:
    if name in _WORDS and rng.random() < 0.9:
        return rng.choice(_WORDS[name])
    if name in {"bias", "causal", "weighted", "pinned"} and rng.random() < 0.9:
        return rng.random() < 0.5
    if name == "tables" and rng.random() < 0.9:
        keys = ("rows", "dim", "pooling")
        count = rng.randrange(4)
        return [{key: number(rng) for key in keys} for _ in range(count)]
    return number(rng) if rng.random() < 0.97 else rng.choice((*_NAMES[:5], None, []))


def _row(rng: random.Random) -> dict[str, Any]:
    op = rng.choice([*_PARAMS])
    params = {name: _param(rng, name) for name in _PARAMS[op] if rng.random() < 0.95}
    odd = rng.random() < 0.05
    return {
        "target": rng.choice(_NAMES if odd else _TARGETS),
        "op": rng.choice(_NAMES) if rng.random() < 0.03 else op,
        "dtype": rng.choice(("fp32", "fp16", "bf16", "tf32", "fp8", "int8", "fp64")),
        "params": json.dumps(params),
        "latency_us": rng.choice((3.5, 12.0, 100.0, *_FLOATS[:6])),
        "timing": rng.choice(("kernel", "graph", "event", "nccl", "host")),
        "source": "made up",
        "kernel": rng.choice(_NAMES[:5]),
    }


def spread(rng: random.Random, data: bytes) -> bytes:
    """Damage bytes of a few of the files, too."""
    return damage_bytes(rng, data) if rng.random() < 0.3 else data


def measured_rows(rng: random.Random) -> Input:
    """Make a table of measured rows, CSV or Parquet, to score or to fit."""
    rows = [_row(rng) for _ in range(rng.choice((0, 1, 1, 2, 5, 30)))]
    parquet = rng.random() < 0.3
    data = spread(rng, (_parquet if parquet else _csv)(rng, rows))
    words: tuple[str, ...] = ("validate", FILE, "--format", "json")
    if rng.random() < 0.4:
        words = ("calibrate", "--from", FILE, "-o", f"{FILE}.toml")
    return Input("rows", ".parquet" if parquet else ".csv", data, words)


def _csv(rng: random.Random, rows: Sequence[Mapping[str, Any]]) -> bytes:
    columns = [*_row(rng)]
    if rng.random() < 0.1:
        rng.shuffle(columns)
        columns = columns[: rng.randrange(len(columns) + 1)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row[name] for name in columns] for row in rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def _parquet(rng: random.Random, rows: Sequence[Mapping[str, Any]]) -> bytes:
    pa: Any = importlib.import_module("pyarrow")  # has no types
    parquet: Any = importlib.import_module("pyarrow.parquet")

    columns: dict[str, Any] = {}
    for name in _row(rng):
        cells = [row[name] for row in rows]
        if name == "latency_us":
            columns[name] = pa.array(map(float, cells), pa.float64())
            continue
        texts = [cell.encode("utf-8", "surrogatepass") for cell in cells]
        if rng.random() < 0.05 and texts:
            texts[0] = b"\xff\xfe"
        binary = pa.array(texts, pa.binary())
        columns[name] = pa.StringArray.from_buffers(len(texts), *binary.buffers()[1:])
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream)
    return stream.getvalue()


def nccl(rng: random.Random) -> Input:
    """Make a log of nccl-tests, with odd hosts, sizes and times, and lines moved."""
    sizes = {
        2 ** rng.randrange(2, 34): rng.choice((3.5, 20.0, 1e-9, 1e9, 1e300))
        for _ in range(rng.choice((1, 3, 8)))
    }
    text = nccl_log(
        sizes,
        hosts=[
            rng.choice(("a", "a", "b")) for _ in range(rng.choice((1, 2, 4, 8, 64)))
        ],
        device=rng.choice(("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "x")),
        dtype=rng.choice(("half", "float", "int8", "double")),
        program=rng.choice(("all_reduce_perf", "alltoall_perf", "")),
        shared=rng.random() < 0.5,
        old=rng.random() < 0.2,
    )
    lines = text.splitlines()
    for _ in range(rng.choice((0, 1, 2, 4))):
        at = rng.randrange(len(lines))
        cells = lines[at].split(" ")
        where = rng.randrange(len(cells))
        cells[where] = rng.choice(
            (str(rng.choice(NUMBERS)), "²", "9" * 5000, *_NAMES[:5])
        )
        lines[at] = " ".join(cells)
    data = spread(rng, "\n".join(lines).encode("utf-8", "surrogatepass"))
    words = ("calibrate", "--from", FILE, "-o", f"{FILE}.toml")
    return Input("nccl log", ".log", data, words)


def _npy(rng: random.Random) -> bytes:
    """Make an array; its header may claim another shape than its data have."""
    stream = io.BytesIO()
    shape = [(), (0,), (5,), (6, 2), (100,), (0, 10**9)][rng.randrange(6)]
    dtype = rng.choice(("<i8", "<i4", ">i8", "<u8", "<f8", "?", "U3", "<c16"))
    array = np.zeros(shape, dtype=dtype)
    if array.dtype.kind in "iu" and array.size:
        array += rng.choice((0, 1, 5, 2**31 - 1))
    np.save(stream, array)
    data = stream.getvalue()
    if rng.random() < 0.3:
        claimed = rng.choice(
            (b"(1000000000000000000,)", b"(-1,)", b"(9999999999,", b"0")
        )
        data = data.replace(repr(shape).encode(), claimed, 1)
    return data


def indices(rng: random.Random) -> Input:
    """Make an index trace: `.npy`, `.npz`, `.csv`."""
    suffix = rng.choice((".npy", ".npz", ".npz", ".csv"))
    if suffix == ".npy":
        data = _npy(rng)
    elif suffix == ".csv":
        cells = ("1", "2 3", "", "7|8", "-1", "9" * 30, "x", "1.5")
        columns = rng.randrange(1, 5)
        lines = [",".join(f"t{n}" for n in range(columns))]
        lines += [
            ",".join(rng.choice(cells[: rng.choice((4, 8))]) for _ in range(columns))
            for _ in range(rng.randrange(6))
        ]
        data = "\n".join(lines).encode()
    else:
        stream = io.BytesIO()
        names = (
            "indices",
            "lengths",
            "offsets",
            "tables",
            "a",
            "a_offsets",
            "offsets_b",
        )
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in rng.sample(names, rng.randrange(1, 5)):
                archive.writestr(f"{name}.npy", _npy(rng))
        data = stream.getvalue()
    words = ("locality", FILE, "--format", rng.choice(("json", "table")))
    return Input("indices", suffix, spread(rng, data), words)


def kineto(rng: random.Random) -> Input:
    """Make a trace of a few ops, and change some fields of its events."""
    made = Made()
    for step in range(3):
        at = 1000.0 * step
        made.add("user_annotation", f"ProfilerStep#{step}", at, 900.0)
        for op in range(rng.choice((1, 3))):
            made.op(rng.choice(("aten::mm", "aten::add", "é\x1b")), at + 100 * op, 80.0)
            made.call("cudaLaunchKernel", at + 100 * op + 10, 5.0)
            correlation = made.correlation
            args = {"correlation": correlation, "stream": 7, "device": 0}
            made.add("kernel", "k", at + 100 * op + 30, 40.0, **args)
    for _ in range(rng.choice((0, 1, 2, 5))):
        event: Any = rng.choice(made.events)
        place: Any = event if rng.random() < 0.6 else event.get("args")
        if place and isinstance(place, dict):
            fields = cast("dict[str, Any]", place)
            odd: list[Any] = [number(rng), *_NAMES[:5], None, [], {}, -5.0]
            fields[rng.choice([*fields])] = rng.choice(odd)
    head: dict[str, Any] = {"schemaVersion": 1, "traceEvents": made.events}
    if rng.random() < 0.2:
        properties: list[Any] = [[], [{"name": "x"}], {}, "x", None]
        head["deviceProperties"] = rng.choice(properties)
    words: tuple[str, ...] = ("replay", FILE, "--format", "json")
    if rng.random() < 0.4:
        words = ("rescale", FILE, "--from", "a100", "--to", "h100", "--format", "json")
    data = json.dumps(head).encode("utf-8", "surrogatepass")
    return Input("kineto trace", ".json", spread(rng, data), words)


_MODELS = (
    *(MODEL, "dlrm-ddp:tables=1,rows=100000000000", "wide-and-deep", "nothing"),
    *("dlrm-ddp:tables=-1", "dlrm-ddp:rows=1e9", "gpt2:layers=1", "bert-base:layers=1"),
    *("dlrm-ddp:tables=3,rows=1000,dim=1", "resnet50:image=32"),
)
_OPTIONS: Mapping[str, Sequence[str]] = {
    "--batch": (
        "1",
        "2",
        "64",
        "1000000",
        "1099511627776",
        "0",
        "-1",
        "1e3",
        "x",
        "9" * 40,
    ),
    "--target": (
        "a100",
        "h100",
        "l4",
        "cpu",
        "mi300x",
        "dgx-a100",
        "\x1b[2J",
        "",
        "./x.toml",
    ),
    "--mode": ("inference", "training", "x"),
    "--optimizer": ("sgd", "adam", "rowwise_adagrad", ""),
    "--dtype": ("fp32", "bf16", "amp-fp16", "fp16", "x"),
    "--runtime": ("eager", "cudagraph", "compiled", "x"),
    "--inputs": ("host-pinned", "host-pinned-blocking", "host-pageable", "device"),
    "--ranks": ("1", "2", "8", "64", "1000000", "0", "nan"),
    "--pooling": ("1", "20", "0", "1e9", "nan", "-1"),
    "--overheads": ("shared", "lin-v100", "x", "/dev/null"),
    "--popularity": (
        "uniform",
        "zipf(1.05)",
        "zipf(nan)",
        "zipf(1e308)",
        "t=",
        "hist(:",
    ),
    "--dim": ("batch=4", "B=-1", "=", "x=1", "B=99999999999999999999"),
    "--set": (
        *("gpu.sm_clock_mhz=100", "gpu.memory_gb_per_s=1e-30", "gpu.sm_count=0"),
        *("gpu.l2_mib=nan", "gpu.rates_tflops.fp32=1e300", "x=1", "gpu.sm_clock_mhz="),
    ),
    "--pass": (
        "training",
        "shard-embeddings{ranks=2}",
        "x{",
        "fsdp",
        "memory{a=1}",
        "{}",
    ),
    "--format": ("json", "json", "table", "csv", "md", "html", "trace", "x"),
    "--budget": ("launches=5", "nodes=1e9", "x=1", "seconds=nan", "elements="),
}


def commands(rng: random.Random) -> Input:
    """Make a command line: options with values good and bad."""
    verb = rng.choice(
        ("analyze",) * 6 + ("opt", "targets", "ops", "models", "passes", "x")
    )
    if verb != "analyze":
        rest = rng.sample(("show", "a100", "--verbose", "--help", "x", "\x1b"), 2)
        return Input("command", ".none", b"", (verb, *rest))
    words = [
        verb,
        rng.choice(_MODELS),
        "--target",
        rng.choice(_OPTIONS["--target"][:6]),
    ]
    if rng.random() < 0.8:
        words += ["--batch", rng.choice(_OPTIONS["--batch"][:4])]
    for option in rng.sample([*_OPTIONS], rng.randrange(4)):
        words += [option, rng.choice(_OPTIONS[option])]
    return Input("command", ".none", b"", tuple(words))


_BETTER = (
    *("gpu.memory_gb_per_s", "gpu.sm_clock_mhz", "gpu.l2_gb_per_s", "gpu.l2_mib"),
    *("host_link.h2d_gb_per_s", "host_link.d2h_gb_per_s"),
)
_PLAIN = (
    *(MODEL, "wide-and-deep", "dcnv2-mlperf", "resnet18:image=64"),
    *("gpt2:layers=1", "bert-base:layers=1"),
)


def relations(rng: random.Random) -> Input:
    """Make two commands of which one must not take longer than the other."""
    model, target = rng.choice(_PLAIN), rng.choice(("a100", "v100", "t4", "h100", "l4"))
    # Not 16: twice as many rows are taken by another kernel, which is sooner
    # (`costmodels/streaming/gather.py`).
    batch = 2 ** rng.choice((0, 1, 2, 3, 5, 6, 7))
    mode = rng.choice(("inference", "training"))
    shared: tuple[str, ...] = ("analyze", model, "--mode", mode, "--target", target)
    runtime = rng.choice(("eager", "eager", "cudagraph", "compiled"))
    shared = (*shared, "--format", "json", "--runtime", runtime)
    base: tuple[str, ...] = (*shared, "--batch", str(batch))
    other: tuple[str, ...]
    kind = rng.randrange(4)
    if kind == 0:
        other, relation = (*shared, "--batch", str(2 * batch)), "faster"
    elif kind == 1:
        field = rng.choice(_BETTER)
        slow, fast = _pair(target, field, rng.choice((1.5, 4.0)))
        base, other, relation = (*base, "--set", slow), (*base, "--set", fast), "slower"
    elif kind == 2:
        other, relation = (*base, "--inputs", "device"), "slower"
    else:
        other, relation = (*base, "--ranks", "1"), "slower"
    return Input("relation", ".none", b"", base, relation, other)


def _pair(target: str, field: str, factor: float) -> tuple[str, str]:
    from perfc.costmodels import load_target  # not for other kinds

    value = float(load_target(target).fields[field])
    return f"{field}={value}", f"{field}={value * factor}"


GENERATORS: Mapping[str, Callable[[random.Random], Input]] = {
    "rows": measured_rows,
    "nccl": nccl,
    "indices": indices,
    "kineto": kineto,
    "commands": commands,
    "relations": relations,
    SHARDINGS: lambda rng: Input(SHARDINGS, ".json", *sharding(rng)),
}
"""What makes inputs of a kind."""
