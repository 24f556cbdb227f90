"""What is fitted of collectives: how the NCCL of a system chooses."""

from __future__ import annotations

import attrs
import numpy as np
from training.collectives import CollectiveSample, fit_systems, modelled_s

from perfc.costmodels import load_target
from perfc.costmodels.collectives import Collectives, collective_parameters


def _sample(target: str, *, by_peer: bool) -> CollectiveSample:
    """Return what the model says of a system, as if it had been measured."""
    cells = [
        (op, 2.0**octave, ranks)
        for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
        for ranks in (2.0, 4.0, 8.0)
        for octave in range(9, 30, 2)
    ]
    ranks = np.array([count for _, _, count in cells])
    c = Collectives(
        np.array([op for op, _, _ in cells]),
        np.full(len(cells), "fp16"),
        np.array([size for _, size, _ in cells]),
        ranks,
        np.ones(len(cells)),
        ranks,
    )
    made = CollectiveSample(load_target(target), "made", "", c, ranks, by_peer)
    return attrs.evolve(made, measured_s=modelled_s(made, collective_parameters()))


def test_rows_say_how_their_nccl_chooses() -> None:
    """Of two systems the one whose exchanges leave LL early is told so."""
    samples = [_sample("dgx-a100", by_peer=False), _sample("dgx-h100", by_peer=True)]
    untold = [attrs.evolve(sample, ll_by_peer=False) for sample in samples]

    told, p = fit_systems(untold)

    assert [sample.ll_by_peer for sample in told] == [False, True]
    for sample in told:
        off = np.log(modelled_s(sample, p) / sample.measured_s)
        assert np.abs(off).mean() < 0.02
