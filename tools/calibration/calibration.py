"""`perfc calibrate`: from measured rows to a profile and what it is worth."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs

from perfc import costmodels
from perfc.costmodels.sheets import is_possible
from perfc.fitting.collective_profile import CollectiveFit, fit_collectives
from perfc.fitting.device import DeviceFit, FamilyFit, fit_device
from perfc.fitting.host import HostFit, fit_host
from perfc.fitting.machine import calibrated_sheet, machine_fields, measured_rates
from perfc.fitting.measured import measured_table
from perfc.fitting.observations import is_fitted, observe
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.fitting.scores import known_target
from perfc.ir import PerfcError
from perfc.measurements import TEST, Measurement

_HOST_OP = "host_overhead"
_HELD_OUT = "split=test, which is never fitted"


@attrs.frozen
class Calibrated:
    """A profile and how it was found.

    Attributes:
        target: Name or path of the sheet that it refines; empty for a host alone.
        fields: Fields of the sheet that were measured.
        device: Coefficients and errors of the kernels; None without kernel rows.
        host: Host times; None without any.
        measured: Kernels that were timed, which no model prices any more.
        collectives: What measured collectives say; None without any.
        left_out: Rows that were not used, by reason.
        refused: Fields that were measured to be what cannot be: too few rows, or a
            machine that was busy. The sheet's are kept.

    """

    target: str
    fields: Mapping[str, float]
    device: DeviceFit | None
    host: HostFit | None
    measured: costmodels.MeasuredKernels
    collectives: CollectiveFit | None
    left_out: Counter[str]
    refused: Mapping[str, float] = attrs.field(factory=dict[str, float])


def calibrate_rows(
    rows: Sequence[Measurement], unread: Counter[str] | None = None
) -> Calibrated:
    """Fit a profile from the rows of one machine, by whichever of its names.

    Args:
        rows: What was measured.
        unread: Rows of the tables that could not be read, by reason: they are named
            with those that are left out.

    """
    unread = Counter() if unread is None else unread
    if unread and not rows:
        raise _nothing_to_fit(unread)
    rows = _renamed(rows)
    sheet = _target_of(rows)
    target = costmodels.load_target(sheet)
    if all(row.split == TEST for row in rows):
        raise _nothing_to_fit(unread + Counter({_HELD_OUT: len(rows)}))
    kernels = [row for row in rows if _is_kernel(row)]
    others = sum(row.split == TEST and not _is_kernel(row) for row in rows)
    base = costmodels.load_profile(target.host.overheads)
    host = fit_host(rows, base)
    fields: dict[str, float] = {}
    refused: dict[str, float] = {}
    dispatch_s = 0.0
    # A CPU's sheet is of a class of machines, so its rates are measured. They and the
    # time of dispatch have to be known before rows are compared with models: a row of a
    # CPU contains the call of the op, which the host profile has as well.
    if target.device.synchronous:
        fields = machine_fields(rows)
        fitted = [row for row in kernels if is_fitted(row)]
        dispatch_s = _dispatch_s(fitted)
        host = _with_dispatch(host, base, dispatch_s, len(fitted))
        target = calibrated_sheet(target.name, fields)
    seen, left_out = observe(kernels, target, dispatch_s)
    if target.device.synchronous:
        # A rate that no such machine reaches comes from too few rows or a busy machine;
        # it would make every later price wrong, so that the sheet's own stays.
        rates = measured_rates(seen, target)
        refused = {k: v for k, v in rates.items() if not is_possible(k, v)}
        fields |= {k: v for k, v in rates.items() if k not in refused}
        target = calibrated_sheet(target.name, fields)
    # Coefficients are fitted to what the refined sheet leaves unexplained, hence last.
    device = fit_device(seen, target) if len(seen) else None
    measured, decide_none = measured_table(seen, target)
    left_out += decide_none + unread + Counter({_HELD_OUT: others})
    collectives = fit_collectives(rows, target)
    if device is None and host is None and collectives is None:
        raise _nothing_to_fit(left_out)
    named = sheet if costmodels.is_path(sheet) else target.name
    return Calibrated(
        named, fields, device, host, measured, collectives, left_out, refused
    )


def _is_kernel(row: Measurement) -> bool:
    return row.op != _HOST_OP and row.op not in costmodels.COLLECTIVES


def _nothing_to_fit(left_out: Counter[str]) -> PerfcError:
    why = "; ".join(f"{n} rows, {reason}" for reason, n in left_out.most_common(3))
    return PerfcError(f"no row to fit: {why or 'the tables are empty'}")


def _renamed(rows: Sequence[Measurement]) -> Sequence[Measurement]:
    """Return the rows with their targets' own names in place of aliases."""
    names: dict[str, str] = {}
    for name in {row.target for row in rows}:
        known = known_target(name)
        names[name] = name if known is None else known.name
    if all(name == own for name, own in names.items()):
        return rows
    return [attrs.evolve(row, target=names[row.target]) for row in rows]


