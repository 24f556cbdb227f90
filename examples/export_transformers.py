"""Write small transformer blocks as ONNX files, by both exporters.

    python examples/export_transformers.py tests/fixtures/transformers

Like the fixtures of `export_dlrm.py` they hold no weights of more than 1 kB.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from onnx_exporters import VERSIONS, Case, Fixture, export
from torch import nn
from transformer_blocks import (
    LENGTH,
    WIDTH,
    Activations,
    DecoderBlock,
    EncoderBlock,
    FusedBlock,
    ImageNorms,
    RotaryBlock,
)
from weightless_onnx import strip

README = """\
# Transformer fixtures

Written by `python examples/export_transformers.py tests/fixtures/transformers`
with {versions}. Do not edit them, nor this file: change the script and run it
again. The modules are in `examples/transformer_blocks.py`; the batch is a symbol.

| file | exporter | opset | what it is |
|---|---|---|---|
"""

Maker = Callable[[], nn.Module]


def _words(make: Maker, *, masked: bool) -> Case:
    """A block that reads vectors, and maybe which of them count."""
    x = torch.randn(2, LENGTH, WIDTH)
    mask = torch.ones(2, LENGTH)
    args, names = ((x, mask), ("x", "mask")) if masked else ((x,), ("x",))
    return Case(make(), args, names, tuple({0: "batch"} for _ in names))


def _tensor(make: Maker, *shape: int) -> Case:
    return Case(make(), (torch.randn(2, *shape),), ("x",), ({0: "batch"},))


_CASES: dict[str, tuple[str, Callable[[], Case], tuple[int, ...], tuple[int, ...]]] = {
    "encoder": (
        "attention by hand, layer norm, GELU",
        partial(_words, EncoderBlock, masked=True),
        (11, 17),
        (18,),
    ),
    "decoder": (
        "causal attention by hand, GELU by hand",
        partial(_words, DecoderBlock, masked=False),
        (17,),
        (18,),
    ),
    "rotary": (
        "RMS norm, rotary positions and shared heads by hand, SiLU",
        partial(_words, RotaryBlock, masked=False),
        (17,),
        (18, 23),
    ),
    "fused_boolean": (
        "`scaled_dot_product_attention`, boolean mask",
        partial(_words, partial(FusedBlock, "boolean"), masked=True),
        (17,),
        (18,),
    ),
    "fused_added": (
        "the same, additive mask",
        partial(_words, partial(FusedBlock, "added"), masked=True),
        (17,),
        (18,),
    ),
    "fused_causal": (
        "the same, causal",
        partial(_words, partial(FusedBlock, "causal"), masked=True),
        (17,),
        (18, 23),
    ),
    "fused_grouped": (
        "the same, two heads of keys and values for four of queries",
        partial(_words, partial(FusedBlock, "none", 2), masked=True),
        (),
        (18, 23),
    ),
    "norms": (
        "group and instance norms",
        partial(_tensor, ImageNorms, 8, 4, 4),
        (17,),
        (18, 23),
    ),
    "activations": (
        "activations, by name and by hand",
        partial(_tensor, Activations, 9, 4),
        (11, 17),
        (18, 20),
    ),
}
"""What it is, how it is made, opsets of the legacy exporter and of the other."""


def fixtures() -> Iterator[Fixture]:
    """List all files."""
    for name, (about, make, legacy, dynamo) in _CASES.items():
        for opset in legacy:
            stem = f"{name}_legacy_op{opset}"
            yield Fixture(
                name=stem, about=about, make=make, exporter="legacy", opset=opset
            )
        for opset in dynamo:
            stem = f"{name}_dynamo_op{opset}"
            yield Fixture(
                name=stem, about=about, make=make, exporter="dynamo", opset=opset
            )


def main() -> None:
    """Write the files and the README that lists them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    lines = [README.format(versions=VERSIONS)]
    for fixture in fixtures():
        path = folder / f"{fixture.name}.onnx"
        path.write_bytes(strip(export(fixture)))
        lines.append(
            f"| `{path.name}` | {fixture.exporter} | {fixture.opset} "
            f"| {fixture.about} |\n"
        )
    (folder / "README.md").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
