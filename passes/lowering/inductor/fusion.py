"""Steps of a compiled graph, and which of them become one kernel.

A step is one loop nest that reads and writes buffers, or an outside kernel. The
rules are those of Inductor's scheduler (`torch/_inductor/scheduler.py` and
`codegen/simd.py`, PyTorch 2.13): pairs that share memory are fused, those that save
most first, where their iteration spaces agree and nothing in between has to run
after the one and before the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import TypeAlias

import attrs

from perfc.ir import DType, Node, Value

MAX_STEPS = 64
"""Steps of one kernel (`config.max_fusion_size`)."""

_MAX_PAIRS = 64
"""Readers of one buffer that are looked at together
(`config.max_fusion_buffer_group_pairwise_attempts`)."""

_MIN_SHARED_BYTES = 10
"""Bytes that a pair has to share (`config.score_fusion_memory_threshold`)."""

_ROUNDS = 10

Index: TypeAlias = tuple[tuple[object, ...], ...]
"""Views between the order of a loop and that of the buffer it reads: none, or one tuple
for each view, whose first item says what it does."""

ROWS = "rows"
"""Each element is read for a whole row."""
PERMUTED = "permuted"
"""In another order, which a loop can follow (`config.loop_ordering_after_fusion`)."""
_FOLLOWED = frozenset({ROWS, PERMUTED})


@attrs.define(eq=False)
class Buffer:
    """Memory that steps write and read.

    Attributes:
        name: The value that it holds, or what numbers it holds.
        nbytes: Its size.
        dtype: Type of its elements.
        value: The value that it holds; None for numbers inside of an op.
        needed: Whether somebody other than the steps reads it.

    """

    name: str
    nbytes: int
    dtype: DType
    value: Value | None = None
    needed: bool = False


@attrs.frozen
class Read:
    """A buffer, and how it is indexed."""

    buffer: Buffer
    index: Index = ()

    @property
    def follows(self) -> bool:
        """Whether a loop can have the element at hand when it is written."""
        return all(view[0] in _FOLLOWED for view in self.index)


Reads: TypeAlias = Mapping[Read, int]
"""Bytes of each read."""


@attrs.frozen(eq=False, kw_only=True)
class Step:
    """A loop nest, or an outside kernel.

    Attributes:
        order: Its place in the program.
        rows: Iterations outside of the reduction.
        columns: Elements reduced in each; 1 for a pointwise loop.
        reads: What it reads.
        writes: What it writes.
        nodes: Whose work it does.
        outside: The node, if it is not a generated loop.
        reduces: Whether it is a reduction.
        inner: Whether the elements of a row lie together.

    """

    order: int
    rows: int = 1
    columns: int = 1
    reads: Reads
    writes: tuple[Buffer, ...]
    nodes: tuple[Node, ...]
    outside: Node | None = None
    reduces: bool = False
    inner: bool = True


@attrs.define(eq=False)
class Group:
    """Steps that are one kernel."""

    steps: list[Step]

    @property
    def first(self) -> int:
        """Place of its first step."""
        return min(step.order for step in self.steps)

    @property
    def last(self) -> int:
        """Place of its last step."""
        return max(step.order for step in self.steps)

    @property
    def outside(self) -> Node | None:
        """The node of an outside kernel."""
        return self.steps[0].outside

    @property
    def reduces(self) -> bool:
        """Whether one of the steps is a reduction."""
        return any(step.reduces for step in self.steps)

    @property
    def space(self) -> tuple[int, int]:
        """Rows and columns: those of the reduction, if there is one."""
        step = next((s for s in self.steps if s.reduces), self.steps[0])
        return step.rows, step.columns

    @property
    def writes(self) -> dict[Buffer, None]:
        """Buffers that it computes, in order."""
        return {buffer: None for step in self.steps for buffer in step.writes}

    @property
    def reads(self) -> dict[Read, int]:
        """Reads of what it does not compute itself."""
        own = self.writes
        found: dict[Read, int] = {}
        for step in self.steps:
            for read, nbytes in step.reads.items():
                if read.buffer not in own:
                    found[read] = max(nbytes, found.get(read, 0))
        return found

    @property
    def touched(self) -> dict[Buffer, None]:
        """Every buffer of its steps."""
        found = {read.buffer: None for step in self.steps for read in step.reads}
        return found | self.writes

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Whose work it does, in program order."""
        ordered = sorted(self.steps, key=lambda step: step.order)
        return tuple(dict.fromkeys(n for step in ordered for n in step.nodes))

    @property
    def bytes_read(self) -> int:
        """Bytes that enter: each buffer at most once."""
        total: dict[Buffer, int] = {}
        for read, nbytes in self.reads.items():
            total[read.buffer] = total.get(read.buffer, 0) + nbytes
        return sum(min(nbytes, buffer.nbytes) for buffer, nbytes in total.items())


