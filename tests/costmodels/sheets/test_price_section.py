"""Prices of targets: sheets, purchases, and price sheets of users."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfc.costmodels import load_target, target_names
from perfc.costmodels.machine import TargetError
from perfc.costmodels.sheets import price_source, system_names
from perfc.costmodels.sheets.sheet_lint import find_problems, parse_sheet
from perfc.ir import UsageError

PRICE, USD, HOURS = "price.usd_per_hour", "price.usd", "price.amortised_hours"
RENTED = ("a100", "h100", "v100", "t4", "l4", "a10", "p4d", "a2-highgpu", "dgx-a100")
OWNED = ("rtx-4090", "titan-xp", "jetson-orin", "cpu", "2s-skylake")
SHEET = """
[h100]
usd_per_hour = 2.5
source = "our contract"
date = 2026-10-01
"""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Return a price sheet of one target."""
    path = tmp_path / "prices.toml"
    path.write_text(SHEET)
    return path


@pytest.mark.parametrize("name", RENTED)
def test_rented_boards_have_a_price(name: str) -> None:
    """What clouds rent costs something an hour."""
    target = load_target(name)

    assert target.usd_per_hour is not None
    assert 0.1 < target.usd_per_hour < 20


@pytest.mark.parametrize("name", OWNED)
def test_other_boards_have_none(name: str) -> None:
    """Of boards that no cloud lists, nothing is made up, whatever they cost to buy."""
    assert load_target(name).usd_per_hour is None


def test_prices_say_when_they_held() -> None:
    """Each price that ships names its list and a month, and that it is recalled."""
    known = [load_target(name) for name in (*target_names(), *system_names())]
    cited = [target.sources[PRICE] for target in known if PRICE in target.fields]

    assert len(cited) > 20
    for text in cited:
        assert text.startswith("assumed: "), text
        assert re.search(r"list price.* as of 20\d\d-\d\d \(\S+\): ", text), text
        assert "recalled, not looked up" in text


def test_an_instance_costs_what_its_own_cloud_asks() -> None:
    """The price of a system's sheet is used in place of that of its GPUs' sheet."""
    gpu, node = load_target("a100-40g"), load_target("a2-highgpu-8g")

    assert gpu.device == node.device
    assert gpu.usd_per_hour == load_target("p4d").usd_per_hour
    assert gpu.usd_per_hour != node.usd_per_hour
    assert "Google" in node.sources[PRICE]


def test_a_price_changes_no_machine() -> None:
    """A price by hand leaves the device and the fields of time as they are."""
    plain, dear = load_target("a100"), load_target("a100", {PRICE: "9"})

    assert 9 == dear.usd_per_hour
    assert plain.device == dear.device
    assert "--set" == dear.sources[PRICE]
    assert {PRICE} == {
        name for name in plain.fields if plain.fields[name] != dear.fields[name]
    }


def test_a_purchase_is_spread_over_stated_hours() -> None:
    """What a board costs is divided by hours that somebody states, and that is said."""
    bought = load_target("rtx-4090", {HOURS: "15990"})

    assert 0.1 == pytest.approx(bought.usd_per_hour)
    source = price_source(bought.fields, bought.sources)
    assert source is not None
    assert source.startswith("1,599 USD (NVIDIA Ada")
    assert source.endswith("over 15,990 hours (--set)")


def test_a_purchase_in_place_of_a_price_by_the_hour() -> None:
    """What is set by hand puts what the sheet says the same by out of force."""
    bought = load_target("a100", {USD: "20000", HOURS: "10000"})

    assert 2 == bought.usd_per_hour
    assert PRICE not in bought.fields
    assert 3 == load_target("a100", {PRICE: "3"}).usd_per_hour


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({HOURS: "100"}, "--set price.usd: expected a value beside price.amort"),
        ({HOURS: "9", USD: "9", PRICE: "1"}, "--set price.amortised_hours: expected"),
        ({PRICE: "-1"}, "--set price.usd_per_hour: expected a number from 0.0001"),
        ({PRICE: "nan"}, "--set price.usd_per_hour: expected a number from 0.0001"),
        ({PRICE: "much"}, "--set price.usd_per_hour: expected a number of USD/h"),
        ({"carbon.g_per_kwh": "-1"}, "--set carbon.g_per_kwh: expected a number from"),
    ],
)
def test_prices_that_cannot_be(overrides: dict[str, str], says: str) -> None:
    """A price in part, below zero, or in words is one line."""
    with pytest.raises(UsageError) as caught:
        load_target("a100", overrides)

    assert str(caught.value).startswith(says)


