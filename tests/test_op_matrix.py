"""Every op is documented and tested, every kernel launched, or measured, and priced."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.costmodels.signatures import declared
from tests.passes.lowered import lower, one_op
from tests.tools.command import Command

from perfc.costmodels import COLLECTIVES, cost_models, load_target, price
from perfc.frontends import WORKLOADS
from perfc.ir import AttrValue, Kernel, PerfcError, Record, TensorType, Work
from perfc.ir.kernels import BUILTIN_KERNELS
from perfc.ir.opdef import Abstract, OpDef, Trait
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.ops.rules import no_work
from perfc.ir.support import UnboundSymbolError
from perfc.ir.text import parse_program
from perfc.ir.types import F32, I64
from perfc.measurements import KERNEL_OPS

GOLDEN = Path(__file__).parent / "golden"
WITHOUT_GOLDEN: dict[str, str] = {}
"""Ops that need no golden file, and why."""

_TEXTS = [path.read_text() for path in sorted(GOLDEN.rglob("*.perfc"))]
_TEXT = "\n".join(_TEXTS)
_OPS = {op.name: op for op in BUILTIN_OPS}


@pytest.mark.parametrize("name", sorted(_OPS))
def test_golden_file(name: str) -> None:
    """A golden file shows the op, or the list of exceptions says why not."""
    shown = re.search(rf"(?:^|[ =]){re.escape(name)}\(", _TEXT) is not None

    assert shown != (name in WITHOUT_GOLDEN)


@pytest.mark.parametrize("op", _OPS.values(), ids=list(_OPS))
def test_summary(op: OpDef) -> None:
    """An op says in one line what it is."""
    assert op.summary == op.summary.strip()
    assert 0 < len(op.summary) < 80


def test_exceptions_are_ops() -> None:
    """The list of exceptions names ops that exist."""
    assert set() == set(WITHOUT_GOLDEN) - set(_OPS)


_X = TensorType(F32, (4, 6))
_SAID: Mapping[str, AttrValue] = {
    "axis": 1,
    "dtype": F32,
    "group": "g",
    "ranks": 2,
    "size": 5,
    "groups": 2,
    "call": "aten::view",
}
"""Attributes with which every op of these tests can infer its results."""


def _results(op: OpDef, operands: Sequence[TensorType]) -> Sequence[Abstract | None]:
    said = {key: value for key, value in _SAID.items() if key in op.attributes}
    return op.infer(Record(said), [Abstract(type_) for type_ in operands])


def _work(op: OpDef, operands: Sequence[TensorType], result: TensorType) -> Work:
    return op.work(Record(), operands, [result])


def _with(trait: Trait) -> list[OpDef]:
    return [op for op in BUILTIN_OPS if trait in op.traits]


@pytest.mark.parametrize("trait", Trait)
def test_traits_have_ops(trait: Trait) -> None:
    """A trait that no op has is none."""
    assert _with(trait) != []


@pytest.mark.parametrize("op", _OPS.values(), ids=list(_OPS))
def test_traits_agree(op: OpDef) -> None:
    """No op has a trait that its other columns, or its other traits, contradict."""
    found = {trait: trait in op.traits for trait in Trait}
    is_pair = op.arity == (2, 2)
    is_view, mutates = op.view is not None, bool(op.mutates)
    in_place = mutates or "in_place" in op.attributes
    contradictions = {
        "a view that writes": is_view and in_place,
        "a view that works": is_view and op.work is not no_work,
        "free, but it works": found[Trait.FREE] and op.work is not no_work,
        "free, but a view or written": found[Trait.FREE] and (is_view or in_place),
        "host, but it works": found[Trait.HOST] and op.work is not no_work,
        "in order, but no view": found[Trait.KEEPS_ORDER] and op.view != 0,
        "looked up, but a view": found[Trait.LOOKUP] and is_view,
        "of another shape": found[Trait.CONVERTS] and not found[Trait.KEEPS_SHAPE],
        "commutative, but no pair": found[Trait.COMMUTATIVE] and not is_pair,
        "random, but free": found[Trait.RANDOM] and found[Trait.FREE],
        "collective or not": found[Trait.COLLECTIVE]
        != ("group" in op.attributes and not is_view),
        "no tables": found[Trait.EMBEDDING_BAG] and "tables" not in op.attributes,
        "added up by nobody": found[Trait.SUMMED_GRADIENT]
        and "group" not in op.attributes,
        "statistics nobody reads": found[Trait.STATISTICS]
        and f"{op.name}_backward" not in _OPS,
    }

    assert [] == [name for name, holds in contradictions.items() if holds]


@pytest.mark.parametrize("op", _with(Trait.KEEPS_SHAPE), ids=lambda op: op.name)
def test_shape_is_kept(op: OpDef) -> None:
    """An op that keeps the shape infers that of operand 0."""
    (first, *_) = _results(op, [_X] * op.arity[0])

    assert first is not None
    assert _X.shape == first.type.shape


@pytest.mark.parametrize("op", _with(Trait.ELEMENTWISE), ids=lambda op: op.name)
def test_elementwise(op: OpDef) -> None:
    """A result of an elementwise op is as large as its largest operand."""
    shapes = [(4, 6), (1, 6), (4, 1)][: op.arity[0]]
    operands = [_X if "backward" in op.name else TensorType(F32, s) for s in shapes]
    (first,) = _results(op, operands)

    assert first is not None
    assert (4, 6) == first.type.shape


def _folded(op: OpDef, *numbers: int) -> tuple[object, ...] | None:
    one = TensorType(I64, (1,))
    (found,) = op.infer(Record(), [Abstract(one, (number,)) for number in numbers])
    return None if found is None else found.elements


_PAIRS = [op for op in _with(Trait.ELEMENTWISE) if op.arity == (2, 2)]
_FOLDING = [op for op in _PAIRS if "_backward" not in op.name and _folded(op, 6, 3)]


@pytest.mark.parametrize("op", _FOLDING, ids=lambda op: op.name)
def test_commutative(op: OpDef) -> None:
    """An op commutes if and only if it folds numbers alike in either order."""
    numbers = [(6, 3), (3, 6), (0, 1), (2, 2)]
    is_symmetric = all(_folded(op, a, b) == _folded(op, b, a) for a, b in numbers)

    assert (Trait.COMMUTATIVE in op.traits) == is_symmetric


def test_folding_pairs() -> None:
    """The test before this one is of several ops that commute, and that do not."""
    commute = {op.name for op in _FOLDING if Trait.COMMUTATIVE in op.traits}

    assert {"add", "mul", "maximum", "equal", "not_equal", "and"} <= commute
    assert {"sub", "div", "pow", "less"} <= {op.name for op in _FOLDING} - commute


@pytest.mark.parametrize("op", _with(Trait.LOOKUP), ids=lambda op: op.name)
def test_lookups_read_little(op: OpDef) -> None:
    """A lookup reads what the indices name, not all of operand 0."""
    table, rows = TensorType(F32, (1000, 8)), TensorType(F32, (2, 8))
    work = _work(op, [table, TensorType(I64, (2,))], rows)

    assert rows.nbytes + 2 * 8 == work.bytes_read


MODELS: Mapping[str, tuple[str, ...]] = {
    "attention": ("attention",),
    "batch-norm": ("batch_norm",),
    "collective": tuple(COLLECTIVES),
    "conv": ("conv2d", "conv3d"),
    "embedding-bag": ("embedding_bag",),
    "embedding-tiers": (
        *("row_cache_fill", "tier_read", "tier_write", "tier_fill", "host_lookup"),
        *("server_lookup", "server_request", "server_transfer", "pooled_copy"),
    ),
    "embedding-update": ("embedding_backward", "index_add", "linearize_indices"),
    "gemm": ("gemm",),
    "memcpy": ("memcpy",),
    "multi-tensor": ("foreach", "optimizer_step"),
    "streaming": (
        *("concat", "elementwise", "gather", "layer_norm", "pool", "radix_sort"),
        *("quantize", "reduction", "run_length", "scan", "softmax", "transpose"),
        *("triton_per", "triton_poi", "triton_red"),
    ),
    "walk": ("ctc_walk", "topk"),
}
"""The model that prices each kernel on a GPU."""

WITHOUT_MODEL = frozenset(
    {"affine_grid", "causal_conv", "col2im", "ctc_collect", "deformable_im2col"}
    | {"distances", "fft", "grid_sample", "histogram", "interpolate"}
    | {"linear_attention", "lu", "nll_loss", "nms", "pad", "resize", "roi_pool"}
    | {"sample", "select", "sort", "test.op"}
)
"""Kernels that the roofline prices on a GPU: by their bytes, with a wide interval."""

_SIZES = ("rows", "cols", "m", "n", "k", "steps")
_GIVEN: Mapping[str, AttrValue] = {
    **dict.fromkeys(_SIZES, 64),
    "kind": "training",
    "ranks": 2,
}
"""Parameters by which models tell what they price; a copy's kind is its own."""


