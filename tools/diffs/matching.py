"""Ops of one side matched with those of the other, and why they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

import attrs

from perfc.tools.diffs.op_names import plain_op
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

_MEASURED_KEYS: Sequence[Callable[[SideNode], Hashable]] = (
    lambda n: (n.module, plain_op(n.op), n.operands),
    lambda n: (plain_op(n.op), sized(n)),
    lambda n: plain_op(n.op),
)
"""Keys where one side was measured: modules have other names, phases none."""


@attrs.frozen(eq=False)
class Pair:
    """An op of both sides, or of one.

    Attributes:
        base: That of the base; None if it was added.
        head: That of the head; None if it was removed.
        why: `added`, `removed`, `shape`, `dtype`, `launches` (more or fewer), `kernel`
            (others); empty if the ops are equal.

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
        return differs(self.base.duration_us, self.head.duration_us)

    @property
    def reason(self) -> str:
        """Why its duration differs: that of its kernels, or the host's without any."""
        if self.why or not self.is_dearer:
            return self.why
        return "kernel" if self.one.kernels else "host"


def differs(one_us: float, other_us: float) -> bool:
    """Whether two durations differ by more than rounding."""
    return abs(one_us - other_us) > _ROUNDING * max(one_us, other_us)


def sized(node: SideNode) -> tuple[str, ...]:
    """Return the shapes of those operands that have one."""
    return tuple(shape for shape in node.shapes if shape != "]")


def matched(base: Sequence[SideNode], head: Sequence[SideNode]) -> list[Pair]:
    """Return the ops of both sides, by module, op and shapes, whatever their order."""
    pairs, left, right = _by_keys(base, head, _KEYS, _why)
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


def matched_with_trace(
    base: Sequence[SideNode], head: Sequence[SideNode]
) -> list[Pair]:
    """Return the ops of both sides, one of which was measured.

    By op and shapes, then by op; what is left by the kernels that it launches between
    the same two ops. Measured ops are called as their predictions, and so are their
    kernels where there are as many.
    """
    pairs, left, right = _by_keys(
        [node for node in base if not node.is_bare],
        [node for node in head if not node.is_bare],
        _MEASURED_KEYS,
        _why_measured,
    )
    more, left, right = _by_place(pairs, base, head, left, right)
    new, left, launched = _by_sequence(left, [n for n in head if n.is_bare])
    old, right, gone = _by_sequence(right, [n for n in base if n.is_bare])
    again, gone, launched = _by_keys(  # of two traces
        gone, launched, (lambda n: n.op,), _why_measured
    )
    pairs += [*more, *again]
    pairs += (Pair(one, other, _why_measured(one, other)) for one, other in new)
    pairs += (Pair(other, one, _why_measured(other, one)) for one, other in old)
    pairs = [_as_predicted(pair) for pair in pairs]
    removed, added = (
        filter(_matters, (*left, *gone)),
        filter(_matters, (*right, *launched)),
    )
    pairs += (Pair(node, None, "removed") for node in removed)
    return [*pairs, *(Pair(None, node, "added") for node in added)]


def _matters(node: SideNode) -> bool:
    return bool(node.kernels or node.segments)


_Matching: TypeAlias = "tuple[list[Pair], list[SideNode], list[SideNode]]"
"""Ops of both sides, and those left of each."""


def _by_keys(
    base: Sequence[SideNode],
    head: Sequence[SideNode],
    keys: Sequence[Callable[[SideNode], Hashable]],
    why: Callable[[SideNode, SideNode], str],
) -> _Matching:
    pairs: list[Pair] = []
    left: list[SideNode] = [*base]
    right: list[SideNode] = [*head]
    for key in keys:
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
            pairs.append(Pair(other, node, why(other, node)))
        left = [node for node in left if id(node) not in taken]
        right = unmatched
    return pairs, left, right


def _by_place(
    pairs: Sequence[Pair],
    base: Sequence[SideNode],
    head: Sequence[SideNode],
    left: Sequence[SideNode],
    right: Sequence[SideNode],
) -> _Matching:
    """Match ops that launch alike between the same two ops, by whatever name."""
    anchors = {id(node): n for n, pair in enumerate(pairs) for node in _both(pair)}
    places = {**_places(base, anchors), **_places(head, anchors)}

    def key(node: SideNode) -> Hashable:
        classes = node.kernel_ops or (node.id,)  # without kernels: like no other
        return places[id(node)], classes

    return _by_keys(left, right, (key,), _why_measured)


