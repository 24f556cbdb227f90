"""What samples cost: money by the hour, carbon by the energy."""

from __future__ import annotations

from typing import Any, TypeAlias

from perfc.costmodels import Target
from perfc.costmodels.sheets import price_source

Json: TypeAlias = dict[str, Any]
_HOUR_S = 3600
_J_PER_KWH = 3.6e6
_MILLION = 1e6


def usd_per_million(
    target: Target, ranks: int, time_s: float, samples: int | None
) -> float | None:
    """Return what a million samples cost in US dollars; None where unknown.

    Args:
        target: What it runs on, whose price is that of one rank for an hour.
        ranks: How many of it are paid for all of the time.
        time_s: Of a step.
        samples: Of the step, all replicas together; None: the model has none.

    """
    price = target.usd_per_hour
    if price is None or not samples:
        return None
    return price * ranks * (time_s / _HOUR_S) / samples * _MILLION


def gco2e_per_million(
    target: Target, joules: float | None, samples: int | None
) -> float | None:
    """Return grams of CO2 equivalent for a million samples; None where unknown.

    Args:
        target: What it runs on, and the carbon intensity of its electricity.
        joules: Of a step, all ranks together: those of the boards, or of their share of
            the nodes where the sheet says what a node draws, and nothing besides.
        samples: Of the step, all replicas together; None: the model has none.

    """
    intensity = target.g_per_kwh
    if intensity is None or joules is None or not samples:
        return None
    return joules / _J_PER_KWH * intensity / samples * _MILLION


def rates(target: Target) -> Json:
    """Return the price and the carbon intensity of a target, null where unknown."""
    return {
        "usd_per_hour": target.usd_per_hour,
        "price_source": price_source(target.fields, target.sources),
        "g_per_kwh": target.g_per_kwh,
    }
