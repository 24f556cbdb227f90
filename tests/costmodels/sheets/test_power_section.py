"""What sheets say of watts and joules."""

from __future__ import annotations

import pytest

from perfc.costmodels import load_target
from perfc.costmodels.sheets.power_section import power_of, power_problems
from perfc.ir import UsageError

H100 = load_target("h100")


def test_a_cap_by_hand_takes_the_place_of_the_boards() -> None:
    """`power.tdp_w` stays what it is; prices go by it."""
    capped = load_target("h100", {"gpu.power_cap_watts": "500"})

    assert H100.power is not None
    assert capped.power is not None
    assert (700, 500) == (H100.power.cap_watts, capped.power.cap_watts)
    assert H100.watts == capped.watts


def test_a_cap_below_idle_watts_is_refused() -> None:
    """In a line that says what a board without work draws."""
    with pytest.raises(UsageError) as error:
        load_target("h100", {"gpu.power_cap_watts": "130"})

    assert (
        "--set gpu.power_cap_watts: expected more than power.idle_w = 130 W, which the "
        "board draws without work, found 130"
    ) == str(error.value)


def test_watts_follow_the_number_of_sms() -> None:
    """Half an H100 has half its cap, and draws half as much."""
    half = load_target("h100", {"gpu.sm_count": "66"})

    assert half.power is not None
    assert (350, 450, 65, 234.5) == (
        half.power.cap_watts,
        half.power.burst_watts,
        half.power.idle_watts,
        half.power.busy_watts,
    )


def test_most_boards_are_not_measured() -> None:
    """They have a cap and nothing else, so that no clock is said of them."""
    assert [None, None] == [load_target(name).power for name in ("a100", "cpu")]


def test_a_sheet_says_all_of_watts_or_nothing() -> None:
    """The linter names the first field that is missing."""
    fields = {k: v for k, v in H100.fields.items() if k != "power.idle_w"}

    assert power_of(fields) is None
    (problem,) = power_problems(fields)
    assert (
        "power.idle_w: expected a value beside power.burst_w, found nothing; add it, "
        "or leave power.burst_w out"
    ) == str(problem)


def test_a_board_draws_less_without_work_than_its_cap() -> None:
    """A sheet that says otherwise has a slip in one of the two."""
    fields = {**H100.fields, "power.idle_w": 800}

    (problem,) = power_problems(fields)
    assert (
        "power.tdp_w: expected more than power.idle_w = 800 W, found 700; the board "
        "draws power.idle_w without work"
    ) == str(problem)
