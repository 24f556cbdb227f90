"""Steps of training in the user's own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tools.command import Command
from torch import Tensor, nn

import perfc
from perfc.ir import Graph, UsageError

_BATCH, _WIDTH = 64, 256
_WEIGHT_BYTES = 4 * (2 * _WIDTH * _WIDTH + 2 * _WIDTH)


class Layers(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        """Make them."""
        super().__init__()
        self.up, self.down = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both."""
        y: Tensor = self.down(torch.relu(self.up(x)))
        return y


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Any:
    """Do what `from_torch` does without a step."""
    optimizer.zero_grad()
    y = model(x)
    loss = y.square().mean()
    loss.backward()
    optimizer.step()
    return y, loss


def accumulating(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    """Add the gradients of four parts up, clip them, zero them in place."""
    optimizer.zero_grad(set_to_none=False)
    for part in x.chunk(4):
        nn.functional.mse_loss(model(part), part).backward()  # type: ignore[no-untyped-call]  # torch's
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


class Scaling:
    """Scales the loss of matmuls in fp16, as PyTorch's own examples do."""

    def __init__(self) -> None:
        """Start without a scaler."""
        self.scaler: Any = None

    def __call__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor
    ) -> None:
        """Run an iteration; the first makes the scaler."""
        self.scaler = self.scaler or torch.amp.GradScaler("cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = model(x).float().square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()


class Averaging:
    """Keeps a moving average of the weights, and lowers the learning rate."""

    def __init__(self) -> None:
        """Start without any."""
        self.average: list[Tensor] = []
        self.scheduler: Any = None

    def __call__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor
    ) -> None:
        """Run an iteration; the first makes the average and the scheduler."""
        if self.scheduler is None:
            self.average = [p.detach().clone() for p in model.parameters()]
            self.scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        plain(model, optimizer, x)
        self.scheduler.step()
        with torch.no_grad():
            for mean, weight in zip(self.average, model.parameters(), strict=True):
                mean.lerp_(weight, 0.01)


def _recorded(step: Any, optimizer: str = "adamw") -> perfc.Model:
    return perfc.from_torch(
        Layers(),
        torch.zeros(_BATCH, _WIDTH),
        mode="training",
        optimizer=optimizer,
        step=step,
    )


def _graph(model: perfc.Model) -> Graph:
    graph = model.program.classes[0].ops
    assert graph is not None
    return graph


def _ops(graph: Graph, phase: str) -> list[str]:
    return [node.op for node in graph if node.location.phase == phase]


def test_a_plain_step_is_the_step_that_is_recorded_anyway() -> None:
    """The same ops in the same phases, the same time and memory."""
    own = _recorded(plain)
    usual = perfc.from_torch(
        Layers(),
        torch.zeros(_BATCH, _WIDTH),
        mode="training",
        optimizer="adamw",
        loss=lambda y: y.square().mean(),
    )

    for phase in ("forward", "loss", "backward", "optimizer"):
        assert _ops(_graph(usual), phase) == _ops(_graph(own), phase)
    ours, theirs = (perfc.analyze(model, "a100").to_dict() for model in (own, usual))
    assert theirs["summary"] == ours["summary"]
    assert theirs["memory"] == ours["memory"]


def test_gradients_are_accumulated() -> None:
    """Four passes back add to gradients that are zeroed, clipped and kept."""
    model = _recorded(accumulating)
    graph = _graph(model)
    added = [n for n in graph if n.op == "add" and n.location.phase == "backward"]

    assert 4 * 4 == len(added)
    assert all(node.attributes.get("in_place") for node in added)
    assert 4 == _ops(graph, "optimizer").count("overwrite")
    names = [name for name, _ in Layers().named_parameters()]
    kept = {v.name for v in graph.states if v.name.endswith(".grad")}
    assert {f"{name}.grad" for name in names} == kept
    memory = perfc.analyze(model, "a100").memory
    assert _WEIGHT_BYTES == memory["by_kind"]["gradients"]
    assert 2 * _WEIGHT_BYTES == pytest.approx(memory["optimizer_bytes"], rel=0.01)


