"""The zip file: which member is the model, and whether its schema is known."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Mapping

import attrs

from perfc.frontends.aten import MOST_ELEMENTS
from perfc.frontends.pt2.fields import Fields
from perfc.ir import parse_json
from perfc.ir.support import UnsupportedModelError, damage_as, read_unpacked

SCHEMAS = range(5, 9)
"""Major versions whose graphs have the fields that are read here: PyTorch 2.3 wrote
5, 2.5 and later write 8."""

_MODEL = re.compile(r"(?:.*/)?models/([^/]+)\.json")
_OLD_MODEL = re.compile(r"(?:.*/)?serialized_exported_program\.json")
_USUAL = "model"


def read_model(data: bytes) -> Fields:
    """Return the description of the exported program in an archive."""
    with damage_as(UnsupportedModelError, "", "an archive of torch.export.save"):
        text = _description(data)
    return parse_model(text)


@attrs.frozen(eq=False)
class Elements:
    """The elements of short lists of integers in an archive, by what they are called.

    Attributes:
        data: The archive.

    """

    data: bytes = attrs.field(repr=False)

    def __call__(self, path: str) -> tuple[int, ...] | None:
        """Return the elements of a parameter, a buffer or a constant.

        None if the archive does not have them as they lie in memory, or there are more
        than `MOST_ELEMENTS`.
        """
        damage = damage_as(UnsupportedModelError, "", "an archive of torch.export.save")
        with damage, zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            for info in archive.infolist():
                if not _LISTED.fullmatch(info.filename):
                    continue
                with archive.open(info) as file:
                    text = read_unpacked(file, info.filename)
                found = parse_json(text, UnsupportedModelError, "", "a list of weights")
                listed = (
                    Fields({"list": found}, info.filename)
                    .record("list")
                    .record("config")
                )
                if path in listed:
                    folder = info.filename.rpartition("/")[0]
                    return _read(archive, folder, listed.record(path))
            return None


_LISTED = re.compile(r"(.*/)?data/(?:weights|constants)/model_\w+_config\.json")
_INTEGERS: Mapping[int, tuple[str, int]] = {
    1: ("B", 1),
    2: ("b", 1),
    3: ("h", 2),
    4: ("i", 4),
    5: ("q", 8),
}
"""Codes of `ScalarType`, and what they are to `struct`, with their bytes."""


def _read(
    archive: zipfile.ZipFile, folder: str, entry: Fields
) -> tuple[int, ...] | None:
    """Read a member, if it is a list of integers as it is in memory."""
    meta = entry.record("tensor_meta")
    code = meta.integer("dtype")
    sizes = [size.only() for size in meta.records("sizes")]
    if entry.values.get("use_pickle") or code not in _INTEGERS or len(sizes) != 1:
        return None
    (kind, count), (letter, size) = sizes[0], _INTEGERS[code]
    start = meta.record("storage_offset").integer("as_int")
    known = kind == "as_int" and isinstance(count, int)
    if not known or not 0 <= count <= MOST_ELEMENTS:
        return None
    info = archive.getinfo(f"{folder}/{entry.text('path_name')}")
    if not 0 <= (start + count) * size <= info.file_size or start < 0:
        return None
    with archive.open(info) as file:
        file.seek(start * size)
        return struct.unpack(f"<{count}{letter}", file.read(count * size))


def _description(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = _member(archive)
        with archive.open(member) as file:
            return read_unpacked(file, member.filename)


def parse_model(text: bytes) -> Fields:
    """Return the description that is the JSON of an archive."""
    found = parse_json(text, UnsupportedModelError, "", "a model in JSON")
    model = Fields({"model": found}, "the file").record("model")
    version = model.record("schema_version")
    major = version.integer("major")
    if major not in SCHEMAS:
        known = f"{SCHEMAS[0]} to {SCHEMAS[-1]}"
        msg = (
            f"schema version {major} of torch.export is not supported (known: {known});"
            " export the model with PyTorch 2.5 or later"
        )
        raise UnsupportedModelError(msg)
    return model


def _member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return the member that describes the model; of several the usual one."""
    found = {
        match[1]: info
        for info in archive.infolist()
        if (match := _MODEL.fullmatch(info.filename))
    }
    old = [i for i in archive.infolist() if _OLD_MODEL.fullmatch(i.filename)]
    if not found and old:
        return old[0]
    if _USUAL in found or len(found) == 1:
        return found.get(_USUAL) or next(iter(found.values()))
    if found:
        msg = f"the archive has several models: {', '.join(sorted(found))[:200]}"
        raise UnsupportedModelError(msg)
    msg = (
        "the archive has no models/model.json, so it is no program that "
        "torch.export.save has written"
    )
    raise UnsupportedModelError(msg)
