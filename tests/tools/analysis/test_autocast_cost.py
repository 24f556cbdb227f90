"""The remark on casts that take a device longer than they save it."""

from __future__ import annotations

import pytest

import perfc
from perfc import Report

CODE = "casts-cost-more"


def told(report: Report) -> list[str]:
    """Return what is said of casts."""
    return [one.message for one in report.diagnostics if one.code == CODE]


@pytest.mark.parametrize("target", ["h100", "gb200", "a100", "v100"])
@pytest.mark.parametrize(
    ("model", "batch", "mode"),
    [
        ("dlrm-ddp", 32, "training"),
        ("dlrm-ddp", 2048, "training"),
        ("deepfm", 64, "training"),
        ("dlrm-default", 512, "inference"),
        ("gpt2:layers=1", 1, "training"),
    ],
)
def test_it_is_said_where_the_device_is_slower(
    model: str, batch: int, mode: str, target: str
) -> None:
    """Pricing a few kernels once more tells what pricing the model twice does."""
    plain, amp = (
        perfc.analyze(
            model, target, batch=batch, mode=mode, dtype=dtype, runtime="cudagraph"
        )
        for dtype in ("fp32", "amp-fp16")
    )
    slower = amp.summary["device_only_us"] > plain.summary["device_only_us"]

    assert int(slower) == len(told(amp))
    assert not told(plain)


def test_it_names_what_casts_take_and_save() -> None:
    """Both in microseconds, with the number of casts."""
    report = perfc.analyze(
        "dlrm-ddp", "h100", batch=32, mode="training", dtype="amp-bf16"
    )
    (message,) = told(report)

    assert message.startswith("40 casts take the device ")
    assert "bf16 saves other kernels" in message
