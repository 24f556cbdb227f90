"""Whether commands print the same bytes as before a change that may move no number.

    python -m tests.same_output store FOLDER
    python -m tests.same_output compare FOLDER

Some eighty commands: every verb and frontend, inference and training, ranks, CPUs,
plans, exports, measured rows, bad input. What each prints and writes, and its exit
code, goes into a file of FOLDER; `compare` names what differs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]

_DDP = "dlrm-ddp:tables=6,rows=100000"
_GPT = "gpt2:layers=2"
_SMALL = "gpt2:layers=2,hidden=128,heads=4,seq=64,vocab=1000"
_ROWS = "{root}/benchmarks/rows/h100-sxm-80g"

FIRST = """
analyze {model} --batch 512 --target v100 --mode training --format trace -o step.json
analyze {ddp} --batch 512 --target dgx-a100 --mode training --ranks 2 --format trace -o ranks.json
opt -p raise-embedding-bag,shape-inference {model} -o model.perfc
analyze {model} --batch 512 --target v100 --mode training --format json -o step.report.json
analyze {model} --batch 2048 --target a100 --mode training --format json -o a100.report.json
"""  # noqa: E501 - as it is typed
"""Whose files others read."""

COMMANDS = """
analyze {model} --batch 2048 --target a100
analyze {model} --batch 2048 --target a100 --target h100 --format json
analyze {model} --batch 512 --target v100 --overheads lin-v100
analyze {model} --batch 512 --target v100 --runtime cudagraph --format json
analyze {model} --batch 512 --target v100 --runtime compiled --format json
analyze {model} --batch 512 --target a100 --dtype amp-bf16
analyze {model} --batch 512 --target a100 --set gpu.sm_clock_mhz=1200
analyze {model} --batch 512 --target a100 --mode training --optimizer adagrad --format json
analyze {model} --batch 512 --target cpu --format json
analyze {model} --batch 512 --target mi300x --format html
analyze {model} --batch 512 --target t4 --format csv
analyze {fixtures}/onnx/dlrm_small_dynamo_op20_dynbatch.onnx --batch 64 --target t4 --format json
analyze {fixtures}/onnx/dlrm_small_legacy_op11.onnx --batch 64 --target l4
analyze {fixtures}/custom_op/dlrm_small_custom_op.onnx --batch 64 --target l4
analyze {fixtures}/transformers/encoder_dynamo_op18.onnx --batch 8 --target h100 --format json
analyze {fixtures}/transformers/decoder_legacy_op17.onnx --batch 8 --target h100 --mode training
analyze {fixtures}/pt2/block.pt2 --target a100 --format json
analyze {fixtures}/pt2/small.pt2 --batch 32 --target a100 --mode training
analyze {fixtures}/training/dlrm_joint.pt2 --target a100 --format json
analyze {fixtures}/training/bert_joint.pt2 --target v100
analyze dlrm-default:embedding=batched,tables=16 --batch 4096 --target l4
analyze {ddp} --batch 512 --target l4 --popularity zipf(1.05) --format json
analyze {ddp} --batch 512 --target dgx-a100 --mode training --ranks 8 --format json
analyze {ddp} --batch 512 --target v100 --mode training --runtime cudagraph
analyze {gpt} --batch 8 --mode training --target dgx-h100 --ranks 64 --format json
analyze {gpt} --batch 8 --target h100 --dtype amp-bf16 --mode training
analyze bert-base:layers=2 --batch 16 --target l40s --runtime compiled --format json
analyze resnet50 --batch 32 --target rtx-4090
analyze resnet50 --batch 8 --target p4 --mode training --format json
analyze inception-v3 --batch 8 --target p100 --dtype tf32
analyze wide-and-deep --batch 1024 --target h200 --inputs device --format json
analyze deeprecsys-rm2 --batch 256 --target cpu
analyze dcnv2-mlperf:max_rows=100000 --batch 256 --target a100 --mode training
analyze switch-xl-4:layers=2 --batch 1 --target h100
parallel {small} --batch 64 --target dgx-h100 --ranks 8 --format json
parallel {small} --batch 64 --target dgx-a100 --ranks 4
shard {ddp} --batch 512 --target dgx-a100 --ranks 4 --format json
shard {ddp} --batch 512 --target dgx-a100 --ranks 2 --memory 1GB --tiers hbm,uvm-caching
opt -p raise-embedding-bag,shape-inference,fold-shapes {model}
opt -p shape-inference,fold-shapes,training {fixtures}/pt2/block.pt2
opt model.perfc
replay step.json
replay step.json --format json
replay ranks.json --format json
rescale step.json --from v100 --to a100
rescale step.json --from v100 --to h100 --format json
diff step.report.json a100.report.json
diff step.report.json a100.report.json --by module --format json
diff step.report.json a100.report.json --by overhead --format md
diff step.report.json step.json --by kernel --format json
diff step.json a100.report.json
check {root}/examples/ci/budgets.toml
check {root}/examples/ci/budgets.toml --format json
check {root}/examples/ci/budgets.toml --format junit
check {root}/examples/ci/budgets.toml --format sarif
place dlrm-default --target zion --tiers hbm=1GB,dram --candidates 256 --compare none -q --format json
place dlrm-default --target zion --tiers hbm=1GB,dram --candidates 256 -q
quantize dlrm-default --batch 2048 --target a100 --embeddings int8 --linear bf16 --format json
quantize dlrm-default --batch 2048 --target a100 --embeddings int4
dedup dlrm-ddp --batch 2048 --target a100 --session 10 --stay emb_*=0.9 -q --format json
dedup dlrm-ddp --batch 2048 --target dgx-a100 --ranks 8 --session 10 --stay emb_*=0.9 -q
calibrate --from step.json -o host.toml
validate {rows}/kernels.parquet
locality --help
targets
targets show a100
targets show dgx-h100
ops
passes
models
analyze --help
analyze missing.onnx --target a100
analyze {model} --target nowhere
analyze dlrm-default:tables=x --target a100
shard {ddp} --target dgx-a100 --ranks 0
diff step.report.json missing.json
check missing.toml
place {ddp} --target zion --tiers nowhere
quantize {ddp} --target a100 --embeddings fp3
dedup {ddp} --target a100 --session 0
"""  # noqa: E501

_SECONDS = re.compile(
    rb"\b\d+(?:\.\d+)? ?(?:ms|s)\b(?= (?:to|of) (?:search|load|lower))"
)
"""How long perfc itself took is no result."""


_PROGRESS = re.compile(rb"^perfc: priced \d+ of \d+ .*\n", re.MULTILINE)
"""Is said only where the machine is slow."""


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command."""
    places = {
        "root": str(ROOT),
        "model": f"{ROOT}/examples/models/dlrm_mlperf.onnx",
        "fixtures": f"{ROOT}/tests/fixtures",
        "rows": _ROWS.format(root=ROOT),
        "ddp": _DDP,
        "gpt": _GPT,
        "small": _SMALL,
    }
    for line in text.strip().splitlines():
        yield shlex.split(line.format_map(places))


