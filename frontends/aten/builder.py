"""Calls of ATen ops, one after another, to an op graph."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from perfc.frontends.aten.call import AtenCall, AtenTensor
from perfc.ir import Diagnostic, Program


@attrs.define(eq=False, init=False)
class AtenBuilder:
    """Collects what a source of PyTorch graphs records, in the order it runs.

    Declare every input, parameter and state before the first call that reads it;
    names are unique in the whole graph. A tensor that a call writes in place comes
    back as a result under a new name, which later calls read.

        builder = AtenBuilder("model")
        builder.input(AtenTensor("x", type))
        builder.parameter(AtenTensor("fc.weight", type))
        builder.call(AtenCall("aten.mm.default", {"self": Ref("x"), ...}, (y,)))
        builder.outputs(["y"])
        program = builder.program()
    """

    def __init__(self, name: str) -> None:
        """Begin an empty graph called *name*."""
        raise NotImplementedError

    def input(self, tensor: AtenTensor) -> None:
        """Declare data that an iteration is given.

        Raises:
            VerifyError: the name is taken. So do the next two.

        """

    def parameter(self, tensor: AtenTensor) -> None:
        """Declare a weight, a buffer or a constant tensor: it is on the device."""

    def state(self, tensor: AtenTensor) -> None:
        """Declare state of an optimizer.

        A tensor in `MemorySpace.HOST`, as a step counter is, costs host time only.
        """

    def call(self, call: AtenCall) -> None:
        """Append one call.

        Arguments by the names of the op's schema; those not given have their
        defaults. Results in the schema's order, lists of tensors flattened, None for
        what is no tensor (an integer, an absent optional result).

        An op that is not in the maps, or is used as they do not expect, becomes an
        `unknown` op of its name: costed by its bytes, and reported.

        Raises:
            UnsupportedModelError: it reads a tensor that nothing defines.
            VerifyError: a result has the name of another tensor.

        """

    def outputs(self, names: Iterable[str]) -> None:
        """Say which tensors the iteration returns.

        Raises:
            UnsupportedModelError: nothing defines one of them.

        """

    def program(
        self, *, sha256: str = "", diagnostics: Iterable[Diagnostic] = ()
    ) -> Program:
        """Return the verified program; nothing can be added any more.

        Args:
            sha256: Digest of the file it was read from.
            diagnostics: What the source has to say; the builder's own follow.

        """
        raise NotImplementedError
