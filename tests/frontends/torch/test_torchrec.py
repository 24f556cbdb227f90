"""Fused lookups of fbgemm and TorchRec, recorded where fbgemm cannot run."""

from __future__ import annotations

import enum
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import perfc
from perfc.ir import Graph, Node
from perfc.ir.support import UnsupportedModelError


class OptimType(enum.Enum):
    """Members of fbgemm's `EmbOptimType`."""

    EXACT_SGD = "exact_sgd"
    EXACT_ROWWISE_ADAGRAD = "exact_row_wise_adagrad"
    ADAM = "adam"
    LAMB = "lamb"


class PoolingMode(enum.IntEnum):
    """Members of fbgemm's `PoolingMode`."""

    SUM = 0
    MEAN = 1
    NONE = 2


class SplitTableBatchedEmbeddingBagsCodegen(nn.Module):
    """What perfc reads of fbgemm's class of that name."""

    def __init__(
        self,
        optimizer: OptimType = OptimType.EXACT_ROWWISE_ADAGRAD,
        pooling_mode: PoolingMode = PoolingMode.SUM,
        feature_table_map: list[int] | None = None,
        output_dtype: int = 0,
    ) -> None:
        """Hold two tables in one piece."""
        super().__init__()
        self.embedding_specs = [(100, 8), (50, 4)]
        self.optimizer, self.pooling_mode = optimizer, pooling_mode
        self.feature_table_map = feature_table_map
        self.output_dtype = output_dtype
        self.weights_dev = nn.Parameter(torch.zeros(100 * 8 + 50 * 4))
        self.register_buffer("momentum1_dev", torch.zeros(150))

    def split_embedding_weights(self) -> list[Tensor]:
        """Return the tables, views of the piece."""
        whole = self.weights_dev.detach()
        return [whole[:800].view(100, 8), whole[800:].view(50, 4)]

    def forward(
        self, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Fail: fbgemm's kernels are not there."""
        raise NotImplementedError


class Model(nn.Module):
    """A fused lookup, and a layer."""

    def __init__(
        self,
        width: int = 12,
        *,
        hidden: bool = False,
        **options: Any,
    ) -> None:
        """Keep the lookup in a list, as TorchRec does, if it is *hidden*."""
        super().__init__()
        lookup = SplitTableBatchedEmbeddingBagsCodegen(**options)
        if hidden:
            self._lookups = [lookup]
        else:
            self.emb = lookup
        self.top = nn.Linear(width, 1)

    def forward(self, *args: Tensor) -> Tensor:
        """Return numbers."""
        lookup = self._lookups[0] if hasattr(self, "_lookups") else self.emb
        out: Tensor = self.top(lookup(*args).float())
        return out


ARGS = (torch.zeros(64, dtype=torch.int64), torch.arange(17) * 4)


def graph_of(model: nn.Module, args: Any = ARGS, **options: Any) -> Graph:
    """Record a training step, and return its op graph."""
    options = {"mode": "training", "optimizer": "sgd", **options}
    graph = perfc.from_torch(model, args, **options).program.classes[0].ops
    assert graph is not None
    return graph


def only(graph: Graph, op: str) -> Node:
    """Return the one node of an op."""
    (node,) = (node for node in graph if node.op == op)
    return node


@pytest.mark.parametrize("hidden", [False, True])
def test_lookup_and_update(hidden: bool) -> None:
    """One lookup in all tables; in backward one update of tables and states."""
    graph = graph_of(Model(hidden=hidden))
    lookup, update = only(graph, "embedding_bag"), only(graph, "embedding_bag_backward")

    stem = "_lookups.0" if hidden else "emb"
    tables = [f"{stem}.0.weight", f"{stem}.1.weight"]
    assert tables == [value.name for value in lookup.operands[:2]]
    assert [*tables, f"{tables[0]}.state0", f"{tables[1]}.state0"] == [
        value.name for value in update.operands[3:]
    ]
    assert ("rowwise_adagrad", "backward") == (
        update.attributes["optimizer"],
        update.location.phase,
    )
    assert "f32[8,12]" == str(lookup.results[0].type)


def test_tables_are_declared_once() -> None:
    """The pieces that hold all tables, or all states, are not there as well."""
    graph = graph_of(Model())

    assert ["top.weight", "top.bias", "emb.0.weight", "emb.1.weight"] == [
        value.name for value in graph.parameters
    ]
    assert ["f32[100]", "f32[50]"] == [str(value.type) for value in graph.states]


def test_features_share_a_table() -> None:
    """Two features that look up in one table name it twice."""
    graph = graph_of(
        Model(16, feature_table_map=[0, 0]),
    )
    update = only(graph, "embedding_bag_backward")

    assert 2 == len(update.attributes.records("tables"))
    assert update.operands[3] is update.operands[4]


def test_inference_updates_nothing() -> None:
    """Without training there is a lookup, and no state."""
    graph = graph_of(Model(), mode="inference", optimizer=None)

    assert "embedding_bag" in [node.op for node in graph]
    assert "embedding_bag_backward" not in [node.op for node in graph]
    assert [] == graph.states


def test_options_of_a_lookup() -> None:
    """Means, sample weights, Adam and half-precision results are what they are."""
    model = Model(
        optimizer=OptimType.ADAM, pooling_mode=PoolingMode.MEAN, output_dtype=1
    )

    graph = graph_of(model, (*ARGS, torch.zeros(64)))
    lookup, update = only(graph, "embedding_bag"), only(graph, "embedding_bag_backward")

    assert ("mean", True) == (lookup.attributes["mode"], lookup.attributes["weighted"])
    assert "f16[8,12]" == str(lookup.results[0].type)
    assert 4 == len(graph.states)
    assert 4 + 2 + 4 == len(update.operands)


def test_the_model_is_not_changed() -> None:
    """After a recording the module has its own forward again."""
    model = Model()
    graph_of(model)

    assert "forward" not in vars(model.emb)
    with pytest.raises(NotImplementedError):
        model(*ARGS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": OptimType.LAMB}, "optimizer LAMB; expected SGD, EXACT_SGD"),
        ({"pooling_mode": PoolingMode.NONE}, "pooling_mode NONE; expected SUM, MEAN"),
        ({"output_dtype": 2}, "output_dtype 2, not a float"),
    ],
)
def test_what_is_not_known(options: dict[str, Any], words: str) -> None:
    """An option that perfc has no model of is named, with the module."""
    with pytest.raises(UnsupportedModelError, match=f"emb.*{words}"):
        graph_of(Model(**options))


