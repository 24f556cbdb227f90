"""Real iterations of real models become rows; what goes wrong is said."""

from __future__ import annotations

import gzip
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import UnsupportedModelError
from perfc.measure.device import Device, open_device
from perfc.measure.failure import explained  # not public
from perfc.measure.models import ATTENTION, Setting, Subject, WorkloadRun, find_subject
from perfc.measure.profiled import Trace
from perfc.measurements import TEST, WORKLOADS, read_rows
from perfc.tools.cli.command_line import main
from perfc.tools.cli.measure import ATTENTION as ASKED

_NO_COMPILER = "InvalidCxxCompiler: No working C++ compiler found"
SMALL = "dlrm-ddp:tables=2,rows=50,dim=8"
FACTORIES = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch import nn

def net(batch=4):
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), (
        torch.rand(batch, 8),
    )

def adam():
    return {
        "module": nn.Linear(4, 4),
        "args": (torch.Size((5, 4)),),
        "loss": "mse",
        "optimizer": torch.optim.Adam,
    }

def own_step():
    def step(module, optimizer, x):
        for half in x.chunk(2):
            module(half).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"module": nn.Linear(4, 4), "args": (torch.rand(6, 4),), "step": step}

def raises():
    raise ValueError("no luck")

def misfit(batch=4):
    return nn.Linear(8, 8), (torch.rand(batch, 7),)

def huge(batch=4):
    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.empty(1 << 50, device=x.device)
    return Net(8, 8), (torch.rand(batch, 8),)
"""


@pytest.fixture(autouse=True)
def _one_thread() -> Generator[None]:
    """Keep tests from waiting for each other's threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def factories(tmp_path: Path) -> Path:
    """Write a file of factories."""
    path = tmp_path / "models.py"
    path.write_text(FACTORIES)
    return path


def _setting(
    mode: str = "training",
    optimizer: str = "own",
    *,
    batch: int | None = None,
    dtype: str = "fp32",
    runtime: str = "eager",
) -> Setting:
    return Setting(
        batch=batch,
        mode=mode,
        optimizer=optimizer if mode == "training" else "",
        dtype=dtype,
        runtime=runtime,
        inputs="host-pinned",
    )


def _run(model: str, path: Path, *settings: Setting) -> WorkloadRun:
    run = WorkloadRun(open_device("cpu"), find_subject(model), path, iterations=3)
    run.measure(settings, say=lambda line: None)
    return run


def test_a_row_says_what_ran(tmp_path: Path) -> None:
    """A training step of a twin has a time, its spread, a peak, and its parameters."""
    path = tmp_path / "rows.parquet"
    _run(SMALL, path, _setting(batch=4))
    (row,) = read_rows(path, WORKLOADS)

    assert ("cpu", "dlrm-ddp", "training", "eager") == (
        *(row.target, row.model, row.mode, row.runtime),
    )
    assert ("sgd", "device", "fp32", 4, 3) == (
        *(row.optimizer, row.inputs, row.dtype, row.batch, row.n),
    )
    assert (2, 50, "none") == tuple(
        row.params[k] for k in ("tables", "rows", "max_rows")
    )
    assert row.p10_us is not None
    assert row.p90_us is not None
    assert 0 < row.p10_us <= row.time_us <= row.p90_us
    assert row.gpu_active_us is None
    assert torch.__version__ == row.torch
    assert TEST == row.split


