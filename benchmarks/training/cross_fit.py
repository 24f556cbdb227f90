"""Rows that networks were fitted to, as if they were not: cross-validation.

The networks of GEMMs that perfc ships are fitted to all rows of a GPU. What they say
of others, networks tell that lack a fifth of the sizes each: of GEMMs on tensor
cores all rows of an (n, k), since those are few, of others those of one size.
Predictions of rows by networks that lack them set the intervals (cross-conformal
prediction: Vovk, Annals of Mathematics and AI 2015) and are what is reported, of rows
that the formula beneath has not seen either.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels import lower_bound
from perfc.costmodels.fitted_files import Network, networks
from perfc.costmodels.gemm import (
    RESIDUAL_FILE,
    GemmParameters,
    Known,
    simt_parameters,
    tensor_parameters,
)
from perfc.costmodels.kernels import Floats, Indices
from training.gemm import GemmRows
from training.gemm_residual import SHIPPED, Distillation, fit_residuals
from training.samples import TEST, Sample

FOLDS = 5


@attrs.frozen(eq=False)
class _Group:
    """Rows of one network: GEMMs of one type on one GPU.

    Attributes:
        places: Where their samples stand among all.
        rows: Of all these, one after another.
        folds: Of each row.
        parameters: Of the formula that the network corrects.

    """

    places: Sequence[int]
    rows: GemmRows
    folds: Indices
    parameters: GemmParameters

    def without(self, fold: int) -> tuple[GemmRows, GemmParameters]:
        """Return the rows beside those of a fold, and the formula's parameters."""
        others = np.flatnonzero(self.folds != fold)
        return self.rows.take(others), self.parameters

    def kernel_s(self, networks_by_fold: Sequence[Network]) -> Floats:
        """Return the seconds of each kernel by the network that has not seen it."""
        found = self.rows.kernel_s(self.parameters)
        for fold, network in enumerate(networks_by_fold):
            at = np.flatnonzero(self.folds == fold)
            known = Known(self.rows.target, network, own=True)
            known.correct(found, self.rows.gemms.part(at), at, found[at])
        return found


def cross_fitted(
    samples: Sequence[Sample], how: Distillation = SHIPPED
) -> list[Sample]:
    """Return the samples, those of GEMMs that have a network with `apart_s`."""
    found, groups = list(samples), _groups(samples)
    parts = [group.without(fold) for group in groups for fold in range(FOLDS)]
    fitted = fit_residuals(parts, how)
    for number, group in enumerate(groups):
        mine = fitted[number * FOLDS :][:FOLDS]
        _put_in(found, group.places, group.kernel_s(mine))
    return found


def reported(samples: Sequence[Sample], how: Distillation = SHIPPED) -> list[Sample]:
    """Return the rows to report, by networks that are fitted to all others.

    One network for each type on a GPU, where `cross_fitted` takes five.

    Args:
        samples: All rows; only those of GEMMs that have a network get `apart_s`.
        how: How networks learn.

    """
    found, groups = list(samples), _groups(samples)
    asked = [
        np.concatenate([samples[place].part == TEST for place in group.places])
        for group in groups
    ]
    parts = [
        (group.rows.take(np.flatnonzero(~at)), group.parameters)
        for group, at in zip(groups, asked, strict=True)
    ]
    fitted = fit_residuals(parts, how)
    for group, at, network in zip(groups, asked, fitted, strict=True):
        seconds, rows = group.rows.kernel_s(group.parameters), np.flatnonzero(at)
        known = Known(group.rows.target, network, own=True)
        known.correct(seconds, group.rows.gemms.part(rows), rows, seconds[rows])
        _put_in(found, group.places, seconds)
    return [sample.of(TEST) for sample in found]


def has_network(sample: Sample) -> bool:
    """Whether a network that ships was fitted to rows, all of them."""
    known = sample.key.target, sample.key.dtype
    return sample.key.op == "gemm" and known in networks(RESIDUAL_FILE)


def _put_in(samples: list[Sample], places: Sequence[int], seconds: Floats) -> None:
    ends = np.cumsum([len(samples[place]) for place in places])
    for place, part in zip(places, np.split(seconds, ends[:-1]), strict=True):
        sample = samples[place]
        least_s = lower_bound(sample.table, sample.target)
        samples[place] = attrs.evolve(sample, apart_s=np.maximum(part, least_s))


def _groups(samples: Sequence[Sample]) -> list[_Group]:
    places: dict[tuple[str, str], list[int]] = {}
    for place, sample in enumerate(samples):
        if len(sample) and has_network(sample):
            known = sample.key.target, sample.key.dtype
            places.setdefault(known, []).append(place)
    return [_group([samples[p] for p in mine], mine) for mine in places.values()]


def _group(samples: Sequence[Sample], places: Sequence[int]) -> _Group:
    rows = GemmRows.joined([GemmRows.of(sample) for sample in samples])
    parameters = simt_parameters()
    if not rows.simt:
        architecture = rows.target.device.architecture
        parameters = tensor_parameters(architecture, samples[0].key.dtype)
    sizes = rows.gemms.sizes if rows.simt else rows.gemms.sizes[2:]
    folds = np.array([_fold(size) for size in sizes.T.astype(int).tolist()])
    return _Group(places, rows, folds, parameters)


def _fold(sizes: Sequence[int]) -> int:
    return zlib.crc32(f"perfc fold {sizes}".encode()) % FOLDS
