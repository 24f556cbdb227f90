"""The frontend of archives of `torch.export`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perfc.frontends.files import digest, read_file
from perfc.frontends.pt2.archive import Elements, parse_model, read_model
from perfc.frontends.pt2.importer import import_model
from perfc.ir import PerfcError, Program
from perfc.ir.support import printable


def read_description(
    text: bytes,
    name: str,
    elements: Callable[[str], tuple[int, ...] | None] = lambda path: None,
) -> Program:
    """Read what an archive says of its program: the JSON without the archive.

    Args:
        text: What `torch.export` writes into `models/model.json`.
        name: What the program is called.
        elements: Returns the elements of a parameter, a buffer or a constant, if they
            are known.

    """
    return import_model(parse_model(text), name, elements=elements)


class Pt2Frontend:
    """Reads `.pt2` files: forward graphs, and joint ones with loss and gradients."""

    def load(self, path: Path) -> Program:
        """Read *path*; weights stay in the archive, only their types are used."""
        data = read_file(path)
        try:
            model, name = read_model(data), printable(path.stem)
            return import_model(model, name, digest(data), Elements(data))
        except PerfcError as error:
            msg = f"{path}: {error}"
            raise type(error)(msg) from None