def test_attention_as_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same setting with another algorithm is a row of its own."""
    model = "gpt2:layers=1,hidden=16,heads=2,seq=8,vocab=20"
    path = tmp_path / "rows.csv"
    allowed: list[list[SDPBackend]] = []
    kernel: Any = vars(torch.nn.attention)["sdpa_kernel"]

    def noted(backends: list[SDPBackend], *, set_priority: bool) -> object:
        allowed.append(backends)
        return kernel(backends, set_priority=set_priority)

    monkeypatch.setattr("torch.nn.attention.sdpa_kernel", noted)
    one = _setting("inference", batch=2)
    forced = attrs.evolve(one, attention="math")
    _run(model, path, one)
    rows = _run(model, path, one, forced).rows

    assert ["auto", "math"] == [row.attention for row in rows]
    assert [SDPBackend.MATH] in allowed
    assert "batch 2, inference, fp32, eager, math attention" == str(forced)


def test_every_attention_can_be_asked_for() -> None:
    """The command line, which imports no PyTorch, has the same names."""
    assert ("auto", *ATTENTION) == ASKED


def test_no_setting_begins_after_the_deadline(tmp_path: Path) -> None:
    """What was measured before it is in the table."""
    run = WorkloadRun(
        open_device("cpu"), find_subject(SMALL), tmp_path / "rows.csv", iterations=3
    )
    settings = [_setting("inference", batch=b) for b in (1, 2)]

    def late(_: str) -> None:
        run.deadline = 0.0

    run.measure(settings, late)

    assert [1] == [row.batch for row in run.rows]


def test_the_peak_counts_weights_and_activations(
    tmp_path: Path, factories: Path
) -> None:
    """Of a small net: parameters, inputs, and what a forward pass holds at once."""
    run = _run(f"{factories}:net", tmp_path / "r.csv", _setting("inference", batch=256))
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    standing = 4 * (sum(p.numel() for p in net.parameters()) + 256 * 8)
    (row,) = run.rows

    assert row.peak_memory_bytes is not None
    # The input of each layer lives until its output is there, and the pads.
    assert standing + 4 * 256 * 16 <= row.peak_memory_bytes
    assert row.peak_memory_bytes <= 1.2 * (standing + 4 * 256 * 19)


@pytest.mark.parametrize("optimizer", ["adagrad", "rowwise_adagrad", "adam", "adamw"])
def test_every_optimizer_steps(tmp_path: Path, optimizer: str) -> None:
    """Those that take no sparse gradients get dense ones."""
    run = _run(SMALL, tmp_path / "r.csv", _setting(optimizer=optimizer, batch=2))

    assert [optimizer] == [row.optimizer for row in run.rows]


@pytest.mark.parametrize("dtype", ["tf32", "bf16", "amp-bf16"])
def test_every_type_trains(tmp_path: Path, dtype: str) -> None:
    """Weights converted, or autocast around forward."""
    run = _run(
        "gpt2:layers=1,hidden=16,heads=2,seq=8,vocab=20",
        tmp_path / "r.csv",
        _setting(dtype=dtype, batch=2),
    )

    assert [dtype] == [row.dtype for row in run.rows]


def test_a_factory_brings_its_batch_loss_and_optimizer(
    tmp_path: Path, factories: Path
) -> None:
    """A shape stands for a tensor; without --batch the arguments say it."""
    run = _run(f"{factories}:adam", tmp_path / "r.csv", _setting())

    assert [(5, "own")] == [(row.batch, row.optimizer) for row in run.rows]


def test_a_step_of_the_users_own_runs(tmp_path: Path, factories: Path) -> None:
    """It is given the model, the optimizer and the arguments."""
    run = _run(f"{factories}:own_step", tmp_path / "r.csv", _setting())

    assert [6] == [row.batch for row in run.rows]


def test_a_run_continues(tmp_path: Path) -> None:
    """What the table has is not measured again; what is missing is added."""
    path = tmp_path / "rows.csv"
    first = _run(SMALL, path, _setting("inference", batch=2)).rows
    both = (_setting("inference", batch=2), _setting("inference", batch=3))
    rows = _run(SMALL, path, *both).rows

    assert first == rows[:1]
    assert [2, 3] == [row.batch for row in rows]


def test_a_setting_that_is_asked_for_twice_is_measured_once(tmp_path: Path) -> None:
    """Also where two differ in what a CPU has not: everything is on the device."""
    pinned = _setting("inference", batch=2)
    settings = (pinned, attrs.evolve(pinned, inputs="host-pageable"), pinned)
    said: list[str] = []
    run = WorkloadRun(
        open_device("cpu"), find_subject(SMALL), tmp_path / "r.csv", iterations=3
    )
    run.measure(settings, said.append)

    assert [2] == [row.batch for row in run.rows]
    assert 1 == len(said)


@pytest.mark.parametrize("kept", [False, True])
def test_a_cpu_makes_a_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    """It is profiled right after its times, and only if somebody keeps the trace."""
    subject = find_subject(SMALL)
    made: list[Setting] = []
    traces: list[Trace] = []
    make = type(subject).make

    def noted(self: Subject, device: Device, setting: Setting) -> Any:
        made.append(setting)
        return make(self, device, setting)

    def profiled(*_: object) -> Trace:
        return Trace("", (), [1.0])

    monkeypatch.setattr(type(subject), "make", noted)
    monkeypatch.setattr("perfc.measure.models.workload.trace_of", profiled)
    run = WorkloadRun(open_device("cpu"), subject, tmp_path / "r.csv", iterations=3)
    if kept:
        run.keep = lambda row, trace: traces.append(trace)
    run.measure([_setting("inference", batch=n) for n in (2, 3)], lambda line: None)

    assert [2, 3] == [setting.batch for setting in made]
    assert 2 * kept == len(traces)


def test_an_interrupted_run_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows measured before the interruption are in the table."""
    path, asked = (
        tmp_path / "rows.csv",
        (_setting("inference", batch=n) for n in (2, 3)),
    )

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    run = WorkloadRun(open_device("cpu"), find_subject(SMALL), path, iterations=3)
    with pytest.raises(KeyboardInterrupt):
        run.measure(tuple(asked), say=interrupt)

    assert [2] == [row.batch for row in read_rows(path, WORKLOADS)]


