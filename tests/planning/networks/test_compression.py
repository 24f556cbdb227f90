"""What compression leaves to send."""

from __future__ import annotations

import pytest

from perfc.ir import UsageError
from perfc.planning.networks import Compression, Link, read_compression


@pytest.mark.parametrize(
    ("text", "element_bytes", "share"),
    [
        ("topk:100", 4, 0.02),
        ("topk:100,fp16", 4, 0.015),
        ("topk:100", 2, 0.03),
        ("topk:1", 4, 1.0),
        ("topk:1.5", 4, 1.0),
        ("fp16", 4, 0.5),
        ("fp16", 2, 1.0),
        ("int8", 4, 0.25),
    ],
)
def test_share_of_bytes(text: str, element_bytes: float, share: float) -> None:
    """Kept values and 4 bytes of place each, never more than there was."""
    assert read_compression(text).share(element_bytes) == pytest.approx(share)


def test_gpt2_over_8_mbit_per_s() -> None:
    """An activation of one sample, one in 100 of it kept: 62.9 ms."""
    sent = 1024 * 768 * 4 * read_compression("topk:100").share(4)

    assert Link(1e6).seconds(sent) == pytest.approx(0.0629, abs=5e-5)


def test_only_slow_links_are_compressed() -> None:
    """The slowest has all of the ratio, and none is slower than it then is."""
    adaptive = read_compression("topk:100,adaptive")
    links_s = [3.0, 0.3, 0.003, 0.0]

    ratios = adaptive.ratios(links_s)

    assert ratios == pytest.approx([100.0, 10.0, 1.0, 1.0])
    sent_s = [t * adaptive.share(4, r) for t, r in zip(links_s, ratios, strict=True)]
    assert max(sent_s) == pytest.approx(sent_s[0])


def test_others_have_one_ratio() -> None:
    """Without `adaptive` all links have it."""
    assert Compression("topk", 50.0).ratios([1.0, 2.0]) == [50.0, 50.0]


@pytest.mark.parametrize(
    "text",
    [
        *("", "topk", "topk:0", "topk:0.5", "topk:x", "topk:inf", "fp16:2", "int4"),
        *("topk:10,adaptive,adaptive", "topk:10,quick", "int8,adaptive"),
    ],
)
def test_what_is_no_compression(text: str) -> None:
    """The line says what is expected."""
    with pytest.raises(UsageError, match="expected topk:R"):
        read_compression(text)
