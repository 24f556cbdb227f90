"""`perfc.Oracle`: what it answers is what `perfc.analyze` of the edited model says."""

from __future__ import annotations

import copy
import functools
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tools.oracle.plain import Plain, timed_tasks

import perfc
from perfc import Oracle, PerfcError, edits

CLOSE = 1e-9

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dlrm": ("dlrm-default:tables=3,rows=1000", "a100", {"batch": 64}),
    "training": (
        "dlrm-ddp:tables=2,rows=1000",
        "v100",
        {"batch": 64, "mode": "training", "optimizer": "adam"},
    ),
    "capped": ("gpt2:layers=2", "h100-sxm", {"batch": 2, "mode": "training"}),
    "cpu": ("dlrm-default:tables=2,rows=1000", "cpu", {"batch": 32}),
}


@functools.cache
def oracle_of(name: str) -> Oracle:
    """Return an oracle that tests ask, and leave as it is."""
    model, target, options = MODELS[name]
    return Oracle(perfc.load(model, **options), target)


@functools.cache
def nodes_of(name: str) -> list[str]:
    """Return the nodes that take time."""
    return sorted({node for _, node in timed_tasks(oracle_of(name).report())})


def plain(name: str) -> Plain:
    """Return the model that is analyzed anew."""
    model, target, options = MODELS[name]
    return Plain(model, target, **options)


def _set(where: str, us: float) -> edits.Duration:
    return edits.Duration(where, us=us)


def _times(where: str, factor: float) -> edits.Duration:
    return edits.Duration(where, factor=factor)


def _bound(batch: int) -> edits.Bind:
    return edits.Bind(batch=batch)


def _field(name: str, value: float) -> edits.Target:
    return edits.Target(**{name: value})


@st.composite
def some_edits(draw: st.DrawFn, name: str) -> list[Any]:
    """Draw edits of a model, in any order."""
    report = oracle_of(name).report()
    kernels = sorted(
        {kernel.op for graph in report.results.graphs for kernel in graph.kernels}
    )
    modules = sorted({node["module"] for node in report.nodes} - {""}) or nodes_of(name)
    where = st.sampled_from([*nodes_of(name), *kernels, *modules[:3]])
    amounts = st.sampled_from([0.0, 0.5, 1.25, 3.0, 50.0])
    fields: dict[str, st.SearchStrategy[float]] = {
        "gpu.memory_gb_per_s": st.sampled_from([900, 1500.5]),
        "gpu.sm_clock_mhz": st.sampled_from([1000, 1300]),
        "host.speed": st.sampled_from([0.5, 2]),
    }
    edit = st.one_of(
        st.builds(_set, where, amounts),
        st.builds(_times, where, amounts),
        st.builds(_bound, st.sampled_from([8, 48, 96])),
        *(
            st.builds(functools.partial(_field, field), values)
            for field, values in fields.items()
        ),
    )
    return draw(st.lists(edit, min_size=1, max_size=5))


@pytest.mark.parametrize("name", MODELS)
def test_as_it_stands(name: str) -> None:
    """An oracle that nobody edited says what `perfc.analyze` says, to the last bit."""
    oracle, report = oracle_of(name), plain(name).report()

    assert report.time_us == oracle.time_us
    assert report.to_json() == oracle.report().to_json()


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_answers_are_those_of_an_analysis(name: str, data: st.DataObject) -> None:
    """Random edits, asked at once, or applied one by one, say the same."""
    asked = data.draw(some_edits(name))
    oracle, model = oracle_of(name), plain(name)
    before = oracle.time_us
    try:
        expected = model.ask(asked)
    except PerfcError as error:
        with pytest.raises(type(error)):
            oracle.ask(*asked)
        return

    assert expected == pytest.approx(oracle.ask(*asked), rel=CLOSE)
    times = [before]
    for edit in asked:
        oracle.apply(edit)
        times.append(oracle.time_us)
    assert expected == pytest.approx(times[-1], rel=CLOSE)
    assert expected == pytest.approx(oracle.report().time_us, rel=CLOSE)
    for time_us in reversed(times[:-1]):
        oracle.undo()
        assert time_us == oracle.time_us


@pytest.mark.parametrize("name", MODELS)
def test_every_node(name: str) -> None:
    """One duration, of each node in turn, is that of a schedule solved anew."""
    oracle, model = oracle_of(name), plain(name)
    report = model.report()
    model.report = lambda: report  # type: ignore[method-assign] # the same each time
    for number, node in enumerate(nodes_of(name)):
        edit = edits.Duration(node, us=[0.0, 3.0, 500.0][number % 3])

        assert model.ask([edit]) == pytest.approx(oracle.ask(edit), rel=CLOSE)


