"""What is easily mistaken is one line that says what to type instead."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from tests.tools.command import Command

_WEIGHTS = (
    "holds weights or Python objects, no graph, and perfc needs no weights; export the "
    "model by torch.export.save(torch.export.export(model, args), 'model.pt2'), or "
    "name a function that makes it: FILE.py:NAME"
)
_HUB = (
    "export it (optimum-cli export onnx --model {0} DIR), or name a function that "
    "makes it: FILE.py:NAME, by AutoModel.from_config(AutoConfig.from_pretrained("
    "'{0}')), without weights"
)
_TF2ONNX = "convert it: python -m tf2onnx.convert {} --output model.onnx"
_NO_MODEL = "no file and no built-in workload"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files that are easily taken for models of perfc's."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.pt", "model.engine", "make.py", "real.onnx", "w.gguf"):
        (tmp_path / name).touch()
    inside = {
        "saved": ("config.json", "model.safetensors"),
        "tf": ("saved_model.pb",),
        "exported": ("model.onnx", "model.onnx.data"),
        "empty": (),
    }
    for name, files in inside.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
    with zipfile.ZipFile(tmp_path / "exported.pt", "w") as archive:
        archive.writestr("exported/archive_format", "pt2")
    return tmp_path


@pytest.mark.parametrize(
    ("model", "code", "expected"),
    [
        ("model.pt", 2, f"model.pt: {_WEIGHTS}"),
        ("absent.pth", 2, f"absent.pth: {_WEIGHTS}"),
        ("model-00001-of-2.safetensors", 2, _WEIGHTS),
        ("pytorch_model.bin", 2, _WEIGHTS),
        ("last.ckpt", 2, _WEIGHTS),
        ("w.gguf", 2, _WEIGHTS),
        ("exported.pt", 2, "an archive of torch.export; rename it to exported.pt2"),
        ("scripted.ts", 2, "TorchScript, which perfc does not read; export the model"),
        ("m.keras", 2, _TF2ONNX.format("--keras m.keras")),
        ("m.h5", 2, _TF2ONNX.format("--keras m.h5")),
        ("m.tflite", 2, _TF2ONNX.format("--tflite m.tflite")),
        ("y" * 300, 1, f"{'y' * 60}: File name too long"),
        ("frozen.pb", 2, "tf2onnx.convert --graphdef frozen.pb --output model.onnx"),
        ("model.engine", 2, "a TensorRT engine, built for one device already; give"),
        ("model.plan", 2, "give the ONNX file that it was made from"),
        ("m.mlmodel", 2, "a Core ML model, built for one device already; give"),
        ("model.onnx.data", 2, "give the .onnx file itself"),
        ("train.ipynb", 2, "a notebook; export the model in it by torch.export.save"),
        ("a100.toml", 2, "targets, presets and profiles are options (--target,"),
        ("m.txt", 2, "no frontend reads .txt files; known: "),
        ("make.py", 2, "say which function makes the model: make.py:NAME"),
        ("make.py:", 2, "say which function makes the model: make.py:NAME"),
        ("meta-llama/Llama-3.2-1B", 2, _HUB.format("meta-llama/Llama-3.2-1B")),
        ("google/vit-base-patch16-224", 2, "perfc loads nothing from a hub; export"),
        ("bert-base-uncased", 2, f"{_NO_MODEL} 'bert-base-uncased'; did you mean 'be"),
        ("distilgpt", 2, f"{_NO_MODEL} 'distilgpt'; see `perfc models`, or give a mo"),
        ("empty/absent", 2, f"{_NO_MODEL} 'empty/absent'; see `perfc models`, or"),
        (
            "https://huggingface.co/a/b/tree/main",
            2,
            _HUB.format("a/b"),
        ),
        ("https://x.org/m.onnx", 2, "loads nothing over https; save the file, and giv"),
        ("s3://bucket/m.onnx", 2, "perfc loads nothing over s3; save the file, and"),
        ("saved", 1, f"is a folder of Hugging Face's, not a model file; {_HUB}"),
        ("tf", 1, _TF2ONNX.format("--saved-model tf")),
        ("exported", 1, "is a folder, not a model file; give exported/model.onnx"),
        ("empty", 1, "empty: is a folder, not a model file"),
        ("reel.onnx", 1, "reel.onnx: no such file; did you mean real.onnx?"),
        ("other.perfc", 1, "other.perfc: no such file"),
        ("dlrm-defalt", 2, f"{_NO_MODEL} 'dlrm-defalt'; did you mean 'dlrm-default'?"),
        (
            "dlrm-ddp:tabels=3",
            2,
            "'tabels=3'; did you mean 'tables'? it has",
        ),
    ],
)
def test_models(command: Command, model: str, code: int, expected: str) -> None:
    """What is no model that perfc reads says how to make one of it."""
    error = command.refused(("analyze", model, "--target", "a100"), code)

    assert expected.format(model) in error


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("A100 80GB", "a100-80g"),
        ("A100-80GB", "a100-80g"),
        ("a100 80 GB PCIe", "a100-pcie-80g"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80g"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80g"),
        ("NVIDIA H100 Tensor Core GPU", "h100"),
        ("H100 SXM5 80GB", "h100-sxm-80g"),
        ("RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 3080", "rtx-3080"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16g"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Jetson AGX Orin", "jetson-agx-orin"),
        ("DGX H100", "dgx-h100"),
        ("a10o", "a10"),
    ],
)
def test_targets(command: Command, target: str, meant: str) -> None:
    """A target by the words of a shop or a driver is that by its name."""
    error = command.refused(("analyze", "dlrm-ddp", "--target", target), 2)

    hint = f"did you mean {meant}? see `perfc targets`"
    assert f"unknown target {target}; {hint}" == error
    assert 0 == command("targets", "show", meant).code


def test_a_target_that_is_like_no_other(command: Command) -> None:
    """All that there are is listed."""
    error = command.refused(("analyze", "dlrm-ddp", "--target", "tpu-v4"), 2)

    assert error.startswith("unknown target tpu-v4; known targets: ")
    assert "h100-sxm-80g" in error


_ANALYZE = ("analyze", "dlrm-ddp", "--batch", "8", "--target", "t4")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("analyz", "x"), "no verb 'analyz'; did you mean 'analyze'?"),
        (
            ("real.onnx",),
            "no verb 'real.onnx'; did you mean `perfc analyze real.onnx`?",
        ),
        (("gpt2", "--target", "t4"), "did you mean `perfc analyze gpt2`?"),
        (("make.py:mlp",), "did you mean `perfc analyze make.py:mlp`?"),
        ((*_ANALYZE, "--preset", "lin-v10"), "did you mean lin-v100?"),
        ((*_ANALYZE, "--pass", "fold-shape"), "did you mean 'fold-shapes'?"),
        ((*_ANALYZE, "--format", "jsn"), "did you mean 'json'?"),
        ((*_ANALYZE, "--overheads", "sharde"), "did you mean shared?"),
        ((*_ANALYZE, "--optimzer", "sgd"), "'--optimizer'"),
        ((*_ANALYZE, "--budget", "node=3"), "did you mean nodes?"),
        ((*_ANALYZE, "--dtype", "float32"), "'float32' is not one of 'fp32'"),
    ],
)
def test_usage(command: Command, arguments: tuple[str, ...], expected: str) -> None:
    """A misspelt verb, option or name is told the nearest one there is."""
    assert expected in command.refused(arguments, 2)
