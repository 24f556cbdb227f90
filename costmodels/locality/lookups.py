"""What kernels look up in embedding tables: rows, how many, how popular.

Of E equally popular rows N lookups touch E (1 - (1 - 1/E)^N), and of those that a
cache of C rows sees again it keeps a share of C / E; rows of another popularity are
counted by `unique_rows.py` and `row_cache.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs
import numpy as np

from perfc.costmodels import locality
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Flags,
    Floats,
    Indices,
    KernelTable,
    Maths,
    Number,
    OneSignature,
)
from perfc.ir import AttrValue, Kernel, PerfcError, Record

if TYPE_CHECKING:
    from perfc.costmodels.locality.popularity import Popularity

_UNIFORM = frozenset({None, "", "uniform"})
"""Popularities of rows that are all the same, as most tables say it."""

_SIZES = ("rows", "dim", "pooling")
"""What every table says of itself."""

_STORED = "row_bytes"
"""What a table says whose elements have scales beside them."""

_KEPT = "kept"
"""What a table says whose bags repeat those before them."""

_OF_ALL = ("popularity", "batch", "phase")
"""What a kernel says of all of its tables."""

ROW_FORMATS: Mapping[str, tuple[float, int]] = MappingProxyType(
    {
        "fp64": (8.0, 0),
        "fp32": (4.0, 0),
        "tf32": (4.0, 0),
        "fp16": (2.0, 0),
        "bf16": (2.0, 0),
        "fp8": (1.0, 0),
        "int8": (1.0, 4),
        "int4": (0.5, 4),
        "int2": (0.25, 4),
    }
)
"""Bytes per element, and per row for its scale, as FBGEMM stores tables."""


def distinct_rows(rows: Floats, count: Floats) -> Floats:
    """Return how many of *rows* equally popular rows *count* lookups touch, on average.

    E (1 - (1 - 1/E)^N): never more than there are rows, or lookups.
    """
    return touched_rows(rows, count, ARRAYS)


def touched_rows(rows: Number, count: Number, maths: Maths[Number]) -> Number:
    """Return how many rows *count* lookups touch, of one table or of many."""
    spread = maths.most(rows, 1 + 1e-12)  # the logarithm of one row's is -inf
    missed = maths.expm1(count * maths.log1p(-1 / spread))
    return maths.least(-rows * missed, count)


Each = TypeVar("Each", float, Floats)
"""Number of each table looked up; one number where all of a kernel are alike."""


@attrs.frozen(eq=False)
class Lookups(Generic[Each, Number]):
    """What kernels look up, table by table.

    Attributes:
        rows: Rows of the embedding table.
        row_bytes: Bytes of one of its rows.
        dim: Elements of one.
        count: Lookups: batch * pooling.
        draws: Those of bags that differ: the others repeat the bag before them.
        pooling: Lookups of a bag.
        skewed: Places of the tables whose rows are not equally popular, and how popular
            they are.
        batch: Bags that each kernel makes of a table; at least 1.
        tables: How many each kernel has.
        spread: From what is of each kernel to what is of each table.
        per_kernel: Sums what is of each table over those of a kernel.
        maths: Of tables.

    """

    rows: Each
    row_bytes: Each
    dim: Each
    count: Each
    draws: Each
    pooling: Each
    skewed: tuple[tuple[int, Popularity], ...]
    batch: Number
    tables: Number
    spread: Callable[[Number], Each]
    per_kernel: Callable[[Each], Number]
    maths: Maths[Each]

    def distinct(self) -> Each:
        """Return how many different rows are looked up."""
        found = touched_rows(self.rows, self.draws, self.maths)

        def touched(popularity: Popularity, of: Floats) -> float:
            rows, count, pooling, _ = of.tolist()
            return locality.unique_row_count(popularity, int(rows), count, pooling)

        return self._where_skewed(found, touched, self.rows)

    def misses(self, held: Each) -> Each:
        """Return how many lookups miss a cache that *held* rows of each table fit.

        A bag that repeats the one before it finds its rows there.
        """
        distinct = touched_rows(self.rows, self.draws, self.maths)
        hit = self.maths.least(held / self.rows, 1.0)
        found = distinct + (self.draws - distinct) * (1 - hit)

        def missed(popularity: Popularity, of: Floats) -> float:
            rows, count, pooling, cached = of.tolist()
            return locality.cold_misses(popularity, int(rows), cached, count, pooling)

        return self._where_skewed(found, missed, held)

    @property
    def uneven(self) -> Each:
        """1 for each table whose rows are not equally popular, else nought."""

        def uneven(_popularity: Popularity, _of: Floats) -> float:
            return 1.0

        return self._where_skewed(0.0 * self.rows, uneven, self.rows)

    def _where_skewed(
        self, found: Each, of: Callable[[Popularity, Floats], float], held: Each
    ) -> Each:
        """Replace what was found of tables whose rows are not equally popular."""
        if not self.skewed:
            return found
        each = (self.rows, self.draws, self.pooling, held)
        sizes: Floats = np.array(each, dtype=np.float64).reshape(4, -1)
        known: dict[tuple[object, ...], float] = {}
        changed: Floats = np.array(found, dtype=np.float64).reshape(-1)
        for place, popularity in self.skewed:
            mine: Floats = sizes[:, place]
            key = (popularity, *mine.tolist())
            if key not in known:
                known[key] = of(popularity, mine)
            changed[place] = known[key]
        alone = not isinstance(found, np.ndarray)
        replaced: Any = float(changed[0]) if alone else changed
        made: Each = replaced
        return made


@attrs.frozen(eq=False)
class ListedTables:
    """What kernels say of the tables that they look up.

    Attributes:
        forward: Whether each kernel is a forward one, shape (kernels,).
        usable: Whether it says what it looks up, and how.
        tiered: Whether a table of it is not in device memory.
        batch: Bags that it makes of a table, where it is usable.
        counts: How many tables it has.
        sizes: Rows, dim and pooling of each table, bytes of a row, and the share of its
            bags that differ, shape (5, tables); nan where it does not say, 0 bytes
            where its type says it.
        popularities: How popular the rows of each table are.

    """

    forward: Flags
    usable: Flags
    tiered: Flags
    batch: Indices
    counts: Indices
    sizes: Floats
    popularities: Sequence[AttrValue]

    def take(self, rows: Indices) -> ListedTables:
        """Return the tables of some of the kernels."""
        counts, starts = self.counts, np.cumsum(self.counts) - self.counts
        first = np.repeat(starts[rows] - np.cumsum(counts[rows]), counts[rows])
        at = first + np.repeat(counts[rows], counts[rows])
        at += np.arange(len(at))
        places: list[int] = at.tolist()
        return ListedTables(
            self.forward[rows],
            self.usable[rows],
            self.tiered[rows],
            self.batch[rows],
            counts[rows],
            self.sizes[:, at],
            [self.popularities[place] for place in places],
        )


def listed_tables(kernels: KernelTable) -> ListedTables:
    """Read them in one pass: thousands of kernels are in no CPU cache."""
    if (told := kernels.once_of_whole(listed_tables)) is not None:
        whole, chosen = told
        return whole.take(chosen)
    names = ("tables", *_OF_ALL)
    listed, of_all, batch, phase = (kernels.values(name) for name in names)
    # Kernels of a table at many batches have one list, which is read once.
    numbers: dict[tuple[int, AttrValue], int] = {}
    described = zip(map(id, listed), of_all, strict=True)
    at = np.array([numbers.setdefault(k, len(numbers)) for k in described], np.intp)
    first = np.zeros(len(numbers), dtype=np.intp)
    first[at[::-1]] = np.arange(len(at))[::-1]
    read = [_read(listed[row] or (), of_all[row]) for row in first.tolist()]
    flags = np.array([each[0] for each in read], dtype=np.bool_).reshape(-1, 2)
    said = np.array([number is not None for number in batch], dtype=np.bool_)
    usable = flags[at, 0] & said
    batches = np.array([number or 0 for number in batch]).astype(np.int64)
    forward = np.array([p is None or p == "forward" for p in phase], dtype=np.bool_)
    own = ListedTables(
        forward[first],
        usable[first],
        flags[:, 1],
        batches[first],
        np.array([len(each[1]) for each in read], dtype=np.int64),
        np.array([size for each in read for size in each[1]], dtype=np.float64)
        .reshape(-1, len(_SIZES) + 2)
        .T,
        [text for each in read for text in each[2]],
    )
    if len(read) < len(at):
        own = own.take(at)
    return attrs.evolve(
        own,
        forward=forward,
        usable=usable,
        batch=np.where(usable, batches, 0),
    )


def _read(
    tables: tuple[Record, ...], of_all: AttrValue
) -> tuple[tuple[bool, bool], list[tuple[Any, ...]], list[AttrValue]]:
    """Return whether tables say how they are read, and whether one is elsewhere.

    And rows, dim, pooling and differing bags of each, and how popular its rows are.
    """
    usable, tiered = bool(tables), False
    sizes: list[tuple[Any, ...]] = []
    texts: list[AttrValue] = []
    for table in tables:
        item = table.reader
        text = item("popularity", of_all)
        if text not in _UNIFORM and not locality.is_popularity(str(text)):
            usable = False
        if item("tier"):
            tiered = True
        sizes.append((*map(item, _SIZES), item(_STORED) or 0, item(_KEPT, 1.0)))
        texts.append(text)
    return (usable, tiered), sizes, texts


def lookups_of(kernels: KernelTable) -> Lookups[Floats, Floats]:
    """Return the tables that the kernels look up."""
    listed = kernels.once(listed_tables)
    at, counts = np.repeat(np.arange(len(kernels)), listed.counts), listed.counts
    kinds, kind_at = kernels.kinds
    formats = np.array([_format_of(dtype) for _, dtype, _ in kinds])
    element, extra = formats[kind_at[at]].T
    batch = listed.batch.astype(np.float64)
    rows, dim, pooling, stored, kept = listed.sizes
    if np.isnan(listed.sizes).any():
        raise _lacking(kernels.kernels)
    return Lookups(
        np.maximum(rows, 1.0),
        _row_bytes(stored, np.ceil(dim * element) + extra),
        dim,
        batch[at] * pooling,
        batch[at] * pooling * kept,
        pooling,
        skewed=_skewed(listed.popularities),
        batch=np.maximum(batch, 1.0),
        tables=counts.astype(np.float64),
        spread=lambda amounts: amounts[at],
        per_kernel=functools.partial(_sums, at, counts),
        maths=ARRAYS,
    )


def _row_bytes(stored: Floats, usual: Floats) -> Floats:
    """Return the bytes of rows: as tables say, else as their type does."""
    found: Floats = np.where(stored > 0, stored, usual)
    return found


def _sums(at: Indices, counts: Indices, amounts: Floats) -> Floats:
    """Return the sum over the tables of each kernel; *at*: whose each of them is.

    In their order; of tables that are alike it is a product, as of one kernel.
    """
    if not len(amounts):
        return np.zeros(len(counts))
    found = np.bincount(at, weights=amounts, minlength=len(counts))
    starts = np.cumsum(counts) - counts
    first = amounts[np.minimum(starts, max(len(amounts) - 1, 0))]
    equal = np.bincount(at, weights=amounts == first[at], minlength=len(counts))
    sums: Floats = np.where(equal == counts, counts * first, found)
    return sums


def _sum(amounts: Floats) -> float:
    """Return the sum over the tables of one kernel."""
    if (amounts == amounts[0]).all():
        return float(len(amounts) * amounts[0])
    return float(np.add.accumulate(amounts)[-1])


def lookups_of_one(one: OneSignature) -> Lookups[Any, float]:
    """Return the tables that one kernel looks up, as arrays.

    Tables that are alike are one number so many times, which costs less.
    """
    tables = one.kernel.params.records("tables")
    alike = tables.count(tables[0]) == len(tables)
    read = tables[:1] if alike else tables
    batch = float(one.kernel.params.integer("batch"))
    element, extra = _format_of(one.kernel.dtype)
    skewed = _skewed(_popularities(one.kernel, read))
    sizes = _sizes_of(one.kernel, read)
    count = float(len(tables))
    if alike:
        ((rows,), (dim,), (pooling,), (stored,), (kept,)) = sizes.tolist()
        same: Lookups[float, float] = Lookups(
            max(rows, 1.0),
            stored or math.ceil(dim * element) + extra,
            dim,
            batch * pooling,
            batch * pooling * kept,
            pooling,
            skewed=skewed,
            batch=max(batch, 1.0),
            tables=count,
            spread=float,
            per_kernel=count.__mul__,
            maths=FLOATS,
        )
        return same
    each: Lookups[Floats, float] = Lookups(
        np.maximum(sizes[0], 1.0),
        _row_bytes(sizes[3], np.ceil(sizes[1] * element) + extra),
        sizes[1],
        batch * sizes[2],
        batch * sizes[2] * sizes[4],
        sizes[2],
        skewed=skewed,
        batch=max(batch, 1.0),
        tables=count,
        spread=np.asarray,
        per_kernel=_sum,
        maths=ARRAYS,
    )
    return each


def _sizes_of(kernel: Kernel, tables: Sequence[Record]) -> Floats:
    """Return the sizes of a kernel's tables as `ListedTables` has them."""
    try:
        listed = [[table[name] for table in tables] for name in _SIZES]
    except KeyError:
        raise _lacking([kernel]) from None
    listed.append([table.get(_STORED, 0) for table in tables])
    listed.append([table.reader(_KEPT, 1.0) for table in tables])
    return np.array(listed, dtype=np.float64)