def test_what_launches_nothing_stays_as_it_is() -> None:
    """Every id of a report has a duration to set; that of a view changes nothing."""
    oracle = oracle_of("training")
    asked = {n["id"]: edits.Duration(n["id"], factor=2) for n in oracle.report().nodes}
    idle = [node for node in asked if node not in nodes_of("training")]
    as_it_stands = pytest.approx(oracle.time_us, rel=CLOSE)
    columns = {f"us:{idle[0]}": [0.0, 7.0], f"factor:{idle[1]}": [1.0, 2.0]}

    assert all(oracle.ask(edit) >= oracle.time_us for edit in asked.values())
    assert all(as_it_stands == oracle.ask(asked[node]) for node in idle)
    assert as_it_stands == oracle.ask(edits.Duration(idle[0], us=7), asked[idle[1]])
    assert all(as_it_stands == us for us in oracle.batch(columns)["time_us"])
    assert oracle.explain(asked[idle[0]]) == "as it stands"
    both = oracle.rank([asked[idle[0]], asked[nodes_of("training")[0]]])
    assert both[0].edits == (asked[idle[0]],)
    with pytest.raises(PerfcError, match="launches nothing that could be replaced"):
        oracle.ask(edits.Replace(idle[0], us=7))


def test_dtype_of_the_whole_model() -> None:
    """As the model that is loaded in that type, of a training step, too."""
    for name, dtype in (
        ("dlrm", "bf16"),
        ("training", "fp16"),
        ("training", "amp-fp16"),
    ):
        edit = edits.Dtype("*", dtype)
        expected = plain(name).ask([edit])

        assert expected == pytest.approx(oracle_of(name).ask(edit), rel=CLOSE)
    with pytest.raises(PerfcError, match="no bf16 tensor cores"):
        oracle_of("training").ask(edits.Dtype("*", "bf16"))


def test_tf32_is_that_of_an_analysis() -> None:
    """What a process switches on is no type of the model, and is asked for alike."""
    oracle = perfc.Oracle("dlrm-mlperf", target="a100", batch=4096)
    asked = oracle.ask(edits.Dtype("*", "tf32"))
    report = perfc.analyze("dlrm-mlperf", target="a100", batch=4096, dtype="tf32")

    assert asked < oracle.time_us
    assert asked == pytest.approx(report.time_us, rel=CLOSE)
    both = oracle.batch({"dtype": ["fp32", "tf32"]})["time_us"]
    assert both.tolist() == pytest.approx([oracle.time_us, asked], rel=CLOSE)


@pytest.mark.parametrize(
    ("edit", "options"),
    [
        (edits.Apply("pin-copies"), {"passes": ["pin-copies"]}),
        (edits.Apply("remove-syncs"), {"passes": ["remove-syncs"]}),
        (edits.Apply("capture-graph"), {"runtime": "cudagraph"}),
        (edits.Apply("batch-embeddings"), {"passes": ["batch-embeddings"]}),
        (
            edits.Place("emb_l.0", "uvm"),
            {"passes": ["place-embeddings{tier=uvm,table=emb_l.0}"]},
        ),
        (
            edits.Place("*", "uvm-caching", 0.25),
            {"passes": ["place-embeddings{tier=uvm-caching,cache=0.25}"]},
        ),
    ],
)
@pytest.mark.parametrize("name", ["dlrm", "training"])
def test_a_pass_more(name: str, edit: Any, options: dict[str, Any]) -> None:
    """As the analysis with that pass."""
    model, target, others = MODELS[name]
    every: dict[str, Any] = {**others, **options}
    try:
        report = perfc.analyze(model, target, **every)
    except PerfcError as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            oracle_of(name).ask(edit)
        return

    assert report.time_us == pytest.approx(oracle_of(name).ask(edit), rel=CLOSE)


def test_several_ranks_share_links() -> None:
    """Where kernels slow each other down, the schedule is solved anew."""
    options: dict[str, Any] = {"batch": 64, "mode": "training", "ranks": 2}
    name = "dlrm-ddp:tables=2,rows=1000"
    oracle = Oracle(name, "dgx-a100", **options)
    longer = edits.Duration("gemm", factor=500)
    bound = edits.Bind(batch=128)

    assert perfc.analyze(name, "dgx-a100", **options).time_us == oracle.time_us
    larger: dict[str, Any] = {**options, "batch": 128}
    report = perfc.analyze(name, "dgx-a100", **larger)
    assert report.time_us == pytest.approx(oracle.ask(bound), rel=CLOSE)
    assert oracle.ask(longer) > oracle.time_us
    assert oracle.ask(longer, edits.Duration("gemm", factor=1 / 500)) == pytest.approx(
        oracle.time_us, rel=CLOSE
    )


def test_a_duration_stays_set() -> None:
    """What was set is not priced again; what was not set is."""
    oracle = oracle_of("dlrm")
    node = nodes_of("dlrm")[0]
    fixed = edits.Duration(node, us=1e5)

    assert oracle.ask(fixed, edits.Bind(batch=96)) == pytest.approx(
        oracle.ask(edits.Bind(batch=96), fixed), rel=CLOSE
    )


