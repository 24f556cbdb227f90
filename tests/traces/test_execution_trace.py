"""Execution traces: read, and laid beside the Kineto trace of the same run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.traces.executed import RELU, SUM, Executed, tensor
from tests.traces.synthetic import Made

from perfc.ir import DTYPES
from perfc.traces import RecordedTensor, is_execution_trace, read_execution_trace
from perfc.traces.events import TraceError
from perfc.traces.execution_trace import describe
from perfc.traces.kineto import read_trace

F32 = DTYPES["f32"]


def _iteration(made: Made, begin_us: float) -> None:
    for number, name in enumerate(("aten::mm", "aten::relu")):
        made.add("cpu_op", name, begin_us + 10 * number, 8)


def test_what_a_node_says(tmp_path: Path) -> None:
    """Overload, names, arguments and results come from schema, values and types."""
    made = Executed()
    inputs: list[object] = [tensor(1, "cpu"), [-1], False, "<None>"]
    types = ["Tensor(long int)", "GenericList[Int]", "Bool", "None"]
    made.op(SUM, inputs, [[4, 8], [[]], [], []], types, [tensor(2)], [[4]])

    trace = read_execution_trace(made.write(tmp_path / "et.json"))

    ((op,),) = trace.threads.values()
    assert ("aten::sum", "dim_IntList") == (op.call.name, op.call.overload)
    assert op.call.names == ("self", "dim", "keepdim", "dtype")
    on_host = RecordedTensor((4, 8), DTYPES["i64"], on_host=True)
    assert op.call.arguments == (on_host, (-1,), False, None)
    assert op.call.results == (RecordedTensor((4,), F32),)
    assert ((1,), (2,)) == (op.reads, op.makes)


def test_lists_of_tensors_and_tensors_that_are_none(tmp_path: Path) -> None:
    """A list has the types of its tensors; a tensor of no type is none."""
    made = Executed()
    undefined = "Tensor(nullptr (uninitialized))"
    listed = f"GenericList[Tensor(float),{undefined},None,Tensor(c10::Half)]"
    made.op(
        "aten::f(Tensor[] a, Tensor? b=None) -> Tensor",
        [[tensor(1), tensor(0), "<None>", tensor(2)], tensor(0)],
        [[[2], [], [], [3]], []],
        [listed, undefined],
        [tensor(3)],
        [[5]],
    )

    trace = read_execution_trace(made.write(tmp_path / "et.json"))

    ((op,),) = trace.threads.values()
    half = RecordedTensor((3,), DTYPES["f16"])
    assert op.call.arguments == ((RecordedTensor((2,), F32), None, None, half), None)
    assert op.reads == (1, 2)
    assert op.call.names == ("a", "b")


def test_newer_nodes_say_the_same(tmp_path: Path) -> None:
    """Schema 1.0.3 and later have records of inputs and outputs, and attributes."""
    made = Executed()
    made.relu(4, 8)
    old = read_execution_trace(made.write(tmp_path / "old.json"))
    for node in made.nodes:
        for side in ("input", "output"):
            node[f"{side}s"] = {
                "values": node.pop(f"{side}s"),
                "shapes": node.pop(f"{side}_shapes"),
                "types": node.pop(f"{side}_types"),
            }
        node["ctrl_deps"] = node.pop("parent")
        schema = {"name": "op_schema", "type": "string", "value": node.pop("op_schema")}
        node["attrs"] = [{"name": "rf_id", "type": "uint64", "value": 1}, schema]
        node["attrs"].append({"name": "tid", "type": "uint64", "value": 1})
        del node["rf_id"], node["tid"]

    new = read_execution_trace(
        made.write(tmp_path / "new.json", schema="1.1.0-chakra.0.0.4")
    )

    assert [*old.threads.values()] == [*new.threads.values()]


def test_what_pytorch_writes_is_read(tmp_path: Path) -> None:
    """The observer of the PyTorch that is installed, on the CPU."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "et.json"
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    torch.addmm(torch.ones(2), torch.ones(4, 8), torch.ones(2, 8).t())
    torch.cat([torch.ones(2), torch.ones(3)])
    observer.stop()
    observer.unregister_callback()

    trace = read_execution_trace(path)

    (ops,) = trace.threads.values()
    calls = {op.call.name: op.call for op in ops}
    matmul, joined = calls["aten::addmm"], calls["aten::cat"]
    assert matmul.names == ("self", "mat1", "mat2", "beta", "alpha")
    weight = RecordedTensor((8, 2), F32, (1, 8), on_host=True)
    assert matmul.arguments[2:] == (weight, 1, 1)
    assert [(4, 2)] == [tensor.shape for tensor in matmul.results]
    parts = [RecordedTensor((n,), F32, (1,), on_host=True) for n in (2, 3)]
    assert joined.arguments == (tuple(parts), 0)


