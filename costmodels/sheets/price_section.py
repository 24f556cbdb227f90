"""The price of an hour of a target, by its sheet or by a purchase, and its carbon.

[price]
usd_per_hour        of one GPU, its share of the machine around it included
usd                 what the board costs to buy
amortised_hours     over how many hours that is spread: an assumption of whoever
                    states it; none is made
[carbon]
g_per_kwh           grams of CO2 equivalent that a kWh stands for where it is
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfc.costmodels.sheets.sheet_fields import (
    AMORTISED_HOURS,
    CARBON,
    USD,
    USD_PER_HOUR,
    FieldValue,
)
from perfc.costmodels.sheets.sheet_physics import Problem
from perfc.ir import UsageError

Fields = Mapping[str, FieldValue]

_INSTEAD: Mapping[str, str] = {
    USD_PER_HOUR: AMORTISED_HOURS,
    AMORTISED_HOURS: USD_PER_HOUR,
}
"""What says the same as a field, and is out of force once that is set."""


def usd_per_hour(fields: Fields) -> float | None:
    """Return the US dollars that an hour of one GPU costs; None if nobody says."""
    if USD_PER_HOUR in fields:
        return float(fields[USD_PER_HOUR])
    if AMORTISED_HOURS in fields:
        return float(fields[USD]) / float(fields[AMORTISED_HOURS])
    return None


def g_per_kwh(fields: Fields) -> float | None:
    """Return the grams of CO2 equivalent of a kWh; None if nobody says."""
    return float(fields[CARBON]) if CARBON in fields else None


def price_source(fields: Fields, sources: Mapping[str, str]) -> str | None:
    """Return where `usd_per_hour` comes from, and what it assumes."""
    if USD_PER_HOUR in fields:
        return sources[USD_PER_HOUR]
    if AMORTISED_HOURS not in fields:
        return None
    usd, hours = float(fields[USD]), float(fields[AMORTISED_HOURS])
    return (
        f"{usd:,.10g} USD ({sources[USD]}) over {hours:,.10g} hours "
        f"({sources[AMORTISED_HOURS]})"
    )


def price_problems(fields: Fields) -> Iterator[Problem]:
    """Yield a line for each field of a price that lacks another, or contradicts it."""
    if AMORTISED_HOURS not in fields:
        return
    if USD not in fields:
        advice = "add what the board costs, or leave the hours out"
        yield Problem(USD, f"a value beside {AMORTISED_HOURS}", "nothing", advice)
    if USD_PER_HOUR in fields:
        yield Problem(
            AMORTISED_HOURS, f"none beside {USD_PER_HOUR}", "both", "leave one out"
        )


def check_price(fields: Fields) -> None:
    """Refuse a price that was set in part."""
    problem = next(price_problems(fields), None)
    if problem is not None:
        msg = f"--set {problem}"
        raise UsageError(msg)


def out_of_force(values: Fields) -> frozenset[str]:
    """Return the fields that no longer hold once others are set by hand."""
    replaced = {other for name, other in _INSTEAD.items() if name in values}
    return frozenset(replaced - set(values))
