"""Writes the files of tests/fixtures/training into a folder; see `make fixtures`."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from tests.frontends.pt2_models import write
from tests.frontends.ways_in import STEPS, joint, onnx_file


def main(folder: Path) -> None:
    """Write a joint archive and an ONNX file of every step."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in STEPS.items():
        step = make()
        write(folder / f"{name}_joint.pt2", joint(step))
        packed = gzip.compress(onnx_file(step), mtime=0)
        (folder / f"{name}.onnx.gz").write_bytes(packed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
