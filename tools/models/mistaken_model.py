"""What to do with what is no model that perfc reads, but easily taken for one."""

from __future__ import annotations

import difflib
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

_FUNCTION = "name a function that makes it: FILE.py:NAME"
_EXPORT = "torch.export.save(torch.export.export(model, args), 'model.pt2')"
_WEIGHTS = (
    "holds weights or Python objects, no graph, and perfc needs no weights; export the "
    f"model by {_EXPORT}, or {_FUNCTION}"
)
_HF = "AutoModel.from_config(AutoConfig.from_pretrained({!r}))"
_OPTIMUM = "optimum-cli export onnx --model {} DIR"
_TF2ONNX = "python -m tf2onnx.convert {} {} --output model.onnx"
_FROM_KERAS = f"a model of Keras; convert it: {_TF2ONNX.format('--keras', '{}')}"
_SCRIPT = "TorchScript, which perfc does not read; export the model"
_BUILT = "built for one device already; give the ONNX file that it was made from"

_FILES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("pt", "pth", "bin", "ckpt", "safetensors"), _WEIGHTS),
        **dict.fromkeys(("pkl", "pickle", "npz", "msgpack"), _WEIGHTS),
        **dict.fromkeys(("gguf", "ggml"), _WEIGHTS),
        **dict.fromkeys(("keras", "h5", "hdf5"), _FROM_KERAS),
        "tflite": f"a model of LiteRT; convert it: {_TF2ONNX.format('--tflite', '{}')}",
        "pb": "a graph of TensorFlow; convert it with its inputs and outputs: "
        + _TF2ONNX.format("--graphdef", "{}"),
        **dict.fromkeys(("engine", "plan", "trt"), f"a TensorRT engine, {_BUILT}"),
        **dict.fromkeys(("mlmodel", "mlpackage"), f"a Core ML model, {_BUILT}"),
        **dict.fromkeys(("ts", "torchscript"), f"{_SCRIPT} by {_EXPORT}"),
        "data": "weights beside an ONNX model; give the .onnx file itself",
        "onnx_data": "weights beside an ONNX model; give the .onnx file itself",
        "ipynb": f"a notebook; export the model in it by {_EXPORT}",
        "py": "say which function makes the model: {}:NAME",
        "py:": "say which function makes the model: {}NAME",
        "toml": "no model: targets, presets and profiles are options (--target, "
        "--preset, --overheads), budgets are for `perfc check`",
    }
)
"""What files of a suffix are, and what to do; `{}` stands for the file."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
_ADDRESS = re.compile(r"([a-z][a-z0-9+]+)://\S*", re.ASCII | re.IGNORECASE)
_HUB = re.compile(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)")


def folder_problem(text: str) -> str:
    """Say what to give instead of a folder."""
    path = Path(text)
    models = sorted(one.name for one in path.glob("*.onnx"))
    if models:
        return f"{text}: is a folder, not a model file; give {path / models[0]}"
    if (path / "saved_model.pb").is_file():
        convert = _TF2ONNX.format("--saved-model", text)
        return f"{text}: is a folder with a model of TensorFlow; convert it: {convert}"
    if (path / "config.json").is_file():
        return f"{text}: is a folder of Hugging Face's, not a model file; {_hub(text)}"
    return f"{text}: is a folder, not a model file"


def file_problem(text: str, known: Sequence[str]) -> str:
    """Say what to do with what names no file of a known suffix, and no workload.

    Args:
        text: What the user gave.
        known: Suffixes that are read, without the dot.

    """
    path = Path(text)
    suffix = path.suffix.removeprefix(".")
    if address := _ADDRESS.fullmatch(text):
        hub = _HUB.match(text)
        instead = _hub(hub[1]) if hub else "save the file, and give its path"
        return f"{text}: perfc loads nothing over {address[1].lower()}; {instead}"
    if _is_hub_name(text):
        return f"{text}: no such file, and perfc loads nothing from a hub; {_hub(text)}"
    if _is_export(path):
        renamed = path.with_suffix(".pt2")
        return f"{text}: an archive of torch.export; rename it to {renamed}"
    if told := _FILES.get(suffix.lower()):
        return f"{text}: {told.replace('{}', text)}"
    what = f"{path.suffix} files" if suffix else "files without a suffix"
    listed = ", ".join(f".{name}" for name in known)
    return f"{text}: no frontend reads {what}; known: {listed}, and `perfc models`"


def missing_file(path: Path) -> str:
    """Say that there is no such file, and which is beside it by nearly this name."""
    files = path.parent.glob(f"*{path.suffix}")
    beside = sorted(one.name for one in files if one.is_file())
    near = difflib.get_close_matches(path.name, beside, n=1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    return f"{path}: no such file{hint}"


def is_elsewhere(text: str) -> bool:
    """Whether it names what would have to be loaded over a network."""
    return _ADDRESS.fullmatch(text) is not None or _is_hub_name(text)


def _is_hub_name(text: str) -> bool:
    """Whether it is `OWNER/MODEL` as of a hub: of a folder that is not here."""
    path = Path(text)
    named = _HUB_NAME.fullmatch(text) is not None and not path.parent.exists()
    return named and path.suffix.removeprefix(".").lower() not in {*_FILES, "onnx"}


def _hub(name: str) -> str:
    return (
        f"export it ({_OPTIMUM.format(name)}), or {_FUNCTION}, by {_HF.format(name)}, "
        "without weights"
    )


def _is_export(path: Path) -> bool:
    """Whether a file is what `torch.export.save` writes, under another suffix."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
    return any(
        name.endswith(("/archive_format", "serialized_exported_program.json"))
        for name in names
    )
