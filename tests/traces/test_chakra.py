"""Chakra's protocol buffers: the same ops as of PyTorch's JSON, or one clear line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.traces.chakra_messages import (
    REDUCED,
    data,
    nodes,
    write,
)
from tests.traces.executed import Executed

from perfc.traces import is_execution_trace, read_execution_trace
from perfc.traces.events import TraceError


def _made() -> Executed:
    made = Executed()
    made.mm(4, 8, 2)
    made.relu(4, 2)
    return made


@pytest.mark.parametrize("name", ["run.et", "run.et.gz", "run"])
def test_the_same_ops_as_in_json(tmp_path: Path, name: str) -> None:
    """Whatever the file is called, gzipped or not; kernels beside the ops are none."""
    made = _made()
    path = write(tmp_path / name, [*nodes(made), REDUCED])
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))

    found = read_execution_trace(path)

    assert is_execution_trace(path)
    expected = read_execution_trace(made.write(tmp_path / "run.json"))
    assert [*expected.threads.values()] == [*found.threads.values()]
    assert ["all_reduce of 4,096 bytes in group 0"] == found.collectives


def test_arguments_that_json_does_not_write(tmp_path: Path) -> None:
    """Python's infinities, nothings and truth values are read."""
    made = _made()
    made.nodes[0]["inputs"] += [float("-inf"), None, True]
    made.nodes[0]["input_shapes"] += [[], [], []]
    made.nodes[0]["input_types"] += ["Double", "None", "Bool"]

    (ops,) = read_execution_trace(
        write(tmp_path / "a.et", nodes(made))
    ).threads.values()

    assert (None, None, True) == ops[0].call.arguments[2:]


@pytest.mark.parametrize(
    ("messages", "schema", "said"),
    [
        ([], "1.0.2", "an execution trace without ops"),
        ([], "", "no schema; expected 1.0.x, as of PyTorch"),
        ([data(1, "x")], "1.0.2", "a number is written as text"),
        ([b"\x0f"], "1.0.2", "unknown kind 7"),
        ([data(8, data(1, "[1, "))], "1.0.2", "arguments that are no list: '[1, '"),
        ([data(2, b"\xff")], "1.0.2", "'utf-8' codec"),
    ],
)
def test_other_messages(
    tmp_path: Path, messages: list[bytes], schema: str, said: str
) -> None:
    """What is no node of PyTorch's is refused in one line that says why."""
    path = write(tmp_path / "a.et", messages, schema)

    with pytest.raises(TraceError) as error:
        read_execution_trace(path)

    assert said in str(error.value)
    assert str(error.value).startswith(str(path))


def test_a_truncated_file(tmp_path: Path) -> None:
    """Cut anywhere it is refused, or what is there is whole messages."""
    whole = write(tmp_path / "a.et", nodes(_made())).read_bytes()
    path = tmp_path / "cut.et"
    refused = 0
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        try:
            read_execution_trace(path)
        except TraceError:
            refused += 1

    assert refused > len(whole) // 7 - 3
    path.write_bytes(whole[:-3])
    with pytest.raises(TraceError, match="it ends 3 bytes before a message in it does"):
        read_execution_trace(path)


@given(st.binary(max_size=300))
def test_any_bytes(raw: bytes) -> None:
    """Whatever stands in a file of this name, it is read or refused."""
    import tempfile  # hypothesis calls often, tmp_path is one

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.et"
        path.write_bytes(raw)
        with pytest.raises(TraceError):
            read_execution_trace(path)