def test_gradients_are_clipped_as_on_a_gpu() -> None:
    """Their norms are taken, and they are scaled, all at once."""
    graph = _graph(_recorded(accumulating))
    kinds = [
        node.attributes.text("kind")
        for node in graph
        if node.op == "foreach" and node.location.phase == "optimizer"
    ]

    assert ["norm", "mul"] == kinds[:2]


def test_a_scaler_works_as_on_a_gpu() -> None:
    """It scales loss and gradients, waits for what it has found, and adapts."""
    step = _recorded(Scaling(), "sgd")
    report = perfc.analyze(step, "v100")

    assert "mul" == _ops(_graph(step), "loss")[-1]
    assert [
        *("cast", "reciprocal", "cast", "fill", "copy", "copy"),
        *("foreach", "item", "foreach", "foreach"),
    ] == _ops(_graph(step), "optimizer")
    assert {"cudaStreamSynchronize"} <= {row["detail"] for row in report.breakdown}
    assert [] == [d.code for d in report.diagnostics]


def test_weights_are_averaged() -> None:
    """A second copy of the weights is there all the time, and updated in place."""
    model, usual = _recorded(Averaging(), "sgd"), _recorded(plain, "sgd")
    more = len(_ops(_graph(model), "optimizer")) - len(_ops(_graph(usual), "optimizer"))

    assert len(list(Layers().parameters())) == more
    memory = perfc.analyze(model, "a100").memory
    assert _WEIGHT_BYTES == memory["optimizer_bytes"]


def test_sparse_tables_are_updated_by_a_step() -> None:
    """Tables with sparse gradients are updated row by row, as without a step."""
    bag = nn.EmbeddingBag(1000, 16, sparse=True)
    indices = torch.zeros((8, 4), dtype=torch.int64)
    model = perfc.from_torch(
        bag, (indices,), mode="training", optimizer="adagrad", step=plain
    )

    assert 1 == _ops(_graph(model), "optimizer").count("sparse_optimizer_step")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "inference"}, "needs mode 'training'"),
        ({"mode": "training", "loss": "mse"}, "give no other loss"),
    ],
)
def test_a_step_needs_training(options: dict[str, Any], said: str) -> None:
    """A step is a training step, and has its own loss."""
    with pytest.raises(UsageError, match=said):
        perfc.from_torch(Layers(), torch.zeros(2, _WIDTH), step=plain, **options)


FACTORY = """
import torch
from torch import nn


def step(model, optimizer, x):
    for part in x.chunk(2):
        model(part).sum().backward()
    {clip}
    optimizer.step()
    optimizer.zero_grad()


def factory():
    return {{"module": nn.Linear(8, 8), "args": torch.zeros(4, 8), "step": step}}
"""


def _written(folder: Path, clip: str) -> str:
    (folder / "steps.py").write_text(FACTORY.format(clip=clip), encoding="utf-8")
    return f"{folder / 'steps.py'}:factory"


def test_a_factory_gives_its_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line, too; in inference it does not matter."""
    model = _written(tmp_path, "nn.utils.clip_grad_value_(model.parameters(), 1.0)")
    command, options = Command(capsys), ("--target", "a100", "--format", "json")
    step = command("analyze", model, *options, "--mode", "training").report
    forward = command("analyze", model, *options).report

    backward = [n["op"] for n in step["nodes"] if n["phase"] == "backward"]
    assert 4 == backward.count("torch::autograd::AccumulateGrad")
    assert {"forward"} == {n["phase"] for n in forward["nodes"]}


def test_a_step_that_fails_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the line of the step, and what is wrong."""
    model = _written(tmp_path, "model.missing()")
    outcome = Command(capsys)(
        "analyze", model, "--target", "a100", "--mode", "training"
    )

    assert 1 == outcome.code
    assert "steps.py:9" in outcome.error
    assert "missing" in outcome.error
