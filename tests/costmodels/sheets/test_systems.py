"""Systems: sheets of nodes and networks, and how communicators lie on them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import (
    assumed_system,
    cost_models,
    load_target,
    price,
    target_names,
)
from perfc.costmodels.machine import TargetError
from perfc.costmodels.sheets import catalog, system_names
from perfc.ir import Kernel, PerfcError, UsageError, Work, record_of

SHEETS = Path(catalog.__file__).parents[1].joinpath("systems")
OWN = """
name = "mine"
target = "{target}"
[node]
gpus = {{ value = {gpus}, source = "here" }}
topology = {{ value = "{topology}", source = "here" }}
[network]
fabric = {{ value = "{fabric}", source = "here" }}
nics = {{ value = 2, source = "here" }}
nic_gbit_per_s = {{ value = 100, source = "here" }}
[sources]
{id} = "the label on the machine"
"""
GOOD = {
    "target": "h100",
    "gpus": 4,
    "topology": "nvswitch",
    "fabric": "roce",
    "id": "here",
}


def _written(folder: Path, **changed: object) -> str:
    path = folder / "mine.toml"
    path.write_text(OWN.format(**{**GOOD, **changed}), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", system_names())
def test_a_built_in_system_is_named_like_its_file(name: str) -> None:
    """Its sheet is sound, its name is the file's, and every field has a source."""
    target = load_target(name)

    assert name == target.name
    assert set(target.fields) == set(target.sources)


def test_system_aliases_are_those_of_the_sheets() -> None:
    """The alias table agrees with the sheets, and no name stands for two things."""
    in_sheets = {
        alias: path.stem
        for path in SHEETS.glob("*.toml")
        for alias in tomllib.loads(path.read_text(encoding="utf-8"))["aliases"]
    }

    assert in_sheets == catalog.SYSTEM_ALIASES
    taken = {*target_names(), *catalog.BUILTIN_ALIASES}
    assert not taken & {*in_sheets, *system_names()}


@pytest.mark.parametrize("name", ["dgx-a100", "gb200-nvl72", "p3.16xlarge", "zionex"])
def test_a_kernel_takes_on_a_system_what_it_takes_on_its_gpu(name: str) -> None:
    """Prices, uncertainties, models and provenance are those of the GPU's sheet."""
    system = load_target(name)
    gemm = record_of({"b": 1, "m": 4096, "n": 1024, "k": 512})
    kernels = [
        Kernel("gemm", "fp16", "fp16", gemm, Work(2**32, 2**24, 2**22)),
        Kernel(
            "elementwise",
            "fp32",
            "fp32",
            record_of({"kind": "add", "rows": 1, "cols": 1}),
            Work(1, 2**22, 8),
        ),
    ]
    one, other = (
        price(kernels, target, cost_models())
        for target in (system, load_target(system.device.name))
    )

    assert np.array_equal(one.seconds, other.seconds)
    assert np.array_equal(one.sigma_shared, other.sigma_shared)
    assert [*one.model] == [*other.model]
    assert [*one.provenance] == [*other.provenance]


