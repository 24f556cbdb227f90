"""Where in the model `perfc replay` says that the time goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command
from tests.traces.synthetic import Made


def test_where_the_time_goes(command: Command, tmp_path: Path) -> None:
    """By module, those alike together in the table; by line where that is all."""
    made = Made()
    for number in range(2):
        begin = 1000.0 * number
        made.add("python_function", f"nn.Module: Linear_{number}", begin, 500)
        made.op("aten::linear", begin + 10, 100)
        made.launch(begin + 20, 5, begin + 30, 40)
    made.add("python_function", "net.py(3): forward", 3000, 500)
    made.op("aten::relu", 3010, 100)
    made.launch(3020, 5, 3030, 10)
    made.call("cudaDeviceSynchronize", 3600, 20)
    path = str(made.write(tmp_path / "t.json"))

    (trace,) = command("replay", path, "--format", "json").report["traces"]
    said = command("replay", path).out

    modules = {one["module"]: one for one in trace["modules"]}
    assert {"Linear_0", "Linear_1"} == set(modules)
    assert (1, pytest.approx(40)) == (
        modules["Linear_0"]["launches"],
        modules["Linear_0"]["device_us"],
    )
    assert modules["Linear_0"]["host_us"] == pytest.approx(100)
    assert ["net.py(3): forward"] == [one["source"] for one in trace["sources"]]
    row = next(line for line in said.splitlines() if line.startswith("Linear "))
    assert ["Linear", "2", "2", "0.08", "ms", "88.9", "%", "0.20", "ms"] == row.split()
    row = next(line for line in said.splitlines() if line.startswith("no module "))
    assert ["1", "0.01", "ms", "11.1", "%"] == row.split()[3:8]


def test_where_the_time_of_some_steps_goes(command: Command, tmp_path: Path) -> None:
    """`--steps` counts what runs in them alone."""
    made = Made()
    for number in range(4):
        begin = 1000.0 * number
        made.op(f"ProfilerStep#{number + 1}", begin, 1000)
        made.add("python_function", "nn.Module: Net_0", begin, 500)
        made.op("aten::linear", begin + 10, 100)
        made.launch(begin + 20, 5, begin + 30, 40)
        made.call("cudaDeviceSynchronize", begin + 600, 20)
    path = str(made.write(tmp_path / "t.json"))
    options = ("--steps", "2:3", "--format", "json")

    (trace,) = command("replay", path, *options).report["traces"]

    (module,) = trace["modules"]
    assert module["launches"] == 2
    assert module["device_us"] == pytest.approx(80)


def test_a_table_has_a_row_for_what_it_leaves_out(
    command: Command, tmp_path: Path
) -> None:
    """Eight modules, and the sum of the others."""
    made = Made()
    for number in range(11):
        begin = 1000.0 * number
        made.add("python_function", f"nn.Module: M{chr(65 + number)}", begin, 500)
        made.op("aten::linear", begin + 10, 100)
        made.launch(begin + 20, 5, begin + 30, 40 + number)
    path = str(made.write(tmp_path / "t.json"))

    said = command("replay", path).out

    row = next(line for line in said.splitlines() if line.startswith("3 more "))
    assert ["3", "more", "3", "3", "0.12", "ms"] == row.split()[:6]


@pytest.mark.parametrize(
    ("module", "shown"),
    [
        ("ViT_0.ViTLayer_11.Linear_70", "ViT.ViTLayer.Linear"),
        ("layer3.0.conv1", "layer3.*.conv1"),
        ("bot_l.2", "bot_l.*"),
        ("layer1(Sequential).0(Bottleneck)", "layer1(Sequential).*(Bottleneck)"),
        ("lm_head", "lm_head"),
    ],
)
def test_modules_that_are_alike(
    command: Command, tmp_path: Path, module: str, shown: str
) -> None:
    """A table has them together: those of one class, those of one list."""
    made = Made()
    made.add("python_function", f"nn.Module: {module}", 0, 500)
    made.op("aten::linear", 10, 100)
    made.launch(20, 5, 30, 40)
    path = str(made.write(tmp_path / "t.json"))

    assert f"\n{shown} " in command("replay", path).out
