"""How many lists of a batch differ, where samples of a session repeat them.

A batch holds sessions of S samples on average, one behind the other. From one sample
of a session to the next a feature's list stays as it is with probability d. The first
sample of a session has a list of its own, each other one with probability 1 - d:

    kept = 1/S + (1 - 1/S) (1 - d)

whatever the lengths of sessions are; 1/kept is the dedupe factor (RecD, arXiv
2211.05239). Sessions that batches cut count as their pieces.
"""

from __future__ import annotations

from fractions import Fraction

_FINEST = 10**9


def kept_share(session: float, stay: float) -> float:
    """Return the share of a batch's lists that differ from the one before.

    Args:
        session: Mean samples of a session inside a batch, S, 1 or more.
        stay: Probability that a list, or all lists of a group, stay, d.

    """
    return 1 / session + (1 - 1 / session) * (1 - stay)


def as_quotient(share: float) -> tuple[int, int]:
    """Return a share as a quotient of integers, to 1e-9: sizes are integers."""
    found = Fraction(share).limit_denominator(_FINEST)
    return found.numerator, found.denominator
