"""Letters for the axes of an einsum."""

from __future__ import annotations

from collections.abc import Mapping


def letters_of(terms: tuple[tuple[str, ...], ...]) -> Mapping[str, str]:
    """Give every axis a letter, also those that `...` stands for."""
    labels = list(dict.fromkeys(label for term in terms for label in term))
    free = [c for c in map(chr, range(ord("A"), ord("z"))) if c.isalpha()]
    free = [c for c in free if c not in labels]
    return {label: label if label.isalpha() else free.pop(0) for label in labels}