def _target_of(rows: Sequence[Measurement]) -> str:
    names = sorted({row.target for row in rows})
    if len(names) != 1:
        found = f"of {', '.join(names)}" if names else "no rows"
        msg = f"expected rows of one target, found {found}; give tables of one machine"
        raise PerfcError(msg)
    return names[0]


def _dispatch_s(rows: Sequence[Measurement]) -> float:
    """Return the seconds of a call on a CPU whatever it does: the shortest of all."""
    return min((row.latency_us for row in rows), default=0.0) * 1e-6


def _with_dispatch(
    host: HostFit | None, base: costmodels.HostProfile, dispatch_s: float, rows: int
) -> HostFit | None:
    """Put the dispatch of kernels into T2: rows of a CPU hold it with the kernel."""
    if not dispatch_s:
        return host
    profile = base if host is None else host.profile
    none = costmodels.PerName(0.0, {})
    profile = attrs.evolve(
        profile, t2_s=costmodels.PerName(dispatch_s, {}), t3_s=none, t5_s=none
    )
    if host is None:
        remark = f"T1 and views: {base.name}'s are kept, no host_overhead row"
        return HostFit(profile, rows, (remark,))
    return attrs.evolve(host, profile=profile)


def profile_of(found: Calibrated, output: Path, rows: Sequence[Measurement]) -> str:
    """Return the profile as TOML, as it is to stand in *output*.

    A sheet of the user's own is named as it is found from there.
    """
    sheet = found.target
    if costmodels.is_path(sheet):
        sheet = os.path.relpath(sheet, output.parent)
    return profile_text(
        head_of(output, [row.source for row in rows if row.split != TEST]),
        target=sheet if found.device or found.collectives else "",
        fields=found.fields,
        fits=found.device.fits if found.device is not None else (),
        measured=found.measured,
        collectives=found.collectives.rows if found.collectives is not None else None,
        host=found.host.profile if found.host is not None else None,
    )


def head_of(output: Path, sources: Sequence[str]) -> ProfileHead:
    """Return the head of a profile that was fitted to rows of some *sources*."""
    named = "; ".join(sorted(set(sources)))
    return ProfileHead(
        name=output.stem,
        source=f"perfc calibrate from {len(sources)} rows",
        date=datetime.now(tz=UTC).date().isoformat(),
        software=" ".join(named.split()) or "unknown",
    )


_HEADER = (
    f"{'family':32s} {'fit':>4s} {'test':>4s}  {'MAPE':>15s}  {'GMAE':>15s}"
    f"  {'p90':>15s}  {'max':>15s}  {'bias':>15s}   noise"
)


def summary(found: Calibrated) -> Iterator[str]:
    """Yield the lines to print: held-out errors before and after, by family."""
    if found.device is not None:
        yield f"{found.target}: errors on rows that were not fitted, before -> after"
        yield _HEADER
        for family in found.device.families:
            yield _line(family)
        yield f"measured: {len(found.measured)} kernels that no model prices any more"
    if found.collectives is not None:
        yield _collective_line(found.target, found.collectives)
    if found.host is not None:
        profile = found.host.profile
        yield (
            f"host: {found.host.rows} rows; T1 {profile.t1_s * 1e6:.2f} us, "
            f"T2 {profile.t2_s.default_s * 1e6:.2f} us"
        )
        yield from found.host.remarks
    for name, value in found.refused.items():
        yield f"{name}: {value:.3g} was measured, which cannot be: the sheet's is kept"
    for reason, count in found.left_out.most_common():
        yield f"left out: {count} rows, {reason}"


def _collective_line(target: str, found: CollectiveFit) -> str:
    rows = len(found.rows.weights)
    cell = _cell(found.before, found.after).strip()
    return f"{target}: {rows} rows of collectives; each told by the others, MAPE {cell}"


def _line(found: FamilyFit) -> str:
    before, after = found.before, found.after
    rows = before.rows if before else 0
    head = f"{found.family!s:32s} {found.fitted:4d} {rows:4d}  "
    if before is None:
        return head + "no held-out row"
    cells = [
        _cell(getattr(before, name), getattr(after, name) if after else None)
        for name in ("mape", "gmae", "p90", "max", "bias")
    ]
    noise = "-" if math.isnan(found.noise) else f"{found.noise:.1%}"
    kept = "" if after else "  too few rows: shipped constants kept"
    return f"{head}{'  '.join(cells)}  {noise:>6s}{kept}"


def _cell(before: float, after: float | None) -> str:
    shown = f"{before:.1%}" if after is None else f"{before:.1%} -> {after:.1%}"
    return f"{shown:>15s}"