_ELSEWHERE = frozenset(MODELS["embedding-tiers"][1:])
"""Kernels of what others do for a device, which a CPU lets them do, too."""

_FAR: AttrValue = (
    Record({"rows": 9, "dim": 8, "pooling": 2, "tier": "dram"}).updated(
        cache=0.5, servers=2, server="1s-server"
    ),
)


def _price(name: str, target: str) -> str:
    """Return the model that prices a kernel."""
    given = {**_GIVEN, **({"kind": "h2d"} if name == "memcpy" else {})}
    if name in _ELSEWHERE:
        given |= {"tables": _FAR, "kind": "h2d", "server": "1s-server"}
        target = {"h100": "zion", "cpu": "2s-skylake"}[target]
    math = "" if name in COLLECTIVES else "fp32"
    work = Work(0, 1 << 20, 1 << 20)
    kernel = Kernel(name, "fp32", math, declared(name, given), work)
    (model,) = price([kernel], load_target(target), cost_models()).model
    return model


@pytest.mark.parametrize("name", BUILTIN_KERNELS)
def test_a_model_prices_every_kernel(name: str) -> None:
    """On a GPU its own, or the matrix says that there is none; the CPU's on a CPU."""
    (expected,) = [model for model, priced in MODELS.items() if name in priced] or [
        "roofline"
    ]

    assert (expected == "roofline") == (name in WITHOUT_MODEL)
    assert expected == _price(name, "h100")
    assert ("embedding-tiers" if name in _ELSEWHERE else "cpu") == _price(name, "cpu")


