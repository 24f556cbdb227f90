"""Write DLRM models as ONNX files without weights.

    python examples/export_dlrm.py tests/fixtures/onnx
    python examples/export_dlrm.py --model dlrm-mlperf examples/models

The first form writes the test fixtures and a README that lists them, the
second one published model. The same versions write the same bytes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from dlrm import PUBLISHED
from dlrm_fixtures import FIXTURES, dlrm_case
from onnx_exporters import VERSIONS, Fixture, export
from weightless_onnx import strip

TRACED_ROWS = 2  # enough to trace a table; its true rows are patched in

README = """\
# ONNX fixtures

Written by `python examples/export_dlrm.py tests/fixtures/onnx` with {versions}.
Do not edit them, nor this file: change the script and run it again.

No file holds weights of more than 1 kB: their data are said to lie in
`weights.bin`, which does not exist. `tests/frontends/onnx/onnx_values.py` fills in
random ones.

The small DLRM has 13 dense features, bottom 64-16, four tables of 1000, 500,
200 and 4 rows of 16, and top 26-64-1. A lone bag reads a table of 100 rows
of 16. In a dynamic file the batch and the number of indices are symbols; in a
static one the batch is 4 with 3 indices per bag.

| file | exporter | opset | shapes | what it is |
|---|---|---|---|---|
"""


def write_fixtures(folder: Path, hash_seed: str) -> None:
    """Write the fixtures that are exported under this hash seed."""
    for fixture in FIXTURES:
        if fixture.hash_seed == hash_seed:
            data = strip(export(fixture))
            (folder / f"{fixture.name}.onnx").write_bytes(data)


def write_all_fixtures(folder: Path) -> None:
    """Write every fixture, in one process per hash seed, and the README.

    PyTorch's dynamo exporter orders the values that a Loop carries by a set of
    strings, so a file depends on Python's hash seed.
    """
    for seed in sorted({fixture.hash_seed for fixture in FIXTURES}):
        subprocess.run(  # noqa: S603 - our own arguments
            [sys.executable, __file__, str(folder), "--hash-seed", seed],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
    lines = [
        f"| `{f.name}.onnx` | {f.exporter} | {f.opset} "
        f"| {'dynamic' if f.dynamic else 'static'} | {f.about} |\n"
        for f in FIXTURES
    ]
    text = README.format(versions=VERSIONS) + "".join(lines)
    (folder / "README.md").write_text(text, encoding="utf-8", newline="\n")


def write_published(name: str, folder: Path) -> None:
    """Write one published model, with the legacy exporter and any batch."""
    config = PUBLISHED[name]
    fixture = Fixture(
        name=name.replace("-", "_"),
        about="",
        make=lambda: dlrm_case(config.with_rows_at_most(TRACED_ROWS)),
        exporter="legacy",
        opset=17,
    )
    rows = {f"tables.{k}.weight": count for k, count in enumerate(config.rows)}
    data = strip(export(fixture), rows)
    (folder / f"{fixture.name}.onnx").write_bytes(data)


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("outdir", type=Path, help="folder to write to")
    parser.add_argument("--model", choices=PUBLISHED, help="write this model only")
    parser.add_argument("--hash-seed", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder: Path = arguments.outdir
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.model:
        write_published(arguments.model, folder)
    elif arguments.hash_seed:
        write_fixtures(folder, arguments.hash_seed)
    else:
        write_all_fixtures(folder)


if __name__ == "__main__":
    main()
