"""What must hold of graphs, launches and communicators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.ir.verification.communicator_verifier import verify_communicators
    from perfc.ir.verification.type_verifier import verify_types
    from perfc.ir.verification.verifier import verify
else:
    __getattr__ = door(
        __name__,
        {
            "communicator_verifier": ("verify_communicators",),
            "type_verifier": ("verify_types",),
            "verifier": ("verify",),
        },
    )

__all__ = [
    "verify",
    "verify_communicators",
    "verify_types",
]
