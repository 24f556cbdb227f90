"""The models that `export_dlrm.py` writes as test fixtures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from dlrm import Dlrm, DlrmConfig, Layout, Mode, sample_inputs, sample_sparse
from dlrm_variants import Bag, BagReversed, DlrmInterleaved, DlrmOffsetsFirst
from onnx_exporters import Case, Fixture
from torch import Tensor, nn

BATCH = 4

SMALL = DlrmConfig(
    dense_features=13,
    bottom=(64, 16),
    rows=(1000, 500, 200, 4),
    dim=16,
    top=(64, 1),
    pooling=3,
)
WEIGHTED = replace(SMALL, layout="weighted")

_MODES: tuple[Mode, ...] = ("sum", "mean", "max")
_EXPORTERS: tuple[Literal["legacy", "dynamo"], ...] = ("legacy", "dynamo")
_SPARSE_NAMES = {
    "offsets": ("indices", "offsets"),
    "2d": ("indices",),
    "weighted": ("indices", "offsets", "weights"),
}


def _sparse_axes(layout: Layout) -> tuple[dict[int, str], ...]:
    """Axes of the sparse inputs of all tables."""
    if layout == "2d":
        return ({0: "batch"},)
    axes = ({0: "nnz_#"}, {0: "batch"}, {0: "nnz_#"})
    return axes[: len(_SPARSE_NAMES[layout])]


def dlrm_case(config: DlrmConfig) -> Case:
    """Export the model with the inputs in the order of `Dlrm.forward`."""
    return Case(
        Dlrm(config),
        sample_inputs(config, BATCH),
        ("dense", *_SPARSE_NAMES[config.layout]),
        ({0: "batch"}, *_sparse_axes(config.layout)),
    )


def _offsets_first() -> Case:
    """Export the small model with all offsets before all indices."""
    dense, indices, offsets = sample_inputs(SMALL, BATCH)
    return Case(
        DlrmOffsetsFirst(SMALL),
        (dense, offsets, indices),
        ("dense", "offsets", "indices"),
        ({0: "batch"}, {0: "batch"}, {0: "nnz_#"}),
    )


def _interleaved() -> Case:
    """Export the small model with the inputs of a bag next to each other."""
    count = len(SMALL.rows)
    dense = sample_inputs(SMALL, BATCH)[0]
    indices, offsets = sample_sparse(SMALL, BATCH)
    bags: list[Tensor] = []
    names: list[str] = []
    axes: list[dict[int, str]] = []
    for k in range(count):
        bags += [offsets[k], indices[k]]
        names += [f"offsets_{k}", f"indices_{k}"]
        axes += [{0: "batch"}, {0: f"nnz_{k}"}]
    return Case(
        DlrmInterleaved(SMALL),
        (dense, *bags),
        ("dense", *names),
        ({0: "batch"}, *axes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BagKind:
    """How one bag is stored and reduced."""

    mode: Mode = "sum"
    layout: Layout = "offsets"
    include_last_offset: bool = False
    padding_idx: int | None = None
    index_type: torch.dtype = torch.int64
    reverse: bool = False

    def case(self) -> Case:
        """Make a table of 100 rows of 16, and its inputs."""
        table = nn.EmbeddingBag(
            100,
            16,
            mode=self.mode,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
        config = replace(
            SMALL,
            rows=(100,),
            mode=self.mode,
            layout=self.layout,
            include_last_offset=self.include_last_offset,
        )
        args = [x for (x,) in sample_sparse(config, BATCH, self.index_type)]
        names = list(_SPARSE_NAMES[self.layout])
        axes = [{0: "batch"}] if self.layout == "2d" else [{0: "nnz"}, {0: "batch"}]
        if self.include_last_offset:
            names[1], axes[1] = "bounds", {0: "bounds"}
        if self.layout == "weighted":
            axes.append({0: "nnz"})
        module = BagReversed(table) if self.reverse else Bag(table)
        step = -1 if self.reverse else 1
        return Case(
            module, tuple(args[::step]), tuple(names[::step]), tuple(axes[::step])
        )


def _bag(
    stem: str, about: str, kind: _BagKind, *, dynamic: bool = True
) -> list[Fixture]:
    """Export one bag by both exporters."""
    return [
        Fixture(
            name=f"bag_{exporter}_{stem}",
            about=about,
            make=kind.case,
            exporter=exporter,
            opset=17 if exporter == "legacy" else 18,
            dynamic=dynamic,
        )
        for exporter in _EXPORTERS
    ]


def _bags() -> list[Fixture]:
    """Lone bags, in every mode and layout."""
    fixtures: list[Fixture] = []
    for mode in _MODES:
        fixtures += _bag(
            f"{mode}_offsets",
            f"{mode}, 1-D indices and offsets",
            _BagKind(mode=mode),
        )
        fixtures += _bag(
            f"{mode}_2d",
            f"{mode}, 2-D indices, three per bag",
            _BagKind(mode=mode, layout="2d"),
        )
    fixtures += _bag(
        "sum_2d_static",
        "sum, 2-D indices",
        _BagKind(layout="2d"),
        dynamic=False,
    )
    fixtures += _bag(
        "sum_weighted",
        "weighted sum, 1-D indices, offsets and weights",
        _BagKind(layout="weighted"),
    )
    fixtures += _bag(
        "sum_weighted_reversed",
        "weighted sum, inputs listed as weights, offsets, indices",
        _BagKind(layout="weighted", reverse=True),
    )
    for mode in _MODES[:2]:
        fixtures += _bag(
            f"{mode}_bounds",
            f"{mode}, `include_last_offset`: one more offset than bags",
            _BagKind(mode=mode, include_last_offset=True),
        )
    return fixtures


_SMALL = partial(dlrm_case, SMALL)

FIXTURES: list[Fixture] = [
    Fixture(
        name="dlrm_small_legacy_op11",
        about="DLRM, sum, indices and offsets",
        make=_SMALL,
        exporter="legacy",
        opset=11,
    ),
    Fixture(
        name="dlrm_small_legacy_op17",
        about="the same",
        make=_SMALL,
        exporter="legacy",
        opset=17,
    ),
    Fixture(
        name="dlrm_small_legacy_static",
        about="the same",
        make=_SMALL,
        exporter="legacy",
        opset=17,
        dynamic=False,
    ),
    Fixture(
        name="dlrm_small_legacy_mean_2d",
        about="DLRM, mean, 2-D indices",
        make=partial(dlrm_case, replace(SMALL, mode="mean", layout="2d")),
        exporter="legacy",
        opset=17,
    ),
    Fixture(
        name="dlrm_small_legacy_weighted",
        about="DLRM, weighted sum",
        make=partial(dlrm_case, WEIGHTED),
        exporter="legacy",
        opset=17,
    ),
    Fixture(
        name="dlrm_small_legacy_offsets_first",
        about="DLRM, sum; inputs listed as dense, all offsets, all indices",
        make=_offsets_first,
        exporter="legacy",
        opset=17,
    ),
    Fixture(
        name="dlrm_small_legacy_interleaved",
        about="DLRM, sum; inputs listed as dense, offsets_0, indices_0, offsets_1, ...",
        make=_interleaved,
        exporter="legacy",
        opset=17,
    ),
    Fixture(
        name="dlrm_small_dynamo_op18",
        about="DLRM, sum, indices and offsets",
        make=_SMALL,
        exporter="dynamo",
        opset=18,
        dynamic=False,
    ),
    Fixture(
        name="dlrm_small_dynamo_op20_dynbatch",
        about="the same",
        make=_SMALL,
        exporter="dynamo",
        opset=20,
    ),
    Fixture(
        name="dlrm_small_dynamo_op20_weighted",
        about="DLRM, weighted sum",
        make=partial(dlrm_case, WEIGHTED),
        exporter="dynamo",
        opset=20,
        dynamic=False,
    ),
    *_bags(),
    Fixture(
        name="bag_legacy_op11_mean_offsets",
        about="mean, 1-D indices and offsets",
        make=_BagKind(mode="mean").case,
        exporter="legacy",
        opset=11,
    ),
    Fixture(
        # What the dynamo exporter writes for int32 is not valid ONNX: it joins
        # the offsets to an int64 length.
        name="bag_legacy_sum_int32",
        about="sum, int32 indices and offsets",
        make=_BagKind(index_type=torch.int32).case,
        exporter="legacy",
        opset=17,
    ),
    Fixture(
        name="bag_dynamo_sum_padding",
        about="sum, `padding_idx=3`",
        make=_BagKind(padding_idx=3).case,
        exporter="dynamo",
        opset=18,
    ),
    Fixture(
        name="bag_dynamo_sum_loop_order",
        about="`bag_dynamo_sum_offsets` with the carried values of its Loop swapped",
        make=_BagKind().case,
        exporter="dynamo",
        opset=18,
        hash_seed="1",
    ),
]
