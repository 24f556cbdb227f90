"""Popularity as text: read, with one clear line where it is none."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from perfc.costmodels.constants import constants
from perfc.costmodels.locality import popularity

ZIPF_EXPONENT = constants("locality").number("zipf_exponent")
"""Exponent of `zipf` without a number."""

_FORM = re.compile(r"\s*([a-z-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_FORMS = (
    "uniform, zipf(S), zipf-mandelbrot(S,Q), power-law(A), fbgemm(A), "
    "hist(HITS:ROWS,...) or distinct(...)"
)


@functools.lru_cache(maxsize=1024)
def parse_popularity(text: str) -> popularity.Popularity:
    """Read a popularity; nothing is `uniform`."""
    try:
        return _parsed(text)
    except RecursionError:
        raise _no_popularity(text) from None


def _parsed(text: str) -> popularity.Popularity:
    if not text.strip():
        return popularity.Uniform()
    match = _FORM.fullmatch(text)
    name, inner = match.groups() if match else ("", None)
    if name in _BARE and inner is None:
        return _BARE[name]
    if name == "distinct" and inner and inner.strip():
        return popularity.Distinct(_parsed(inner))
    if name == "hist" and inner is not None:
        return popularity.Histogram(
            tuple(_pair(each, text) for each in inner.split(","))
        )
    if name not in _MADE or inner is None:
        raise _no_popularity(text)
    numbers = [_number(each, text) for each in inner.split(",")]
    make, count = _MADE[name]
    if len(numbers) != count:
        raise _no_popularity(text)
    return make(*numbers)


@functools.lru_cache(maxsize=1024)
def is_popularity(text: str) -> bool:
    """Whether `parse_popularity` can read a text."""
    try:
        parse_popularity(text)
    except popularity.PopularityError:
        return False
    return True


def _zipf_mandelbrot(s: float, q: float = 0.0) -> popularity.Popularity:
    """Zipf's law of exponent 0 has no shape: it is uniform."""
    found = popularity.ZipfMandelbrot(s, q)
    return found if found.s else popularity.Uniform()


_BARE: Mapping[str, popularity.Popularity] = MappingProxyType(
    {"uniform": popularity.Uniform(), "zipf": popularity.PowerLaw(ZIPF_EXPONENT)}
)
_MADE: Mapping[str, tuple[Callable[..., popularity.Popularity], int]] = (
    MappingProxyType(
        {
            "zipf": (_zipf_mandelbrot, 1),
            "zipf-mandelbrot": (_zipf_mandelbrot, 2),
            "power-law": (popularity.PowerLaw, 1),
            "fbgemm": (popularity.FbgemmAlpha, 1),
        }
    )
)
"""What is made of so many numbers."""


def _no_popularity(text: str) -> popularity.PopularityError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - a line
    return popularity.PopularityError(f"{shown!r} is no popularity; expected {_FORMS}")


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _no_popularity(whole) from None


def _pair(text: str, whole: str) -> tuple[float, float]:
    hits, colon, rows = text.partition(":")
    if not colon:
        raise _no_popularity(whole)
    return _number(hits, whole), _number(rows, whole)
