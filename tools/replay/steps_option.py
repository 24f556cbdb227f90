"""Steps that the option `--steps A:B` asks for, and those that a trace has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfc.ir import PerfcError

if TYPE_CHECKING:
    from perfc.traces import Recorded


def check_steps(recorded: Sequence[Recorded], steps: range | None) -> None:
    """Refuse steps that a trace does not have."""
    if steps is None:
        return
    for one in recorded:
        check_numbers(one.trace.file, [step.number for step in one.steps], steps)


def check_numbers(file: str, numbers: Sequence[int], steps: range) -> None:
    """Refuse steps that are not among those of a trace."""
    if len(steps) <= len(numbers) and set(steps) <= set(numbers):
        return
    own = f"it has {_span(numbers)}" if numbers else "none can be told"
    asked = f"step{'s' if len(steps) > 1 else ''} {_span(steps)}"
    msg = f"{file}: no {asked}; {own}; see --steps"
    raise PerfcError(msg)


def _span(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return f"{first}" if first == last else f"{first} to {last}"
