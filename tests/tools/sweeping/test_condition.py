"""`--where`: what a condition may say, and what it says of a row."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import UsageError
from perfc.tools.sweeping.condition import read_condition

ROW: dict[str, Any] = {
    "batch": 512,
    "dtype": "amp-bf16",
    "gpu.memory_gb_per_s": 1500.0,
    "time_us": 1250.5,
    "samples_per_j": None,
    "peak_memory_bytes": 2**30,
    "fits": True,
    "error": "",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("peak_memory_bytes < 80e9", True),
        ("peak_memory_bytes / 2**10 < 1", None),
        ("time_us <= 1250.5 and fits", True),
        ("100 < batch < 512", False),
        ("100 < batch <= 512", True),
        ("not fits or batch % 2 == 1", False),
        ("dtype in ('fp32', 'amp-bf16')", True),
        ("dtype not in ['fp32']", True),
        ("dtype == 'fp32'", False),
        ("gpu.memory_gb_per_s * 2 > 2999", True),
        ("time_us / batch < 2.45", True),
        ("-time_us < -1000", True),
        ("samples_per_j > 0", False),
        ("samples_per_j <= 0", False),
        ("samples_per_j * 2 == 0", False),
        ("batch / 0 > 1", False),
        ("error == ''", True),
        ("1e400 > batch", True),
        ("(" * 150 + "batch" + ")" * 150 + " > 1", True),
        ("dtype != 'a\\d'", True),
    ],
)
def test_conditions(text: str, expected: bool | None) -> None:
    """Comparisons as in Python; one with what is unknown is false."""
    if expected is None:
        with pytest.raises(UsageError, match=r"'2 \*\* 10' has no meaning here"):
            read_condition(text, [*ROW])
        return
    assert expected == read_condition(text, [*ROW])(ROW)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tme_us < 3", "no column 'tme_us'; did you mean time_us?"),
        ("gpu.sm_count < 3", "no column 'gpu.sm_count'"),
        ("__import__('os')", "has no meaning here"),
        ("(lambda: 1)()", "has no meaning here"),
        ("batch.__class__ == 1", "no column 'batch.__class__'"),
        ("[b for b in batch]", "has no meaning here"),
        ("batch[0] == 1", "has no meaning here"),
        ("9 ** 9 ** 9 > 1", "has no meaning here"),
        ("f'{batch}' == ''", "has no meaning here"),
        ("batch is 1", "write == or !="),
        ("None == batch", "'None' has no meaning here"),
        ("batch <", "is no condition"),
        ("batch = 3", "is no condition"),
        ("", "is no condition"),
        ("(" * 300 + "1" + ")" * 300 + " == 1", "is no condition"),
        ("not " * 150 + "fits", "nested too deeply"),
        ("1 == 1 and " * 200 + "fits", "expected at most 1000 characters"),
        ("batch\x00", "is no condition"),
    ],
)
def test_refusals(text: str, says: str) -> None:
    """What is no column, and what could do more than compare."""
    with pytest.raises(UsageError) as refused:
        read_condition(text, [*ROW])(ROW)

    assert "--where" in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize("text", ["dtype < 3", "'a' * 3 == 'aaa'", "dtype + 1 > 2"])
def test_texts_are_no_numbers(text: str) -> None:
    """A comparison of both is a mistake of the condition, and said so."""
    condition = read_condition(text, [*ROW])

    with pytest.raises(UsageError, match="with a text and a number"):
        condition(ROW)


@given(
    st.text("ab<>=!+-*/%()[],'. 019andornti", max_size=30)
    | st.sampled_from(["batch", "fits", "dtype"]).map("{0} < {0}".format)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text ends in anything but a truth or a line."""
    with suppress(UsageError):
        assert read_condition(text, [*ROW])(ROW) in {True, False}