def test_every_iteration_gets_the_arguments(tmp_path: Path) -> None:
    """The ops of one iteration are found as often as they ran, and nowhere else."""
    made, executed = Made(), Executed()
    made.add("cpu_op", "aten::relu", 5, 2)
    for begin_us in (100, 200, 300):
        _iteration(made, begin_us)
    executed.mm(4, 8, 2)
    executed.relu(4, 2)

    trace = describe(
        read_trace(made.write(tmp_path / "t.json")),
        read_execution_trace(executed.write(tmp_path / "et.json")),
    )

    assert [(), *[((4, 8), (8, 2)), ((4, 2),)] * 3] == [op.dims for op in trace.ops]
    (note,) = (d for d in trace.diagnostics if d.code == "execution-trace")
    assert "arguments of 6 of 7 ops" in note.message
    assert "trace-no-shapes" not in {d.code for d in trace.diagnostics}


def test_ops_that_begin_at_once_keep_their_order(tmp_path: Path) -> None:
    """A clock of microseconds does not tell; the profiler's numbers do."""
    made, executed = Made(), Executed()
    made.add("cpu_op", "aten::mm", 10, 5, **{"External id": 1})
    made.add("cpu_op", "aten::relu", 10, 6, **{"External id": 2})
    executed.mm(4, 8, 2)
    executed.relu(4, 2)

    trace = describe(
        read_trace(made.write(tmp_path / "t.json")),
        read_execution_trace(executed.write(tmp_path / "et.json")),
    )

    assert {"aten::mm": 2, "aten::relu": 1} == {o.name: len(o.dims) for o in trace.ops}


def test_another_run_is_refused(tmp_path: Path) -> None:
    """Ops in another order are those of another program."""
    made, executed = Made(), Executed()
    _iteration(made, 0)
    executed.relu(4, 2)
    executed.mm(4, 8, 2)
    trace = read_trace(made.write(tmp_path / "t.json"))
    execution = read_execution_trace(executed.write(tmp_path / "et.json"))

    with pytest.raises(TraceError, match=r"of another run than .*t\.json"):
        describe(trace, execution)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "2.0"}, "schema '2.0' of execution traces; expected 1"),
        ({"nodes": []}, "an execution trace without ops"),
        ({"nodes": [{"rf_id": "x"}]}, "node None: rf_id and tid are no numbers"),
        ({"nodes": [{"rf_id": 1, "tid": 1}]}, "id and parent are no numbers"),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """Whatever is wrong with a file is one line that names it."""
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": [], **change}))

    with pytest.raises(TraceError) as caught:
        read_execution_trace(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_how_a_file_begins_tells_what_it_is(tmp_path: Path) -> None:
    """Kineto traces, files that are none, and no file are no execution traces."""
    made = Executed()
    made.op(RELU, [], [], [], [], [])
    execution, kineto = made.write(tmp_path / "et.json"), tmp_path / "t.json"
    _iteration(trace := Made(), 0)
    trace.write(kineto)
    (tmp_path / "x.gz").write_bytes(b"\x1f\x8b nonsense")

    assert is_execution_trace(execution)
    assert not is_execution_trace(kineto)
    assert not is_execution_trace(tmp_path / "x.gz")
    assert not is_execution_trace(tmp_path / "none")