def _by_sequence(
    nodes: Sequence[SideNode], bare: Sequence[SideNode]
) -> tuple[list[tuple[SideNode, SideNode]], list[SideNode], list[SideNode]]:
    """Match ops with measured kernels that no op is around: those of a CUDA graph.

    The longest sequences of equal kernels are the same. Kernels of one op are joined.

    Returns:
        Ops with their kernels, the ops left, and the kernels left.

    """
    launched = [(node, kind) for node in nodes for kind in node.kernel_ops]
    kinds = [node.kernel_ops[0] for node in bare]
    found = SequenceMatcher(None, [kind for _, kind in launched], kinds, False)
    groups: dict[int, list[SideNode]] = {}
    for block in found.get_matching_blocks():
        for at in range(block.size):
            owner, _ = launched[block.a + at]
            groups.setdefault(id(owner), []).append(bare[block.b + at])
    pairs = [(n, _joined(groups[id(n)])) for n in nodes if id(n) in groups]
    gone = {id(one) for group in groups.values() for one in group}
    left = [node for node in nodes if id(node) not in groups]
    return pairs, left, [node for node in bare if id(node) not in gone]


def _joined(group: Sequence[SideNode]) -> SideNode:
    return attrs.evolve(
        group[0],
        kernels=tuple(kernel for one in group for kernel in one.kernels),
        names=tuple(name for one in group for name in one.names),
        duration_us=math.fsum(one.duration_us for one in group),
        segments=[
            attrs.evolve(segment, kernel=number) if segment.kernel >= 0 else segment
            for number, one in enumerate(group)
            for segment in one.segments
        ],
    )


def _both(pair: Pair) -> Iterator[SideNode]:
    yield from (node for node in (pair.base, pair.head) if node is not None)


def _places(nodes: Sequence[SideNode], anchors: Mapping[int, int]) -> dict[int, int]:
    """Return the pair that stands before each op, -1 for none."""
    found: dict[int, int] = {}
    place = -1
    for node in nodes:
        place = anchors.get(id(node), place)
        found[id(node)] = place
    return found


def _as_predicted(pair: Pair) -> Pair:
    """Call a measured op, and its kernels, as its prediction does."""
    base, head = pair.base, pair.head
    if base is None or head is None or bool(base.measured) == bool(head.measured):
        return pair
    if head.measured:
        return attrs.evolve(pair, head=_renamed(head, base))
    return attrs.evolve(pair, base=_renamed(base, head))


def _renamed(measured: SideNode, predicted: SideNode) -> SideNode:
    classes = _classes(measured, predicted)
    segments = [
        attrs.evolve(s, detail=classes[s.kernel])
        if s.kernel >= 0 and s.kind != "copy"
        else s
        for s in measured.segments
    ]
    return attrs.evolve(
        measured,
        op=predicted.op,
        counted_as=predicted.counted_as,
        module=predicted.module,
        phase=predicted.phase,
        segments=segments,
    )


def _classes(measured: SideNode, predicted: SideNode) -> Sequence[str]:
    """Return the classes of measured kernels: as predicted, by order or where alike."""
    expected = predicted.kernel_ops
    if len(expected) == len(measured.names):
        return expected
    if len({*expected}) == 1:
        return expected[:1] * len(measured.names)
    return measured.kernel_ops


def _why_measured(base: SideNode, head: SideNode) -> str:
    shapes = {*sized(base)}
    if shapes and sized(head) and shapes.isdisjoint(sized(head)):
        return "shape"
    return "" if len(base.kernels) == len(head.kernels) else "launches"


def _why(base: SideNode, head: SideNode) -> str:
    if base.operands and head.operands and base.shapes != head.shapes:
        return "shape"
    told = bool(base.kernels) == bool(head.kernels)
    if told and len(base.kernels) != len(head.kernels):
        return "launches"
    if told and base.kernel_ops != head.kernel_ops:
        return "kernel"
    told = told and bool(base.operands) == bool(head.operands)
    return "dtype" if told and base.dtypes != head.dtypes else ""
