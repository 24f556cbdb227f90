"""Kernels whose elements do not lie in line."""

from __future__ import annotations

import attrs
import pytest
from tests.costmodels.signatures import ALL_MODELS, over_rows

from perfc.costmodels import load_target, price
from perfc.costmodels.streaming.noncontiguous import COLUMNS_START_S, SCATTERED_START_S
from perfc.ir import AttrValue, Kernel, Record, Work


def seconds(*kernels: Kernel, target: str = "v100-sxm2-16g") -> list[float]:
    """Price kernels with the built-in models."""
    priced = price(kernels, load_target(target), ALL_MODELS)
    return [float(s) for s in priced.seconds]


def test_elements_that_do_not_lie_alike_take_longer() -> None:
    """Where each one is has to be worked out: more for small kernels, and for many."""
    plain = [over_rows("elementwise", rows, 64, inputs=0) for rows in (1, 1 << 16)]
    scattered = [
        attrs.evolve(k, params=k.params.updated(scattered=True)) for k in plain
    ]
    small, large, small_scattered, large_scattered = seconds(*plain, *scattered)

    assert pytest.approx(SCATTERED_START_S, rel=0.1) == small_scattered - small
    assert large_scattered > large + SCATTERED_START_S


def test_tensors_with_holes_take_longer_to_join() -> None:
    """Two places are worked out for each element, which narrow ones wait for most."""
    elements = 1 << 24
    params: dict[str, AttrValue] = {"axis": 0, "shapes": ((elements,),)}
    params |= {"rows": elements, "cols": 1}

    def joined(size: int, **extra: AttrValue) -> Kernel:
        moved = Work(0, size * elements, size * elements)
        return Kernel("concat", "fp32", "fp32", Record({**params, **extra}), moved)

    plain = seconds(joined(2), joined(4))
    holes = seconds(joined(2, scattered=True), joined(4, scattered=True))

    assert holes[0] > 1.5 * plain[0]
    assert holes[1] / plain[1] < holes[0] / plain[0]


def test_many_results_of_sums_have_places_of_their_own() -> None:
    """An axis of one element: as many results as elements, which take longer."""
    few, many = (
        attrs.evolve(kernel, params=kernel.params.updated(axis=0))
        for kernel in (
            over_rows("reduction", 64, 1 << 20),
            over_rows("reduction", 1 << 26, 1),
        )
    )
    few_s, many_s = seconds(few, many, target="b200")

    assert many_s > 1.5 * few_s


def test_sums_over_columns_begin_later() -> None:
    """Blocks that share a result have to meet, which those of a row need not."""
    row = over_rows("reduction", 64, 2048)
    column = attrs.evolve(row, params=row.params.updated(axis=0))
    of_row, of_column = seconds(row, column)

    assert pytest.approx(COLUMNS_START_S) == of_column - of_row
