"""perfc assembly itself."""

from __future__ import annotations

from pathlib import Path

import attrs

from perfc.frontends.files import digest
from perfc.ir import ParseError, PerfcError, Program
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError, read_whole
from perfc.ir.text import parse_program
from perfc.ir.verification import verify


class TextFrontend:
    """Reads `.perfc` files: op graphs, launch graphs, programs."""

    def load(self, path: Path) -> Program:
        """Read, parse and verify *path*."""
        data = read_whole(path, UnsupportedModelError, "text-bytes")
        try:
            program = parse_program(data.decode("utf-8"))
            for rank in program.classes:
                if rank.ops is not None:
                    verify(rank.ops, BUILTIN_OPS)
        except UnicodeDecodeError:
            msg = f"{path}: not UTF-8 text, so not perfc assembly"
            raise ParseError(msg) from None
        except PerfcError as error:
            msg = f"{path}: {error}"
            raise type(error)(msg) from None
        return attrs.evolve(program, sha256=digest(data))
