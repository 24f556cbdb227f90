"""Ops of one side matched with those of the other, and why they differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import attrs

from perfc.tools.diffs.side import SideNode

_ROUNDING = 1e-9
"""Share by which equal durations may differ."""

_KEYS: Sequence[Callable[[SideNode], Hashable]] = (
    lambda n: (n.rank, n.id, n.module, n.op, n.phase, n.operands),
    lambda n: (n.rank, n.module, n.op, n.phase, n.operands),
    lambda n: (n.module, n.op, n.phase, n.shapes),
    lambda n: (n.rank, n.id, n.module, n.op, n.phase),
    lambda n: (n.module, n.op, n.phase),
    lambda n: (n.op, n.shapes),
    lambda n: n.op,
)
"""What ops are the same by, the strictest first; ops of one key match in order."""


@attrs.frozen(eq=False)
class Pair:
    """An op of both sides, or of one.

    Attributes:
        base: That of the base; None if it was added.
        head: That of the head; None if it was removed.
        why: `added`, `removed`, `shape`, `dtype`, `kernel`; empty if the ops are equal.

    """

    base: SideNode | None
    head: SideNode | None
    why: str

    @property
    def one(self) -> SideNode:
        """The op of the head, or of the base where there is none."""
        found = self.head or self.base
        assert found is not None  # noqa: S101 - a pair has one
        return found

    @property
    def is_dearer(self) -> bool:
        """Whether its kernels have other prices."""
        if self.base is None or self.head is None:
            return False
        one, other = self.base.duration_us, self.head.duration_us
        return abs(one - other) > _ROUNDING * max(one, other)


def matched(base: Sequence[SideNode], head: Sequence[SideNode]) -> list[Pair]:
    """Return the ops of both sides, by module, op and shapes, whatever their order."""
    pairs: list[Pair] = []
    left: list[SideNode] = [*base]
    right: list[SideNode] = [*head]
    for key in _KEYS:
        if not (left and right):
            break
        buckets: dict[Hashable, list[SideNode]] = {}
        for node in reversed(left):
            buckets.setdefault(key(node), []).append(node)
        taken: set[int] = set()
        unmatched: list[SideNode] = []
        for node in right:
            found = buckets.get(key(node))
            if not found:
                unmatched.append(node)
                continue
            other = found.pop()
            taken.add(id(other))
            pairs.append(Pair(other, node, _why(other, node)))
        left = [node for node in left if id(node) not in taken]
        right = unmatched
    fused = {name for node in right for name in node.fuses}
    split = {name for node in left for name in node.fuses}
    gone = {node.id for node in left}
    new = {node.id for node in right}
    for node in left:
        is_fused = node.id in fused or not new.isdisjoint(node.fuses)
        pairs.append(Pair(node, None, "kernel" if is_fused else "removed"))
    for node in right:
        is_fused = node.id in split or not gone.isdisjoint(node.fuses)
        pairs.append(Pair(None, node, "kernel" if is_fused else "added"))
    return pairs


def _why(base: SideNode, head: SideNode) -> str:
    if base.operands and head.operands and base.shapes != head.shapes:
        return "shape"
    told = bool(base.kernels) == bool(head.kernels)
    if told and base.kernel_ops != head.kernel_ops:
        return "kernel"
    told = told and bool(base.operands) == bool(head.operands)
    return "dtype" if told and base.dtypes != head.dtypes else ""
