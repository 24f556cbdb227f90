"""Lists of bags that are sent to ranks: fbgemm's kernels, as TorchRec calls them.

Read from fbgemm's `sparse_permute_2d.cu` and `sparse_block_bucketize_features.cu`, and
from TorchRec's `KJTAllToAll` and `bucketize_kjt_before_all2all`; the kernels of a
permutation were counted on the Kineto traces of TorchRec on V100 that
HolisticTraceAnalysis publishes: lengths, two running sums, indices, and running sums
once more for the lookup.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import Work
from perfc.passes.lowering.eager.embedding.rows import gather
from perfc.passes.lowering.eager.reductions import stream
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    elementwise_launch,
)


def _sums(lengths: Tensor) -> Launch:
    """`asynchronous_complete_cumsum`."""
    return stream("scan", "sums", lengths.numel, lengths.nbytes, lengths.nbytes)


def _moved(kind: str, read: int, written: Tensor) -> Launch:
    return gather(kind, written, written, Work(0, read, written.nbytes))


def _regroup(site: Site) -> Eager:
    """Permute, where there is more than one rank and table, and add lengths up."""
    lengths, indices = site.operands
    offsets = Tensor(site.results[1])
    launches: list[Launch] = []
    if min(site.attributes.integer(name) for name in ("ranks", "features")) > 1:
        sums = _sums(lengths)
        bounds = 2 * lengths.nbytes
        launches += [
            _moved("permute_2D_lengths", lengths.nbytes, lengths),
            *(sums, sums),
            _moved("permute_2D_data", indices.nbytes + bounds, indices),
        ]
    launches.append(_sums(lengths))
    if offsets.type.dtype != lengths.type.dtype:
        launches.append(elementwise_launch("cast", (offsets,), offsets))
    return Eager("fbgemm::permute_2D_sparse_data", tuple(launches))


def _bucketize(site: Site) -> Eager:
    """Count what each bucket gets of each bag, add the counts up, and distribute it."""
    lengths, indices = site.operands
    counts = Tensor(site.results[0])
    return Eager(
        "fbgemm::block_bucketize_sparse_features",
        (
            _sums(lengths),
            _moved("bucketize_count", lengths.nbytes + indices.nbytes, counts),
            _sums(counts),
            _moved("bucketize", indices.nbytes + counts.nbytes, indices),
        ),
    )


def _check(site: Site) -> Eager:
    """Each index is read once; what is wrong is written, which is seldom."""
    work = site.work
    indices = site.operands[1]
    launch = stream("scan", "bounds", indices.numel, work.bytes_read, 0)
    return Eager("fbgemm::bounds_check_indices", (launch,))


RULES: Mapping[str, Rule] = {
    "bucketize_bags": _bucketize,
    "check_bags": _check,
    "regroup_bags": _regroup,
}
"""Rules of lists of bags, by op name."""
