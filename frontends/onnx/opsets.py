"""Versions of ONNX that perfc reads: opsets of the default domain, and of a file."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping

from perfc.frontends.onnx.protobuf import onnx
from perfc.ir.support import UnsupportedModelError

DEFAULT_DOMAINS = ("", "ai.onnx")
OLDEST_OPSET = 11
"""The first with Loop, If and Scan as they are today, and dynamic slices; files of
older ones are converted to it."""
_KNOWN_TO_ALL = 21
"""Opset of the oldest `onnx` that perfc can be installed with (1.16)."""
_ADVICE = f"export it again with opset_version {OLDEST_OPSET} or later"


def check_ir_version(version: int) -> None:
    """Refuse a file format newer than the installed onnx can decode.

    Older ones are read: they differ in what they leave out only.
    """
    newest = onnx.Version.Value("IR_VERSION")
    if version > newest:
        msg = (
            f"the file has ONNX IR version {version}, the installed onnx knows "
            f"1 to {newest}; install a newer onnx, or export with an older one"
        )
        raise UnsupportedModelError(msg)


def read_opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> Mapping[str, int]:
    """Return version by domain; the default domain is called ""."""
    versions: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain in DEFAULT_DOMAINS else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            shown = f"domain {domain!r}" if domain else "the default domain"
            msg = (
                f"{shown} is imported in opset {versions[domain]} and in opset "
                f"{entry.version}; expected one"
            )
            raise UnsupportedModelError(msg)
    return versions


def check_opset(version: int | None, where: str) -> int:
    """Return the opset of the default domain that *where* imports."""
    if version is None:
        msg = (
            f"{where} imports no opset of the default domain; expected opset "
            f"{OLDEST_OPSET} or later; {_ADVICE}"
        )
        raise UnsupportedModelError(msg)
    if 1 <= version <= _KNOWN_TO_ALL:
        return version
    newest = newest_opset()
    if 1 <= version <= newest:
        return version
    advice = _ADVICE
    if version > newest:
        advice = "install a newer onnx, or export the model with an older opset_version"
    msg = (
        f"{where} imports opset {version} of the default domain; supported are "
        f"1 to {newest}; {advice}"
    )
    raise UnsupportedModelError(msg)


def newest_opset() -> int:
    """Return the newest opset that the installed onnx knows."""
    version: int = importlib.import_module("onnx.defs").onnx_opset_version()
    return version
