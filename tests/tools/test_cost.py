"""What samples cost: money and carbon, by laws that hold of any step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfc
from perfc.costmodels import load_target
from perfc.ir import UsageError
from perfc.tools.cost import gco2e_per_million, usd_per_million

MODEL = "dlrm-ddp:tables=2,rows=1000"
USD, CO2E = "usd_per_million_samples", "gco2e_per_million_samples"
EXACT = 1e-12

positive = st.floats(1e-6, 1e6)
counts = st.integers(1, 100_000)


def summary(target: str = "a100", batch: int = 64, **options: Any) -> dict[str, Any]:
    """Return the summary of a step."""
    found: dict[str, Any] = perfc.analyze(MODEL, target, batch=batch, **options).summary
    return found


@given(positive, counts, positive, counts, counts)
def test_money_is_linear(
    price: float, ranks: int, time_s: float, samples: int, times: int
) -> None:
    """It is proportional to the price, to ranks and to the time."""
    target = attrs.evolve(load_target("t4"), usd_per_hour=price)
    dearer = attrs.evolve(target, usd_per_hour=price * times)
    usd = usd_per_million(target, ranks, time_s, samples)

    assert usd is not None
    assert [times * usd] * 3 == pytest.approx(
        [
            usd_per_million(dearer, ranks, time_s, samples),
            usd_per_million(target, ranks * times, time_s, samples),
            usd_per_million(target, ranks, time_s * times, samples),
        ],
        rel=EXACT,
    )


@given(positive, counts, positive, counts)
def test_money_and_rate(price: float, ranks: int, time_s: float, samples: int) -> None:
    """Money for a sample times samples a second is what all ranks cost a second."""
    target = attrs.evolve(load_target("t4"), usd_per_hour=price)
    usd = usd_per_million(target, ranks, time_s, samples)

    assert usd is not None
    a_second = usd / 1e6 * (samples / time_s)
    assert price * ranks / 3600 == pytest.approx(a_second, rel=EXACT)


@given(st.floats(0, 2000), positive, counts)
def test_carbon(intensity: float, joules: float, samples: int) -> None:
    """A kWh stands for so many grams."""
    target = attrs.evolve(load_target("t4"), g_per_kwh=intensity)
    grams = gco2e_per_million(target, joules, samples)

    assert grams is not None
    assert intensity == pytest.approx(grams * samples / 1e6 / (joules / 3.6e6))


def test_what_is_unknown_costs_nothing_that_is_known() -> None:
    """Without a price, an intensity, joules or samples there is no number."""
    known = attrs.evolve(load_target("t4"), usd_per_hour=1.0, g_per_kwh=1.0)
    unknown = attrs.evolve(known, usd_per_hour=None, g_per_kwh=None)

    assert usd_per_million(known, 1, 1.0, None) is None
    assert usd_per_million(unknown, 1, 1.0, 1) is None
    assert gco2e_per_million(known, None, 1) is None
    assert gco2e_per_million(known, 1.0, None) is None
    assert gco2e_per_million(unknown, 1.0, 1) is None


def test_a_report_says_what_samples_cost() -> None:
    """By the price of the sheet, or a given one, which changes nothing else."""
    price = load_target("a100").usd_per_hour
    usual, given_price = summary(), summary(price=2)

    assert price is not None
    a_second = usual[USD] / 1e6 * usual["samples_per_s"]
    assert price / 3600 == pytest.approx(a_second, rel=EXACT)
    assert given_price[USD] / 2 == pytest.approx(usual[USD] / price, rel=EXACT)
    assert {USD} == {key for key in usual if usual[key] != given_price[key]}


def test_ranks_are_all_paid_for() -> None:
    """Twice the GPUs with a batch each cost the time twice, for twice the samples."""
    options: dict[str, Any] = {"mode": "training", "price": 3.6}
    one, two = (summary("dgx-a100", ranks=n, **options) for n in (1, 2))

    for found, ranks in ((one, 1), (two, 2)):
        a_second = found[USD] / 1e6 * found["samples_per_s"]
        assert ranks * 3.6 / 3600 == pytest.approx(a_second, rel=EXACT)
    assert two[USD] == pytest.approx(
        one[USD] * two["time_us"] / one["time_us"], rel=EXACT
    )


def test_carbon_of_a_report() -> None:
    """It is that of the joules of the report; null where nobody knows those."""
    known = summary("h100", dtype="fp16", carbon=400)
    unknown = summary("cpu", carbon=400)

    assert known["energy_j"] > 0
    grams = known["energy_j"] / 3.6e6 * 400 / 64 * 1e6
    assert grams == pytest.approx(known[CO2E], rel=EXACT)
    assert (None, None) == (unknown["energy_j"], unknown[CO2E])
    assert summary("h100")[CO2E] is None


def test_no_price_is_null() -> None:
    """The key is there, and null, where nobody says what a target costs."""
    report = perfc.analyze(MODEL, "rtx-4090", batch=64).to_dict()

    assert report["summary"][USD] is None
    target = report["target"]
    assert (None, None) == (target["usd_per_hour"], target["price_source"])


def test_a_report_says_where_its_price_is_from(tmp_path: Path) -> None:
    """A list and its month, a price sheet, or that it was given."""
    prices = tmp_path / "prices.toml"
    prices.write_text('[a100]\nusd_per_hour = 2\nsource = "quote"\ndate = "2026-10"')
    asked: list[dict[str, Any]] = [{}, {"price": 2.0}, {"price": prices}]

    found = [perfc.analyze(MODEL, "a100", batch=64, **more) for more in asked]

    sources = [report.header["target"]["price_source"] for report in found]
    assert sources[0].startswith("assumed: AWS on-demand list price of p4de.24xlarge")
    assert ["--set", f"--price: quote, 2026-10 ({prices})"] == sources[1:]
    assert "USD an hour by its sheet" in str(found[0])
    assert "a million samples, at 2 USD an hour, as given" in str(found[1])
    assert found[1].summary == found[2].summary


def test_a_purchase_is_an_assumption_that_is_said() -> None:
    """Its hours are in the source, and the table says that they were given."""
    report = perfc.analyze(
        MODEL, "rtx-4090", batch=64, overrides={"price.amortised_hours": 15990}
    )

    target = report.header["target"]
    assert 0.1 == pytest.approx(target["usd_per_hour"])
    assert target["price_source"].endswith(" over 15,990 hours (--set)")
    assert "at 0.1 USD an hour, as given" in str(report)


def test_a_preset_says_prices(tmp_path: Path) -> None:
    """A preset has a price and an intensity; what is given wins, and that is said."""
    preset = tmp_path / "ours.toml"
    (tmp_path / "prices.toml").write_text(
        '[h100]\nusd_per_hour = 2\nsource = "quote"\ndate = "2026-10"'
    )
    preset.write_text('target = "h100"\nprice = "prices.toml"\ncarbon = 100\n')
    of_preset = perfc.analyze(MODEL, preset=str(preset), batch=64)
    of_both = perfc.analyze(MODEL, preset=str(preset), batch=64, price=4)

    assert (2, 100) == (of_preset.target.usd_per_hour, of_preset.target.g_per_kwh)
    assert 4 == of_both.target.usd_per_hour
    assert ["preset-overridden"] == [
        one.code for one in of_both.diagnostics if one.code.startswith("preset")
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"price": -1}, "--price: expected a number from 0.0001 to 100000 USD/h"),
        ({"price": float("nan")}, "--price: expected a number from 0.0001 to 100000"),
        ({"price": True}, "price is a bool: expected a number or a text"),
        ({"price": "cheap"}, "--price: expected a number of USD/h or the .toml file"),
        ({"price": "no.toml"}, "--price no.toml: there is no such price sheet"),
        ({"carbon": -1}, "--carbon: expected a number from 0 to 10000 g/kWh"),
        ({"carbon": "x.toml"}, "--carbon: expected a number of g/kWh, found 'x.toml'"),
        (
            {"price": 1, "overrides": {"price.usd_per_hour": 2}},
            "--price and --set price.usd_per_hour say the same: give one",
        ),
    ],
)
def test_prices_that_cannot_be(options: dict[str, Any], says: str) -> None:
    """They are refused in one line."""
    with pytest.raises(UsageError) as caught:
        perfc.analyze(MODEL, "a100", **options)

    assert str(caught.value).startswith(says)
