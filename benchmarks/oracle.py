"""What an oracle takes to answer, and how exact it is.

    python benchmarks/oracle.py                  # CPU times, and ratios to a fixed loop
    python benchmarks/oracle.py --exact 5000     # random edits against fresh analyses

Times are CPU seconds of one core, BLAS at one thread, least or median of many. Ratios
are to the loop of `speed/cpu_time.py`, which takes much the same share on any machine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import functools
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import perfc
from perfc import Oracle, PerfcError, edits

sys.path.append(str(Path(__file__).parent))
from speed import cpu_time

DEFAULT = ("dlrm-default", {"batch": 2048})
TRAINING = ("dlrm-mlperf", {"batch": 2048, "mode": "training"})
GPT = ("gpt2:layers=96", {"batch": 4, "mode": "training"})
CONFIGURATIONS = 400_000
WANTED = (
    "time_us",
    "time_us_p05",
    "time_us_p95",
    "gpu_active_us",
    "peak_memory_bytes",
)
CLOSE = 1e-9
MS = 1e-3


def main() -> int:
    """Print a table, or how exact answers are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exact", type=int, metavar="N", help="sequences of edits")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.exact:
        return exact(given.exact, given.seed)
    loop_s = cpu_time.least({cpu_time.LOOP: cpu_time.loop}, 7)[cpu_time.LOOP]
    print(f"fixed loop: {loop_s * 1e3:.2f} ms of CPU")
    print(f"{'what':66} {'median':>11} {'worst':>11} {'loops':>10}")
    for what, times_s in [*singles(), *settings(), *large()]:
        median_s = statistics.median(times_s)
        ratio = median_s / loop_s
        print(f"{what:66} {shown(median_s)} {shown(max(times_s))} {ratio:10.5f}")
    print(f"{'configurations a CPU second':66} {'rate':>11} {'':>11} {'a loop':>10}")
    for what, rate in batches():
        print(f"{what:66} {rate:11,.0f} {'':>11} {rate * loop_s:10,.0f}")
    return 0


def shown(seconds: float) -> str:
    """Return seconds in a unit that suits them."""
    return f"{seconds * 1e6:8.1f} us" if seconds < MS else f"{seconds * 1e3:8.2f} ms"


Times = tuple[str, list[float]]


def each(call: Callable[[], object], count: int) -> list[float]:
    """Return the CPU seconds of calls, one by one, the first not counted."""
    call()
    found: list[float] = []
    for _ in range(count):
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return found


