"""Reading a file event by event."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfc.ir.support import BudgetError, raised_budgets
from perfc.traces import json_stream
from perfc.traces.events import TraceError
from perfc.traces.kineto import read_trace

_WAYS = st.tuples(st.booleans(), st.integers(1, 40), st.booleans())
"""Whether the header comes first, how much is read at a time, whether it is gzipped."""

_EVENTS = st.lists(
    st.dictionaries(
        st.text(max_size=5),
        st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=9)
        | st.booleans(),
        max_size=4,
    ),
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(events=_EVENTS, way=_WAYS)
def test_events_come_whole_whatever_is_read_at_a_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    events: list[object],
    way: tuple[bool, int, bool],
) -> None:
    """Pieces of a file that end anywhere change neither events nor the header."""
    after, chunk, zipped = way
    monkeypatch.setattr(json_stream, "_CHUNK", chunk)
    items = [("traceEvents", events), ("distributedInfo", {"rank": 12})]
    text = json.dumps(dict(reversed(items) if after else items)).encode()
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text) if zipped else text)

    file = json_stream.EventFile(path)

    assert list(file.events()) == events
    assert file.header == {"distributedInfo": {"rank": 12}}


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    """Some tools write the list alone."""
    path = tmp_path / "trace.json"
    path.write_text('[{"name": "a"}, 3, {"name": "b"}]', encoding="utf-8")

    assert [{"name": "a"}, {"name": "b"}] == list(json_stream.EventFile(path).events())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "nothing is in it; expected a trace in JSON"),
        (b" \n", "nothing is in it; expected a trace in JSON"),
        (b"{", "not valid JSON (the file ends in the middle)"),
        (b"# Title", "expected a JSON object with 'traceEvents'"),
        (b'{"traceEvents": [{"name": 1}', "not valid JSON"),
        (b'{"traceEvents": [{"name": 1},', "not valid JSON"),
        (b'{"traceEvents" [', "not valid JSON (expected ':', found '[')"),
        (b'{"traceEvents": []} {"traceEvents": []}', "more text behind the end"),
        (b'{"schema": "1.0.1", "nodes": []}', "an execution trace of PyTorch"),
        (b'{"nothing": 1}', "no trace: expected 'traceEvents', found nothing"),
        (b"\xff\xfe\x00", "not text"),
        (b"[" * 100_000, "not valid JSON (nested too deeply)"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "truncated gzip file"),
        (b"\x1f\x8b nonsense that is no gzip file", "damaged or truncated gzip file"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    """Whatever is wrong with a file is one line that names it."""
    path = tmp_path / "trace.json"
    path.write_bytes(content)

    with pytest.raises(TraceError) as caught:
        read_trace(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is said."""
    with pytest.raises(TraceError, match=r"cannot read .*: No such file"):
        read_trace(tmp_path / "none.json")


def test_a_value_without_end_is_not_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file of gigabytes is given up after the longest value there may be."""
    monkeypatch.setattr(json_stream, "_CHUNK", 100)
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": ["' + "x" * 100_000, encoding="utf-8")

    message = f"{path}: 541 values of JSON, cells of CSV, .* --budget values=998 "
    with raised_budgets({"values": 499}), pytest.raises(BudgetError, match=message):
        read_trace(path)
