"""How far off predictions were on rows that are not reported: what intervals state.

Split conformal prediction (Vovk et al.; Lei et al., JASA 2018): of each GPU with
measured rows, op and dtype, nine in ten rows of those lie inside the interval, of
batched GEMMs and of others; where a network corrects an op, predicted by networks
that lack them. GEMMs larger than those are that much less sure. Shared is what
their mean is off, which all kernels share; own is the rest. Short kernels are farther
off than long ones: both grow with a power of what memory moves in a kernel's time
(normalised scores: Papadopoulos et al., ICTAI 2008). A GPU without rows has the same of
GPUs that were left out of the fit, one after the other, widened as it may differ from
all of them, or what a model says where that was not done; one that was measured in
other types has the wider of both, as kernels of another type are others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import attrs
import numpy as np

from perfc.costmodels.constants import constants
from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import (
    FLOATS,
    BringsIntervals,
    Estimate,
    Flags,
    Floats,
    IntervalGroup,
    KernelTable,
    OneGroup,
    OneSignature,
)
from perfc.costmodels.machine import COLLECTIVES, SAME_KERNELS, Target
from perfc.costmodels.pricing.listed import INTERVALS_BY, listed

Z90 = constants("kernels").number("z90")
"""Standard deviations within which nine in ten lie, of a normal distribution."""

SIZE = 1e8
"""Bytes that memory moves in the time of a kernel which errs as the file says."""

SIZES = _LEAST, _MOST = 0.03, 30.0
"""Sizes, in those, beyond which kernels err alike: few rows are smaller or larger."""

FASTEST = 1e12
"""Bytes a second beyond which a faster memory makes no kernel longer by that measure:
kernels begin and end as slowly on fast GPUs."""

Stated: TypeAlias = tuple[float, float, float]
"""Shared, own, and the power of the size with which both grow."""

_BY_TYPE = frozenset({"gemm"})
"""Ops whose kernels are others for each type: rows of one say nothing of another."""

_BY_SMS = frozenset({"attention", "gemm"})
"""Ops that networks correct, which hold on GPUs with as many SMs."""

_OF_COPIES = {*COLLECTIVES, "memcpy"}
"""Ops that no board's clock decides: links and the network do."""


class Sigmas(NamedTuple):
    """Uncertainty of one kernel, as `Estimate` has it."""

    shared: float
    own: float
    session: float = 0.0
    board: float = 0.0
    architecture: float = 0.0


class Elsewhere(NamedTuple):
    """What kernels of an op are off besides, on another day and on another board.

    Two of the three are of kernels of size 1, and fall with the root of the size: what
    software, caches and clocks do to a kernel is a matter of microseconds.

    Attributes:
        session: All of one op and math mode alike, in another session.
        board: The same on another board, whatever the size.
        own: Each on its own: other software, other kernels.

    """

    session: float
    board: float
    own: float


NOWHERE = Elsewhere(0.0, 0.0, 0.0)
"""Errors of kernels in the session that was fitted, and of copies: none."""


class Found(NamedTuple):
    """An interval, and of what.

    Attributes:
        stated: What is known.
        is_unseen: Whether it is of GPUs that were left out of the fit, which are other
            boards, too.
        is_least: Whether the model's own stays where that is wider.

    """

    stated: Stated
    is_unseen: bool = False
    is_least: bool = False


class _Known(NamedTuple):
    """Stated intervals by op and dtype.

    Attributes:
        own: Of the GPU.
        chip: Of GPUs with as many SMs of the same compute capability.
        alike: Of all GPUs of that capability.
        unseen: Of GPUs left out.

    """

    own: Mapping[str, Stated]
    chip: Mapping[str, Stated]
    alike: Mapping[str, Stated]
    unseen: Mapping[str, Stated]


