"""DLRM as facebookresearch/dlrm computes it, in published sizes.

Sources of the sizes:

- Lin et al., "Building a Performance Model for Deep Learning Recommendation Model
  Training on GPUs" (arXiv 2201.07821): DLRM_default, DLRM_MLPerf and DLRM_DDP; the
  Criteo rows are MLPerf's with indices capped at 40 million.
- `bench/dlrm_s_criteo_terabyte.sh` of facebookresearch/dlrm: the small model on
  Criteo Terabyte, indices capped at 10 million.
- Gupta et al., "DeepRecSys" (arXiv 2001.02772), and its published configurations:
  RM1, RM2 and RM3, whose interaction is a concatenation.
- Acun et al., "Understanding Training Efficiency of Deep Learning Recommendation Models
  at Scale" (arXiv 2011.05497): only its abstract was read, sizes are recalled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.frontends.workloads import lookups
from perfc.frontends.workloads.builder import I64, Builder
from perfc.frontends.workloads.protocol import Workload, by_name, widths_of, widths_text
from perfc.ir import Graph, Program, Value, single

LIN = "arXiv 2201.07821"
DEEPRECSYS = "arXiv 2001.02772"

CRITEO_ROWS = (
    *(39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546),
    *(403346, 10, 2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984),
    *(585935, 12972, 108, 36),
)
CRITEO_ROWS_10M = (
    *(10000000, 36746, 17245, 7413, 20243, 3, 7114, 1441, 62, 10000000, 1572176),
    *(345138, 10, 2209, 11267, 128, 4, 974, 14, 10000000, 10000000, 10000000),
    *(452104, 12606, 104, 35),
)


@attrs.frozen(kw_only=True)
class DlrmConfig:
    """Sizes of one DLRM.

    Attributes:
        bottom: Widths of the bottom MLP, dense features first.
        tables: Its embedding tables, as wide as the bottom MLP's end.
        top: Widths of the top MLP after the interaction, 1 last.
        interaction: `dot`, of all pairs of vectors, or `cat`.
        places: Where the list of pairs is: on the `device`, as a CUDA graph needs it,
            or on the `host`, as `DLRM_Net` makes it in every iteration.

    """

    bottom: tuple[int, ...]
    tables: lookups.Tables
    top: tuple[int, ...]
    interaction: str = "dot"
    places: str = "device"


def build_dlrm(name: str, config: DlrmConfig) -> Program:
    """Build the forward pass; the batch is the symbol `batch`."""
    builder = Builder(Graph(name))
    dense = builder.input("dense", config.bottom[0])
    bags = lookups.declare_bags(builder, config.tables)
    x = builder.mlp(dense, "bot_l", config.bottom, last="relu")
    pooled = lookups.look_up(builder, "emb_l.", config.tables, bags)
    vectors, dim = len(config.tables) + 1, config.tables.dim
    if config.interaction == "dot":
        on_host = config.places == "host"
        z = _interact(builder, x, pooled, (vectors, dim), on_host=on_host)
        width = dim + vectors * (vectors - 1) // 2
    else:
        z = builder.op("concat", "interact.cat", x, *pooled, axis=1)
        width = vectors * dim
    y = builder.mlp(z, "top_l", (width, *config.top), last="sigmoid")
    builder.graph.outputs.append(y)
    return single(builder.graph)


def _interact(
    builder: Builder,
    x: Value,
    pooled: Sequence[Value],
    sizes: tuple[int, int],
    *,
    on_host: bool,
) -> Value:
    """Pairwise dot products of all vectors, the lower triangle, and x again."""
    vectors, dim = sizes
    joined = builder.op("concat", "interact.cat", x, *pooled, axis=1)
    stacked = builder.reshape(joined, "interact.view", -1, vectors, dim)
    turned = builder.transpose(stacked, "interact.t", 0, 2, 1)
    dots = builder.op("matmul", "interact.bmm", stacked, turned)
    pairs = vectors * (vectors - 1) // 2
    places = [
        builder.buffer(f"interact.{name}", I64, pairs, on_host=on_host)
        for name in ("li", "lj")
    ]
    triangle = builder.op("index", "interact.index", dots, *places, axes=(1, 2))
    return builder.op("concat", "interact.out", x, triangle, axis=1)


def _workload(  # noqa: PLR0913 - name, text and sizes of a table row
    name: str,
    summary: str,
    config: DlrmConfig,
    *,
    rows: int | str,
    pooling: int,
    source: str = LIN,
) -> Workload:
    def make(values: Mapping[str, int | str]) -> Program:
        tables = config.tables.changed(values)
        changed = attrs.evolve(
            config,
            bottom=(*widths_of(values["bottom"]), tables.dim),
            tables=tables,
            top=widths_of(values["top"]),
            places=str(values.get("places", config.places)),
        )
        return build_dlrm(name, changed)

    parameters = {
        **config.tables.parameters(rows, pooling),
        "bottom": widths_text(config.bottom[:-1]),
        "top": widths_text(config.top),
    }
    if config.interaction == "dot":
        parameters["places"] = config.places

    return Workload(
        name=name,
        summary=summary,
        source=source,
        parameters=parameters,
        choices={**lookups.LOOKUP_CHOICES, "places": ("device", "host")},
        texts=lookups.LOOKUP_TEXTS,
        limits={"tables": lookups.MAX_TABLES},
        widths=frozenset({"bottom", "top"}),
        make=make,
    )


def _deeprecsys(
    model: int, bottom: tuple[int, ...], tables: lookups.Tables, top: tuple[int, ...]
) -> Workload:
    rows, pooling = tables.rows[0], tables.pooling[0]
    return _workload(
        f"deeprecsys-rm{model}",
        f"{len(tables)} tables of {rows:,} x {tables.dim}, {pooling} lookups a bag; "
        "concatenated",
        DlrmConfig(bottom=bottom, tables=tables, top=top, interaction="cat"),
        rows=rows,
        pooling=pooling,
        source=DEEPRECSYS,
    )


def _zion() -> Workload:
    """Return the model of the study of Zion, whose sizes are recalled, not read.

    Recalled are MLPs of three layers of 512, 64 columns, 100,000 rows and at most 32
    lookups a bag; 256 dense features, 16 tables and 32 lookups are assumed. Both MLPs
    are alike.
    """
    defaults: dict[str, int | str] = {
        "dense": 256,
        "tables": 16,
        "rows": 100_000,
        "dim": 64,
        "pooling": 32,
        "mlp": "512-512-512",
        "embedding": "batched",
        "popularity": lookups.UNIFORM,
    }

    def make(values: Mapping[str, int | str]) -> Program:
        tables = attrs.evolve(
            _alike(
                *(int(values[name]) for name in ("tables", "rows", "dim", "pooling"))
            ),
            batched=values["embedding"] == "batched",
            popularity=str(values["popularity"]),
        )
        mlp = widths_of(values["mlp"])
        bottom = (int(values["dense"]), *mlp, tables.dim)
        config = DlrmConfig(bottom=bottom, tables=tables, top=(*mlp, 1))
        return build_dlrm("dlrm-zion", config)

    return Workload(
        name="dlrm-zion",
        summary="16 tables of 100,000 x 64, 32 lookups a bag, 256 dense features; MLPs "
        "512-512-512; sizes recalled",
        source="recalled of arXiv 2011.05497; features, tables and lookups assumed",
        parameters=defaults,
        choices={"embedding": ("batched", "bag")},
        texts=lookups.LOOKUP_TEXTS,
        limits={"tables": lookups.MAX_TABLES, "dense": _MOST_DENSE},
        widths=frozenset({"mlp"}),
        make=make,
    )


_MOST_DENSE = 1_000_000


def _alike(count: int, rows: int, dim: int, pooling: int) -> lookups.Tables:
    return lookups.Tables(rows=(rows,) * count, dim=dim, pooling=(pooling,) * count)


def _one_hot(rows: tuple[int, ...], dim: int) -> lookups.Tables:
    return lookups.Tables(rows=rows, dim=dim, pooling=(1,) * len(rows))


DLRM_WORKLOADS = by_name(
    _workload(
        "dlrm-default",
        "8 tables of 1,000,000 x 64, 100 lookups a bag; wide MLPs",
        DlrmConfig(
            bottom=(512, 512, 64),
            tables=_alike(8, 1_000_000, 64, 100),
            top=(1024, 1024, 1024, 1),
        ),
        rows=1_000_000,
        pooling=100,
    ),
    _workload(
        "dlrm-mlperf",
        "26 Criteo tables x 128, 1 lookup a bag",
        DlrmConfig(
            bottom=(13, 512, 256, 128),
            tables=_one_hot(CRITEO_ROWS, 128),
            top=(1024, 1024, 512, 256, 1),
        ),
        rows="criteo",
        pooling=1,
    ),
    _workload(
        "dlrm-ddp",
        "8 tables of 80,000 x 128, 10 lookups a bag; small MLPs",
        DlrmConfig(
            bottom=(128, 128, 128, 128),
            tables=_alike(8, 80_000, 128, 10),
            top=(512, 512, 512, 256, 1),
        ),
        rows=80_000,
        pooling=10,
    ),
    _workload(
        "criteo-terabyte-small",
        "26 Criteo tables x 64, indices capped at 10,000,000, 1 lookup a bag",
        DlrmConfig(
            bottom=(13, 512, 256, 64),
            tables=_one_hot(CRITEO_ROWS_10M, 64),
            top=(512, 512, 256, 1),
        ),
        rows="criteo",
        pooling=1,
        source="facebookresearch/dlrm, dlrm_s_criteo_terabyte.sh",
    ),
    _deeprecsys(1, (128, 64, 32), _alike(8, 4_000_000, 32, 80), (256, 64, 1)),
    _deeprecsys(2, (256, 128, 64), _alike(32, 500_000, 64, 120), (128, 64, 1)),
    _deeprecsys(3, (2560, 1024, 256, 32), _alike(10, 2_000_000, 32, 20), (512, 256, 1)),
    _zion(),
)