def fuse(steps: Sequence[Step]) -> list[Group]:
    """Return the kernels of *steps*, in an order in which they can run."""
    fusion = _Fusion([Group([step]) for step in steps])
    for _ in range(_ROUNDS):
        if not fusion.round():
            break
    return fusion.ordered()


@attrs.define(eq=False)
class _Fusion:
    """The groups so far.

    They are kept in an order in which they could run, as Pearce and Kelly do ("A
    dynamic topological sort algorithm for directed acyclic graphs", 2006): a path leads
    on only, so what lies between two groups is looked for between their places.

    Attributes:
        groups: In program order at first; fused ones stand at their first step.

    """

    groups: list[Group]
    _order: list[Group | None] = attrs.field(init=False)
    """An order in which they could run; None where a group was fused away."""
    _place: dict[Group, int] = attrs.field(init=False)
    _readers: dict[Buffer, dict[Group, None]] = attrs.field(
        factory=dict["Buffer", "dict[Group, None]"], init=False
    )

    def __attrs_post_init__(self) -> None:
        self._order = [*self.groups]
        self._place = {group: place for place, group in enumerate(self.groups)}
        for group in self.groups:
            self._enter(group)

    def _enter(self, group: Group) -> None:
        for read in group.reads:
            self._readers.setdefault(read.buffer, {})[group] = None

    def round(self) -> bool:
        """Fuse every pair that may be, best first; whether there was one."""
        # Pairs are listed once per round and may name groups that were merged
        # meanwhile, so each merged group points to the one that absorbed it.
        now = {group: group for group in self.groups}

        def current(group: Group) -> Group:
            while now[group] is not group:
                group = now[group]
            return group

        fused = False
        for left, right in self._pairs():
            one, two = current(left), current(right)
            # A pair is checked here and not when it is listed: a group that has grown
            # since may be too large, or a third group may have come in between.
            if one is two or not self._may_fuse(one, two):
                continue
            later = self._later(*sorted((one, two), key=self._place.__getitem__))
            if later is None:
                continue
            now[two] = one
            # Place what two groups become, before the groups that need it.
            start, *_, last = sorted((self._place[one], self._place.pop(two)))
            part = self._order[start : last + 1]
            others = [
                g for g in part if g is not None and g is not one and g is not two
            ]
            moved = [g for g in others if g not in later]
            moved += [one, *(g for g in others if g in later)]
            self._order[start : last + 1] = moved + [None] * (len(part) - len(moved))
            self._place.update(zip(moved, range(start, last), strict=False))
            self._merge(one, two)
            fused = True
        return fused

    def _merge(self, one: Group, two: Group) -> None:
        for readers in (self._readers.get(read.buffer, {}) for read in two.reads):
            readers.pop(two, None)
        for read in one.reads:
            self._readers.get(read.buffer, {}).pop(one, None)
        one.steps += two.steps
        self.groups.remove(two)
        self._enter(one)

    def _pairs(self) -> list[tuple[Group, Group]]:
        """Return pairs that touch the same buffer, those that save most first."""
        touching: dict[Buffer, list[Group]] = {}
        for group in self.groups:
            if group.outside is None:
                for buffer in group.touched:
                    touching.setdefault(buffer, []).append(group)
        pairs: dict[tuple[Group, Group], None] = {}
        for groups in touching.values():
            pairs.update(dict.fromkeys(_near(groups)))
        scored = [(self._score(*pair), pair) for pair in pairs]
        scored.sort(key=lambda item: item[0], reverse=True)
        return [pair for (_, saved, _), pair in scored if saved >= _MIN_SHARED_BYTES]

    def _score(self, one: Group, two: Group) -> tuple[bool, int, int]:
        """Return likeness, the bytes that a fusion saves, and nearness."""
        saved = _shared_bytes(one, two)
        alike = one.reduces == two.reduces and saved > 0
        return alike, saved, -max(abs(two.first - one.first), abs(two.last - one.last))

    def _may_fuse(self, one: Group, two: Group) -> bool:
        if len(one.steps) + len(two.steps) > MAX_STEPS:
            return False
        if _shared_bytes(one, two) < _MIN_SHARED_BYTES or not _spaces_agree(one, two):
            return False
        return _is_followed(one, two) and _is_followed(two, one)

    def _later(self, one: Group, two: Group) -> set[Group] | None:
        """Return the groups before *two* that need *one*; None if *two* needs any."""
        # If the two were fused, the kernel would both feed the third group and read
        # from it, a cycle. A direct edge from *one* to *two* is harmless: it becomes
        # internal.
        place, last = self._place, self._place[two]
        seen: set[Group] = set()
        waiting = [g for g in self._after(one) if g is not two and place[g] < last]
        while waiting:
            group = waiting.pop()
            if group in seen:
                continue
            seen.add(group)
            for reader in self._after(group):
                if reader is two:
                    return None
                if place[reader] < last:
                    waiting.append(reader)
        return seen

    def _after(self, group: Group) -> Iterator[Group]:
        for buffer in group.writes:
            yield from self._readers.get(buffer, ())

    def ordered(self) -> list[Group]:
        """Return the groups in program order, but each after what it reads."""
        after = {group: set(self._after(group)) - {group} for group in self.groups}
        missing = Counter(reader for readers in after.values() for reader in readers)
        ready = [(g.first, g) for g in self.groups if not missing[g]]
        heapify(ready)
        found: list[Group] = []
        while ready:
            _, group = heappop(ready)
            found.append(group)
            for reader in after[group]:
                missing[reader] -= 1
                if not missing[reader]:
                    heappush(ready, (reader.first, reader))
        return found


