"""Files of input pipelines: read, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfc.ir import PerfcError
from perfc.passes.loading import Loading, Stage, read_loading

WHOLE = """
mode = "serial"
depth = 3
cores = 16

[values]
edges = 150_000

[[stages]]
name = "sample"
formula = "edges / 20 + max(batch, 10) * 2 ** 2"
workers = 8
resource = "cores"
depth = 16

[[stages]]
name = "transfer"
time_us = 350
resource = "h2d"
"""


def _read(tmp_path: Path, text: str, depth: int | None = None) -> Loading | None:
    path = tmp_path / "stages.toml"
    path.write_text(text, "utf-8")
    return read_loading(path, {"batch": 100.0, "ranks": 1.0}, depth)


def test_a_file(tmp_path: Path) -> None:
    """Formulas know the batch; a depth of all is that of stages that say none."""
    expected = Loading(
        (
            Stage("sample", 7900.0, "cores", 8, 16),
            Stage("transfer", 350.0, "h2d", 1, 3),
        ),
        overlapped=False,
        cores=16,
    )

    assert expected == _read(tmp_path, WHOLE)


def test_a_depth_of_nought_is_off(tmp_path: Path) -> None:
    """In the file, or asked for."""
    assert None is _read(tmp_path, WHOLE.replace("depth = 3", "depth = 0"))
    assert None is _read(tmp_path, WHOLE, depth=0)
    assert None is not _read(tmp_path, WHOLE, depth=1)


def test_what_is_not_said(tmp_path: Path) -> None:
    """Overlapped, one worker, as many batches as workers."""
    stage = "[[stages]]\nname='a'\ntime_us=1\nresource='gpu'\n"

    assert Loading((Stage("a", 1.0, "gpu"),)) == _read(tmp_path, stage)
    found = _read(tmp_path, stage + "workers = 4\n")
    assert found is not None
    assert 4 == found.stages[0].depth


def test_json(tmp_path: Path) -> None:
    """The same in JSON."""
    path = tmp_path / "stages.json"
    stage = {"name": "a", "time_us": 1.5, "resource": "cores"}
    path.write_text(json.dumps({"stages": [stage]}), "utf-8")

    assert Loading((Stage("a", 1.5, "cores"),)) == read_loading(path, {})


_A = "[[stages]]\nname = 'a'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no `stages`"),
        ("stages = 3", "no `stages`"),
        ("stages = [3]", "stage 1 is no table"),
        ("mode = 'fast'", "mode 'fast': expected serial"),
        (_A + "time_us = 1", "stage 'a' has no resource: expected cores, h2d, gpu"),
        (_A + "time_us = 1\nresource = 'cpu'", "no resource 'cpu'"),
        (_A + "resource = 'gpu'", "expected one of time_us and formula"),
        (_A + "resource='gpu'\ntime_us=1\nformula='1'", "one of time_us and formula"),
        (_A + "resource='gpu'\ntime_us=-1", "takes -1 us; expected 0 to 1e+15"),
        (
            _A + "resource='gpu'\ntime_us=inf",
            "time_us is inf, expected a finite number",
        ),
        (
            _A + "resource='gpu'\ntime_us=nan",
            "time_us is nan, expected a finite number",
        ),
        (
            _A + "resource='gpu'\nformula='1 / 0'",
            "stage 'a' takes inf us; expected 0 to",
        ),
        (_A + "resource='gpu'\nformula='9 ** 9 ** 9 ** 9'", "has no value"),
        (_A + "resource='gpu'\nformula='batsch'", "did you mean 'batch'"),
        (_A + "resource='gpu'\nformula='1 +'", "is none; expected numbers"),
        (_A + "resource='gpu'\nformula='open(1)'", "is no part of a formula"),
        (_A + "resource='gpu'\nformula='().x'", "is no part of a formula"),
        (_A + "resource='gpu'\nformula=3", "formula of stage 'a' is no text"),
        (_A + "resource='gpu'\ntime_us=1\ndepth=0", "depth of stage 'a' is 0"),
        (_A + "resource='gpu'\ntime_us=1\nworkers=0", "workers of stage 'a' is 0"),
        (_A + "resource='gpu'\ntime_us=1\nworkers=1.5", "workers of stage 'a' is 1.5"),
        (_A + "resource='gpu'\ntime_us='1'", "time_us of stage 'a' is '1'"),
        (_A + "resource='gpu'\ntime_ms=1", "did you mean 'time_us'"),
        ("depth = -1\n" + _A + "resource='gpu'\ntime_us=1", "depth is -1"),
        ("cores = 0\n" + _A + "resource='gpu'\ntime_us=1", "cores is 0"),
        ("[values]\nx = 'a'\n" + _A + "resource='gpu'\ntime_us=1", "value x is 'a'"),
        (2 * (_A + "resource='gpu'\ntime_us=1\n"), "two stages are called 'a'"),
        ("[[stages]]\ntime_us = 1", "stage 1 has no name"),
        ("[[stages", "TOML"),
    ],
)
def test_what_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    """One line names the file, and what is wrong."""
    with pytest.raises(PerfcError, match=r"stages\.toml") as raised:
        _read(tmp_path, text)

    assert message in str(raised.value)
    assert 1 == len(str(raised.value).splitlines())


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(PerfcError, match="missing"):
        read_loading(tmp_path / "missing.toml", {})
