"""An evolutionary search over which kernels of a transformer's block to fuse.

    python examples/autotune/evolve_fusion.py [--model M] [--target T] [--module P]

The launches of a block follow one another; a choice says of each two neighbours whether
one kernel does both (`edits.Fuse`). Fusing saves launches and what is written between
them, and may cost: a GEMM that takes a loop along reads more, and two GEMMs are never
one kernel. Choices are bits, which a small genetic algorithm selects, crosses, mutates.

It saves kernels: to measure one choice somebody has to write or generate its kernels,
compile them and time the step. The last lines say how many choices were asked for, of
how many there are, and what measuring those would take.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import perfc
from perfc import edits

Choice = tuple[bool, ...]
"""Whether neighbours are fused, for each boundary where they may be."""

COMPILE_S, STEPS = 20.0, 60
"""What is assumed of measuring one choice: seconds to generate and compile its kernels,
and steps that are run to warm up and to time it."""


@dataclass
class Fusions:
    """What may be fused in a block, and what each choice takes.

    Attributes:
        oracle: The step as it stands.
        nodes: Nodes in the order in which they run.
        open: Numbers of the nodes that may be fused with the one before.
        known: Microseconds of the choices that were asked for; infinity: impossible.

    """

    oracle: perfc.Oracle
    nodes: Sequence[str]
    open: Sequence[int]
    known: dict[Choice, float] = field(default_factory=dict[Choice, float])

    @classmethod
    def of(cls, oracle: perfc.Oracle, pattern: str) -> Fusions:
        """Return those of the nodes whose ids match a pattern."""
        rows = sorted(oracle.report().nodes, key=lambda row: row["start_us"])
        found = (row["id"] for row in rows if row["duration_us"])
        nodes = [
            node
            for node in dict.fromkeys(found)
            if fnmatchcase(node, pattern) and _launches(oracle, node)
        ]
        # Neighbours that no kernel can do together are in no larger group, either.
        pairs = enumerate(itertools.pairwise(nodes), 1)
        able = [at for at, pair in pairs if math.isfinite(_time_us(oracle, [pair]))]
        return cls(oracle, nodes, able)

    def groups(self, choice: Choice) -> list[tuple[str, ...]]:
        """Return the nodes that a choice fuses."""
        joined = {at for at, fused in zip(self.open, choice, strict=True) if fused}
        groups: list[list[str]] = []
        for at, node in enumerate(self.nodes):
            if at in joined:
                groups[-1].append(node)
            else:
                groups.append([node])
        return [tuple(group) for group in groups if len(group) > 1]

    def time_us(self, choice: Choice) -> float:
        """Return the microseconds of the step, asked once for each choice."""
        if choice not in self.known:
            self.known[choice] = _time_us(self.oracle, self.groups(choice))
        return self.known[choice]


def _launches(oracle: perfc.Oracle, node: str) -> bool:
    """Whether a node launches a kernel, which a view does not."""
    try:
        oracle.ask(edits.Replace(node, us=1))
    except perfc.PerfcError:
        return False
    return True


def _time_us(oracle: perfc.Oracle, groups: Sequence[tuple[str, ...]]) -> float:
    try:
        return oracle.ask(*map(edits.Fuse, groups))
    except perfc.PerfcError:  # no kernel is known that does all that
        return math.inf


def evolve(
    fusions: Fusions, *, generations: int = 40, size: int = 24, seed: int = 0
) -> Choice:
    """Return the best choice that was found.

    The better of two parents, twice, are crossed gene by gene; each gene of a child
    changes with the probability of one over their number. The two best of a generation
    stay. The first has nothing fused, all, each boundary alone, and random ones.
    """
    chance, count = random.Random(seed), len(fusions.open)
    none = (False,) * count
    alone = [(*none[:at], True, *none[at + 1 :]) for at in range(count)]
    people = [none, (True,) * count, *alone][:size]
    while len(people) < size:
        people.append(tuple(chance.choice((False, True)) for _ in none))
    for _ in range(generations):
        people.sort(key=fusions.time_us)
        children = people[:2]
        while len(children) < size:
            first, second = (
                min(chance.sample(people, 2), key=fusions.time_us) for _ in range(2)
            )
            pairs = zip(first, second, strict=True)
            genes = (chance.choice(pair) for pair in pairs)
            children.append(tuple(g != (chance.random() * count < 1) for g in genes))
        people = children
    return min(people, key=fusions.time_us)


def main() -> None:
    """Search, and print the best and what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt2:layers=1,dtype=bf16")
    parser.add_argument("--target", default="a100")
    parser.add_argument("--module", default="transformer.h.0.*", help="of the block")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--mode", default="training", choices=("inference", "training"))
    parser.add_argument("--generations", type=int, default=40)
    given = parser.parse_args()
    oracle = perfc.Oracle(given.model, given.target, batch=given.batch, mode=given.mode)
    fusions = Fusions.of(oracle, given.module)
    started = time.perf_counter()
    best = evolve(fusions, generations=given.generations)
    took_s = time.perf_counter() - started
    asked = len(fusions.known)
    print(f"{given.model}, {given.mode} of {given.batch} on {given.target}")
    print(f"as it stands: {oracle.time_us:9.1f} us")
    print(f"best found:   {fusions.time_us(best):9.1f} us, by one kernel each for")
    for group in fusions.groups(best):
        print("  " + " + ".join(group))
    print(f"asked for {asked} of {2 ** len(fusions.open):,} choices in {took_s:.1f} s")
    able_us = [us for us in fusions.known.values() if math.isfinite(us)]
    measuring_s = COMPILE_S * len(able_us) + STEPS * math.fsum(able_us) * 1e-6
    print(
        f"measuring the {len(able_us)} possible ones takes {measuring_s / 3600:.1f} h "
        f"({COMPILE_S:.0f} s to compile, {STEPS} steps each)"
    )


if __name__ == "__main__":
    main()
