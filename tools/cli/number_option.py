"""Numbers of options: within a range, and numbers at all."""

from __future__ import annotations

import math

import click


class NumberRange(click.FloatRange):
    """A range of floats. NaN, which is outside of no range, is in none of these."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not a number", param, ctx)
        return number
