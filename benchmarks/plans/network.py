"""How long placing layers on a network takes, and how much of it is done.

    python benchmarks/plans/network.py [LAYERS] [NODES]

Layers that take unequal times on GPUs of three kinds, links of 8 Mb/s to 10 Gb/s, drawn
with three seeds: 100 layers on 48 nodes if nothing else is asked, for which the bar is
10 seconds of CPU. Then the fewest GPUs that end a step within 1.5 times the shortest,
and whether any do in a hundredth of it.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

import numpy as np

from perfc.costmodels import load_target
from perfc.planning.networks import (
    Adaptive,
    Compression,
    Crossing,
    LayerPrices,
    Link,
    Network,
    NetworkNode,
    Placed,
    Placer,
    Problem,
    Unit,
)

LAYERS, NODES, SEEDS, BAR_S = 100, 48, 3, 10.0
COMPRESSION = Compression("topk", 20.0, adaptive=True)
ACTIVATION_BYTES = 4e6
LIMIT_BYTES = 1e12


def problem_of(seed: int, layers: int, nodes: int) -> Problem:
    """Return a problem drawn with a seed."""
    chance = random.Random(seed)
    target = load_target("t4")
    work = np.array([chance.uniform(0.5, 1.5) for _ in range(layers)])
    kinds = [NetworkNode(f"n{n}", target) for n in range(nodes)]
    links = {
        (a.name, b.name): Link(10 ** chance.uniform(6, 9.1), chance.random() / 100)
        for a in kinds
        for b in kinds
        if a is not b
    }
    units = [
        Unit(
            node=n,
            gpus=1,
            prices=prices_of(work * chance.choice((0.5, 1.0, 3.0))),
            limit_bytes=LIMIT_BYTES,
        )
        for n in range(nodes)
    ]
    whole = np.array([0.0, *[ACTIVATION_BYTES] * (layers - 1), 0.0])
    none = np.zeros_like(whole)
    return Problem(
        network=Network(kinds, links),
        units=units,
        sent_bytes=whole * COMPRESSION.share(4),
        microbatches=8,
        schedule="gpipe",
        ratio=COMPRESSION.ratio,
        adaptive=Adaptive(COMPRESSION, Crossing({4.0: whole}, none, none)),
    )


def prices_of(work: np.ndarray) -> LayerPrices:
    """Return prices of layers that take these seconds forward, and need no memory."""
    none, cuts = np.zeros(len(work)), np.zeros(len(work) + 1)
    return LayerPrices(
        forward_s=work,
        backward_s=work * 2,
        update_s=work / 10,
        lasting_bytes=none,
        saved_bytes=none,
        passing_bytes=none,
        gradient_bytes=none,
        encode_s=cuts,
        decode_s=cuts,
    )


def timed(what: str, find: Callable[[], Placed | None], problem: Problem) -> Placed:
    """Print what finding a split takes; return it."""
    start_s = time.process_time()
    found = find()
    taken_s = time.process_time() - start_s
    if found is None:
        sys.exit(f"{what}: nothing was found")
    step_s, gpus = problem.step_s(found), len(found.units)
    late = "" if taken_s <= BAR_S else f"  more than {BAR_S:g} s"
    print(f"  {what:8} {taken_s:6.2f} s CPU  step {step_s:8.2f} s  {gpus} GPUs{late}")
    return found


def main() -> None:
    """Print all of it."""
    given = [int(word) for word in sys.argv[1:]]
    layers, nodes = (*given, LAYERS, NODES)[:2] if len(given) != 1 else (*given, NODES)
    print(f"{layers} layers on {nodes} nodes")
    for seed in range(SEEDS):
        problem = problem_of(seed, layers, nodes)
        placer = Placer(problem)
        timed("place", placer.place, problem)
        fast_s = problem.step_s(timed("fastest", placer.fastest, problem))
        timed("fewest", lambda p=placer, s=fast_s: p.fewest(1.5 * s), problem)
        start_s = time.process_time()
        placer.fewest(fast_s / 100)
        print(f"  none     {time.process_time() - start_s:6.2f} s CPU")


if __name__ == "__main__":
    main()
