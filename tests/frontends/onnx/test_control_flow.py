"""Loops, branches and sequences of ONNX files, from the file to the command line."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import perfc
from perfc.ir import Graph
from perfc.tools.cli.command_line import main

HEAD = '<ir_version: 10, opset_import: ["" : 18]>'
BODY = """<body = b (int64 i, bool c, float[batch,8] a) => (bool c2, float[batch,8] r) {
    c2 = Identity(c)
    h = MatMul(a, w)
    r = Relu(h)
}>"""
STEPS = f"""{HEAD}
g (float[batch,8] x, float[4,steps] s) => (float[batch,8] y)
<float[8,8] w = {{{", ".join(["0.5"] * 64)}}}> {{
    shape = Shape(s)
    one = Constant <value_int = 1> ()
    n = Gather(shape, one)
    go = Constant <value = bool {{1}}> ()
    y = Loop {BODY} (n, go, x)
}}
"""
DATA = f"""{HEAD}
g (float[4,8] x, int64 n, bool go) => (float[4,8] y)
<float[8,8] w = {{{", ".join(["0.5"] * 64)}}}> {{
    [decoder_loop] y = Loop {BODY} (n, go, x)
}}
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def _ops(model: perfc.Model) -> list[str]:
    graph = model.program.classes[0].ops
    assert isinstance(graph, Graph)
    return [node.op for node in graph]


def test_a_loop_costs_what_its_turns_cost(tmp_path: Path) -> None:
    """Five turns are five matmuls and activations, as if they were written out."""
    loop = perfc.load(_write(tmp_path, STEPS), batch=4, dims={"steps": 5})
    nodes = "".join(
        f"h{k} = MatMul({'x' if k == 0 else f'r{k}'}, w) "
        f"{'y' if k == 4 else f'r{k + 1}'} = Relu(h{k}) "
        for k in range(5)
    )
    head, _, _ = STEPS.partition("shape =")
    written_out = perfc.load(
        _write(tmp_path, head + nodes + "}"), batch=4, dims={"steps": 5}
    )
    times = [
        perfc.analyze(model, "a100", inputs="device").time_us
        for model in (loop, written_out)
    ]

    assert ["linear", "relu"] * 5 == _ops(loop) == _ops(written_out)
    assert times[0] == times[1]


