"""GPT as Megatron-LM runs it, and the seconds of the pieces that its steps consist of.

One linear layer for queries, keys and values, attention by two batched GEMMs with a
fused softmax between them (scale, mask and softmax are one kernel), dropout of scores
and of what goes back to the residual, biases everywhere, the head tied to the table of
tokens. Parameters, activations and gradients are fp16; Adam, one fused kernel, updates
fp32 masters. Biases, GELU and the residual are added by kernels of their own, where
Megatron has them fused by TorchScript.

Steps are composed of pieces: all blocks run the same kernels, and the published steps
are sums of pieces, too. Each is of some calls of `perfc.analyze`. The host waits for
the device at each microbatch (`tensor_parallel/data.py` reads the sizes of the batch
back), so that forward begins on an idle device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import attrs

import perfc
from perfc.costmodels import load_target
from perfc.frontends.workloads.attention import Heads, split_heads
from perfc.frontends.workloads.builder import I64, Builder
from perfc.ir import DTYPES, Graph, Program, Value, single
from perfc.ir.program import RankClass
from perfc.passes import Pass, TensorParallel
from perfc.passes.training import CheckpointActivations, Training
from perfc.tools.models import Dimensions, parallel_passes, prepare, training_passes

SEQ = 1024
VOCABULARY, PADDED = 50_257, 128
"""Tokens, and what they are padded to a multiple of, on each of several ranks. On one
the published steps have them as they are: from 1,024 to 2,048 elements a vector the
head gains flops at 82 TFLOP/s there, on two ranks at 233."""
FEW, MORE = 1, 3
"""Layers of the two models whose difference is that of their blocks."""
ALL_REDUCES = 4
"""All-reduces of a block, forward and backward, where ranks share it."""
FAST = 100.0
"""Speed of a host that nothing waits for."""
SYSTEM = "dgx-a100"
_BLOCKS = "transformer.layers"


@attrs.frozen
class Setting:
    """What decides the time of a microbatch.

    Attributes:
        hidden: Elements of a position's vector.
        heads: Heads of attention, of all ranks.
        tp: Ranks of tensor parallelism.
        micro_batch: Sequences of a microbatch.
        recompute: Whether blocks are computed again in backward.
        dropout: Whether scores and residuals are dropped out.
        speed: The host's over that of `shared`.
        pause_s: For how long the device stands still at an all-reduce of a block.

    """

    hidden: int
    heads: int
    tp: int
    micro_batch: int
    recompute: bool = False
    dropout: bool = True
    speed: float = 1.0
    pause_s: float = 0.0


@attrs.frozen
class Line:
    """Seconds that are linear in layers.

    Attributes:
        layer_s: Of one block.
        rest_s: Of all besides.

    """

    layer_s: float
    rest_s: float

    def of(self, layers: float) -> float:
        """Return the seconds of so many layers, and of all besides."""
        return self.rest_s + layers * self.layer_s


def vocabulary(tp: int) -> int:
    """Return the tokens, padded where ranks share them."""
    if tp == 1:
        return VOCABULARY
    unit = PADDED * tp
    return -(-VOCABULARY // unit) * unit


def parameters_of(hidden: int, layers: float, tp: int) -> float:
    """Return how many parameters a rank has of so many layers and both tables."""
    block = 12 * hidden * hidden / tp + (7 / tp + 6) * hidden
    return layers * block + (vocabulary(tp) / tp + SEQ + 2) * hidden


def build(
    setting: Setting, layers: int, dtype: str = "f16", *, head: bool = True
) -> Program:
    """Return the forward pass over token ids, [batch, seq]; maybe without a head."""
    width = setting.hidden
    heads = Heads(count=setting.heads, size=width // setting.heads)
    builder = Builder(Graph(f"gpt-{width}-{layers}"), DTYPES[dtype])
    tokens = builder.input("input_ids", SEQ, dtype=I64)
    places = builder.integers("embedding.position_ids", range(SEQ), 1, SEQ)
    x = builder.embedding(tokens, "embedding.word", vocabulary(setting.tp), width)
    y = builder.embedding(places, "embedding.position", SEQ, width)
    x = builder.op("add", "embedding.add", x, y)
    x = _drop(builder, x, "embedding.dropout", setting)
    for layer in range(layers):
        x = _block(builder, x, f"{_BLOCKS}.{layer}", heads, setting)
    if head:
        x = builder.layer_norm(x, "transformer.final_norm", width, 1e-5)
        weight = builder.graph.value("embedding.word.weight")
        x = builder.op("linear", "lm_head.linear", x, weight)
    builder.graph.outputs.append(x)
    return single(builder.graph)


def _drop(builder: Builder, x: Value, name: str, setting: Setting) -> Value:
    names = (name, f"{name}_mask")
    return builder.ops("dropout", names, x)[0] if setting.dropout else x


def _attend(
    builder: Builder, x: Value, path: str, heads: Heads, setting: Setting
) -> Value:
    """Attend by batched GEMMs, [batch, seq, width], in front of the last layer."""
    width = heads.width
    q, k, v = (
        split_heads(builder, piece, path, heads, SEQ)
        for piece in builder.split(x, f"{path}.split", width, width, width)
    )
    turned = builder.transpose(k, f"{path}.turned", 0, 1, 3, 2)
    scores = builder.op("matmul", f"{path}.scores", q, turned)
    scores = builder.op("softmax", f"{path}.softmax", scores, axis=-1)
    scores = _drop(builder, scores, f"{path}.dropout", setting)
    mixed = builder.op("matmul", f"{path}.context", scores, v)
    joined = builder.transpose(mixed, f"{path}.joined", 0, 2, 1, 3)
    return builder.reshape(joined, f"{path}.flat", -1, SEQ, width)


def _block(
    builder: Builder, x: Value, path: str, heads: Heads, setting: Setting
) -> Value:
    """Return the result of a block on [batch, seq, width]."""
    width, own = heads.width, f"{path}.attention"
    y = builder.layer_norm(x, f"{path}.input_norm", width, 1e-5)
    y = builder.linear(y, f"{own}.query_key_value", (width, 3 * width))
    y = _attend(builder, y, own, heads, setting)
    y = builder.linear(y, f"{own}.dense", (width, width))
    y = _drop(builder, y, f"{path}.dropout", setting)
    x = builder.op("add", f"{path}.add", x, y)
    y = builder.layer_norm(x, f"{path}.post_norm", width, 1e-5)
    y = builder.linear(y, f"{path}.mlp.up", (width, 4 * width))
    y = builder.op("gelu", f"{path}.mlp.gelu", y, approximate="tanh")
    y = builder.linear(y, f"{path}.mlp.down", (4 * width, width))
    y = _drop(builder, y, f"{path}.dropout_1", setting)
    return builder.op("add", f"{path}.add_1", x, y)


def passes_of(setting: Setting, *, head: bool = True) -> Sequence[Pass]:
    """Return the passes that make a forward pass a step of one microbatch."""
    shared = [TensorParallel(ranks=setting.tp)] if setting.tp > 1 else []
    again = [CheckpointActivations(modules=f"{_BLOCKS}.*")] if setting.recompute else []
    loss = "auto" if head else "sum"
    step = Training(optimizer="adam", fused=True, loss=loss)
    passes = [*shared, step, *again]
    return parallel_passes(setting.tp, training_passes("training", None, passes))


@cache
def report(
    setting: Setting, layers: int, dtype: str = "f16", *, head: bool = True
) -> perfc.Report:
    """Return the report of a step of one microbatch on one replica."""
    program = build(setting, layers, dtype, head=head)
    wanted = Dimensions(setting.micro_batch)
    model = prepare(program, wanted, None, passes_of(setting, head=head))
    target = load_target(SYSTEM, {"host.speed": str(setting.speed)})
    return perfc.analyze(model, target)


def _phases(found: perfc.Report) -> Mapping[str, float]:
    """Return the seconds of each phase."""
    return {str(p["phase"]): p["time_us"] / 1e6 for p in found.phases}


def _both_ways_s(found: perfc.Report) -> float:
    """Return the seconds of forward and backward."""
    return found.time_us / 1e6 - _phases(found)["optimizer"]


def _block_s(setting: Setting) -> float:
    few_s, more_s = (
        _both_ways_s(report(setting, layers, head=False)) for layers in (FEW, MORE)
    )
    return (more_s - few_s) / (MORE - FEW)


@cache
def microbatch(setting: Setting) -> Line:
    """Return the seconds of forward and backward of a microbatch.

    A block's are those of blocks alone: no GEMM of a head hides what the host takes.
    Where ranks share it, the device pauses at each all-reduce, unless it waits for the
    host longer than that.
    """
    host = attrs.evolve(setting, pause_s=0.0)
    layer_s = _block_s(host)
    besides_s = _both_ways_s(report(host, FEW)) - FEW * layer_s
    if setting.tp > 1:
        device_s = _block_s(attrs.evolve(host, speed=FAST))
        layer_s = max(layer_s, device_s + ALL_REDUCES * setting.pause_s)
    return Line(layer_s, besides_s)


@cache
def optimizer(hidden: int, heads: int, tp: int) -> Line:
    """Return the seconds of Adam on fp32 masters."""
    setting = Setting(hidden, heads, tp, 1)
    reports = [report(setting, layers, "f32") for layers in (FEW, MORE)]
    few_s, more_s = (_phases(found)["optimizer"] for found in reports)
    layer_s = (more_s - few_s) / (MORE - FEW)
    return Line(layer_s, few_s - FEW * layer_s)


@cache
def all_reduce_s(elements: int, ranks: int) -> float:
    """Return the seconds of an all-reduce of fp16 numbers that nothing hides."""
    builder = Builder(Graph(f"all-reduce-{elements}"), DTYPES["f16"])
    x = builder.parameter("gradients", elements)
    total = builder.op("all_reduce", "sum", x, group="data", ranks=ranks)
    builder.graph.outputs.append(total)
    classes = (RankClass(tuple(range(ranks)), ops=builder.graph),)
    program = attrs.evolve(single(builder.graph), classes=classes)
    found = perfc.analyze(prepare(program, Dimensions(), None, ()), SYSTEM)
    return float(found.summary["comm_us"]) / 1e6
