"""Lists of embedding tables and what is asked of them, made at random."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from tests.fuzz.mutate import NUMBERS

SHARDINGS = "shardings"
"""The kind of such inputs."""

FILE = "FILE"
RANKS = (2, 4, 8, 16)
TYPES = ("table-wise", "column-wise", "row-wise", "table-row-wise", "grid")
TIERS = ("hbm", "uvm-caching", "uvm")
COSTS = ("physical", "torchrec")
MACHINES = ("dgx-v100", "dgx-a100", "dgx-h100", "zionex", "p3dn.24xlarge", "a100", "t4")
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "adamw")
_POPULARITIES = ("uniform", "zipf(1.05)", "zipf(0)", "zipf-mandelbrot(1.1,1000)")
_ODD: tuple[Any, ...] = (*NUMBERS, 0.5, -0.5, 1e308, "", "x", None, True, [], {})
_STRATEGIES = ("dp", "fsdp", "tp:2", "pp:2 mb:4", "dense=dp emb=grid", "dp:3", "x:y")
_MODELS = ("dlrm-ddp:tables=3,rows=1000", "gpt2:layers=2", "resnet18", "nothing")


def table_list(rng: random.Random) -> dict[str, Any]:
    """Return a list of tables as users have them, from one to thirty."""
    tables: list[dict[str, Any]] = []
    for number in range(rng.choice((1, 2, 3, 5, 8, 13, 30))):
        if tables and rng.random() < 0.3:  # one like the last
            tables.append({**tables[-1], "name": f"t{number}"})
            continue
        table: dict[str, Any] = {
            "name": f"t{number}",
            "rows": max(1, round(10 ** rng.uniform(0, 9))),
            "dim": rng.choice((1, 4, 12, 16, 32, 64, 96, 128, 256)),
            "pooling": rng.choice((1, 2, 0.3, 20, 7.5, 100)),
        }
        if rng.random() < 0.3:
            table["popularity"] = rng.choice(_POPULARITIES)
        tables.append(table)
    return {"tables": tables, "batch": rng.choice((1, 7, 64, 512, 4096))}


def plain_sharding(rng: random.Random, number: int) -> tuple[bytes, tuple[str, ...]]:
    """Return a list of tables and a search with tiers that has an answer or a reason.

    Args:
        rng: Draws them.
        number: Ranks, costs and tiers take turns by it.

    """
    tiers = (TIERS, TIERS[:2], TIERS[1:], ("hbm", "uvm"), TIERS[1:2], TIERS[2:])
    words = [
        *("shard", FILE, "--target", rng.choice(MACHINES[:5])),
        *("--ranks", str(RANKS[number % 4]), "--cost", COSTS[number // 4 % 2]),
        *("--tiers", ",".join(tiers[number // 8 % 6]), "--types", _some(rng, TYPES)),
        *("--seconds", "1", "--full", str(rng.randrange(2)), "-q"),
    ]
    if rng.random() < 0.4:
        words += ["--memory", rng.choice(("1MB", "50MB", "1GB", "20GB"))]
    if rng.random() < 0.3:
        words += ["--host-memory", rng.choice(("10MB", "2GB", "64GB"))]
    if rng.random() < 0.2:
        words += ["--mode", "inference"]
    elif rng.random() < 0.5:
        words += ["--optimizer", rng.choice(OPTIMIZERS)]
    if rng.random() < 0.2:
        words += ["--qcomm", rng.choice(("fp16", "bf16", "fp8", "int8"))]
    return json.dumps(table_list(rng)).encode(), (*words, "--format", "json")


def sharding(rng: random.Random) -> tuple[bytes, tuple[str, ...]]:
    """Return the same with something odd in it, or a search for strategies."""
    if rng.random() < 0.15:
        return b"", _parallel(rng)
    data, words = plain_sharding(rng, rng.randrange(48))
    if rng.random() < 0.5:
        data = _odd_list(rng, json.loads(data))
    if rng.random() < 0.5:
        place = rng.randrange(2, len(words))
        odd = (str(rng.choice(_ODD)), rng.choice(words), "--tiers", "--cache", "1e-300")
        words = (*words[:place], rng.choice(odd), *words[place + rng.randrange(2) :])
    return data, words


def _odd_list(rng: random.Random, listed: dict[str, Any]) -> bytes:
    """Change a few values of a list."""
    for _ in range(rng.choice((1, 1, 2))):
        table = rng.choice(listed["tables"])
        holder = rng.choice((listed, table, table, table))
        key = rng.choice([*holder, "count", "dtype", "hotness", "popularity"])
        if key != "tables" or rng.random() < 0.1:
            holder[key] = rng.choice((*_ODD, *_POPULARITIES, "fp16", "zipf(-1)"))
        tables = listed.get("tables")
        if not isinstance(tables, list) or not tables:
            break  # an odd value in their place: there is no second one to change
    return json.dumps(listed).encode()


def _parallel(rng: random.Random) -> tuple[str, ...]:
    strategies = rng.sample(_STRATEGIES, rng.randrange(1, 3))
    return (
        *("parallel", rng.choice(_MODELS), "--target", rng.choice(MACHINES)),
        *("--ranks", str(rng.choice((*RANKS, 1, 3, 10**6)))),
        *("--batch", str(rng.choice((1, 48, 256, 10**9)))),
        *(word for text in strategies for word in ("--strategy", text)),
        *("--objective", rng.choice(("throughput", "memory", "price", "x")), "-q"),
    )


def _some(rng: random.Random, names: Sequence[str]) -> str:
    """Return some of the names, at least one, as an option takes them."""
    return ",".join(rng.sample(names, rng.randrange(1, len(names) + 1)))
