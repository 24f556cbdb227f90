"""Kind of a pass, told by its name: its module need not be loaded to ask."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeGuard, overload

from perfc.passes.base import Pass

if TYPE_CHECKING:
    from perfc.passes.embeddings import ShardEmbeddings
    from perfc.passes.lowering import LowerKernels
    from perfc.passes.parallel import (
        DataParallel,
        Fsdp,
        PipelineParallel,
        TensorParallel,
    )
    from perfc.passes.precision import ConvertDtype, Quantize
    from perfc.passes.timing import Overhead
    from perfc.passes.training import AccumulateGradients, Training

    _Replicas: TypeAlias = Fsdp | ShardEmbeddings


@overload
def is_a(
    p: Pass, name: Literal["accumulate-gradients"], /
) -> TypeGuard[AccumulateGradients]: ...
@overload
def is_a(p: Pass, name: Literal["convert-dtype"], /) -> TypeGuard[ConvertDtype]: ...
@overload
def is_a(p: Pass, name: Literal["data-parallel"], /) -> TypeGuard[DataParallel]: ...
@overload
def is_a(p: Pass, name: Literal["fsdp"], /) -> TypeGuard[Fsdp]: ...
@overload
def is_a(
    p: Pass, name: Literal["fsdp"], other: Literal["shard-embeddings"], /
) -> TypeGuard[_Replicas]: ...
@overload
def is_a(p: Pass, name: Literal["lower-kernels"], /) -> TypeGuard[LowerKernels]: ...
@overload
def is_a(p: Pass, name: Literal["overhead"], /) -> TypeGuard[Overhead]: ...
@overload
def is_a(
    p: Pass, name: Literal["pipeline-parallel"], /
) -> TypeGuard[PipelineParallel]: ...
@overload
def is_a(p: Pass, name: Literal["quantize"], /) -> TypeGuard[Quantize]: ...
@overload
def is_a(p: Pass, name: Literal["tensor-parallel"], /) -> TypeGuard[TensorParallel]: ...
@overload
def is_a(p: Pass, name: Literal["training"], /) -> TypeGuard[Training]: ...
@overload
def is_a(p: Pass | type[Pass], /, *names: str) -> bool: ...
def is_a(p: Pass | type[Pass], /, *names: str) -> bool:
    """Whether a pass, or a class of passes, is or derives from one of these.

    As `isinstance` and `issubclass` of their classes answer, which would load them.
    """
    return not _names_of(p if isinstance(p, type) else type(p)).isdisjoint(names)


@functools.cache
def _names_of(cls: type[Pass]) -> frozenset[object]:
    return frozenset(vars(base).get("name") for base in cls.__mro__)
