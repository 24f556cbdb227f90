"""DLRM as facebookresearch/dlrm computes it, in three published sizes.

Sizes: Lin et al., "Building a Performance Model for Deep Learning Recommendation
Model Training on GPUs" (arXiv 2201.07821), configurations DLRM_default,
DLRM_MLPerf and DLRM_DDP; the Criteo rows are MLPerf's with indices capped at
40 million.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.frontends.workloads.protocol import Workload
from perfc.ir import (
    DTYPES,
    AttrValue,
    DType,
    Graph,
    Location,
    Program,
    Record,
    TensorType,
    Value,
    single,
    symbol,
)

F32, I64 = DTYPES["f32"], DTYPES["i64"]
BATCH = symbol("batch")
CRITEO_ROWS = (
    *(39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546),
    *(403346, 10, 2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984),
    *(585935, 12972, 108, 36),
)

MAX_TABLES = 4_000
"""A graph of more would not fit into memory."""


@attrs.frozen(kw_only=True)
class DlrmConfig:
    """Sizes of one DLRM.

    Attributes:
        bottom: Widths of the bottom MLP, dense features first, `dim` last.
        rows: Rows of each embedding table.
        dim: Columns of every table.
        pooling: Lookups per bag.
        top: Widths of the top MLP after the interaction, 1 last.
        batched: One lookup kernel for all tables, not one a table.

    """

    bottom: tuple[int, ...]
    rows: tuple[int, ...]
    dim: int
    pooling: int
    top: tuple[int, ...]
    batched: bool = False


def build_dlrm(name: str, config: DlrmConfig) -> Program:
    """Build the forward pass; the batch is the symbol `batch`."""
    builder = _Builder(Graph(name), config)
    builder.build()
    return single(builder.graph)


@attrs.define(eq=False)
class _Builder:
    graph: Graph
    config: DlrmConfig

    def build(self) -> None:
        config = self.config
        dense = self.graph.add_input("dense", self._type(F32, config.bottom[0]))
        x = self._mlp("bot_l", dense, config.bottom, last="relu")
        pooled = self._batched_lookup() if config.batched else self._lookups()
        z = self._interact(x, pooled)
        pairs = len(config.rows) * (len(config.rows) + 1) // 2
        top = (config.dim + pairs, *config.top)
        self.graph.outputs.append(self._mlp("top_l", z, top, last="sigmoid"))

    def _type(self, dtype: DType, *dims: int) -> TensorType:
        return TensorType(dtype, (BATCH, *dims))

    def _op(
        self,
        op: str,
        name: str,
        operands: Sequence[Value],
        module: str = "",
        **attributes: AttrValue,
    ) -> Value:
        location = Location(name=name, module=module)
        node = self.graph.add(op, operands, [name], attributes, location=location)
        return node.results[0]

    def _mlp(self, module: str, x: Value, widths: Sequence[int], last: str) -> Value:
        layers = len(widths) - 1
        for layer in range(layers):
            path = f"{module}.{2 * layer}"
            shape = (widths[layer + 1], widths[layer])
            weight = self.graph.add_parameter(f"{path}.weight", TensorType(F32, shape))
            bias = self.graph.add_parameter(f"{path}.bias", TensorType(F32, shape[:1]))
            x = self._op("linear", f"{path}.linear", (x, weight, bias), path)
            activation = last if layer == layers - 1 else "relu"
            x = self._op(
                activation, f"{path}.{activation}", (x,), f"{module}.{2 * layer + 1}"
            )
        return x

    def _table(self, index: int) -> Value:
        shape = (self.config.rows[index], self.config.dim)
        return self.graph.add_parameter(f"emb_l.{index}.weight", TensorType(F32, shape))

    def _records(self) -> tuple[Record, ...]:
        config = self.config
        return tuple(
            Record({"rows": rows, "dim": config.dim, "pooling": config.pooling})
            for rows in config.rows
        )

    def _lookups(self) -> list[Value]:
        count = BATCH * self.config.pooling
        pooled: list[Value] = []
        for index, record in enumerate(self._records()):
            indices = self.graph.add_input(
                f"indices_{index}", TensorType(I64, (count,))
            )
            offsets = self.graph.add_input(
                f"offsets_{index}", TensorType(I64, (BATCH,))
            )
            pooled.append(
                self._op(
                    "embedding_bag",
                    f"emb_l.{index}.bag",
                    (self._table(index), indices, offsets),
                    f"emb_l.{index}",
                    tables=(record,),
                    mode="sum",
                    has_offsets=True,
                )
            )
        return pooled

    def _batched_lookup(self) -> list[Value]:
        tables = len(self.config.rows)
        weights = [self._table(index) for index in range(tables)]
        count = BATCH * (self.config.pooling * tables)
        indices = self.graph.add_input("indices", TensorType(I64, (count,)))
        offsets = self.graph.add_input(
            "offsets", TensorType(I64, (BATCH * tables + 1,))
        )
        return [
            self._op(
                "embedding_bag",
                "emb_l.bags",
                (*weights, indices, offsets),
                "emb_l",
                tables=self._records(),
                mode="sum",
                has_offsets=True,
                include_last_offset=True,
            )
        ]

    def _constant(
        self, name: str, shape: tuple[int, ...], values: Sequence[int]
    ) -> Value:
        return self._op(
            "constant", name, (), dtype=I64, shape=shape, elements=tuple(values)
        )

    def _interact(self, x: Value, pooled: Sequence[Value]) -> Value:
        """Pairwise dot products of all vectors, the lower triangle, and x again."""
        vectors = len(self.config.rows) + 1
        joined = self._op("concat", "interact.cat", (x, *pooled), axis=1)
        shape = self._constant("interact.shape", (3,), (-1, vectors, self.config.dim))
        stacked = self._op("reshape", "interact.view", (joined, shape))
        turned = self._op("transpose", "interact.t", (stacked,), perm=(0, 2, 1))
        dots = self._op("matmul", "interact.bmm", (stacked, turned))
        pairs = [(i, j) for i in range(vectors) for j in range(i)]
        flat = [number for pair in pairs for number in pair]
        indices = self._constant("interact.pairs", (len(pairs), 2), flat)
        triangle = self._op("index", "interact.index", (dots, indices), axis=1)
        return self._op("concat", "interact.out", (x, triangle), axis=1)


def _sized(rows: Sequence[int], values: Mapping[str, int | str]) -> tuple[int, ...]:
    """The first `tables` of *rows*, starting over where they run out."""
    tables, fixed = int(values["tables"]), values["rows"]
    if isinstance(fixed, int):
        return (fixed,) * tables
    return tuple(rows[i % len(rows)] for i in range(tables))


def _workload(
    name: str, summary: str, config: DlrmConfig, *, rows: int | str
) -> Workload:
    def make(values: Mapping[str, int | str]) -> Program:
        dim = int(values["dim"])
        return build_dlrm(
            name,
            attrs.evolve(
                config,
                bottom=(*config.bottom[:-1], dim),
                rows=_sized(config.rows, values),
                dim=dim,
                pooling=int(values["pooling"]),
                batched=values["embedding"] == "batched",
            ),
        )

    return Workload(
        name=name,
        summary=summary,
        source="arXiv 2201.07821",
        parameters={
            "embedding": "bag",
            "tables": len(config.rows),
            "rows": rows,
            "dim": config.dim,
            "pooling": config.pooling,
        },
        choices={"embedding": ("bag", "batched")},
        limits={"tables": MAX_TABLES},
        make=make,
    )


DLRM_WORKLOADS = (
    _workload(
        "dlrm-default",
        "8 tables of 1,000,000 x 64, 100 lookups a bag; wide MLPs",
        DlrmConfig(
            bottom=(512, 512, 64),
            rows=(1_000_000,) * 8,
            dim=64,
            pooling=100,
            top=(1024, 1024, 1024, 1),
        ),
        rows=1_000_000,
    ),
    _workload(
        "dlrm-mlperf",
        "26 Criteo tables x 128, 1 lookup a bag",
        DlrmConfig(
            bottom=(13, 512, 256, 128),
            rows=CRITEO_ROWS,
            dim=128,
            pooling=1,
            top=(1024, 1024, 512, 256, 1),
        ),
        rows="criteo",
    ),
    _workload(
        "dlrm-ddp",
        "8 tables of 80,000 x 128, 10 lookups a bag; small MLPs",
        DlrmConfig(
            bottom=(128, 128, 128, 128),
            rows=(80_000,) * 8,
            dim=128,
            pooling=10,
            top=(512, 512, 512, 256, 1),
        ),
        rows=80_000,
    ),
)
