"""The networks of `costmodels/gemm/residual.py`, from measured rows of one GPU each.

Trees say what the rows do, and a network learns from the trees: of GEMMs that were
drawn as well as of those that were measured, and of noise less than from the rows
themselves (distillation: Bucila et al., KDD 2006; Hinton et al., arXiv 1503.02531).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import attrs
import numpy as np

from perfc.costmodels.fitted_files import Network
from perfc.costmodels.gemm import LONGER, GemmParameters, features_of, ranged
from perfc.costmodels.kernels import Floats
from training.boosted_trees import boosted_trees
from training.drawn_gemms import drawn_gemms
from training.gemm import GemmRows
from training.network_fit import Training, fit_network

OF_TREES = Training(hidden=(128, 64), epochs=80, smooth=0.05, decay=1e-6)
"""What trees say has no noise."""


@attrs.frozen
class Distillation:
    """How a network learns what trees say.

    Attributes:
        drawn: GEMMs that it sees beside the measured ones.
        training: Of the network.
        processes: So many networks at a time.

    """

    drawn: int = 100_000
    training: Training = OF_TREES
    processes: int = 2


SHIPPED = Distillation()

_SEEN = 1.5
"""Kernels longer than so many times what the host takes beside them are seen in rows of
event pairs."""

_LEAST_SHARE = 0.1
"""Share of the model's time that a row counts as, if it says less."""

_EVER_S = 1e9
"""More than any kernel takes."""


def fit_residuals(
    parts: Sequence[tuple[GemmRows, GemmParameters]],
    how: Distillation = SHIPPED,
) -> list[Network]:
    """Return the network of each, several at a time: see `fit_residual`."""
    if how.processes == 1:
        return [fit_residual(*part, how) for part in parts]
    found: list[Network] = []
    # Threads of OpenMP do not survive a fork.
    with ProcessPoolExecutor(how.processes, get_context("spawn")) as pool:
        fits = [pool.submit(fit_residual, *part, how) for part in parts]
        for fit in fits:
            found.append(fit.result())
            sys.stderr.write(f"network {len(found)} of {len(parts)}\n")
    return found


def fit_residual(
    rows: GemmRows, parameters: GemmParameters, how: Distillation = SHIPPED
) -> Network:
    """Return the network that corrects best what the model says of the kernels.

    Of event pairs those kernels count that the host's call does not hide; the network
    is then of kernels that long.
    """
    modelled_s = rows.kernel_s(parameters)
    seen = np.flatnonzero(modelled_s > _SEEN * rows.beside_s)
    rows, modelled_s = rows.take(seen), modelled_s[seen]
    features = features_of(modelled_s, rows.gemms, rows.target).astype(np.float64)
    least_s = _LEAST_SHARE * modelled_s
    wanted = np.log(np.maximum(rows.measured_s - rows.before_s, least_s) / modelled_s)
    trees = boosted_trees(features, wanted)
    others = _drawn_features(rows, parameters, how.drawn, float(modelled_s.max()))
    shown = np.concatenate([features, others], axis=1)
    sizes = ranged(modelled_s, rows.gemms)
    network = fit_network(shown, trees(shown), sizes, rows.target, how.training)
    network = attrs.evolve(network, limits=(float(wanted.min()), float(wanted.max())))
    if rows.simt:
        return network
    # CUDA graphs hide no kernel, and the layout is not said of rows on tensor cores.
    least, most = network.least.copy(), network.most.copy()
    least[5:], most[5:] = 0.0, [[_EVER_S], [1.0]]
    return attrs.evolve(network, least=least, most=most)


def _drawn_features(
    rows: GemmRows, parameters: GemmParameters, count: int, longest_s: float
) -> Floats:
    gemms = drawn_gemms(rows.gemms, count)
    modelled_s = rows.seconds_of(gemms, parameters)
    short = np.flatnonzero(modelled_s < LONGER * longest_s)
    features = features_of(modelled_s[short], gemms.part(short), rows.target)
    return features.astype(np.float64)
