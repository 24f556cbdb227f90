"""Export `nn.EmbeddingBag` as one ONNX op, `perfc::EmbeddingBag`.

Neither exporter of PyTorch has an ONNX op for it, so they write a loop over bags.
perfc recognises those loops, but a file with the op says plainly what is meant:

    torch.onnx.export(..., dynamo=True, custom_translation_table=TRANSLATION)

`perfc.export_onnx` does so by itself. `python examples/embedding_bag_op.py FILE` writes
the small DLRM so, without weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dlrm_fixtures import SMALL, dlrm_case
from onnx_exporters import Fixture, export
from weightless_onnx import strip

from perfc.frontends import TRANSLATION


def main() -> None:
    """Write the small DLRM."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="ONNX file to write")
    file: Path = parser.parse_args().file
    fixture = Fixture(
        name=file.stem,
        about="DLRM, sum; its bags are one op each",
        make=lambda: dlrm_case(SMALL),
        exporter="dynamo",
        opset=20,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(strip(export(fixture, TRANSLATION)))


if __name__ == "__main__":
    main()