def test_what_does_not_fit_is_skipped_and_said(tmp_path: Path, factories: Path) -> None:
    """Out of memory is one line; the other rows are measured."""
    path, said = tmp_path / "rows.csv", list[str]()
    run = WorkloadRun(
        open_device("cpu"), find_subject(f"{factories}:huge"), path, iterations=3
    )
    with pytest.raises(PerfcError, match=r"nothing could be measured; .*out of memory"):
        run.measure([_setting("inference", batch=2)], say=said.append)

    assert said[0].startswith("skipped")
    assert not path.exists()


def test_tables_are_cut_to_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row's parameters say where; the same workload can be predicted."""
    subject = find_subject("dlrm-mlperf")
    device = open_device("cpu")
    small = type(device)(
        kind="cpu",
        target="cpu",
        name="",
        driver="",
        dtypes=(),
        memory_bytes=2**30,
        cache_bytes=0,
    )
    cut = {
        optimizer: subject.params_on(small, _setting(optimizer=optimizer)).integer(
            "max_rows"
        )
        for optimizer in ("sgd", "adagrad", "adam")
    }

    assert cut["sgd"] > cut["adagrad"] > cut["adam"]
    rows = [min(cut["sgd"], count) for count in (39_884_406, 38_532_951)]
    assert 4 * 128 * sum(rows) < 2**29


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("models.py:raises", UnsupportedModelError, "raised ValueError: no luck"),
        ("models.py:nothing", UnsupportedModelError, "has no function 'nothing'"),
        ("none.py:net", UnsupportedModelError, "no such file"),
        ("dlrm-dpd", UsageError, "did you mean 'dlrm-ddp'"),
        ("dlrm-ddp:rows=x", UsageError, "expected an integer"),
    ],
)
def test_a_model_that_is_none(
    factories: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    error: type[PerfcError],
    message: str,
) -> None:
    """Named as the user wrote it."""
    monkeypatch.chdir(factories.parent)
    with pytest.raises(error, match=message):
        find_subject(model)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("misfit", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("adam", "takes no argument 'batch'"),
    ],
)
def test_a_model_that_does_not_run(
    tmp_path: Path, factories: Path, factory: str, message: str
) -> None:
    """The error names what PyTorch, or the factory, says."""
    with pytest.raises(PerfcError, match=message):
        _run(f"{factories}:{factory}", tmp_path / "r.csv", _setting(batch=3))


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows and traces of two modes, and what has been measured, on stderr."""
    monkeypatch.chdir(tmp_path)
    command = ["measure", "workload", SMALL, "--device", "cpu", "--batch", "4"]
    command += ["--mode", "training", "--mode", "inference", "--iterations", "3"]
    command += ["--minutes", "0.01", "-o", "rows.csv", "--trace", "t.json.gz"]

    assert 0 == main(command)
    out, err = capsys.readouterr()
    assert "" == out
    assert "perfc: dlrm-ddp, batch 4, training sgd, fp32, eager: " in err
    rows = read_rows(tmp_path / "rows.csv", WORKLOADS)
    assert ["training", "inference"] == [row.mode for row in rows]
    for mode in ("training", "inference"):
        packed = (tmp_path / f"t-4-{mode}-eager.json.gz").read_bytes()
        events = json.loads(gzip.decompress(packed))["traceEvents"]
        assert "aten::embedding_bag" in {event.get("name") for event in events}


@pytest.mark.parametrize(
    "case",
    [
        (["--device", "cuda"], 1, "--device cuda: PyTorch"),
        (["--runtime", "cudagraph"], 2, "needs --device cuda"),
        (["--optimizer", "adam"], 2, "needs mode training"),
        (["--batch", "0"], 2, "--batch"),
        (["-o", "absent/rows.csv"], 1, "cannot write absent/rows.csv"),
        (["-o", "rows.txt"], 2, "rows.txt"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is without CUDA")
def test_a_wrong_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[list[str], int, str],
) -> None:
    """One line and the right exit code."""
    monkeypatch.chdir(tmp_path)
    command = ["measure", "workload", SMALL, "--device", "cpu", "-o", "rows.csv"]
    options, code, message = case

    assert code == main([*command, *options])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("perfc: error: ")
    assert message in line


def test_without_a_compiler() -> None:
    """What torch.compile lacks is said with what to do."""
    with (
        pytest.raises(
            PerfcError, match=r"needs a C\+\+ compiler: install g\+\+, or take"
        ),
        explained(open_device("cpu")),
    ):
        raise RuntimeError(_NO_COMPILER)


def test_only_uniform_lookups_are_run() -> None:
    """Inputs are drawn uniform: a workload that says otherwise is not run as if so."""
    subject = find_subject(f"{SMALL},popularity=zipf(1.05)")

    with pytest.raises(UnsupportedModelError, match="draws them uniform"):
        subject.make(open_device("cpu"), _setting(batch=4))
