"""How a question is answered: what is worked out again, and why."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.passes.timing import Timeline
from perfc.tools import edits
from perfc.tools.oracle.state import State


def explained(state: State, asked: Sequence[edits.Edit]) -> str:
    """Return how the time under edits is found, in a sentence."""
    after = state.after(asked)
    before, step = state.setting, after.setting.step
    if after.setting is before:
        changed = after.stated != state.stated
        return _retimed(state, asked) if changed else "as it stands"
    whys: list[str] = []
    setting = before
    for edit in asked:
        if isinstance(edit, edits.Duration):
            continue
        if isinstance(edit, edits.Replace) and state.is_one_kernel(edit.where):
            continue
        setting = setting.after(edit)
        whys += [setting.anew] if setting.anew else []
    if whys:
        return f"analyzed from the graph on: {', '.join(dict.fromkeys(whys))}"
    old = {k for launches in before.step.hosted for k in launches.graph.kernels}
    new = [k for launches in step.hosted for k in launches.graph.kernels]
    fresh = sum(kernel not in old for kernel in new)
    if after.setting.run.target is not before.run.target:
        fresh = len(new)
    tasks = "the same tasks"
    if not _are_alike(step.timeline, before.step.timeline):
        tasks = "other tasks"
    return f"{tasks}, {fresh} of {len(new)} kernels priced again{_shared(step.shares)}"


def _are_alike(one: Timeline, other: Timeline) -> bool:
    waits = (one.previous, one.issue, one.after)
    return waits == (other.previous, other.issue, other.after)


def _retimed(state: State, asked: Sequence[edits.Edit]) -> str:
    step = state.setting.step
    if step.shares:
        return f"the same tasks and prices{_shared(shares=True)}"
    (edit, *more) = asked
    if more or not isinstance(edit, edits.Duration):
        return "the schedule solved again from the first task that takes another time"
    if state.quick_s(edit) is not None:
        if state.is_one_kernel(edit.where):
            return "one task, by the longest ways through it and around it"
        return "neighbouring tasks, by the longest ways through them and around them"
    return "the schedule solved again from the first task that takes another time"


def _shared(shares: bool) -> str:  # noqa: FBT001 - a fact
    if not shares:
        return ""
    return "; tasks slow each other down (contention): the schedule is solved anew"