def with_intervals(
    estimate: Estimate, kernels: KernelTable, target: Target
) -> Estimate:
    """Put in what is known of the errors on *target*; else the model's own stay."""
    if not (target.device.runs_cuda and len(kernels)):
        return estimate
    known = target.once(known_intervals)
    sizes = interval_sizes(estimate.seconds, target)
    # The sigmas that models say of themselves, as rows of `Sigmas`.
    # It is of all sessions and boards: of these is what they differ by, if that is
    # less.
    smaller = 1 / np.sqrt(sizes)
    kinds, at = kernels.kinds
    sigmas = np.empty((_COLUMNS, len(kernels)))
    each = [elsewhere_of(op) for op, _, _ in kinds]
    board: Floats | float
    if len({*each}) == 1:  # of one model, mostly
        session, board = each[0].session * smaller, each[0].board
    else:
        columns = np.array(each)[at]
        session, board = columns[:, 0] * smaller, columns[:, 1]
    rest = np.square(estimate.sigma_shared) - (session * session + board * board)
    np.sqrt(np.maximum(rest, 0.0), out=sigmas[0])
    sigmas[1], sigmas[2], sigmas[3] = estimate.sigma_independent, session, board
    sigmas[4] = 0.0
    for op, stored, group in groups_of(kernels, target):
        rows, spreads = group.rows, group.spreads
        if (found := interval_named(known, op, stored, group.suffixes)) is not None:
            widths = _some(group.widths, rows)
            ours = stated_rows(found, sizes[rows], widths, elsewhere_of(op))
            if found.is_least:
                wider = _whole(sigmas[:, rows]) > _whole(ours)
                ours = np.where(wider, sigmas[:, rows], ours)
            sigmas[:, rows] = ours
        if np.any(spreads):
            end = _some(spreads, rows) * (1 / Z90)
            sigmas[1, rows] = np.sqrt(sigmas[1, rows] * sigmas[1, rows] + end * end)
    of_target = estimate.sigma_target.copy()
    of_target[:OF_ROWS] = sigmas[2:]
    return attrs.evolve(
        estimate,
        sigma_shared=sigmas[0],
        sigma_independent=sigmas[1],
        sigma_target=of_target,
    )


_COLUMNS = len(Sigmas._fields)

OF_ROWS = 3
"""How many of `OF_TARGET` are stated here: all but the clock."""


def stated_rows(
    found: Found, sizes: Floats, widths: Floats | float, elsewhere: Elsewhere
) -> Floats:
    """Return the sigmas stated of some kernels, as rows of `Sigmas`.

    Args:
        found: Their interval.
        sizes: As `interval_sizes`, shape (rows,).
        widths: How much wider each one's is, shape (rows,), or all are.
        elsewhere: What they are off besides.

    """
    factors = np.exp(np.log(sizes) * found.stated[2]) * widths
    shared, own = found.stated[0] * factors, found.stated[1] * factors
    smaller = 1 / np.sqrt(sizes)
    rows = np.empty((_COLUMNS, len(sizes)))
    other = elsewhere.own * smaller
    np.sqrt(own * own + other * other, out=rows[1])
    rows[2] = elsewhere.session * smaller
    if found.is_unseen:
        rows[0], rows[3], rows[4] = 0.0, 0.0, shared
    else:
        rows[0], rows[3], rows[4] = shared, elsewhere.board, 0.0
    return rows


def _whole(sigmas: Floats) -> Floats:
    """Return all of each kernel's variance."""
    found: Floats = np.square(sigmas).sum(axis=0)
    return found


@functools.cache
def elsewhere_of(op: str) -> Elsewhere:
    """Return the errors besides of kernels of an op where users are."""
    if op in _OF_COPIES:
        return NOWHERE
    errors = constants("errors")
    tables = map(errors.table, ("sigma_session", "sigma_board", "sigma_elsewhere"))
    return Elsewhere(*(table.get(op, table["default"]) for table in tables))


def _some(numbers: Floats | float, rows: Flags) -> Floats | float:
    return numbers[rows] if isinstance(numbers, np.ndarray) else numbers


