"""`make compat`: other Pythons and the oldest dependencies give the same answers.

    python -m tests.compat [PYTHON ...]

For each Python, and for the first of them once more with the oldest versions that
pyproject.toml declares, it makes a virtual environment in build/compat, installs perfc
as a wheel and no PyTorch, runs the tests of `PARTS`, and compares the JSON of twelve
analyses byte for byte.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
"""What is looked for unless somebody names others."""

PARTS = ("tests/golden", "tests/ir", "tests/costmodels", "tests/measurements")
"""What is run of the suite: the parts that need neither PyTorch nor a GPU's rows."""

TOOLS = ("pytest>=9", "pytest-xdist", "hypothesis", "pyarrow", "pandas", "scipy")
OLD_TOOLS = ("pyarrow<21", "pandas<3")
"""Beside the oldest dependencies: later ones want a newer numpy, and do not say so."""

_MODEL = "examples/models/dlrm_mlperf.onnx"
_DDP = "dlrm-ddp:tables=4,rows=100000"
_NUMBER = re.compile(rb"-?\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+")
ANALYSES = (
    (_MODEL, "--batch", "2048", "--target", "a100"),
    (_MODEL, "--batch", "512", "--target", "t4", "--mode", "training"),
    (_MODEL, "--batch", "512", "--target", "cpu"),
    (_DDP, "--batch", "256", "--target", "v100", "--runtime", "cudagraph"),
    (
        _DDP,
        "--batch",
        "256",
        "--target",
        "dgx-a100",
        "--mode",
        "training",
        "--ranks",
        "8",
    ),
    (_DDP, "--batch", "64", "--target", "l4", "--popularity", "zipf(1.05)"),
    ("gpt2:layers=2", "--batch", "8", "--target", "h100", "--dtype", "amp-bf16"),
    ("gpt2:layers=2", "--batch", "4", "--target", "mi300x", "--mode", "training"),
    (
        "bert-base:layers=2",
        "--batch",
        "16",
        "--target",
        "l40s",
        "--runtime",
        "compiled",
    ),
    ("resnet50", "--batch", "32", "--target", "rtx-4090"),
    ("resnet50", "--batch", "8", "--target", "p4", "--mode", "training"),
    ("wide-and-deep", "--batch", "1024", "--target", "h200", "--inputs", "device"),
)
"""Whose reports have to be the same bytes."""


@attrs.frozen
class Environment:
    """A virtual environment.

    Attributes:
        name: What the table calls it.
        python: What it is made with.
        oldest: Whether dependencies are the oldest that are declared.

    """

    name: str
    python: str
    oldest: bool

    @property
    def folder(self) -> Path:
        """Where it is."""
        return ROOT / "build" / "compat" / self.name

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run its Python."""
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [str(self.folder / "bin" / "python"), *words]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, check=False, env=env
        )

    def install(self) -> str:
        """Make it; return what went wrong."""
        made = subprocess.run(
            [self.python, "-m", "venv", "--clear", str(self.folder)],
            capture_output=True,
            check=False,
        )
        if made.returncode:
            return made.stderr.decode().strip()
        wanted = dependencies(oldest=self.oldest)
        tools = (*TOOLS, *(OLD_TOOLS if self.oldest else ()))
        for words in (("--no-deps", "."), (*wanted, *tools)):
            done = self.run("-m", "pip", "install", "--quiet", *words)
            if done.returncode:
                return done.stderr.decode().strip()
        return ""

    def tests(self) -> str:
        """Run the tests; return what is wrong."""
        done = self.run(
            "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *PARTS
        )
        return "" if done.returncode == 0 else done.stdout.decode()[-3000:]

    def reports(self) -> list[bytes]:
        """Return the JSON of every analysis, or its error."""
        found: list[bytes] = []
        for words in ANALYSES:
            done = self.run("-m", "perfc", "analyze", *words, "--format", "json")
            found.append(done.stdout or done.stderr)
        return found


def dependencies(*, oldest: bool) -> list[str]:
    """Return what perfc needs, as pip takes it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared: list[str] = tomllib.loads(text)["project"]["dependencies"]
    return [re.sub(">=", "==", one) if oldest else one for one in declared]


def environments(pythons: Sequence[str]) -> Iterator[Environment]:
    """Yield what is to be tried: the first Python with the oldest dependencies, too."""
    found = [python for python in pythons if shutil.which(python)]
    for python in pythons:
        if python not in found:
            print(f"{python}: not tried, it is not installed here", flush=True)
    for number, python in enumerate(found):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        version = subprocess.run(
            [python, "-c", code], capture_output=True, check=True, text=True
        ).stdout.strip()
        yield Environment(f"python{version}", python, oldest=False)
        if not number:
            yield Environment(f"python{version}-oldest", python, oldest=True)


def main(pythons: Sequence[str]) -> int:
    """Try every environment; 0 if all tests pass and all reports are the same."""
    base: list[bytes] = []
    failed = False
    for environment in environments(pythons or PYTHONS):
        problem = environment.install() or environment.tests()
        reports = [] if problem else environment.reports()
        base = base or reports
        same = close if environment.oldest else bytes.__eq__
        pairs = zip(ANALYSES, base, reports, strict=False)
        other = [" ".join(words) for words, *pair in pairs if not same(*pair)]
        problem = problem or "\n".join(f"another report: {words}" for words in other)
        failed = failed or bool(problem)
        good = f"tests pass, {len(reports)} reports are the same"
        print(f"{environment.name}: {problem or good}", flush=True)
    if not base:
        print("no Python was found; name them: make compat PYTHONS=...")
    return 1 if failed or not base else 0


def close(one: bytes, other: bytes) -> bool:
    """Whether reports say the same but for last digits, which are NumPy's own."""
    numbers = [list(map(float, _NUMBER.findall(text))) for text in (one, other)]
    if _NUMBER.sub(b"", one) != _NUMBER.sub(b"", other):
        return False
    pairs = zip(*numbers, strict=True)
    return all(math.isclose(*pair, rel_tol=1e-9, abs_tol=1e-9) for pair in pairs)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