def _near(groups: Sequence[Group]) -> Iterable[tuple[Group, Group]]:
    for start in range(0, len(groups), _MAX_PAIRS):
        yield from combinations(groups[start : start + _MAX_PAIRS], 2)


def _shared_bytes(one: Group, two: Group) -> int:
    """Return the bytes that are read or written alike by both."""
    left, right = _accesses(one), _accesses(two)
    if len(left) > len(right):
        left, right = right, left
    return sum(nbytes for read, nbytes in left.items() if read in right)


def _accesses(group: Group) -> dict[Read, int]:
    """Return reads and writes; what a loop can follow counts as in order."""
    found: dict[Read, int] = {}
    for step in group.steps:
        for read, nbytes in step.reads.items():
            found[Read(read.buffer) if read.follows else read] = nbytes
        found.update({Read(buffer): buffer.nbytes for buffer in step.writes})
    return found


def _spaces_agree(one: Group, two: Group) -> bool:
    """Loops of one size; reductions of the same rows; a loop over all or per row."""
    (rows, columns), (other_rows, other_columns) = one.space, two.space
    if one.reduces == two.reduces:
        return (rows, columns) == (other_rows, other_columns)
    if two.reduces:
        rows, columns, other_rows = other_rows, other_columns, rows
    return other_rows in (rows * columns, rows)


def _is_followed(writer: Group, reader: Group) -> bool:
    own = writer.writes
    reads = (read for step in reader.steps for read in step.reads)
    return all(read.follows for read in reads if read.buffer in own)
