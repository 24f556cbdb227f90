"""Recommendation models beside DLRM: DCNv2, wide-and-deep, DeepFM.

Sources of structures and sizes:

- dcnv2-mlperf: MLCommons training, `recommendation_v2/torchrec_dlrm`, which is
  `DLRM_DCN` of TorchRec; the cross layers are those of Wang et al., "DCN V2"
  (arXiv 2008.13535). The rows are capped at 40 million, lookups are multi-hot.
- wide-and-deep: Cheng et al., "Wide & Deep Learning for Recommender Systems"
  (arXiv 1606.07792), in the sizes of DeepRecSys (arXiv 2001.02772).
- deepfm: Guo et al., "DeepFM" (arXiv 1703.04247), on the 13 numeric and 26
  categorical fields of the Criteo challenge, vectors of 10, 400-400-400.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs

from perfc.frontends.workloads import lookups
from perfc.frontends.workloads.builder import Builder
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import Graph, Program, Value, single

_DENSE = 13
"""Numeric features of Criteo."""

_DCN = lookups.Tables(
    rows=(
        *(40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956),
        *(405282, 10, 2209, 11938, 155, 4, 976, 14, 40000000, 40000000, 40000000),
        *(590152, 12973, 108, 36),
    ),
    dim=128,
    pooling=(
        *(3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10),
        *(3, 1, 1),
    ),
)
_DCN_BOTTOM = (512, 256)
_DCN_TOP = (1024, 1024, 512, 256)

_WIDE_AND_DEEP = lookups.Tables(rows=(1_000_000,) * 27, dim=32, pooling=(1,) * 27)
_WIDE_AND_DEEP_DENSE = 512
_WIDE_AND_DEEP_TOP = (1024, 512, 256, 1)

_DEEPFM = lookups.Tables(
    rows=(
        *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593),
        *(3194, 27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105),
        142572,
    ),
    dim=10,
    pooling=(1,) * 26,
)
_DEEPFM_DEEP = (400, 400, 400, 1)

_MAX_CROSS_LAYERS = 1_000


def build_dcnv2(values: Mapping[str, int | str]) -> Program:
    """Build DCNv2: dense and pooled vectors side by side, crossed, then an MLP.

    The logits leave as they are: TorchRec's model has no sigmoid at its end.
    """
    tables = _DCN.changed(values)
    builder = Builder(Graph("dcnv2-mlperf"))
    dense = builder.input("dense", _DENSE)
    bags = lookups.declare_bags(builder, tables)
    bottom = (_DENSE, *_DCN_BOTTOM, tables.dim)
    x = _perceptrons(builder, dense, "dense_arch.model._mlp", bottom)
    stem = "sparse_arch.embedding_bag_collection.embedding_bags.t_cat_"
    pooled = lookups.look_up(builder, stem, tables, bags)
    width = (len(tables) + 1) * tables.dim
    joined = builder.op("concat", "inter_arch.cat", x, *pooled, axis=1)
    z = _cross(builder, joined, width, values)
    y = _perceptrons(builder, z, "over_arch.model.0._mlp", (width, *_DCN_TOP))
    y = builder.linear(y, "over_arch.model.1", (_DCN_TOP[-1], 1))
    builder.graph.outputs.append(y)
    return single(builder.graph)


def _perceptrons(builder: Builder, x: Value, path: str, widths: Sequence[int]) -> Value:
    """Stack TorchRec's perceptrons: linear and relu in one module."""
    for layer, sizes in enumerate(pairwise(widths)):
        x = builder.linear(x, f"{path}.{layer}._linear", sizes)
        x = builder.op("relu", f"{path}.{layer}.relu", x)
    return x


def _cross(
    builder: Builder, first: Value, width: int, values: Mapping[str, int | str]
) -> Value:
    """Apply low-rank cross layers, each x0 * (W V x + b) + x."""
    path, rank, x = "inter_arch.crossnet", int(values["rank"]), first
    for layer in range(int(values["layers"])):
        down = builder.parameter(f"{path}.V_kernels.{layer}", rank, width)
        up = builder.parameter(f"{path}.W_kernels.{layer}", width, rank)
        bias = builder.parameter(f"{path}.bias.{layer}", width)
        y = builder.op("linear", f"{path}.v_{layer}", x, down)
        y = builder.op("linear", f"{path}.w_{layer}", y, up)
        y = builder.op("add", f"{path}.biased_{layer}", y, bias)
        y = builder.op("mul", f"{path}.crossed_{layer}", first, y)
        x = builder.op("add", f"{path}.x_{layer}", y, x)
    return x


def build_wide_and_deep(values: Mapping[str, int | str]) -> Program:
    """Build a linear model (a table of one column is its weights) beside an MLP.

    The dense features go to both as they are.
    """
    tables = _WIDE_AND_DEEP.changed(values)
    builder = Builder(Graph("wide-and-deep"))
    dense = builder.input("dense", _WIDE_AND_DEEP_DENSE)
    bags = lookups.declare_bags(builder, tables)
    wide = _linear_model(builder, dense, _WIDE_AND_DEEP_DENSE, tables, bags)
    pooled = lookups.look_up(builder, "deep.embeddings.", tables, bags)
    joined = builder.op("concat", "deep.cat", dense, *pooled, axis=1)
    width = _WIDE_AND_DEEP_DENSE + len(tables) * tables.dim
    deep = builder.mlp(joined, "deep.mlp", (width, *_WIDE_AND_DEEP_TOP))
    logit = builder.op("add", "logit", wide, deep)
    builder.graph.outputs.append(builder.op("sigmoid", "sigmoid", logit))
    return single(builder.graph)