def test_an_error_changes_nothing() -> None:
    """An edit that cannot be raises before anything is kept, whatever came before."""
    oracle = oracle_of("dlrm")
    before = oracle.time_us
    wrong = edits.Duration("no_such_layer", us=1)
    for asked in ([wrong], [edits.Bind(batch=7), wrong], [edits.Target("no-such")]):
        with pytest.raises(PerfcError):
            oracle.apply(*asked)
        with pytest.raises(PerfcError):
            oracle.ask(*asked)

        assert before == oracle.time_us
    with pytest.raises(PerfcError, match="nothing is applied"):
        oracle.undo()


def test_a_pickled_oracle_answers_alike() -> None:
    """It keeps its edits, and can take them back."""
    oracle = Oracle("dlrm-default:tables=2,rows=1000", "a100", batch=64)
    before = oracle.time_us
    oracle.apply(edits.Bind(batch=32), edits.Duration("gemm", factor=2))
    oracle.apply(edits.Target("v100"))
    again: Oracle = pickle.loads(pickle.dumps(oracle))  # noqa: S301 - our own

    assert oracle.time_us == again.time_us
    assert oracle.ask(edits.Bind(batch=9)) == again.ask(edits.Bind(batch=9))
    for one in (oracle, again, copy.deepcopy(again)):
        one.undo()
        one.undo()
        assert before == one.time_us


def test_edit_is_the_type_of_all_edits() -> None:
    """`perfc.edits.Edit` is a union of what else the module offers."""
    kinds = {kind.__name__ for kind in get_args(edits.Edit)}

    assert {*edits.__all__} - {"Edit"} == kinds


def test_threads_ask_at_once() -> None:
    """Eight threads that ask an oracle that has worked nothing out agree with one."""
    name, target, options = MODELS["training"]
    asked: list[list[Any]] = [
        [edits.Duration(node, us=5)] for node in nodes_of("training")
    ]
    asked += [[edits.Bind(batch=8 + n), edits.Duration("gemm", us=n)] for n in range(8)]
    asked += [[edits.Target("t4")], [edits.Target(**{"gpu.memory_gb_per_s": 500})]]
    alone = [oracle_of("training").ask(*one) for one in asked]
    fresh = Oracle(name, target, **options)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(fresh.ask, *one) for one in asked * 3]
        found = [future.result() for future in futures]

    assert found == pytest.approx(alone * 3, rel=CLOSE)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: edits.Duration("x"), "expected us=… or factor=…"),
        (lambda: edits.Duration("x", us=1, factor=2), "one of the two"),
        (lambda: edits.Duration("x", us=-1), "expected a finite number"),
        (lambda: edits.Duration("x", us=float("nan")), "us=nan of a duration"),
        (lambda: edits.Duration("", us=1), "expected the id of a node"),
        (edits.Bind, "binds nothing"),
        (lambda: edits.Bind(batch=1.5), "expected a whole number"),
        (lambda: edits.Bind(dims={"s": 0}), "expected at least 1"),
        (lambda: edits.Dtype("*", "fp12"), "is none of"),
        (edits.Target, "changes nothing"),
        (lambda: edits.Target(**{"gpu.sm_count": None}), "expected a number"),
        (lambda: edits.Fuse([]), "expected ids of nodes"),
        (lambda: edits.Apply(""), "expected a text"),
    ],
)
def test_an_edit_that_cannot_be(make: Any, said: str) -> None:
    """One line says what was found, and what is expected."""
    with pytest.raises(PerfcError, match=said) as caught:
        make()

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (edits.Duration("gem", us=1), "did you mean gemm"),
        (edits.Duration("no.such.*", us=1), "no node, module or kernel has this name"),
        (edits.Bind(dims={"sequence": 4}), "sequence"),
        (edits.Target(**{"gpu.memory": 4}), "no such field of a target"),
        (edits.Target(**{"gpu.memory_gb_per_s": -4}), "expected"),
        (edits.Place("no_table", "uvm"), "looks up no table"),
        (edits.Place("*", "moon"), "expected"),
        (edits.Apply("no-such-pass"), "no-such-pass"),
        ("batch", "is no edit"),
    ],
)
def test_an_edit_of_what_is_not_there(asked: Any, said: str) -> None:
    """One line says what is not there, and what may have been meant."""
    with pytest.raises(PerfcError, match=said) as caught:
        oracle_of("dlrm").ask(asked)

    assert "\n" not in str(caught.value)


def test_fields_of_a_target_that_is_an_object() -> None:
    """They can be set where its sheet is found by its name; else one line says why."""
    target = perfc.analyze("dlrm-default:tables=1", "v100", batch=4).target
    oracle = Oracle("dlrm-default:tables=1", target, batch=4)
    field = edits.Target(**{"gpu.memory_gb_per_s": 500})
    fields = {"gpu.memory_gb_per_s": 500}
    report = perfc.analyze("dlrm-default:tables=1", "v100", batch=4, overrides=fields)

    assert report.time_us == pytest.approx(oracle.ask(field), rel=CLOSE)
    renamed = copy.copy(target)
    object.__setattr__(renamed, "name", "mine")
    with pytest.raises(PerfcError, match="given as an object"):
        Oracle("dlrm-default:tables=1", renamed, batch=4).ask(field)
