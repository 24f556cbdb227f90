"""Numbers as reports write them: few digits, and a unit that fits."""

from __future__ import annotations

from perfc.ir.support import format_bytes as format_bytes  # noqa: PLC0414 - offered here, too
from perfc.ir.support import three_digits


def format_share(part: float, whole: float) -> str:
    """Write a part of a whole in percent."""
    return format_percent(part / whole if whole else 0.0)


def format_percent(share: float) -> str:
    """Write a share in percent, without decimals."""
    number = 100 * share
    return "<1 %" if 0 < number < 0.5 else f"{number:.0f} %"  # noqa: PLR2004


def format_us(time_us: float) -> str:
    """Write a time with three significant digits and a fitting unit."""
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= 0.9995 * scale:
            return f"{three_digits(time_us / scale)} {unit}"
    return f"{three_digits(time_us)} us"


def format_quantity(amount: float, unit: str) -> str:
    """Write an amount with three significant digits and a decimal prefix."""
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= 0.9995 * scale:
            return f"{three_digits(amount / scale)} {prefix}{unit}"
    return f"{three_digits(amount)} {unit}"


def format_change(share: float, decimals: int = 1) -> str:
    """Write by which share a number changes in percent; 0, rounded, has no sign."""
    number = round(100 * share, decimals) or 0.0  # which is no -0
    return f"{number:{'+' if number else ''}.{decimals}f} %"