def test_binding_anew_unrolls_anew(tmp_path: Path) -> None:
    """Where a symbol is the trip count, each binding has its own ops."""
    model = perfc.load(_write(tmp_path, STEPS), batch=4, dims={"steps": 2})

    assert ["linear", "relu"] * 2 == _ops(model)
    longer = model.bind(batch=16, dims={"steps": 3})
    assert ["linear", "relu"] * 3 == _ops(longer)
    assert 16 == longer.batch
    assert ["linear", "relu"] * 2 == _ops(model)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--batch", "4"],
            "dimensions without a number: steps; add --dim steps=N",
        ),
        (["--batch", "4", "--dim", "steps=5", "--dim", "depth=1"], "depth"),
    ],
)
def test_symbols_that_decide_are_asked_for(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A trip count that is a symbol needs its number, and only known names."""
    path = _write(tmp_path, STEPS)
    code = main(["analyze", str(path), "--target", "a100", *arguments])
    error = capsys.readouterr().err

    assert 1 == code
    assert 1 == error.count("\n")
    assert problem in error


def test_trip_count_that_is_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the loop and says what to do; exit 1."""
    path = _write(tmp_path, DATA)
    code = main(["analyze", str(path), "--target", "a100"])

    assert (
        1,
        (
            "perfc: error: loop 'decoder_loop': its trip count %n depends on data; "
            "perfc has to know how often it runs: export the model with a constant "
            "number of iterations, or with the loop written out\n"
        ),
    ) == (code, capsys.readouterr().err)


def test_condition_that_is_data(tmp_path: Path) -> None:
    """So does a loop that data ends early."""
    text = DATA.replace("int64 n, ", "").replace(
        "[decoder", "n = Constant <value_int = 3> ()\n[decoder"
    )
    with pytest.raises(perfc.PerfcError, match="its condition %go depends on data"):
        perfc.load(_write(tmp_path, text))


BRANCHES = f"""{HEAD}
g (float[batch,8] x, bool c) => (float[batch,n] y) {{
    y = If (c) <
        then_branch = t () => (float[batch,n] u) {{ u = Concat <axis = 1> (x, x) }},
        else_branch = e () => (float[batch,n] v) {{ v = Identity(x) }}
    >
}}
"""


OTHER_SIZES = f"""{HEAD}
g (float[batch,8] x, float[9,8] w, bool c) => (float[batch,8] y) {{
    y = If (c) <
        then_branch = b () => (float[batch,8] t) {{ t = MatMul(x, w) }},
        else_branch = e () => (float[batch,8] v) {{ v = Relu(x) }}
    >
}}
"""


def test_branch_that_is_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The host waits for the condition, the branch with more work runs; it is said."""
    path = _write(tmp_path, BRANCHES)
    code = main(["analyze", str(path), "--target", "a100", "--batch", "4"])
    captured = capsys.readouterr()

    assert 0 == code
    assert ["item", "concat"] == _ops(perfc.load(path, batch=4))
    text = " ".join((captured.out + captured.err).split())
    assert (
        "its condition depends on data; its then branch, which does more, is taken to "
        "run each time; the results' types differ"
    ) in text


def test_branch_that_does_not_take_the_sizes(tmp_path: Path) -> None:
    """A branch for other sizes cannot be the one that runs; it is said."""
    path = _write(tmp_path, OTHER_SIZES)
    model = perfc.load(path, batch=4)

    assert ["item", "relu"] == _ops(model)
    (remark,) = model.program.diagnostics
    assert "branch-assumed" == remark.code
    assert (
        "its else branch, as the other does not take these sizes, is taken to run: "
        "%t = matmul: inner dimensions of f32[4,8] x f32[9,8] differ: 8 and 9"
    ) in remark.message


def test_no_branch_takes_the_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If neither does, the file is at fault."""
    path = _write(tmp_path, OTHER_SIZES.replace("Relu(x)", "MatMul(x, w)"))

    assert 1 == main(["analyze", str(path), "--target", "a100", "--batch", "4"])
    assert "differ: 8 and 9" in capsys.readouterr().err


def test_branch_that_a_dimension_decides(tmp_path: Path) -> None:
    """A condition on a size is known once the batch is; no host waits for it."""
    text = BRANCHES.replace(", bool c", "").replace(
        "y = If",
        "s = Shape <start = 0, end = 1> (x) four = Constant <value_ints = [4]> ()"
        " c = Less(s, four) y = If",
    )
    path = _write(tmp_path, text)

    assert ["concat"] == _ops(perfc.load(path, batch=3))
    assert [] == _ops(perfc.load(path, batch=4))


def test_loop_that_carries_a_sequence(tmp_path: Path) -> None:
    """What is appended to a list in a loop is joined once, and known by its place."""
    text = f"""{HEAD}
    g (float[4,8] x) => (float[12,8] y, float[4,8] z) {{
        n = Constant <value_int = 3> ()
        last = Constant <value_int = -1> ()
        go = Constant <value = bool {{1}}> ()
        empty = SequenceEmpty()
        all, h = Loop <body = b (int64 i, bool c, seq(float) s, float[4,8] a)
                => (bool c2, seq(float) t, float[4,8] r) {{
            c2 = Identity(c)
            r = Relu(a)
            t = SequenceInsert(s, r)
        }}> (n, go, empty, x)
        y = ConcatFromSequence <axis = 0> (all)
        z = SequenceAt(all, last)
    }}
    """
    model = perfc.load(_write(tmp_path, text))

    assert ["relu", "relu", "relu", "concat"] == _ops(model)
    graph = model.program.classes[0].ops
    assert graph is not None
    assert [(12, 8), (4, 8)] == [v.type.shape for v in graph.outputs if v.type]


def test_sequence_inputs_are_refused(tmp_path: Path) -> None:
    """The file does not say how many tensors come in."""
    body = "{ y = ConcatFromSequence <axis = 0> (s) }"
    text = f"{HEAD} g (seq(float[2]) s) => (float[n] y) {body}"
    with pytest.raises(perfc.PerfcError, match="input 's' is a sequence, and the file"):
        perfc.load(_write(tmp_path, text))
