"""Data that move inside a device, and between it and the host."""

from __future__ import annotations

import math

import torch

from perfc.ir import Record
from perfc.measure.case import Call, Case, Family, Tensors, without
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device
from perfc.measurements import bytes_of


class Gather(Family):
    """Rows of a matrix, by their numbers."""

    op = "gather"
    turns = 4

    def space(self, device: Device) -> Space:
        """Return matrices of a few rows to ten million."""
        return {
            "rows": Size(2, 10_000_000),
            "cols": Size(1, 4096),
            "count": Size(1, 1_000_000),
            "dtype": Choice(without(device.dtypes, "tf32", "fp8")),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case."""
        params: Point = {"kind": "gather", "axis": 0, "dtype": point["dtype"]}
        params["shape"] = (point["rows"], point["cols"])
        params["indices"] = (point["count"],)
        return super().case(params)

    def takes(self, case: Case) -> bool:
        """Whether it reads rows of a matrix."""
        return case.params.get("kind") == "gather"

    def memory_bytes(self, case: Case) -> int:
        """Return the matrix, the numbers and the rows."""
        rows, cols = case.params.integers("shape")
        return int(rows * cols * bytes_of(case.dtype) + case.work.bytes)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `index_select`."""
        rows, cols = case.params.integers("shape")
        x = tensors.random(case.dtype, rows, cols)
        count = math.prod(case.params.integers("indices"))
        indices = tensors.integers(rows, count)
        return lambda: torch.index_select(x, 0, indices)


class Concat(Family):
    """Matrices side by side or one below the other."""

    op = "concat"
    turns = 3

    def space(self, device: Device) -> Space:
        """Return two to 27 matrices: what DLRM joins."""
        return {
            "rows": Size(1, 65536),
            "cols": Size(1, 4096),
            "tensors": Choice((2, 2, 3, 4, 8, 27)),
            "axis": Choice((0, 1)),
            "dtype": Choice(without(device.dtypes, "tf32", "fp8")),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case."""
        sizes = Record(point)
        shapes = ((point["rows"], point["cols"]),) * sizes.integer("tensors")
        params: Point = {"axis": point["axis"], "shapes": shapes}
        return super().case({**params, "dtype": point["dtype"]})

    def takes(self, case: Case) -> bool:
        """Whether each matrix lies in one piece."""
        return "scattered" not in case.params

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `cat`."""
        shapes = case.params["shapes"]
        listed = shapes if isinstance(shapes, tuple) else ()
        named = Record({str(number): shape for number, shape in enumerate(listed)})
        matrices = [tensors.random(case.dtype, *named.integers(name)) for name in named]
        axis = case.params.integer("axis")
        return lambda: torch.cat(matrices, axis)


class Transpose(Family):
    """A copy with its axes in another order."""

    op = "transpose"
    turns = 2

    def space(self, device: Device) -> Space:
        """Return matrices, batches of matrices, and the heads of attention."""
        return {
            "batch": Size(1, 1024),
            "rows": Size(2, 8192),
            "heads": Size(1, 64, (1, 4, 8, 12, 16, 32, 64)),
            "cols": Size(2, 8192),
            "perm": Choice(((1, 0), (0, 2, 1), (0, 2, 1, 3))),
            "dtype": Choice(without(device.dtypes, "tf32", "fp8")),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case; what lies in order already is not copied."""
        perm = Record(point).integers("perm")
        if perm[-1] == len(perm) - 1 and 1 in {point["rows"], point["heads"]}:
            return None
        names = {2: ("rows", "cols"), 3: ("batch", "rows", "cols")}
        axes = names.get(len(perm), ("batch", "rows", "heads", "cols"))
        params: Point = {"shape": tuple(point[name] for name in axes), "perm": perm}
        return super().case({**params, "dtype": point["dtype"]})

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `contiguous` on the permuted tensor."""
        x = tensors.random(case.dtype, *case.params.integers("shape"))
        turned = x.permute(case.params.integers("perm"))
        return turned.contiguous


class Memcpy(Family):
    """Bytes from one tensor to another; on the host in pinned or pageable memory."""

    op = "memcpy"
    turns = 4

    def space(self, device: Device) -> Space:
        """Return every direction; a CPU has one."""
        across = (("h2d", True), ("d2h", True), ("h2d", False), ("d2h", False))
        ways = (*across, ("d2d", None)) if device.is_cuda else (("d2d", None),)
        dtype = Choice(("fp32",))
        return {"bytes": Size(4, 1 << 30), "way": Choice(ways), "dtype": dtype}

    def case(self, point: Point) -> Case | None:
        """Return the case: whole fp32 elements."""
        kind, pinned = point["way"] if isinstance(point["way"], tuple) else ("", None)
        size = int(bytes_of("fp32"))
        nbytes = Record(point).integer("bytes") // size * size
        params: Point = {"bytes": nbytes, "kind": kind, "dtype": point["dtype"]}
        if pinned is not None:
            params["pinned"] = pinned
        return super().case(params)

    def capturable(self, case: Case) -> bool:
        """Return whether the copy stays on the device."""
        return case.params.text("kind") == "d2d"

    def runs_on(self, case: Case, device: Device) -> bool:
        """Whether there is a way: a CPU has no bus between it and the host."""
        return device.is_cuda or case.params.text("kind") == "d2d"

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `copy_`, which does not wait for pinned memory."""
        kind = case.params.text("kind")
        pinned = case.params.flag("pinned")
        whole, rest = divmod(case.params.integer("bytes"), int(bytes_of(case.dtype)))
        if rest:  # a mask
            whole = case.params.integer("bytes")
        on_device = tensors.random("bool" if rest else case.dtype, whole)
        if kind == "d2d":
            other = torch.empty_like(on_device)
            return lambda: other.copy_(on_device)
        dtype = on_device.dtype
        on_host = torch.empty(whole, dtype=dtype, pin_memory=pinned).copy_(on_device)
        if kind == "h2d":
            return lambda: on_device.copy_(on_host, non_blocking=True)
        return lambda: on_host.copy_(on_device, non_blocking=True)