def test_a_sheet_is_read_in_the_units_of_makers(tmp_path: Path) -> None:
    """Gbit/s become bytes per second; the link is that of the target's sheet."""
    system = assumed_system(load_target(_written(tmp_path)))

    assert ("mine", 4, "roce") == (system.name, system.gpus_per_node, system.fabric)
    assert (2, 12.5e9) == (system.nics_per_node, system.nic_bytes_per_s)
    assert ("NVLink 4", 450e9) == (system.link, system.link_bytes_per_s)
    assert system.multicast


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fabric": "carrier-pigeon"}, "network.fabric: expected infiniband or roce"),
        ({"topology": "ring"}, "node.topology: expected nvswitch or cube-mesh"),
        ({"gpus": 0}, "node.gpus: expected a whole number from 1 to 1024"),
        ({"target": "h1000"}, "target: unknown target h1000"),
        ({"target": "dgx-h100"}, "target: expected the sheet of a GPU"),
        (
            {"target": "l4"},
            "expected pcie, as l4 has no links to other GPUs, found nvsw",
        ),
        ({"topology": "cube-mesh", "gpus": 9}, "at most 8 in a cube-mesh, found 9"),
        ({"id": "there"}, "expected an id of \\[sources\\], found text 'here'"),
        ({"id": "datasheet"}, "sources.datasheet: expected an id that the target's"),
    ],
)
def test_a_system_that_cannot_be_is_refused(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    """The line names the file, the field, what was expected and what was found."""
    with pytest.raises(TargetError, match=message):
        load_target(_written(tmp_path, **changed))


def test_a_system_sets_no_field_of_its_gpu(tmp_path: Path) -> None:
    """Kernels are those of the target that it names."""
    path = Path(_written(tmp_path))
    path.write_text(path.read_text() + "[gpu]\nsm_count = 3\n", encoding="utf-8")

    with pytest.raises(TargetError, match=r"gpu: expected one of name, .*, found an"):
        load_target(str(path))


def test_fields_of_a_system_can_be_set() -> None:
    """`--set` changes nodes and links, and refuses a text."""
    target = load_target("dgx-h100", {"node.gpus": "4", "nvlink.links": "9"})
    system = assumed_system(target)

    assert (4, 225e9) == (system.gpus_per_node, system.link_bytes_per_s)
    assert "--set" == target.sources["node.gpus"]
    with pytest.raises(UsageError, match="found one with a text"):
        load_target("dgx-h100", {"network.fabric": "roce"})
    with pytest.raises(UsageError, match=r"has no \[network\]; name a system"):
        load_target("a100", {"network.nics": "4"})


@pytest.mark.parametrize(
    ("ranks", "stride", "nodes", "gpus"),
    [
        (8, 1, 1, 8),
        (64, 1, 8, 8),
        (2, 1, 1, 2),
        (4, 2, 1, 4),
        (8, 8, 8, 1),
        (8, 4, 4, 2),
        (2, 64, 2, 1),
        (12, 1, 2, 6),
        (1, 1, 1, 1),
    ],
)
def test_a_communicator_lies_on_nodes(
    ranks: int, stride: int, nodes: int, gpus: int
) -> None:
    """Members fill one node after the other; neighbours far apart take more."""
    system = assumed_system(load_target("dgx-h100"))

    assert (nodes, gpus) == system.members(ranks, stride)


@given(ranks=st.integers(1, 4096), stride=st.integers(1, 4096), gpus=st.integers(1, 72))
def test_no_node_holds_more_members_than_gpus(
    ranks: int, stride: int, gpus: int
) -> None:
    """There is room for all members, and no node is counted without one."""
    system = assumed_system(load_target("dgx-h100", {"node.gpus": str(gpus)}))
    nodes, each = system.members(ranks, stride)

    assert 1 <= nodes <= ranks <= nodes * each
    assert each <= gpus


def test_a_single_node_takes_no_more_than_it_has() -> None:
    """Without a network the message says how many nodes were needed, and what to do."""
    system = assumed_system(load_target("h100"))

    assert (1, 8) == system.members(8)
    with pytest.raises(PerfcError, match=r"16 ranks need 2 nodes: name a system"):
        system.members(16)


@pytest.mark.parametrize("target", ["a100", "h100", "h200"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_rows_of_a_switch_price_no_other_links(
    tmp_path: Path, target: str, ranks: int
) -> None:
    """GPUs joined each to each add up no faster than their links send.

    Nor are they faster than the same links through a switch, but for what a fit is off.
    """
    sizes = [2**octave for octave in range(12, 31, 2)]
    kernels = [
        Kernel(
            "all_reduce",
            "fp16",
            "",
            record_of({"bytes": size, "ranks": ranks, "nodes": 1}),
            Work(0, size, size),
        )
        for size in sizes
    ]
    found: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    for topology in ("nvswitch", "mesh", "cube-mesh"):
        loaded = load_target(_written(tmp_path, target=target, topology=topology))
        found[topology] = price(kernels, loaded, cost_models()).seconds

    assert loaded.system is not None
    sent = 2 * (ranks - 1) / ranks * np.array(sizes)
    for topology in ("mesh", "cube-mesh"):
        assert (sent / found[topology] <= loaded.system.link_bytes_per_s).all()
        assert (found[topology] >= 0.9 * found["nvswitch"]).all()


def test_a_system_may_call_its_gpu_by_another_name(tmp_path: Path) -> None:
    """An alias, or a file of the same sheet, is the same GPU: kernels cost the same."""
    (tmp_path / "sheet.toml").write_text(
        (SHEETS.parent / "targets" / "h100-sxm-80g.toml").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    names = ("h100-sxm-80g", "h100", "H100", str(tmp_path / "sheet.toml"))

    devices = [load_target(_written(tmp_path, target=n)).device.name for n in names]

    assert ["h100-sxm-80g"] * len(names) == devices
