"""What `ratios.py` compares: each measure with its unit, from processes of its own.

Processes run with one thread for arrays and a fixed seed for hashes, on the perfc of
this checkout, and are run in turn with what they are divided by.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from speed import cpu_time

ROOT = Path(__file__).parents[2]
SPEED = ROOT / "benchmarks" / "speed"
MODEL = ROOT / "examples" / "models" / "dlrm_mlperf.onnx"
ANALYZE = ("analyze", str(MODEL), "--batch", "2048", "--target", "a100")
NODES = 100_000
COLD_ROUNDS, WARM_PROCESSES, SCALE_PROCESSES = 25, 8, 3
FAILED = 2
"""Exit code where something could not be measured that always can."""

COUNTED = """
import atexit, sys
def tell():
    names = [name for name in sys.modules if name.partition('.')[0] == 'perfc']
    print(len(names), len(sys.modules), file=sys.stderr)
atexit.register(tell)
from perfc.tools.cli.command_line import main
sys.exit(main())
"""
"""Runs the command line; the last line of its stderr counts modules."""

Values = dict[str, float | None]
"""Values, by the name of the measure; None where it could not be measured."""

Step = Callable[[], Values]


def units() -> dict[str, str]:
    """Return the unit of each measure; of all, less is better.

    Times are in loops (of `cpu_time.py`) and in imports, but for one difference in ms,
    which only says something beside one of the same machine.
    """
    return {
        "cold: analyze, over import numpy, onnx": "x",
        "cold: analyze, beyond import numpy, onnx": "ms",
        "cold: modules of perfc": "modules",
        "cold: modules of all": "modules",
        "help: perfc --help, over import click": "x",
        "price: 2,000 rows of columns": "loops",
        "price: a table of one row": "loops",
        "price: a training step": "loops",
        "price: one GEMM": "loops",
        "scale: 100,000 nodes": "loops",
        "scale: 100,000 nodes, peak memory": "MB",
        "warm: another batch": "loops",
        "warm: another target, by name": "loops",
        "warm: another target, loaded": "loops",
        "warm: file to report": "loops",
        "wheel": "bytes",
    }


def measured(*, quick: bool) -> Values:
    """Return all measures; *quick* leaves out 100,000 nodes and the wheel."""
    steps: list[Step] = [cold, modules, warm]
    if not quick:
        steps += [scale, wheel]
    values: Values = {}
    for step in steps:
        print(f"measuring: {step.__name__}", file=sys.stderr)
        values |= step()
    return values


def machine() -> str:
    """Return processor, Python and NumPy, which ratios depend on a little."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    processor = models[0] if models else platform.machine()
    python = f"Python {platform.python_version()}"
    return f"{processor}, {python}, NumPy {version('numpy')}"


def cold() -> Values:
    """Measure whole processes beside the imports of the libraries they need."""
    commands = {
        "import": ["-c", "import numpy, onnx"],
        "analyze": ["-m", "perfc", *ANALYZE],
        "click": ["-c", "import click"],
        "help": ["-m", "perfc", "--help"],
    }
    calls = {name: partial(run, arguments) for name, arguments in commands.items()}
    s = cpu_time.least(calls, COLD_ROUNDS, clock=children_s)
    return {
        "cold: analyze, over import numpy, onnx": s["analyze"] / s["import"],
        "cold: analyze, beyond import numpy, onnx": 1e3 * (s["analyze"] - s["import"]),
        "help: perfc --help, over import click": s["help"] / s["click"],
    }


def modules() -> Values:
    """Count what an analysis imports."""
    counts = run(["-c", COUNTED, *ANALYZE]).stderr.split()[-2:]
    own, every = map(int, counts)
    return {"cold: modules of perfc": own, "cold: modules of all": every}


def warm() -> Values:
    """Divide what a running process takes by its loop.

    On a machine that others use, times differ by a fifth from minute to minute, those
    of the loop less: several processes are run, which takes longer than one does.
    """
    least_s = least_of([str(SPEED / "warm.py")], WARM_PROCESSES)
    loop_s = least_s.pop(cpu_time.LOOP)
    return {name: s / loop_s for name, s in least_s.items()}


def scale() -> Values:
    """Analyze a large graph, in processes of their own: so is the peak of memory."""
    command = [str(SPEED / "scale.py"), str(NODES)]
    least = least_of(command, SCALE_PROCESSES)
    return {
        "scale: 100,000 nodes": least["cpu_s"] / least["loop_s"],
        "scale: 100,000 nodes, peak memory": least["peak_mb"],
    }


def wheel() -> Values:
    """Build the wheel from a copy, which leaves nothing here; without a network."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders: Mapping[str, str] = project["tool"]["setuptools"]["package-dir"]
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        for name in folders.values():
            shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tree)
        command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        done = attempt([*command, "--wheel-dir", folder, str(tree)])
        if done.returncode:
            print(f"the wheel is not measured:\n{done.stderr}", file=sys.stderr)
            return {"wheel": None}
        (built,) = Path(folder).glob("*.whl")
        return {"wheel": built.stat().st_size}


def least_of(arguments: Sequence[str], processes: int) -> dict[str, float]:
    """Run a script that prints numbers by name; return the least of each."""
    taken = [json.loads(run(arguments).stdout) for _ in range(processes)]
    numbers = [name for name, value in taken[0].items() if isinstance(value, float)]
    return {name: min(each[name] for each in taken) for name in numbers}


def children_s(call: Callable[[], object]) -> float:
    """Return the CPU seconds of processes that *call* starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user_s = after.ru_utime - before.ru_utime
    return user_s + after.ru_stime - before.ru_stime


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run this Python with *arguments*, or leave with what it said."""
    done = attempt(arguments)
    if done.returncode:
        command = shlex.join(["python", *arguments])
        print(f"{command}: exit code {done.returncode}", file=sys.stderr)
        print(done.stderr, file=sys.stderr)
        raise SystemExit(FAILED)
    return done


def attempt(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run this Python with *arguments*; return what it said, and its exit code."""
    fixed = {
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env={**kept, **fixed}
    )
