"""Popularity in files: what `perfc locality` writes, and histograms of hits.

A JSON file says it of tables by name:

    {"schema": "perfc.popularity/1", "tables": {"t0": {"popularity": "zipf(1.05)"}}}

A CSV file of the columns `hits` and `rows` is the histogram of one table.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from perfc.costmodels.locality.popularity import Histogram, PopularityError
from perfc.costmodels.locality.popularity_text import is_popularity, parse_popularity
from perfc.ir import parse_json, spend
from perfc.ir.support import damage_as, read_text

POPULARITY_SCHEMA = "perfc.popularity/1"
"""Schema of the JSON file."""

_SHORT = 255
"""Characters of the longest path; text that is longer may be a histogram."""


def read_popularity(text: str) -> Mapping[str, str]:
    """Read a popularity that is given as text, or as a file of one or of many.

    Returns:
        Text by the name of the table; the name is empty where it is of all tables.

    """
    if is_popularity(text):
        return {"": text}
    path = Path(text)
    if len(text) > _SHORT or not _is_file(path):
        parse_popularity(text)  # says what is expected
    content = read_text(path, PopularityError, "a popularity")
    if path.suffix.lower() == ".csv":
        return {"": str(_histogram(path, content))}
    return _tables(path, content)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name with a null byte
        return False


def _histogram(path: Path, content: str) -> Histogram:
    spend("values", sum(map(content.count, ",\n")), str(path))
    with damage_as(PopularityError, str(path), ".csv"):
        return _read_histogram(path, csv.DictReader(content.splitlines()))


def _read_histogram(path: Path, reader: csv.DictReader[str]) -> Histogram:
    if not {"hits", "rows"} <= set(reader.fieldnames or ()):
        found = ", ".join(reader.fieldnames or ()) or "nothing"
        message = f"{path}: expected columns hits and rows, found {found}"
        raise PopularityError(message)
    pairs: list[tuple[float, float]] = []
    for line, row in enumerate(reader, 2):
        try:
            pairs.append((float(row["hits"]), float(row["rows"])))
        except (TypeError, ValueError):
            message = f"{path}, line {line}: expected two numbers, hits and rows"
            raise PopularityError(message) from None
    try:
        return Histogram(tuple(pairs))
    except PopularityError as error:
        message = f"{path}: {error}"
        raise PopularityError(message) from None


def _tables(path: Path, content: str) -> Mapping[str, str]:
    expected = f"JSON of {POPULARITY_SCHEMA!r}, or a .csv of hits,rows"
    found = parse_json(content, PopularityError, str(path), expected)
    document = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    tables = document.get("tables")
    if document.get("schema") != POPULARITY_SCHEMA or not isinstance(tables, dict):
        message = (
            f"{path}: expected schema {POPULARITY_SCHEMA!r} and its tables by name"
        )
        raise PopularityError(message)
    texts: dict[str, str] = {}
    for name, said in cast("dict[str, object]", tables).items():
        of = cast("dict[str, object]", said) if isinstance(said, dict) else {}
        text = of.get("popularity")
        if not name or not isinstance(text, str) or not is_popularity(text):
            lacks = "popularity that can be read" if name else "name"
            message = f"{path}: table {name!r} has no {lacks}"
            raise PopularityError(message)
        texts[name] = text
    if not texts:
        message = f"{path}: there are no tables in it"
        raise PopularityError(message)
    return texts
