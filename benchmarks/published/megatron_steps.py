"""Published training steps of GPT by Megatron-LM: `megatron_steps.py FILE`.

FILE is `llm_training_steps.csv`; its rows `vtrain-single-*` are scored, 510 steps of
GPT on 2, 4 or 8 A100. Two numbers are fitted: how fast the host is beside `shared`, and
how long the device stands still at an all-reduce of tensor parallelism. Each hidden
size, 1,024 and 2,048, is scored by those of the other one. This split was made before
any prediction.

What the rows are: with equal ranks and sizes a step is a line through its numbers of
microbatches, to the last digit that is given, and all stages of as many blocks take
equally long, of 12 layers and of 24. The file calls it measured; it is the sum of
pieces, each of which may be. Steps are composed here in the same way: microbatches one
after another, in a pipeline one forward and one backward in turn on equal stages, the
last of which has the head, then the gradients' all-reduce and Adam, nothing
overlapped. `pipeline-parallel` gives -14 to +5 % of that on four steps of 12 layers: it
gives the stage with the head fewer blocks, and lets the host run ahead.

The rows say that blocks are recomputed. Then a block of 2,048 would gain flops at 238
TFLOP/s from 4 to 8 sequences, softmax and norms included, where large GEMMs alone reach
250; without it, at 178. Steps are scored without; `--recompute` takes the rows at their
word. That, dropout, and a vocabulary of 50,257 on one rank were chosen in sight of both
sizes, as was that there are pauses.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from published.megatron_gpt import (
    SEQ,
    Setting,
    all_reduce_s,
    microbatch,
    optimizer,
    parameters_of,
    vocabulary,
)
from published.step_errors import print_errors

SPEEDS = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
PAUSES_S = tuple(n * 5e-5 for n in range(11))
"""Seconds of standing still at an all-reduce, of which one is fitted."""


@attrs.frozen
class Machine:
    """What is fitted of the machine.

    Attributes:
        speed: The host's over that of `shared`.
        pause_s: For how long the device stands still at an all-reduce of a block.

    """

    speed: float = 1.0
    pause_s: float = 0.0


@attrs.frozen
class Step:
    """One published step.

    Attributes:
        row: As the file has it.
        recompute: Whether blocks are computed again in backward.

    """

    row: Mapping[str, str]
    recompute: bool = False

    def _number(self, name: str) -> int:
        return int(self.row[name])

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Elements of a position's vector, heads, layers."""
        hidden, heads, layers = (int(w[1:]) for w in self.row["model"].split("-")[1:])
        return hidden, heads, layers

    @property
    def published_s(self) -> float:
        """Seconds of the step."""
        return float(self.row["step_ms"]) / 1e3

    @property
    def ranks(self) -> tuple[int, int, int]:
        """Ranks of tensor, pipeline and data parallelism."""
        tp, pp = self._number("tp"), self._number("pp")
        return tp, pp, self._number("gpus") // (tp * pp)

    @property
    def group(self) -> str:
        """What is parallel besides data."""
        tp, pp, _ = self.ranks
        kinds = [f"tensor {tp}"] * (tp > 1) + ["pipeline"] * (pp > 1)
        return ", ".join(kinds) or "data alone"

    def predicted_s(self, machine: Machine) -> float:
        """Return the seconds of the step on a machine."""
        hidden, heads, layers = self.sizes
        tp, pp, _ = self.ranks
        setting = Setting(
            *(hidden, heads, tp, self._number("micro_batch"), self.recompute),
            speed=machine.speed,
            pause_s=machine.pause_s,
        )
        line, held = microbatch(setting), layers / pp
        slowest_s, fill_s = line.of(held), (pp - 1) * held * line.layer_s
        steps_s = self._number("grad_accum") * slowest_s + fill_s
        return steps_s + self._sent_s() + optimizer(hidden, heads, tp).of(held)

    def _sent_s(self) -> float:
        """Return the seconds of collectives but those of tensor parallelism.

        A pair's all-reduce takes as many bytes each way as what a stage sends.
        """
        hidden, _, layers = self.sizes
        tp, pp, dp = self.ranks
        sent_s = 0.0
        if pp > 1:
            sent = self._number("micro_batch") * SEQ * hidden
            sent_s += 2 * (pp - 1) * all_reduce_s(sent, 2)
            sent_s += all_reduce_s(vocabulary(tp) // tp * hidden, 2)
        if dp > 1:
            sent_s += all_reduce_s(int(parameters_of(hidden, layers / pp, tp)), dp)
        return sent_s


def fitted(steps: Sequence[Step]) -> Machine:
    """Return the machine by which steps are nearest on average, relatively."""
    published = np.array([step.published_s for step in steps])

    def off(machine: Machine) -> float:
        found = np.array([step.predicted_s(machine) for step in steps])
        return float(np.mean(np.abs(found / published - 1)))

    return min((Machine(*pair) for pair in product(SPEEDS, PAUSES_S)), key=off)


Pairs: TypeAlias = list[tuple[float, float]]
"""Predicted and published seconds."""


def read_steps(path: Path, *, recompute: bool = False) -> list[Step]:
    """Return the steps of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["id"].startswith("vtrain-single")]
    return [Step(row, recompute) for row in rows]


def machines_without(steps: Sequence[Step]) -> dict[int, Machine]:
    """Return the machine of each hidden size as the others say."""
    return {
        hidden: fitted([step for step in steps if step.sizes[0] != hidden])
        for hidden in sorted({step.sizes[0] for step in steps})
    }


def pairs_by_group(
    steps: Sequence[Step], machines: Mapping[int, Machine]
) -> dict[str, Pairs]:
    """Return the pairs of steps by what is parallel, each by its size's machine."""
    groups: defaultdict[str, Pairs] = defaultdict(list)
    for step in steps:
        predicted_s = step.predicted_s(machines[step.sizes[0]])
        groups[step.group].append((predicted_s, step.published_s))
    return dict(sorted(groups.items()))


def score(title: str, steps: Sequence[Step], machines: Mapping[int, Machine]) -> None:
    """Print how far groups of steps are off, each by the machine of its size."""
    print(title)
    groups = pairs_by_group(steps, machines)
    for name, pairs in groups.items():
        print_errors(name, pairs)
    for hidden in machines:
        mine = [step for step in steps if step.sizes[0] == hidden]
        found = pairs_by_group(mine, machines).values()
        print_errors(f"hidden {hidden}", [pair for pairs in found for pair in pairs])
    print_errors("all", [pair for pairs in groups.values() for pair in pairs])


def print_linearity(steps: Sequence[Step]) -> None:
    """Print how far steps are from a line through microbatches, for equal all else."""
    alike: defaultdict[tuple[object, ...], set[tuple[int, float]]] = defaultdict(set)
    for step in steps:
        key = step.row["model"], step.ranks, step.row["micro_batch"]
        alike[key].add((int(step.row["grad_accum"]), step.published_s))
    least = 3
    lines = [np.array(sorted(found)).T for found in alike.values()]
    off = [
        np.max(np.abs(np.polyval(np.polyfit(count, s, 1), count) / s - 1))
        for count, s in lines
        if len(count) >= least
    ]
    print(f"{len(off)} lines through three or more points: within {max(off):.0e}")


def main(argv: Sequence[str]) -> int:
    """Score the steps of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--recompute", action="store_true", help="As the rows say.")
    options = parser.parse_args(argv)
    steps = read_steps(options.file, recompute=options.recompute)
    print_linearity(steps)
    machines = machines_without(steps)
    score("nothing fitted", steps, dict.fromkeys(machines, Machine()))
    for hidden, machine in machines.items():
        print(
            f"without {hidden}: host {machine.speed} times as fast as shared, "
            f"{machine.pause_s * 1e6:.0f} us at an all-reduce"
        )
    score("size held out", steps, machines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
