"""Arrays of numbers in NumPy's files, `.npy` and `.npz`, within budgets.

`numpy.load` makes room for what a file claims to hold before it has read it, and runs
out of memory over a header of a hundred bytes. Here room is made for what is there.
"""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from perfc.ir import spend
from perfc.ir.support import read_unpacked

_LONGEST_HEADER = 2**16
_SUFFIX = ".npy"
_VERSIONS = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}
"""Version 3 has names of fields beyond Latin-1: no array of numbers."""


def read_arrays(data: bytes, where: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` by name.

    Raises:
        ValueError: an array is none of numbers. What `zipfile` raises of damaged files
            is left as it is.

    """
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                name = member.filename.removesuffix(_SUFFIX)
                arrays[name] = read_array(stream, f"{where}: {name!r}")
            spend("elements", sum(array.size for array in arrays.values()), where)
    return arrays


def read_array(stream: IO[bytes], where: str) -> NDArray[Any]:
    """Return the array of an `.npy`.

    Raises:
        ValueError: it is cut off, or holds no numbers.

    """
    head = io.BytesIO(stream.read(_LONGEST_HEADER))
    version = npy.read_magic(head)
    if version not in _VERSIONS:
        message = f"version {version[0]}.{version[1]} of the format has no numbers"
        raise ValueError(message)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that Python 2 has written
        shape, by_column, dtype = _VERSIONS[version](head)
    if dtype.hasobject or not dtype.itemsize:
        message = f"{dtype} in place of numbers"
        raise ValueError(message)
    count = math.prod(shape)
    spend("elements", max(count, *shape, 0), where)
    data = head.read() + read_unpacked(stream, where)
    if min(shape, default=0) < 0 or len(data) < count * dtype.itemsize:
        message = f"{len(data):,} bytes of data for the shape {shape}"
        raise ValueError(message)
    flat = np.frombuffer(data, dtype, count)
    return flat.reshape(shape, order="F" if by_column else "C")