def test_further_arguments_are_refused() -> None:
    """Batches that differ by feature are not supported, and not ignored."""
    with pytest.raises(
        UnsupportedModelError, match="only indices, offsets and weights"
    ):
        graph_of(Model(), (*ARGS, torch.zeros(64), torch.zeros(2)))


def test_a_step_is_analyzed() -> None:
    """The fused update is launched as fbgemm does, and priced."""
    report = perfc.analyze(
        perfc.from_torch(Model(), ARGS, mode="training", optimizer="sgd"),
        target="v100",
    )

    names = {str(node["op"]) for node in report.nodes}
    wanted = "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted"
    assert [f"{wanted}_exact_cuda"] == [n for n in names if n.startswith(wanted)]


def _collections() -> tuple[Any, Any]:
    """Return TorchRec's unfused and fused collection of three tables, and bags."""
    modules = pytest.importorskip("torchrec.modules.embedding_modules")
    fused = pytest.importorskip("torchrec.modules.fused_embedding_modules")
    configs = pytest.importorskip("torchrec.modules.embedding_configs")
    tables = [
        configs.EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=8, num_embeddings=100, feature_names=[f"f{i}"]
        )
        for i in range(3)
    ]
    device = torch.device("meta")
    plain = modules.EmbeddingBagCollection(tables=tables, device=device)
    together = fused.FusedEmbeddingBagCollection(
        tables=tables,
        optimizer_type=torch.optim.SGD,
        optimizer_kwargs={"lr": 0.1},
        device=device,
    )
    return plain, together


class Collection(nn.Module):
    """A collection of TorchRec, and a layer."""

    def __init__(self, collection: nn.Module) -> None:
        """Take a collection of three tables."""
        super().__init__()
        self.ebc = collection
        self.top = nn.Linear(24, 1)

    def forward(self, features: Any) -> Tensor:
        """Return numbers."""
        out: Tensor = self.top(self.ebc(features).values())
        return out


def test_collections_of_torchrec() -> None:
    """TorchRec's own: a bag a table, or one lookup and one update for all."""
    plain, together = _collections()
    jagged = pytest.importorskip("torchrec.sparse.jagged_tensor")
    bags = jagged.KeyedJaggedTensor(
        keys=["f0", "f1", "f2"],
        values=torch.zeros(48, dtype=torch.int64),
        lengths=torch.full((24,), 2),
    )

    found = [
        [node.op for node in graph_of(Collection(module), (bags,))].count(op)
        for module in (plain, together)
        for op in ("embedding_bag", "embedding_bag_backward")
    ]

    assert [3, 3, 1, 1] == found
