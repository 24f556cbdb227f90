"""The zip file: which member is the model, and whether its schema is known."""

from __future__ import annotations

import io
import re
import zipfile

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
    """Return the description of the exported program in an archive.

    Raises:
        UnsupportedModelError: it is no such archive, or of an unknown schema.
        BudgetError: its description is too long.

    """
    with damage_as(UnsupportedModelError, "", "an archive of torch.export.save"):
        text = _description(data)
    return parse_model(text)


def _description(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = _member(archive)
        with archive.open(member) as file:
            return read_unpacked(file, member.filename)


def parse_model(text: bytes) -> Fields:
    """Return the description that is the JSON of an archive.

    Raises:
        UnsupportedModelError: it is no JSON, or of an unknown schema.
        BudgetError: it has too many values.

    """
    found = parse_json(text, UnsupportedModelError, "", "a model in JSON")
    model = Fields({"model": found}, "the file").record("model")
    _check_schema(model)
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


def _check_schema(model: Fields) -> None:
    version = model.record("schema_version")
    major = version.integer("major")
    if major not in SCHEMAS:
        known = f"{SCHEMAS[0]} to {SCHEMAS[-1]}"
        msg = (
            f"schema version {major} of torch.export is not supported (known: {known});"
            " export the model with PyTorch 2.5 or later"
        )
        raise UnsupportedModelError(msg)