def interval_sizes(seconds: Floats, target: Target) -> Floats:
    """Return the bytes that memory moves in kernels' time, by which their errors vary.

    Args:
        seconds: Of each kernel, shape (rows,); so is what is returned, in `SIZE`.
        target: Whose memory.

    """
    found: Floats = np.clip(seconds * target.once(_sizes_per_s), *SIZES)
    return found


def _sizes_per_s(target: Target) -> float:
    """Return how many `SIZE` its memory moves in a second."""
    return min(target.device.memory.bytes_per_s, FASTEST) / SIZE


def interval_named(
    known: _Known, op: str, stored: str, suffixes: Sequence[str]
) -> Found | None:
    """Return the interval of the first name of which one is stated.

    Of the GPU, else of its chip, else of GPUs left out; None: what the model says. That
    is so of kernels that no network corrects on a chip with other SMs, and on a GPU
    that was measured in other types, unless the op has kernels by type.
    """
    by_type = op in _BY_TYPE
    types = [stored]
    if by_type and stored in SAME_KERNELS:
        types.append(SAME_KERNELS[stored])
    names = [name for each in types for name in interval_names(op, each, suffixes)]
    chip = known.chip if op in _BY_SMS else known.alike
    for name in names:
        if (stated := known.own.get(name) or chip.get(name)) is not None:
            return Found(stated)
    if any(name in known.alike for name in names):
        return None
    if known.own and not by_type:
        return None
    first = interval_names(op, stored, suffixes)
    for name in names:
        if name in known.unseen:
            is_least = bool(known.own) or name not in first
            return Found(known.unseen[name], is_unseen=True, is_least=is_least)
    return None


def known_intervals(target: Target) -> _Known:
    """Return the stated intervals: of the GPU, of others like it, and left out."""
    intervals, device = fitted("intervals"), target.device
    measured: Mapping[str, Mapping[str, Stated]] = intervals["kernel"]
    chips: Mapping[str, tuple[str, int]] = intervals["chip"]
    alike: dict[str, Stated] = {}
    chip: dict[str, Stated] = {}
    for gpu, (capability, sm_count) in chips.items():
        if capability != device.compute_capability:
            continue
        _widen(alike, measured[gpu])
        if sm_count == device.sm_count:
            _widen(chip, measured[gpu])
    return _Known(measured.get(device.name, {}), chip, alike, intervals["unseen"])


def _widen(found: dict[str, Stated], more: Mapping[str, Stated]) -> None:
    """Add what another GPU has; of two of a name, the wider one."""
    for name, stated in more.items():
        before = found.get(name, stated)
        found[name] = max(before, stated, key=lambda each: math.hypot(*each[:2]))


def interval_of(
    one: OneSignature, target: Target, seconds: float, said: tuple[float, float]
) -> Sigmas:
    """Return the sigmas of one kernel that lasts *seconds*.

    Args:
        one: The kernel.
        target: The GPU.
        seconds: What it takes.
        said: Shared and own, by its model.

    """
    finder = target.once(_finder)
    if finder is None:
        return Sigmas(*said)
    find, sizes_per_s = finder
    elsewhere = elsewhere_of(one.op)
    size = min(max(seconds * sizes_per_s, _LEAST), _MOST)
    smaller = 1 / math.sqrt(size)
    if one.text("phase") != "forward":
        return _of_model(said, smaller, elsewhere)
    group = _ALL_OF_ONE
    if (owner := INTERVALS_BY.get(one.op)) is not None:
        model = cast("BringsIntervals", listed(owner.model).model)
        brought = model.interval_group_of_one(one, target)
        if brought is None:
            return _of_model(said, smaller, elsewhere)
        group = brought
    stored = one.math if one.math == "tf32" else one.kernel.dtype
    found = find(one.op, stored, group.suffixes)
    if found is None:
        sigmas = _of_model(said, smaller, elsewhere)
    else:
        factor = _factor(found, size) * group.width
        # The sigmas stated of one kernel; as `stated_rows`.
        shared, own = found.stated[0] * factor, found.stated[1] * factor
        other, session = elsewhere.own * smaller, elsewhere.session * smaller
        own = math.sqrt(own * own + other * other)
        if found.is_unseen:
            sigmas = Sigmas(0.0, own, session, 0.0, shared)
        else:
            sigmas = Sigmas(shared, own, session, elsewhere.board)
        if found.is_least:
            sigmas = max(sigmas, _of_model(said, smaller, elsewhere), key=_variance)
    if group.spread:
        end = group.spread * (1 / Z90)
        sigmas = sigmas._replace(own=math.sqrt(sigmas.own * sigmas.own + end * end))
    return sigmas


