"""What samples cost: money by the hour, carbon by the energy."""

from __future__ import annotations

from perfc.costmodels import Target
from perfc.costmodels.sheets import price_source
from perfc.ir.support import Json

_HOUR_S = 3600
_J_PER_KWH = 3_600_000
_MILLION = 1_000_000


def usd_per_million(
    target: Target, ranks: int, time_s: float, samples: int | None
) -> float | None:
    """Return the US dollars that a million samples cost; None where unknown.

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


def cost_words(report: Json, ranks: int) -> tuple[str, str]:
    """Return the cost of a million samples, and by which price; "" where unknown.

    Args:
        report: A `perfc.report/1`.
        ranks: How many it is of.

    """
    target, usd = report["target"], report["summary"]["usd_per_million_samples"]
    if usd is None:
        return "", ""
    by = f"a million samples, at {target['usd_per_hour']:,.4g} USD an hour"
    by += " a GPU" if ranks > 1 else ""
    source = str(target["price_source"])
    is_given = source.startswith("--") or "(--set)" in source
    return (
        f"${_three_digits(usd)}",
        f"{by}{', as given' if is_given else ' by its sheet'}",
    )


def _three_digits(amount: float) -> str:
    return f"{float(f'{amount:.3g}'):,.10g}"


def carbon_words(report: Json) -> tuple[str, str]:
    """Return the CO2 equivalent of a million samples; "" if nobody asked.

    Args:
        report: A `perfc.report/1`.

    """
    intensity = report["target"]["g_per_kwh"]
    grams = report["summary"]["gco2e_per_million_samples"]
    if intensity is None:
        return "", ""
    if grams is None:
        return "-", "CO2e: unknown, as the energy is, or how many samples there are"
    by = f"CO2e of a million samples, at {intensity:,.4g} g/kWh of the energy above"
    return f"{_three_digits(grams)} g", by