def test_the_matrix_names_kernels_that_are_declared() -> None:
    """No model, and no exception, is of a kernel that there is not."""
    named = [*WITHOUT_MODEL, *(name for priced in MODELS.values() for name in priced)]

    assert sorted(BUILTIN_KERNELS) == sorted(named)


_OTHER_TEXTS = (
    one_op("%x: f32[1,4,8,8,8], param %w: f32[4,4,3,3,3]", "conv(%x, %w)"),
    """graph @g(%i: i64[64,2], param %w: f32[1000,8]) {
      %y = embedding_bag(%w, %i) {mode = "sum", tables = [{rows = 1000, dim = 8,
        tier = "uvm-caching", cache = 0.5}]} : ?
      return %y }""",
)
"""Graphs with kernels that no golden file launches."""


_ERROR = re.compile(r"^// ----\n\w*Error: ", re.MULTILINE)
"""What the golden file of a refused graph shows."""


def _launched() -> Iterator[str]:
    """Yield the kernels that golden files show, and that their graphs launch."""
    yield from re.findall(r'signature "([^"]+)"', _TEXT)
    for text in (*_TEXTS, *_OTHER_TEXTS):
        if _ERROR.search(text):
            continue
        graph = re.sub(r"^//.*$", "", text.partition("// ----")[0], flags=re.MULTILINE)
        with contextlib.suppress(PerfcError, ValueError):  # those of errors
            yield from (kernel.op for kernel in _lowered(graph))


def _lowered(text: str) -> list[Kernel]:
    program = parse_program(text)
    try:
        return lower(program, target="h100").kernels
    except UnboundSymbolError as error:
        symbols = re.findall(r"--dim ([^=\s]+)=N", str(error))
        return lower(program.bind(dict.fromkeys(symbols, 16)), target="h100").kernels


def test_every_kernel_is_launched_or_measured() -> None:
    """A declaration that nobody writes any more is none."""
    compiled = {"triton_poi", "triton_per", "triton_red"}  # by the next test
    written = {*_launched(), *KERNEL_OPS, *compiled}

    assert [] == [name for name in BUILTIN_KERNELS if name not in written]


_SMALL = {"layers": "1", "max_rows": "100000"}
_BACKWARD = "training,"


def _small(name: str) -> str:
    """Return a workload with few layers, or small tables, where it has such."""
    usage = WORKLOADS[name].usage
    given = ",".join(f"{k}={v}" for k, v in _SMALL.items() if f"{k}=" in usage)
    return f"{name}:{given}" if given else name


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_launch_declared_kernels(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Forward and training, eager and compiled: none is refused, or of no model."""
    command, small = Command(capsys), _small(name)
    found: set[str] = set()
    for backward, fused in (("", ""), (_BACKWARD, ""), (_BACKWARD, ",fuse-kernels")):
        passes = f"shape-inference,fold-shapes,{backward}lower-kernels{fused}"
        arguments = ("-p", passes, "--target", "a100", "--dim", "batch=8", small)
        outcome = command("opt", *arguments)
        assert (0, "") == (outcome.code, outcome.err)
        assert "known = false" not in outcome.out
        found |= set(re.findall(r'signature "([^"]+)"', outcome.out))

    assert "triton_poi" in found <= set(BUILTIN_KERNELS)
    assert found & {"gemm", "conv2d"}
