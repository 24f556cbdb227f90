"""Popularity of tables: how it is said, and that it reaches every kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perfc
from perfc.ir import PerfcError, UsageError
from perfc.passes import Pass, ShardEmbeddings
from perfc.passes.embeddings import BatchEmbeddings, SetPopularity
from perfc.tools import load

MODEL = "dlrm-default:tables=2,rows=100000,pooling=20"
ZIPF = SetPopularity("zipf(1.1)")


def said(*transforms: Pass, mode: str = "training", model: str = MODEL) -> list[str]:
    """Return what each node that looks rows up says of its tables, node by node."""
    loaded = load(model, batch=64, mode=mode, transforms=transforms)
    found: list[str] = []
    for rank in loaded.program.classes:
        assert rank.ops is not None
        for node in rank.ops:
            if node.op == "sparse_optimizer_step":
                found.append(node.attributes.text("popularity", "-"))
            elif node.op.startswith("embedding_bag"):
                tables = node.attributes.records("tables")
                found += [table.text("popularity", "-") for table in tables]
    return found


@pytest.mark.parametrize(
    "transforms",
    [
        (),
        (BatchEmbeddings(),),
        (ShardEmbeddings(ranks=2),),
        (ShardEmbeddings(ranks=2, plan="row-wise"),),
    ],
)
def test_it_reaches_backward_and_shards(transforms: tuple[Pass, ...]) -> None:
    """Lookups, their gradients and updates know it, batched and sharded too."""
    assert {"zipf(1.1)"} == set(said(ZIPF, *transforms))
    assert {"-"} == set(said(*transforms))


def test_a_part_of_the_rows_has_a_shorter_head() -> None:
    """A rank that has every second row has half of the ranks of a flat head."""
    popular = SetPopularity("zipf-mandelbrot(1,1000)")
    found = said(popular, ShardEmbeddings(ranks=2, plan="row-wise"), mode="inference")

    assert {"zipf-mandelbrot(1,500)"} == set(found)


def test_a_table_by_name() -> None:
    """One table has its own, the other that of all."""
    own = SetPopularity("zipf(2)", "emb_l.1.weight")

    assert ["-", "zipf(2)"] == said(own, mode="inference")
    assert ["zipf(1.1)", "zipf(2)"] == said(own, ZIPF, mode="inference")


def test_a_workload_says_it() -> None:
    """A parameter of the workload is the same."""
    model = f"{MODEL},popularity=zipf-mandelbrot(0.9,50),dim=32"

    assert {"zipf-mandelbrot(0.9,50)"} == set(said(model=model))


def written(folder: Path, *names: str) -> str:
    """Write a file of popularities; return its path."""
    tables = {n: {"popularity": f"zipf({i + 1})"} for i, n in enumerate(names)}
    path = folder / "popularity.json"
    document = {"schema": "perfc.popularity/1", "tables": tables}
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_a_file_by_name_or_in_order(tmp_path: Path) -> None:
    """Tables of a file are found by name; where none agree, they come in order."""
    by_name = SetPopularity(written(tmp_path, "emb_l.1", "emb_l.0"))
    assert ["zipf(2)", "zipf(1)"] == said(by_name, mode="inference")

    in_order = SetPopularity(written(tmp_path, "t0", "t1"))
    assert ["zipf(1)", "zipf(2)"] == said(in_order, mode="inference")

    second = SetPopularity(written(tmp_path, "emb_l.1"))
    assert ["-", "zipf(1)"] == said(second, mode="inference")

    one = SetPopularity(written(tmp_path, "t0"))
    assert ["zipf(1)", "zipf(1)"] == said(one, mode="inference")


def test_a_file_of_other_tables(tmp_path: Path) -> None:
    """Three tables are not two: neither names nor numbers agree."""
    three = SetPopularity(written(tmp_path, "a", "b", "c"))

    with pytest.raises(UsageError, match="neither names nor numbers agree"):
        said(three, mode="inference")


def test_hits_and_rows(tmp_path: Path) -> None:
    """A CSV file of hits and rows is a histogram."""
    path = tmp_path / "hits.csv"
    path.write_text("rows,hits\n100,1\n5,20\n", encoding="utf-8")

    found = said(SetPopularity(str(path)), mode="inference")

    assert {"hist(1:100,20:5)"} == set(found)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("p.json", "", "cannot be read as JSON of 'perfc.popularity/1'"),
        ("p.json", "[1]", "expected schema 'perfc.popularity/1'"),
        ("p.json", '{"schema": "perfc.popularity/1"}', "tables by name"),
        ("p.json", '{"schema": "perfc.popularity/1", "tables": {}}', "no tables"),
        (
            "p.json",
            '{"schema": "perfc.popularity/1", "tables": {"t": {"popularity": "x"}}}',
            "table 't' has no popularity",
        ),
        (
            "p.json",
            '{"schema": "perfc.popularity/1", "tables": {"": {"popularity": "zipf"}}}',
            "table '' has no name",
        ),
        ("p.csv", "a,b\n1,2\n", "expected columns hits and rows, found a, b"),
        ("p.csv", "", "expected columns hits and rows, found nothing"),
        ("p.csv", "hits,rows\n1\n", "line 2: expected two numbers"),
        ("p.csv", "hits,rows\n", "a histogram of hits is empty"),
        ("p.csv", "hits,rows\n0,4\n", "hits of a row that was hit is 0"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: str, problem: str) -> None:
    """A file that says something else is refused in one line that names it."""
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")

    with pytest.raises(PerfcError, match=problem) as caught:
        SetPopularity(str(path))

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


DEEP = "distinct(" * 5000 + "uniform" + ")" * 5000


@pytest.mark.parametrize("text", ["zap", "no/such/file.json", "a\0b", "(" * 5000, DEEP])
def test_no_popularity(text: str) -> None:
    """What is neither a popularity nor a file is refused."""
    with pytest.raises(PerfcError, match="is no popularity"):
        SetPopularity(text)


def test_a_folder_is_no_popularity(tmp_path: Path) -> None:
    """A folder is no file."""
    with pytest.raises(PerfcError, match="is no popularity"):
        SetPopularity(str(tmp_path))


def test_unknown_tables_and_none() -> None:
    """A table that is not looked up is named, with one that is."""
    with pytest.raises(UsageError, match=r"looks up no table 'emb_l.7'; did you mean"):
        said(SetPopularity("zipf(1)", "emb_l.7"))
    with pytest.raises(UsageError, match="has no embedding bags"):
        said(ZIPF, model="resnet50", mode="inference")


def test_an_unknown_popularity_of_a_workload() -> None:
    """What a workload is given and cannot be read is refused when it is priced."""
    loaded = load(f"{MODEL},popularity=zap", batch=64)

    with pytest.raises(PerfcError, match="'zap' is no popularity"):
        perfc.analyze(loaded, target="a100")


def test_skew_makes_training_faster() -> None:
    """A step of popular rows is faster, eager with sparse and with fused updates."""
    for embedding in ("bag", "batched"):
        model = f"dlrm-default:embedding={embedding}"
        flat, skewed = (
            perfc.analyze(
                load(model, batch=4096, mode="training", transforms=transforms),
                target="a100",
            ).time_us
            for transforms in ((), (SetPopularity("zipf(1.2)"),))
        )
        assert skewed < 0.95 * flat
