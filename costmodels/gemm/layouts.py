"""How the matrix of a product with a vector lies in memory.

Sums along its lines are one kernel, which reads the matrix once. Sums across them are
of parts, one for each group of blocks that reads some of the lines, and a second kernel
adds the parts up (`gemvNSP` and a reduction in traces of DLRM on a V100,
owensgroup/ml_perf_model, BSD-3: the gradient of the weights of a layer of one output).
A row with a bias is a linear layer, whose `tn` is a word of cuBLAS for `nt`.
"""

from __future__ import annotations

from perfc.costmodels.kernels import Flags, KernelTable
from perfc.ir import Kernel


def across(kernels: KernelTable) -> Flags:
    """Whether each product sums a matrix across its lines, times a vector."""
    words = kernels.text("layout")
    left, right = (words == "tn") | (words == "tt"), (words == "tn") | (words == "nn")
    summed = left & (kernels.param("n") == 1) | right & (kernels.param("m") == 1)
    single = (kernels.param("b", 1.0) == 1) & ~kernels.given("bias")
    found: Flags = summed & single
    return found


def is_across(kernel: Kernel) -> bool:
    """Whether one product does."""
    params, layout = kernel.params, str(kernel.params.get("layout", ""))
    if params.get("bias") or params.get("b", 1) != 1:
        return False
    left = params.get("n") == 1 and layout[:1] == "t"
    return left or (params.get("m") == 1 and layout[1:] == "n")
