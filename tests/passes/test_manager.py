"""The pass manager: the contract of passes, checked before and after they run."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from perfc.costmodels import load_target
from perfc.ir import (
    AnnotationKey,
    AnyKey,
    Graph,
    LaunchGraph,
    Node,
    Program,
    Value,
    single,
)
from perfc.ir.annotations import Annotations, Scenario
from perfc.ir.program import RankClass
from perfc.ir.support import Level, PassContractError, PipelineError
from perfc.ir.text import parse_graph
from perfc.passes import Pass, PassContext, PassManager, Transform

TEXT = """
graph @g(%x: f32[4]) {
  %h = relu(%x) : f32[4]
  %y = exp(%h) : f32[4]
  return %y
}
"""
SIZE: AnnotationKey[int] = AnnotationKey("test.size", Program)
COST: AnnotationKey[float] = AnnotationKey("test.cost", Node)
SHAPED: AnnotationKey[bool] = AnnotationKey("test.shaped", Graph, per_scenario=False)
LIVE: AnnotationKey[int] = AnnotationKey("test.live", Value)
ISSUED: AnnotationKey[int] = AnnotationKey("test.issued", LaunchGraph)
A100 = Scenario("a100", "1", "eager")
H100 = Scenario("h100", "2", "eager")

Action = Callable[[Program, PassContext], None]


def _nothing(program: Program, ctx: PassContext) -> None:
    """Do nothing."""


def _pass(
    title: str,
    action: Action = _nothing,
    *,
    requires: frozenset[AnyKey] = frozenset(),
    provides: frozenset[AnyKey] = frozenset(),
) -> Pass:
    """Make an analysis of that name and contract."""
    declared = {"name": title, "requires": requires, "provides": provides}

    def run(self: Pass, program: Program, ctx: PassContext) -> None:
        action(program, ctx)

    made: Pass = type("Made", (Pass,), {**declared, "run": run})()
    return made


def _transform(
    action: Action = _nothing,
    *,
    preserves: frozenset[AnyKey] = frozenset(),
    provides: frozenset[AnyKey] = frozenset(),
) -> Pass:
    """Make a transform of that contract."""
    declared = {"name": "change", "preserves": preserves, "provides": provides}

    def run(self: Pass, program: Program, ctx: PassContext) -> None:
        action(program, ctx)

    made: Pass = type("Changed", (Transform,), {**declared, "run": run})()
    return made


def _read(program: Program, ctx: PassContext) -> None:
    ctx.get(SIZE, program)


def _read_target(program: Program, ctx: PassContext) -> None:
    assert ctx.target is not None


def _set(key: AnnotationKey[int], fact: int) -> Action:
    return lambda program, ctx: ctx.set(key, program, fact)


@pytest.fixture
def program() -> Program:
    """A program of two nodes."""
    return single(parse_graph(TEXT))


def test_order_is_checked_before_anything_runs() -> None:
    """A fact that nobody provides earlier is refused when the manager is made."""
    late = _pass("late", requires=frozenset({SIZE, COST}))
    early = _pass("early", provides=frozenset({SIZE}))

    with pytest.raises(
        PipelineError,
        match=r"pass 'late' requires test\.cost, which no earlier pass provides",
    ):
        PassManager([early, late])
    with pytest.raises(PipelineError, match=r"requires test\.cost, test\.size, which"):
        PassManager([late, early])


def test_given_facts_count() -> None:
    """What an earlier pipeline left need not be provided again."""
    late = _pass("late", requires=frozenset({SIZE}))

    assert (late,) == PassManager([late], given=frozenset({SIZE})).passes


def test_a_transform_loses_facts_in_the_order_check() -> None:
    """A fact that a transform does not preserve is missing after it."""
    early = _pass("early", provides=frozenset({SIZE}))
    late = _pass("late", requires=frozenset({SIZE}))
    keeps = _transform(preserves=frozenset({SIZE}))

    with pytest.raises(PipelineError, match=r"'late' requires test\.size"):
        PassManager([early, _transform(), late])
    assert 3 == len(PassManager([early, keeps, late]).passes)


def test_passes_run_in_the_order_written(program: Program) -> None:
    """Nothing is inserted, left out or moved."""
    ran: list[str] = []
    names = ["c", "a", "b", "a"]
    passes = [_pass(n, lambda p, ctx: ran.append(ctx.owner.name)) for n in names]

    PassManager(passes).run(program)

    assert names == ran


def test_undeclared_read(program: Program) -> None:
    """Reading a fact that is not declared is refused, even where it is known."""
    early = _pass("early", _set(SIZE, 2), provides=frozenset({SIZE}))
    nosy = _pass("nosy", _read)

    with pytest.raises(
        PassContractError, match=r"pass 'nosy' reads test\.size without requiring it"
    ):
        PassManager([early, nosy]).run(program)


def test_undeclared_write(program: Program) -> None:
    """Writing a fact that is not declared is refused."""
    with pytest.raises(
        PassContractError, match=r"'loud' writes test\.size without providing it"
    ):
        PassManager([_pass("loud", _set(SIZE, 2))]).run(program)


def test_a_pass_reads_what_it_provides(program: Program) -> None:
    """Its own facts may be read back."""
    read: list[int] = []

    def act(program: Program, ctx: PassContext) -> None:
        ctx.set(SIZE, program, 7)
        read.append(ctx.get(SIZE, program))

    PassManager([_pass("own", act, provides=frozenset({SIZE}))]).run(program)

    assert [7] == read


@pytest.mark.parametrize(
    ("key", "missing"),
    [
        (SIZE, "program g"),
        (SHAPED, "@g"),
        (COST, "%h = relu"),
        (LIVE, "%x"),
    ],
)
def test_completeness(program: Program, key: AnyKey, missing: str) -> None:
    """Every anchor that there is gets every provided fact."""
    lazy = _pass("lazy", provides=frozenset({key}))

    with pytest.raises(
        PassContractError, match=rf"pass 'lazy' provides {key} but left out {missing}$"
    ):
        PassManager([lazy]).run(program)


def test_completeness_of_launch_graphs() -> None:
    """A given launch graph is an anchor too."""
    program = single(LaunchGraph("t"))
    lazy = _pass("lazy", provides=frozenset({ISSUED}))

    with pytest.raises(PassContractError, match=r"but left out @t$"):
        PassManager([lazy]).run(program)


def test_completeness_names_the_one_left_out(program: Program) -> None:
    """The node without a fact is named as the dump shows it."""

    def act(program: Program, ctx: PassContext) -> None:
        graph = program.classes[0].ops
        assert graph is not None
        ctx.set(COST, next(iter(graph)), 1.0)

    partial = _pass("partial", act, provides=frozenset({COST}))

    with pytest.raises(PassContractError, match="left out %y = exp"):
        PassManager([partial]).run(program)


def test_a_transform_drops_what_it_does_not_preserve(program: Program) -> None:
    """Facts neither preserved nor provided are gone; the others stay."""
    facts = Annotations()
    early = _pass("early", _set(SIZE, 2), provides=frozenset({SIZE}))

    def shape(program: Program, ctx: PassContext) -> None:
        for rank in program.classes:
            assert rank.ops is not None
            ctx.set(SHAPED, rank.ops, True)

    shaped = _pass("shaped", shape, provides=frozenset({SHAPED}))
    change = _transform(preserves=frozenset({SHAPED}))

    PassManager([early, shaped, change]).run(program, annotations=facts)

    assert [SHAPED] == list(facts.keys(None))


def test_a_transform_keeps_what_it_provides(program: Program) -> None:
    """The facts that it sets are about the changed graph."""
    facts = Annotations()
    change = _transform(_set(SIZE, 3), provides=frozenset({SIZE}))

    PassManager([change]).run(program, annotations=facts)

    assert 3 == facts.get(SIZE, program, None)


def test_a_transform_drops_facts_of_every_target(program: Program) -> None:
    """The graph changed for all of them, whoever asked for it."""
    facts = Annotations()
    facts.set(SIZE, program, 1, A100)
    change = _transform(_set(SIZE, 3), provides=frozenset({SIZE}))

    PassManager([change]).run(program, scenario=H100, annotations=facts)

    assert {} == dict(facts.table(SIZE, A100))
    assert {program: 3} == dict(facts.table(SIZE, H100))


def test_several_targets_side_by_side(program: Program) -> None:
    """One table carries what several runs found; each sees its own."""
    facts = Annotations()
    seen: list[int] = []

    def read(program: Program, ctx: PassContext) -> None:
        seen.append(ctx.get(SIZE, program))

    for scenario, size in ((A100, 1), (H100, 2)):
        early = _pass("early", _set(SIZE, size), provides=frozenset({SIZE}))
        late = _pass("late", read, requires=frozenset({SIZE}))
        PassManager([early, late]).run(program, None, scenario, facts)

    assert [1, 2] == seen
    assert (1, 2) == (facts.get(SIZE, program, A100), facts.get(SIZE, program, H100))


def test_facts_of_another_target_are_no_facts_of_this_one(program: Program) -> None:
    """Completeness is judged for the scenario at hand."""
    facts = Annotations()
    facts.set(SIZE, program, 1, A100)
    lazy = _pass("lazy", provides=frozenset({SIZE}))

    with pytest.raises(PassContractError, match="left out program g"):
        PassManager([lazy]).run(program, None, H100, facts)


def test_several_rank_classes() -> None:
    """Graphs of every rank class are anchors."""
    first, second = parse_graph(TEXT), parse_graph(TEXT.replace("@g", "@h"))
    program = Program("p", (RankClass((0,), first), RankClass((1, 2), second)))

    def act(program: Program, ctx: PassContext) -> None:
        ctx.set(SHAPED, first, True)

    with pytest.raises(PassContractError, match="left out @h"):
        PassManager([_pass("one", act, provides=frozenset({SHAPED}))]).run(program)


def test_remarks_are_collected(program: Program) -> None:
    """What passes say follows what the frontend said, in order."""
    manager = PassManager(
        [
            _pass("one", lambda program, ctx: ctx.note("a", "first", "here")),
            _pass("two", lambda program, ctx: ctx.warn("b", "second")),
        ]
    )

    found = manager.run(program).diagnostics

    assert [
        (Level.NOTE, "a", "first", "here"),
        (Level.WARNING, "b", "second", ""),
    ] == [attrs.astuple(remark) for remark in found]


def test_a_target_where_none_is(program: Program) -> None:
    """A pass that needs a target says how to give one."""
    needy = _pass("needy", _read_target)

    with pytest.raises(PassContractError, match="'needy' needs a target; give one"):
        PassManager([needy]).run(program)


def test_a_target(program: Program) -> None:
    """Passes see the target of the run."""
    target, seen = load_target("v100"), list[str]()
    needy = _pass("needy", lambda program, ctx: seen.append(ctx.target.name))

    PassManager([needy]).run(program, target)

    assert ["v100-sxm2-16g"] == seen


@pytest.mark.parametrize(
    ("field", "keys"),
    [("requires", SIZE), ("provides", {"size"}), ("preserves", [SIZE])],
)
def test_declarations_are_sets_of_keys(field: str, keys: object) -> None:
    """A class that declares its facts wrongly cannot be made."""
    with pytest.raises(PassContractError, match=f"Wrong.{field} is .*expected a froz"):
        type("Wrong", (Transform,), {"name": "wrong", field: keys})
