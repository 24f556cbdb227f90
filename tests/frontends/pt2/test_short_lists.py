"""Lists of integers in an archive are read where they lie as in memory, or are not."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import pytest

from perfc.frontends.pt2.archive import Elements
from perfc.ir.support import UnsupportedModelError

FOLDER = "model/data/weights"


def _archive(entry: Mapping[str, Any], content: bytes = b"") -> bytes:
    """Return an archive with one buffer."""
    meta = {
        "dtype": 4,
        "sizes": [{"as_int": 3}],
        "storage_offset": {"as_int": 0},
        **entry.get("tensor_meta", {}),
    }
    said = {"path_name": "weight_0", "use_pickle": False, **entry, "tensor_meta": meta}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        text = json.dumps({"config": {"lists.dims": said}})
        archive.writestr(f"{FOLDER}/model_weights_config.json", text)
        archive.writestr(f"{FOLDER}/weight_0", content)
    return made.getvalue()


FIVE = struct.pack("<5i", 7, 64, 72, 108, 9)


@pytest.mark.parametrize(("start", "wanted"), [(0, (7, 64, 72)), (2, (72, 108, 9))])
def test_a_list_of_integers(start: int, wanted: tuple[int, ...]) -> None:
    """It begins where its storage says."""
    meta = {"storage_offset": {"as_int": start}}
    elements = Elements(_archive({"tensor_meta": meta}, FIVE))

    assert wanted == elements("lists.dims")
    assert elements("lists.other") is None


@pytest.mark.parametrize(
    "entry",
    [
        {"use_pickle": True},
        {"tensor_meta": {"dtype": 7}},
        {"tensor_meta": {"sizes": [{"as_int": 3}, {"as_int": 1}]}},
        {"tensor_meta": {"sizes": [{"as_int": 6}]}},
        {"tensor_meta": {"sizes": [{"as_int": -1}]}},
        {"tensor_meta": {"sizes": [{"as_int": 1 << 40}]}},
        {"tensor_meta": {"storage_offset": {"as_int": -1}}},
        {"tensor_meta": {"storage_offset": {"as_int": 3}}},
    ],
)
def test_what_is_no_such_list(entry: Mapping[str, Any]) -> None:
    """It is not known."""
    assert Elements(_archive(entry, FIVE))("lists.dims") is None


_DAMAGED: list[Mapping[str, Any]] = [
    {"path_name": "nowhere"},
    {"path_name": 5},
    {"tensor_meta": {"dtype": "int"}},
    {"tensor_meta": {"sizes": 3}},
    {"tensor_meta": {"sizes": [{}]}},
    {"tensor_meta": {"storage_offset": 1}},
]


@pytest.mark.parametrize("entry", _DAMAGED)
def test_archives_that_are_damaged(entry: Mapping[str, Any]) -> None:
    """They are refused in one line."""
    with pytest.raises(UnsupportedModelError) as refused:
        Elements(_archive(entry, FIVE))("lists.dims")

    assert 1 == len(str(refused.value).splitlines())
