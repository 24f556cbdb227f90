"""Rehearse `benchmarks/collect.py` as on a machine that has PyTorch and nothing else.

    python benchmarks/rehearse.py --python PYTHON [--seconds 120]

PYTHON has PyTorch, attrs, click, numpy and networkx. A plain copy of the tracked files
runs on the CPU, without git, without an installation and, where the system allows it,
without a network: once to its end, once killed half-way and continued. What is wrong is
said, and the exit code is then 1. `make rehearse` prepares PYTHON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GRACE_SECONDS = 20.0
MOST_FILES, MOST_BYTES = 8, 16 << 20
YIELDS = ("kernels", "overheads", "workloads", "sustained")
"""Tables that a CPU fills; it launches nothing."""


def main() -> int:
    """Run; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    # Not resolved: what an environment links to does not know the environment.
    python = str(Path(options.python).absolute())
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder) / "copy", Path(folder) / "out"
        copy_tree(tree)
        wrong = [
            *in_full(python, tree, out / "full", options.seconds),
            *cut_off(python, tree, out / "cut", options.seconds),
        ]
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"{len(wrong)} things are wrong" if wrong else "all as it should be")
    return int(bool(wrong))


def copy_tree(goal: Path) -> None:
    """Copy the tracked files; links stay links."""
    git = shutil.which("git") or "git"
    listed = subprocess.run(
        [git, "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = goal / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, path, follow_symlinks=False)


def command(python: str, out: Path, seconds: float) -> list[str]:
    """Return the command of a window, without a network where that is allowed."""
    script = ["benchmarks/collect.py", "--device", "cpu", "--out", str(out)]
    window = [python, "-u", *script, "--window", "--seconds", str(seconds)]
    unshare = shutil.which("unshare")
    if unshare is None:
        return window
    alone = [unshare, "--net", "--map-root-user"]
    tried = subprocess.run([*alone, "true"], check=False, capture_output=True)
    return [*alone, *window] if tried.returncode == 0 else window


def started(python: str, tree: Path, out: Path, seconds: float) -> Any:
    """Start a window, without git on its path and without an environment."""
    environment = {"PATH": "/nonexistent", "PYTHONPATH": "src"}
    return subprocess.Popen(command(python, out, seconds), cwd=tree, env=environment)


def in_full(python: str, tree: Path, out: Path, seconds: float) -> Iterator[str]:
    """Yield the faults of a run that ends by its own clock."""
    begin = time.monotonic()
    code = started(python, tree, out, seconds).wait()
    took = time.monotonic() - begin
    print(f"in full: {took:.0f} of {seconds:.0f} s, exit code {code}")
    if code != 0:
        yield f"a full run ends with {code}"
    if took > seconds + GRACE_SECONDS:
        yield f"a run of {seconds:.0f} s takes {took:.0f} s"
    yield from faults_of(out, YIELDS)
    for part in manifest_of(out)["runs"][-1]["parts"]:
        if part["ended"] not in {"done", "time was over"}:
            yield f"part {part['part']}: {part['ended']}"


def cut_off(python: str, tree: Path, out: Path, seconds: float) -> Iterator[str]:
    """Yield the faults of runs that are killed, and continued."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = started(python, tree, out, seconds)
        time.sleep(seconds / 2)
        process.send_signal(number)
        code = process.wait()
        print(f"cut off by {number.name}: exit code {code}")
        if number == signal.SIGTERM and code != 128 + number:
            yield f"SIGTERM ends a run with {code}"
        yield from faults_of(out, ())
        if not any((out / f"{name}.parquet").exists() for name in YIELDS):
            yield f"no rows after {number.name}"
    runs = len(manifest_of(out)["runs"])
    if runs != len({signal.SIGTERM, signal.SIGKILL}):
        yield f"the manifest knows {runs} runs"


def faults_of(out: Path, tables: Sequence[str]) -> Iterator[str]:
    """Yield the faults of a folder that came back."""
    files = sorted(out.iterdir()) if out.is_dir() else []
    if len(files) > MOST_FILES:
        yield f"{len(files)} files in {out.name}"
    for path in files:
        if path.stat().st_size > MOST_BYTES:
            yield f"{path.name} has {path.stat().st_size:,} bytes"
    names = {path.stem for path in files}
    for name in ("manifest", "rest", *tables):
        if name not in names:
            yield f"no {name} in {out.name}"


def manifest_of(out: Path) -> dict[str, Any]:
    """Return the manifest of a folder; one without runs where there is none."""
    path = out / "manifest.json"
    if not path.exists():
        return {"runs": [{"parts": []}]}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