def many(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Return the least time of each of calls that are too short for one look.

    What other processes take of the caches is not the call's.
    """
    least = [float("inf")] * len(calls)
    for _ in range(rounds):
        for at, call in enumerate(calls):
            started = time.perf_counter()
            call()
            least[at] = min(least[at], time.perf_counter() - started)
    return least


def nodes(oracle: Oracle) -> list[str]:
    """Return the nodes that take time."""
    return [n["id"] for n in oracle.report().nodes if n["duration_us"] > 0]


def singles() -> Iterator[Times]:
    """Measure durations of a prepared oracle."""
    for name, options in (DEFAULT, TRAINING):
        oracle = Oracle(name, "a100", **options)
        chance = random.Random(0)
        asked = [edits.Duration(n, us=chance.random() * 99) for n in nodes(oracle)]
        yield f"{name}: one duration", many(asking(oracle, asked), 15)
        for where in ("gemm", "elementwise"):
            edit = edits.Duration(where, factor=0.5)
            yield f"{name}: kernels of {where}", many(asking(oracle, [edit] * 20), 5)


def asking(
    oracle: Oracle, asked: Sequence[edits.Duration]
) -> list[Callable[[], object]]:
    """Return calls that ask about one edit each."""
    return [functools.partial(oracle.ask, edit) for edit in asked]


def settings() -> Iterator[Times]:
    """Measure edits after which kernels are priced, or launches made, again."""
    for name, options in (DEFAULT, TRAINING):
        yield from settings_of(name, Oracle(name, "a100", **options))


def settings_of(name: str, oracle: Oracle) -> Iterator[Times]:
    """Measure such edits of one oracle; what it is asked is new each time."""
    sizes, rates = itertools.count(1500), itertools.count(1500)
    field, targets = (
        "gpu.memory_gb_per_s",
        itertools.cycle(["h100", "v100", "l4", "t4"]),
    )
    layers = itertools.cycle(["bot_l.0", "top_l.0", "bot_l.2", "top_l.2"])
    layer = edits.Fuse(["bot_l.1.relu", "bot_l.2.linear", "bot_l.3.relu"])
    calls: dict[str, Callable[[], object]] = {
        "another batch": lambda: oracle.ask(edits.Bind(batch=next(sizes))),
        "a field of the target, read from its sheet": lambda: oracle.ask(
            edits.Target(**{field: next(rates)})
        ),
        "another target, loaded before": lambda: fresh(oracle, prices=True).ask(
            edits.Target(next(targets))
        ),
        "the dtype of a layer": lambda: fresh(oracle).ask(
            edits.Dtype(next(layers), "bf16")
        ),
        "three ops fused": lambda: fresh(oracle).ask(layer),
    }
    if oracle.model.mode == "inference":
        shares = itertools.count(2)
        calls["a table moved"] = lambda: oracle.ask(
            edits.Place("emb_l.0", "uvm-caching", 1 / next(shares))
        )
    for what, call in calls.items():
        for _ in range(4):
            call()
        yield f"{name}: {what}", each(call, 24)
    yield f"{name}: what decides the time", each(oracle.sensitivity, 3)
    yield f"{name}: the time over 1..65536", each(lambda: curve(oracle), 3)


def curve(oracle: Oracle) -> object:
    """Return the time over the batch, every size worked out anew."""
    return fresh(oracle).curve("batch", 1, 65536)


def fresh(oracle: Oracle, *, prices: bool = False) -> Oracle:
    """Return an oracle that has forgotten what it was asked, perhaps prices, too."""
    setting = oracle._states[-1].setting  # noqa: SLF001 - to forget what was asked
    setting._after.clear()  # noqa: SLF001
    if prices:
        setting.memory.prices.clear()
    return oracle


def large() -> Iterator[Times]:
    """Measure a large graph."""
    name, options = GPT
    model = perfc.load(name, **options)
    oracle = Oracle(model, "a100")
    first = nodes(oracle)[100]
    edit = edits.Duration(first, us=5)
    started = time.process_time()
    oracle.ask(edit)
    yield f"{name}: preparing the first answer", [time.process_time() - started]
    asked = [edits.Duration(n, us=9) for n in nodes(oracle)[:400]]
    yield f"{name}: one duration", many(asking(oracle, asked), 9)
    some = [edits.Duration(n, us=3) for n in nodes(oracle)[:2000:200]]
    oracle.ask(*some)
    yield f"{name}: ten durations", each(lambda: oracle.ask(*some), 15)
    pattern = edits.Duration("transformer.h.7", factor=2)
    yield f"{name}: a module", each(lambda: oracle.ask(pattern), 15)

    def applied() -> None:
        oracle.apply(edit)
        oracle.time_us  # noqa: B018 - worked out when it is asked for
        oracle.undo()

    yield f"{name}: apply, ask for the time, undo", each(applied, 15)


def batches() -> Iterator[tuple[str, float]]:
    """Measure configurations a second."""
    chance = np.random.default_rng(0)
    oracle = Oracle(DEFAULT[0], "a100", **DEFAULT[1])
    names, count = nodes(oracle), CONFIGURATIONS
    few = {f"us:{node}": chance.random(count) * 50 for node in names[:20]}
    yield "dlrm-default: 20 durations", rate(oracle, few, count)
    every = {f"us:{node}": chance.random(count) * 50 for node in names}
    every["host.speed"] = chance.random(count) + 0.5
    every["runtime.launch_latency_us"] = chance.random(count) * 5 + 0.1
    yield "dlrm-default: all durations, host and latency", rate(oracle, every, count)
    grid = {"gpu.memory_gb_per_s": np.repeat(np.linspace(1000, 3000, 20), count // 20)}
    yield "dlrm-default: 20 values of a field of the device", rate(oracle, grid, count)
    for (name, options), count in ((DEFAULT, 1500), (TRAINING, 200)):
        sizes = {"batch": np.arange(64, 64 + count)}
        times_s = [first_s(name, options, sizes) for _ in range(3)]
        yield f"{name}: batch sizes, of launches that are new", count / min(times_s)
        oracle = Oracle(name, "a100", **options)
        yield f"{name}: batch sizes", rate(oracle, sizes, count, 1)
        yield (
            f"{name}: batch sizes, with intervals, memory, device time",
            rate(oracle, sizes, count, 1, want=WANTED),
        )


def first_s(name: str, options: dict[str, Any], sizes: dict[str, Any]) -> float:
    """Return the CPU seconds of the first batch of an oracle that is new."""
    oracle = Oracle(name, "a100", **options)
    started = time.process_time()
    oracle.batch(sizes)
    return time.process_time() - started


def rate(
    oracle: Oracle,
    columns: dict[str, Any],
    count: int,
    rounds: int = 3,
    want: Sequence[str] = ("time_us",),
) -> float:
    """Return configurations a CPU second."""
    oracle.batch({name: values[:2] for name, values in columns.items()})
    return count / min(each(lambda: oracle.batch(columns, want), rounds)[:rounds])


MODELS = (
    ("dlrm-default:tables=3,rows=1000", "a100", {}),
    ("dlrm-ddp:tables=2,rows=1000", "v100", {"mode": "training"}),
    ("gpt2:layers=2", "h100-sxm", {"mode": "training"}),
    ("dlrm-default:tables=2,rows=1000", "cpu", {}),
    ("wide-and-deep", "l4", {}),
    ("resnet50", "a100", {}),
)


def exact(sequences: int, seed: int) -> int:
    """Compare answers to random edits with fresh analyses; return 1 if one differs."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.tools.oracle.plain import Plain

    chance = random.Random(seed)
    worst, raised = 0.0, 0
    for number in range(sequences):
        name, target, options = chance.choice(MODELS)
        batch = chance.choice([1, 3, 8, 20])
        oracle = Oracle(name, target, batch=batch, **options)
        plain = Plain(name, target, batch=batch, **options)
        known = nodes(oracle)
        before = oracle.time_us
        times = [before]
        try:
            for _ in range(chance.randint(1, 4)):
                edit = drawn(chance, known)
                plain.edit(edit)
                asked_us = oracle.ask(edit)
                oracle.apply(edit)
                times.append(oracle.time_us)
                worst = max(worst, abs(asked_us / oracle.time_us - 1))
        except PerfcError:
            raised += 1
        else:
            worst = max(worst, abs(oracle.time_us / plain.time_us() - 1))
        for time_us in reversed(times[:-1]):
            oracle.undo()
            if oracle.time_us != time_us:
                print(f"sequence {number}: undo gives {oracle.time_us}, was {time_us}")
                return 1
    print(f"{sequences} sequences, {raised} refused: {worst:.2e} apart at most")
    return int(worst > CLOSE)


def drawn(chance: random.Random, known: list[str]) -> Any:
    """Draw an edit."""
    where, amount = (
        chance.choice([*known, "gemm"]),
        chance.choice([0.0, 0.3, 2.5, 80.0]),
    )
    return chance.choice(
        [
            lambda: edits.Duration(where, us=amount),
            lambda: edits.Duration(where, factor=amount),
            lambda: edits.Bind(batch=chance.randint(1, 64)),
            lambda: edits.Target(**{"gpu.memory_gb_per_s": chance.randint(200, 900)}),
            lambda: edits.Target(**{"host.speed": chance.choice([0.5, 1.5, 4])}),
            lambda: edits.Target(chance.choice(["a100", "v100", "t4"])),
        ]
    )()


if __name__ == "__main__":
    sys.exit(main())