def output(words: list[str], folder: Path) -> bytes:
    """Run a command in *folder*; return its exit code and all that it printed."""
    env: Mapping[str, str] = {**os.environ, "COLUMNS": "100", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "perfc", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        check=False,
    )
    written = b""
    if "-o" in words:
        path = folder / words[words.index("-o") + 1]
        written = path.read_bytes() if path.exists() else b"no file"
    said = _PROGRESS.sub(b"", done.stderr)
    shown = [f"exit {done.returncode}".encode(), done.stdout, said, written]
    return b"\n".join(shown).replace(bytes(ROOT), b"ROOT")


def outputs() -> Iterator[tuple[str, bytes]]:
    """Yield each command and what came of it."""
    with (
        tempfile.TemporaryDirectory() as name,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        folder = Path(name)
        for text in (FIRST, COMMANDS):
            chosen = [*commands(text)]
            found = pool.map(output, chosen, itertools.repeat(folder))
            for words, shown in zip(chosen, found, strict=True):
                yield " ".join(words).replace(str(ROOT), "ROOT"), shown


def file_name(command: str) -> str:
    """Return the name of the file that holds what a command printed."""
    return re.sub(r"[^\w.=-]+", "_", command)[:180] + ".out"


def main(arguments: list[str] | None = None) -> int:
    """Store or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=["store", "compare"])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    changed = number = 0
    for command, shown in outputs():
        number += 1
        path = options.folder / file_name(command)
        if options.verb == "store":
            path.write_bytes(shown)
        elif not path.exists() or path.read_bytes() != shown:
            changed += 1
            path.with_suffix(".now").write_bytes(shown)
            print(f"DIFFERS  {command}\n         {path}")
    said = "stored" if options.verb == "store" else f"{changed} differ of"
    print(f"{said} {number} commands")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