def _of_model(
    said: tuple[float, float], smaller: float, elsewhere: Elsewhere
) -> Sigmas:
    """Return the sigmas that a model says of itself; as `_of_models`."""
    shared, own = said
    session, board = elsewhere.session * smaller, elsewhere.board
    rest = shared * shared - (session * session + board * board)
    return Sigmas(math.sqrt(max(rest, 0.0)), own, session, board)


def _factor(found: Found, size: float) -> float:
    """Return by what a kernel of a size, in `SIZE`, is less sure than stated."""
    power = found.stated[2]
    return FLOATS.exp(FLOATS.log(size) * power) if power else 1.0


def _variance(sigmas: Sigmas) -> float:
    return math.fsum(sigma * sigma for sigma in sigmas)


_ALL_OF_ONE = OneGroup(("",))

_Finder: TypeAlias = Callable[[str, str, tuple[str, ...]], Found | None]


def _finder(target: Target) -> tuple[_Finder, float] | None:
    """Return a lookup of intervals, and sizes a second; None: what models say."""
    if not target.device.runs_cuda:
        return None
    known = target.once(known_intervals)

    @functools.cache
    def find(op: str, stored: str, suffixes: tuple[str, ...]) -> Found | None:
        return interval_named(known, op, stored, suffixes)

    return find, target.once(_sizes_per_s)


def interval_names(op: str, stored: str, suffixes: Sequence[str]) -> tuple[str, ...]:
    """Return the names that the interval of a group may have, the first known counts.

    Args:
        op: Of the kernels.
        stored: Their type.
        suffixes: As `IntervalGroup`.

    """
    return tuple(f"{op}{suffix} {stored}" for suffix in suffixes)


def call_sigma(kernels: KernelTable, target: Target, default: float) -> float:
    """Return how uncertain an eager call's time is, for rows of one op."""
    known = fitted("intervals")["call"].get(target.device.name, {})
    return float(known.get(str(kernels.op[0]), default)) if len(kernels) else default


def interval_rows(kernels: KernelTable, target: Target) -> Iterator[tuple[str, Flags]]:
    """Yield the names of intervals, and which rows have each; some are like no row."""
    for op, stored, group in groups_of(kernels, target):
        yield interval_names(op, stored, group.suffixes)[0], group.rows


def groups_of(
    kernels: KernelTable, target: Target
) -> Iterator[tuple[str, str, IntervalGroup]]:
    """Yield op and type of kernels that err alike, and which they are.

    perfc's own models say which kernels of an op err alike: all, where none does.
    """
    kinds, at = kernels.kinds
    like_rows = kernels.text("phase") == "forward"
    groups: dict[str, list[IntervalGroup]] = {}
    for number, (op, dtype, mode) in enumerate(kinds):
        stored = mode if mode == "tf32" else dtype
        if op not in groups:
            groups[op] = list(_groups(op, kernels, target))
        for group in groups[op]:
            chosen = like_rows & (at == number) & group.rows
            yield op, stored, group._replace(rows=chosen)


def _groups(op: str, kernels: KernelTable, target: Target) -> Iterator[IntervalGroup]:
    owner = INTERVALS_BY.get(op)
    if owner is None:
        yield IntervalGroup(("",), np.ones(len(kernels), dtype=np.bool_))
        return
    model = cast("BringsIntervals", listed(owner.model).model)
    yield from model.interval_groups(kernels, target)