def _linear_model(
    builder: Builder,
    dense: Value,
    width: int,
    tables: lookups.Tables,
    bags: Sequence[tuple[Value, Value]],
) -> Value:
    """Weigh every feature: one column per table, summed, and the dense ones."""
    weights = attrs.evolve(tables, dim=1)
    looked_up = lookups.look_up(builder, "linear.embeddings.", weights, bags)
    joined = _joined(builder, "linear.cat", looked_up)
    summed = _sum(builder, "linear.sum", joined, keepdims=True)
    numeric = builder.linear(dense, "linear.dense", (width, 1))
    return builder.op("add", "linear.add", summed, numeric)


def build_deepfm(values: Mapping[str, int | str]) -> Program:
    """Build a factorisation machine and an MLP that share their vectors.

    A numeric field's vector is its weight times its value, as in the paper.
    """
    tables = _DEEPFM.changed(values)
    builder = Builder(Graph("deepfm"))
    dense = builder.input("dense", _DENSE)
    bags = lookups.declare_bags(builder, tables)
    first = _linear_model(builder, dense, _DENSE, tables, bags)
    fields = (_DENSE + len(tables), tables.dim)
    # One vector a field: [batch, fields, dim].
    column = builder.reshape(dense, "embeddings.values", -1, _DENSE, 1)
    weight = builder.parameter("embeddings.dense.weight", _DENSE, tables.dim)
    numeric = builder.op("mul", "embeddings.dense.mul", column, weight)
    pooled = lookups.look_up(builder, "embeddings.", tables, bags)
    joined = _joined(builder, "embeddings.cat", pooled)
    shape = (-1, len(tables), tables.dim)
    categorical = builder.reshape(joined, "embeddings.view", *shape)
    vectors = builder.op("concat", "embeddings.fields", numeric, categorical, axis=1)
    # Sum the dot products of all pairs: half of (sum^2 - sum of squares).
    summed = _sum(builder, "fm.sum", vectors, keepdims=False)
    square_of_sum = builder.op("mul", "fm.square_of_sum", summed, summed)
    squares = builder.op("mul", "fm.squares", vectors, vectors)
    sum_of_squares = _sum(builder, "fm.sum_of_squares", squares, keepdims=False)
    twice = builder.op("sub", "fm.sub", square_of_sum, sum_of_squares)
    total = _sum(builder, "fm.total", twice, keepdims=True)
    second = builder.op("mul", "fm.half", total, builder.scalar("fm.one_half", 0.5))
    flat = builder.reshape(vectors, "deep.flat", -1, fields[0] * fields[1])
    deep = builder.mlp(flat, "deep.mlp", (fields[0] * fields[1], *_DEEPFM_DEEP))
    logit = builder.op("add", "logit", builder.op("add", "fm.add", first, second), deep)
    builder.graph.outputs.append(builder.op("sigmoid", "sigmoid", logit))
    return single(builder.graph)


def _joined(builder: Builder, name: str, pooled: Sequence[Value]) -> Value:
    """Return the results of the lookups as one matrix."""
    if len(pooled) == 1:
        return pooled[0]
    return builder.op("concat", name, *pooled, axis=1)


def _sum(builder: Builder, name: str, x: Value, *, keepdims: bool) -> Value:
    """Sum over axis 1."""
    return builder.op("reduce", name, x, kind="sum", axes=(1,), keepdims=keepdims)


_LIMITS = {"tables": lookups.MAX_TABLES}

RECOMMENDER_WORKLOADS = by_name(
    Workload(
        name="dcnv2-mlperf",
        summary="26 Criteo tables x 128, 214 lookups; low-rank cross layers",
        source="mlcommons/training recommendation_v2, arXiv 2008.13535",
        parameters={
            **_DCN.parameters(rows="criteo", pooling="mlperf"),
            "layers": 3,
            "rank": 512,
        },
        choices=lookups.LOOKUP_CHOICES,
        texts=lookups.LOOKUP_TEXTS,
        limits={**_LIMITS, "layers": _MAX_CROSS_LAYERS},
        make=build_dcnv2,
    ),
    Workload(
        name="wide-and-deep",
        summary="27 tables of 1,000,000 x 32, 512 dense features; a linear model too",
        source="arXiv 1606.07792, sizes of arXiv 2001.02772",
        parameters=_WIDE_AND_DEEP.parameters(rows=1_000_000, pooling=1),
        choices=lookups.LOOKUP_CHOICES,
        texts=lookups.LOOKUP_TEXTS,
        limits=_LIMITS,
        make=build_wide_and_deep,
    ),
    Workload(
        name="deepfm",
        summary="26 Criteo tables x 10, 39 fields; factorisation machine and MLP",
        source="arXiv 1703.04247",
        parameters=_DEEPFM.parameters(rows="criteo", pooling=1),
        choices=lookups.LOOKUP_CHOICES,
        texts=lookups.LOOKUP_TEXTS,
        limits=_LIMITS,
        make=build_deepfm,
    ),
)
