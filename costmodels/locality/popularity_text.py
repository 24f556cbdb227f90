"""Popularity as text: read, with one clear line where it is none."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from perfc.costmodels.constants import constants
from perfc.costmodels.locality.popularity import (
    Distinct,
    FbgemmAlpha,
    Histogram,
    Popularity,
    PopularityError,
    PowerLaw,
    Uniform,
    ZipfMandelbrot,
)

ZIPF_EXPONENT = constants("locality").number("zipf_exponent")
"""Exponent of `zipf` without a number."""

_FORM = re.compile(r"\s*([a-z-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_FORMS = (
    "uniform, zipf(S), zipf-mandelbrot(S,Q), power-law(A), fbgemm(A), "
    "hist(HITS:ROWS,...) or distinct(...)"
)


@functools.lru_cache(maxsize=1024)
def parse_popularity(text: str) -> Popularity:
    """Read a popularity; nothing is `uniform`."""
    try:
        return _parsed(text)
    except RecursionError:
        raise _no_popularity(text) from None


def _parsed(text: str) -> Popularity:
    if not text.strip():
        return Uniform()
    match = _FORM.fullmatch(text)
    name, inner = match.groups() if match else ("", None)
    if name in _BARE and inner is None:
        return _BARE[name]
    if name == "distinct" and inner and inner.strip():
        return Distinct(_parsed(inner))
    if name == "hist" and inner is not None:
        return Histogram(tuple(_pair(each, text) for each in inner.split(",")))
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
    except PopularityError:
        return False
    return True


def _zipf_mandelbrot(s: float, q: float = 0.0) -> Popularity:
    """Zipf's law of exponent 0 has no shape: it is uniform."""
    found = ZipfMandelbrot(s, q)
    return found if found.s else Uniform()


_BARE: Mapping[str, Popularity] = MappingProxyType(
    {"uniform": Uniform(), "zipf": PowerLaw(ZIPF_EXPONENT)}
)
_MADE: Mapping[str, tuple[Callable[..., Popularity], int]] = MappingProxyType(
    {
        "zipf": (_zipf_mandelbrot, 1),
        "zipf-mandelbrot": (_zipf_mandelbrot, 2),
        "power-law": (PowerLaw, 1),
        "fbgemm": (FbgemmAlpha, 1),
    }
)
"""What is made of so many numbers."""


def _no_popularity(text: str) -> PopularityError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - a line
    return PopularityError(f"{shown!r} is no popularity; expected {_FORMS}")


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