def _lacking(kernels: Sequence[Kernel]) -> PerfcError:
    """Return the error to raise where a table lacks one of its sizes."""
    kernel, name = next(
        (kernel, name)
        for kernel in kernels
        for table in kernel.params.records("tables")
        for name in _SIZES
        if table.get(name) is None
    )
    return PerfcError(
        f"a table of kernel {kernel.op!r} has no {name!r}; "
        f"expected rows, dim and pooling: {kernel.params}"
    )


def _format_of(dtype: str) -> tuple[float, float]:
    """Return bytes of an element, and of a row besides."""
    element, extra = ROW_FORMATS.get(dtype, (4.0, 0))
    return element, float(extra)


def popularity_of(kernel: Kernel, table: Record) -> Popularity:
    """Return how popular the rows of one of a kernel's tables are."""
    (text,) = _popularities(kernel, [table])
    return locality.parse_popularity(str(text or ""))


def row_bytes_of(kernel: Kernel, table: Record) -> float:
    """Return the bytes of a row of one of a kernel's tables."""
    element, extra = _format_of(kernel.dtype)
    stored = table.integer(_STORED, 0)
    return float(stored) or math.ceil(table.integer("dim") * element) + extra


def _popularities(kernel: Kernel, tables: Sequence[Record]) -> list[AttrValue]:
    of_all = kernel.params.get("popularity")
    return [table.reader("popularity", of_all) for table in tables]


def _skewed(texts: Sequence[AttrValue]) -> tuple[tuple[int, Popularity], ...]:
    """Return the places of what is not uniform, and what it is."""
    if _UNIFORM.issuperset(texts):
        return ()
    read = [locality.parse_popularity(str(text or "")) for text in texts]
    uniform = locality.Uniform
    return tuple((i, p) for i, p in enumerate(read) if not isinstance(p, uniform))


def has_tables(kernel: Kernel) -> bool:
    """Whether the signature of an embedding bag says what it looks up, and how."""
    params, read = kernel.params, kernel.params.reader
    if not read("tables") or read("batch") is None:
        return False
    of_all = read("popularity")
    for table in params.records("tables"):  # a loop: quicker than `all` of so few
        text = table.reader("popularity", of_all)
        if text not in _UNIFORM and not locality.is_popularity(str(text)):
            return False
    return True