def test_a_sheet_says_a_price_once() -> None:
    """A price by the hour and hours of a purchase exclude each other."""
    path = Path(__file__).parents[3] / "costmodels/targets/rtx-4090.toml"
    text = path.read_text(encoding="utf-8").replace(
        "[price]\n",
        '[price]\nusd_per_hour = { value = 1, source = "host" }\n'
        'amortised_hours = { value = 9000, source = "host" }\n',
    )

    found = [str(one) for one in find_problems(parse_sheet(text, "my.toml"))]

    (problem,) = found
    assert problem.startswith("price.amortised_hours: expected none beside price.usd_")


def test_a_price_sheet(prices: Path) -> None:
    """It is used in place of a target's own; a system has that of its GPUs."""
    told = {PRICE: str(prices)}
    found = load_target("h100", told)

    assert 2.5 == found.usd_per_hour == load_target("dgx-h100", told).usd_per_hour
    assert f"--price: our contract, 2026-10-01 ({prices})" == found.sources[PRICE]
    assert load_target("t4").usd_per_hour == load_target("t4", told).usd_per_hour
    assert load_target("rtx-4090", told).usd_per_hour is None


def test_a_price_sheet_that_changes(prices: Path) -> None:
    """A target that was loaded before has the new price."""
    told = {PRICE: str(prices)}
    assert 2.5 == load_target("h100", told).usd_per_hour

    prices.write_text(SHEET.replace("2.5", "2.75"))

    assert 2.75 == load_target("h100", told).usd_per_hour


def test_a_price_sheet_of_a_users_own_target(prices: Path) -> None:
    """A table may be called by the path of a sheet beside it."""
    own = Path(__file__).parents[3] / "costmodels/targets/rtx-4090.toml"
    sheet = prices.parent / "my.toml"
    text = own.read_text(encoding="utf-8")
    sheet.write_text(text.replace('"rtx-4090"', '"my-gpu"', 1), encoding="utf-8")
    prices.write_text(SHEET.replace("[h100]", '["my.toml"]'))

    assert 2.5 == load_target(str(sheet), {PRICE: str(prices)}).usd_per_hour


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "price: expected a table for each target, found none; add [h100]"),
        (SHEET.replace("h100", "h1000"), "h1000: unknown target h1000"),
        (f"{SHEET}\n[h100-sxm]\nusd_per_hour = 1", "h100-sxm: expected one price of "),
        ("h100 = 2.5", "h100: expected a table, found 2.5; write [h100]"),
        (
            SHEET.replace("2.5", "-2"),
            "h100.usd_per_hour: expected a number from 0.0001",
        ),
        (SHEET.replace("2.5", "nan"), "usd_per_hour is nan, expected a finite number"),
        (SHEET.replace("2.5", '"2"'), "h100.usd_per_hour: expected a number from 0.00"),
        (
            SHEET.replace("usd_per_hour", "usd"),
            "h100.usd: expected one of usd_per_hour",
        ),
        (SHEET.replace("date = 2026-10-01", ""), "h100.date: expected a text, found "),
        (SHEET.replace('"our contract"', '""'), "h100.source: expected a text, found"),
        ('[h100]\nsource="x"\ndate="y"', "h100.usd_per_hour: expected a number"),
        ("[h100", "Expected ']'"),
    ],
)
def test_price_sheets_that_cannot_be(prices: Path, text: str, says: str) -> None:
    """What is incomplete, twice or of no target is one line that names the file."""
    prices.write_text(text)

    with pytest.raises(TargetError) as caught:
        load_target("t4", {PRICE: str(prices)})

    message = str(caught.value)
    assert message.startswith(f"{prices}: ")
    assert says in message
    assert "\n" not in message


def test_a_price_sheet_that_is_missing(tmp_path: Path) -> None:
    """No file is one line."""
    path = tmp_path / "no.toml"

    with pytest.raises(TargetError, match=f"{path}: cannot read the price sheet"):
        load_target("t4", {PRICE: str(path)})
