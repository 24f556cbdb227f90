"""The names of the arguments of ATen's ops, for calls that tell only their places.

PyTorch has them where it is installed; traces are read where it is not, so they are in
a file here, and a test compares them with PyTorch's.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from perfc.traces import RecordedArgument, RecordedOp, RecordedTensor
from perfc.traces.inputs import UNRECORDED

_FILE = Path(__file__).with_name("signatures.txt")
_TENSOR, _LIST = "T", "L"


@attrs.frozen
class Signature:
    """What an op takes.

    Attributes:
        target: Namespace, name and overload: `aten.addmm.default`.
        names: Names of its arguments.
        kinds: `T` for a tensor, `L` for a list of them, "" for anything else.
        returns: Number of tensors that come back; 0 for a list, too.

    """

    target: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    returns: int

    def fits(self, arguments: Sequence[RecordedArgument]) -> bool:
        """Whether a call with these arguments can be one of it.

        Newer versions have arguments at the end that older ones had not; the result
        of a call that writes into a tensor of the caller's comes last.
        """
        if len(arguments) > len(self.names):
            arguments = arguments[:-1] if _is_tensor(arguments[-1]) else arguments
        if len(arguments) > len(self.names):
            return False
        return all(map(_can_be, arguments, self.kinds))


def _is_tensor(argument: RecordedArgument) -> bool:
    return isinstance(argument, RecordedTensor)


def _can_be(argument: RecordedArgument, kind: str) -> bool:
    if argument is None or argument is UNRECORDED:
        return True
    if isinstance(argument, RecordedTensor):
        return kind == _TENSOR
    listed = isinstance(argument, tuple) and any(map(_is_tensor, argument))
    return kind == (_LIST if listed else "")


def find_signature(op: RecordedOp) -> Signature | None:
    """Return the signature of a call: of those that fit, one with fewest arguments."""
    if op.names:
        # The signature that the trace itself tells.
        kinds = [
            _TENSOR if isinstance(argument, RecordedTensor) else ""
            for argument in op.arguments
        ]
        target = f"{op.name.replace('::', '.')}.{op.overload}"
        return Signature(target, op.names, tuple(kinds), len(op.results))
    known = signatures().get(op.name, ())
    fitting = [s for s in known if s.fits(op.arguments)]
    named = [s for s in fitting if op.overload and s.target.endswith(f".{op.overload}")]
    return min(named or fitting, key=lambda s: len(s.names), default=None)


@functools.cache
def signatures() -> Mapping[str, Sequence[Signature]]:
    """Read the file: signatures by the name of the op."""
    found: dict[str, list[Signature]] = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        target, returns, *arguments = line.split()
        pairs = [argument.partition(":") for argument in arguments]
        signature = Signature(
            f"aten.{target}",
            tuple(name for name, _, _ in pairs),
            tuple(kind for _, _, kind in pairs),
            int(returns) if returns != _LIST else 0,
        )
        found.setdefault(f"aten::{target.partition('.')[0]}", []).append(signature)
    return found
