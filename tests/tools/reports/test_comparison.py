"""Kernels whose times on two boards differ by more than the boards' sheets do."""

from __future__ import annotations

import perfc
from perfc.tools import Comparison
from perfc.tools.reports.comparison import beyond_sheets

MODEL = "dlrm-mlperf:max_rows=1000"


def _reports(*targets: str) -> list[perfc.Report]:
    return [perfc.analyze(MODEL, batch=2048, target=target) for target in targets]


def test_a_ratio_beyond_the_sheets_names_kernel_and_reason() -> None:
    """A100's rows have tiles of 128 x 128 for batches of 27 x 27, H100's small ones."""
    (remark,) = beyond_sheets(_reports("a100", "h100"))

    assert ("beyond-sheets", "interact.bmm") == (remark.code, remark.where)
    assert "on a100-sxm-80g" in remark.message
    assert "where their sheets allow 3.4" in remark.message
    assert "compute each result 22.5 and 1.4 times" in remark.message


def test_the_slower_board_may_come_second() -> None:
    """A remark does not depend on the order."""
    slow, fast = _reports("a100", "h100")

    assert list(beyond_sheets([slow, fast])) == list(beyond_sheets([fast, slow]))


def test_a_ratio_that_sheets_allow_is_not_remarked() -> None:
    """Two boards of a chip differ by their clocks and memories."""
    assert [] == list(beyond_sheets(_reports("a100", "a100-pcie-40g")))


def test_cpus_have_other_kernels() -> None:
    """What a CPU takes is not held against a GPU's sheet."""
    assert [] == list(beyond_sheets(_reports("cpu", "h100")))


def test_a_comparison_has_its_remarks_below() -> None:
    """As a report has its own."""
    compared = Comparison(_reports("a100", "h100"))

    (remark,) = compared.diagnostics
    assert (
        f"Warning: {remark.message} [beyond-sheets]" == str(compared).splitlines()[-1]
    )
