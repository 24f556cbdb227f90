"""Bytes a parameter in mixed precision, as the documents of frameworks count them.

Megatron-LM's table (docs of its distributed optimizer) has, for each parameter and
without sharing: 20 bytes with parameters and gradients of 16 bits, 18 with parameters
of 16 bits and fp32 gradients, 16 with both in fp32. PyTorch's own optimizers keep
states in the type of the parameter: 8 bytes where all is of 16 bits.
"""

from __future__ import annotations

from collections import Counter

import pytest

import perfc
from perfc.ir.text import parse_program
from perfc.passes.memory import BufferKind, MemoryUse
from perfc.passes.training import AccumulateGradients, Training
from perfc.tools.models import prepare
from perfc.tools.models.model import Model

WIDTH, LAYERS, BATCH = 512, 4, 8
ELEMENTS = LAYERS * WIDTH * WIDTH
MASTERS = Training(optimizer="adam", masters="fp32")
MAIN = Training(optimizer="adam", masters="fp32", main_grads="fp32")


def _model(training: Training, dtype: str, count: int = 1) -> Model:
    """Return a step of equal layers, whose parameters have a type."""
    weights = ", ".join(f"param %w{n}: {dtype}[{WIDTH},{WIDTH}]" for n in range(LAYERS))
    nodes = [f"  %h{n + 1} = linear(%h{n}, %w{n}) : ?" for n in range(LAYERS)]
    head = f"graph @chain(%h0: {dtype}[{BATCH},{WIDTH}], {weights}) {{"
    text = "\n".join([head, *nodes, f"  return %h{LAYERS}", "}"])
    passes = (training, AccumulateGradients(count))
    return prepare(parse_program(text), transforms=passes)


def _use(model: Model) -> MemoryUse:
    return perfc.analyze(model, "a100").memory_use


def _per_parameter(use: MemoryUse) -> dict[str, float]:
    """Return bytes of each kind that a parameter takes, gradients where most live."""
    kinds: Counter[BufferKind] = Counter()
    for buffer in use.buffers:
        kinds[buffer.kind] += buffer.nbytes
    kept = (BufferKind.PARAMETER, BufferKind.GRADIENT, BufferKind.OPTIMIZER)
    return {kind.value: kinds[kind] / ELEMENTS for kind in kept}


@pytest.mark.parametrize(
    ("training", "dtype", "expected"),
    [
        (Training(optimizer="adam"), "f32", (4, 4, 8)),
        (Training(optimizer="adam"), "bf16", (2, 2, 4)),
        (MASTERS, "bf16", (2, 2, 4 + 8)),
        (MASTERS, "f16", (2, 2, 4 + 8)),
        (MAIN, "bf16", (2, 4, 4 + 8)),
        (Training(masters="fp32"), "bf16", (2, 2, 4)),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_bytes_a_parameter(
    training: Training, dtype: str, expected: tuple[int, int, int], count: int
) -> None:
    """Parameters, gradients and states are as wide as the framework keeps them."""
    found = _per_parameter(_use(_model(training, dtype, count)))

    assert dict(zip(("parameter", "gradient", "optimizer"), expected, strict=True)) == (
        pytest.approx(found, abs=1e-4)
    )


@pytest.mark.parametrize(
    ("training", "dtype", "expected"),
    [
        (MASTERS, "bf16", 20),
        (MAIN, "bf16", 18),
        (Training(optimizer="adam"), "f32", 16),
    ],
)
def test_megatron_counts_the_same(
    training: Training, dtype: str, expected: int
) -> None:
    """Its table is what lives when the optimizer begins, with fp32 gradients made."""
    use = _use(_model(training, dtype))
    wide = [n for n, name in enumerate(use.nodes) if name.endswith(".grad.cast")]
    first = next(n for n, name in enumerate(use.nodes) if name == "adam.lift_fresh")
    at = max([*wide, first])
    model = sum(
        buffer.nbytes
        for buffer in use.buffers
        if buffer.first <= at <= buffer.last
        and buffer.nbytes >= WIDTH * WIDTH
        and buffer.kind is not BufferKind.LIBRARY
    )

    assert expected == pytest.approx(model / ELEMENTS, rel=1e-3)


def test_gradients_of_16_bits_pass_by() -> None:
    """With main gradients a gradient lives until it is added, layer by layer."""
    use = _use(_model(MAIN, "bf16"))
    narrow = [
        b
        for b in use.buffers
        if b.nbytes == 2 * WIDTH * WIDTH and b.kind is BufferKind.ACTIVATION
    ]

    assert LAYERS == len(narrow)
    assert all(b.last - b.first <= LAYERS for b in narrow)


def test_masters_are_copied_back() -> None:
    """The step has casts and a copy more, and moves the bytes that they move."""
    plain, masters, main = (
        perfc.analyze(_model(t, "bf16"), "a100")
        for t in (Training(optimizer="adam"), MASTERS, MAIN)
    )
    ops = [Counter(node["op"] for node in report.nodes) for report in (masters, main)]

    assert [1, 1] == [found["aten::_foreach_copy_"] for found in ops]
    assert [0, 1] == [found["aten::_foreach_zero_"] for found in ops]
    # A cast reads 2 and writes 4 bytes, the copy reads 4 and writes 2; Adam's own seven
    # passes over what it steps on, and its gradient, are twice as wide.
    assert masters.summary["bytes"] > plain.summary["bytes"] + (6 + 6) * ELEMENTS
    # Zeroing writes 4, adding reads 6 and writes 4; nothing is cast for the step.
    assert main.summary["bytes"] - masters.summary["bytes"] == (4 + 10 - 6) * ELEMENTS


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_autocast_keeps_casts_of_weights(mode: str) -> None:
    """Casts of all weights of GEMMs live at the end of forward: 2 bytes a parameter."""
    sizes = "gpt2:layers=3,hidden=64,heads=4,seq=16,vocab=101"
    model = perfc.load(sizes, batch=2, mode=mode, dtype="amp-bf16")
    report = perfc.analyze(model, "a100")
    use, (rank,) = report.memory_use, model.program.classes
    assert rank.ops is not None
    casts = {
        node.name: int(node.results[0].type.nbytes)
        for node in rank.ops
        if node.attributes.get("cached") and node.results[0].type is not None
    }
    phases = [node.location.phase for node in rank.ops]
    end = phases.index("backward") - 1 if mode == "training" else len(phases) - 1
    held = {b.name: b.nbytes for b in use.buffers if b.first <= end <= b.last}
    h = 64
    weights = 3 * 12 * h * h + 3 * (3 * h + h + 4 * h + h) + 101 * h

    assert 2 * weights == sum(casts.values())
    assert casts == {name: held.get(name) for name in casts}
