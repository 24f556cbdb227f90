"""`perfc.export_onnx` writes small files that perfc reads as the models they are of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import perfc
from perfc.tools import Model
from perfc.twins import DlrmNet, ResNet50, bags_of

ROWS = (39_884_406, 3, 1000)
GB = 10**9


def _ops(model: Model) -> list[str]:
    (rank,) = model.program.classes
    assert rank.ops is not None
    return [node.op for node in rank.ops]


def _dlrm() -> tuple[DlrmNet, tuple[object, ...]]:
    with torch.device("meta"):
        module = DlrmNet((13, 64, 128), ROWS, (64, 1))
    offsets, indices = bags_of(len(ROWS), batch=4, pooling=2)
    return module, (torch.zeros(4, 13), offsets, indices)


def test_large_model_becomes_a_small_file(tmp_path: Path) -> None:
    """20 GB of tables take 100 kB; the bags are one op each, and have their rows."""
    module, args = _dlrm()
    path = tmp_path / "dlrm.onnx"
    perfc.export_onnx(module, args, path)
    model = perfc.load(path)
    report = perfc.analyze(model, target="a100")

    assert path.stat().st_size < 100_000
    assert len(ROWS) == _ops(model).count("embedding_bag")
    assert sum(ROWS) * 128 * 4 < report.memory_use.parameters_bytes < 20.6 * GB
    assert "unknown" not in _ops(model)


def test_module_is_only_read(tmp_path: Path) -> None:
    """Parameters, their device and the mode of training are what they were."""
    module, args = _dlrm()
    before = dict(module.named_parameters())
    perfc.export_onnx(module, args, tmp_path / "dlrm.onnx")

    assert module.training
    assert before.keys() == dict(module.named_parameters()).keys()
    assert all(p is before[name] for name, p in module.named_parameters())


@pytest.mark.slow
def test_open_batch_of_a_network_with_batch_norms(tmp_path: Path) -> None:
    """ResNet-50 has 53 convolutions, its batch norms folded, at any batch."""
    path = tmp_path / "resnet50.onnx"
    batch = torch.export.Dim("batch")
    image = torch.zeros(2, 3, 224, 224, device="meta")
    perfc.export_onnx(ResNet50(), (image,), path, dynamic_shapes=({0: batch},))
    model = perfc.load(path, batch=8)

    assert path.stat().st_size < 400_000
    assert 8 == model.batch
    assert (53, 0) == (_ops(model).count("conv"), _ops(model).count("batch_norm"))


def test_what_pytorch_refuses_is_one_line(tmp_path: Path) -> None:
    """The message names the module and the problem; no file is left."""
    module, (dense, *bags) = _dlrm()
    path = tmp_path / "dlrm.onnx"
    with pytest.raises(perfc.PerfcError, match="cannot export DlrmNet: missing") as e:
        perfc.export_onnx(module, (dense,), path)
    assert "\n" not in str(e.value)
    with pytest.raises(perfc.PerfcError, match=r"cannot export DlrmNet: .*\[4, 12\]"):
        perfc.export_onnx(module, (torch.zeros(4, 12), *bags), path)
    assert not path.exists()


def test_file_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder that is absent is named."""
    module, args = _dlrm()
    with pytest.raises(perfc.PerfcError, match=r"cannot write .*nowhere"):
        perfc.export_onnx(module, args, tmp_path / "nowhere" / "dlrm.onnx")
