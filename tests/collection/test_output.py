"""The folder that comes back: few files, whole at any moment, one run at a time."""

from __future__ import annotations

import errno
import gzip
import hashlib
import importlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from perfc.ir import PerfcError

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
output: Any = importlib.import_module("collection.output")

MANIFEST: dict[str, object] = {"kind": "cpu", "runs": []}


def _opened(folder: Path, device: str = "cpu") -> Any:
    made = output.Output(folder, device)
    made.open()
    return made


def test_what_is_published(tmp_path: Path) -> None:
    """Tables as they are, the rest in an archive, their hashes in the manifest."""
    made = _opened(tmp_path / "out")
    made.table("kernels").write_bytes(b"rows")
    (made.scratch / "collect.log").write_text("a line\n")
    flushed: list[str] = []
    made.flushers.append(lambda: flushed.append("kernels"))

    made.publish(MANIFEST)
    made.close()

    found = json.loads((tmp_path / "out" / "manifest.json").read_text())
    table = made.table("kernels").name
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {table, "rest.tar", "manifest.json"} == names
    assert hashlib.sha256(b"rows").hexdigest() == found["files"][table]["sha256"]
    with tarfile.open(tmp_path / "out" / "rest.tar") as archive:
        assert ["collect.log"] == archive.getnames()
    assert ["kernels"] == flushed
    assert not made.scratch.exists()


def test_no_more_files_than_may_come_back(tmp_path: Path) -> None:
    """Every table and both archives are eight files with the manifest."""
    made = _opened(tmp_path / "out")
    for name in output.TABLES:
        made.table(name).write_bytes(b"rows")
        (made.scratch / f"{name}.csv.part.csv").write_bytes(b"journal")
    made.add_trace("step.json.gz", "{}")

    made.publish(MANIFEST)
    made.close()

    assert 8 == len(list((tmp_path / "out").iterdir()))


def test_a_run_that_was_cut_off_is_continued(tmp_path: Path) -> None:
    """Tables, journals and traces are there again; what was left out stays out."""
    first = _opened(tmp_path / "out")
    first.table("kernels").write_bytes(b"rows")
    (first.scratch / "kernels.csv.part.csv").write_bytes(b"journal")
    first.add_trace("one.json.gz", "{}")
    first.publish(MANIFEST)
    first.close()

    again = _opened(tmp_path / "out")
    again.add_trace("two.json.gz", '{"a": 1}')
    assert b"rows" == again.table("kernels").read_bytes()
    assert b"journal" == (again.scratch / "kernels.csv.part.csv").read_bytes()
    again.publish(MANIFEST)
    again.close()

    with tarfile.open(tmp_path / "out" / "traces.tar") as archive:
        assert ["one.json.gz", "two.json.gz"] == archive.getnames()
        stored = archive.extractfile("two.json.gz")
        assert stored is not None
        assert b'{"a": 1}' == gzip.decompress(stored.read())


def test_traces_end_where_a_file_may_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace that has no room is left out and counted; a smaller one still fits."""
    monkeypatch.setattr(output, "MOST_BYTES", 30_000)
    made = _opened(tmp_path / "out")
    noise = os.urandom(30_000).hex()

    made.add_trace("large.json.gz", noise)
    made.add_trace("small.json.gz", "{}")
    made.publish(MANIFEST)
    made.close()

    with tarfile.open(tmp_path / "out" / "traces.tar") as archive:
        assert ["small.json.gz"] == archive.getnames()
    assert 1 == made.traces_left_out
    assert (tmp_path / "out" / "traces.tar").stat().st_size <= 30_000


def test_an_interrupt_leaves_a_whole_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes in the midst of a trace loses that trace only: others can follow."""
    made = _opened(tmp_path / "out")
    made.add_trace("one.json.gz", "{}")

    class Torn(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(io, "BytesIO", Torn)
        with pytest.raises(KeyboardInterrupt):
            made.add_trace("torn.json.gz", "{}")
    made.add_trace("two.json.gz", "{}")

    with tarfile.open(made.scratch / "traces.tar") as archive:
        assert ["one.json.gz", "two.json.gz"] == archive.getnames()
    assert ["traces.tar"] == [path.name for path in made.scratch.iterdir()]
    made.close()


def test_a_second_start_into_the_same_folder(tmp_path: Path) -> None:
    """It is refused while the first is at work, and continues after that."""
    first = _opened(tmp_path / "out")
    with pytest.raises(PerfcError, match="is being filled by another run: name anot"):
        _opened(tmp_path / "out")

    first.close()
    _opened(tmp_path / "out").close()


def test_a_folder_of_another_device(tmp_path: Path) -> None:
    """Rows of two devices do not mix."""
    first = _opened(tmp_path / "out")
    first.publish({"kind": "cuda", "runs": []})
    first.close()

    with pytest.raises(PerfcError, match="is a collection of cuda: name another"):
        _opened(tmp_path / "out")


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_manifest(tmp_path: Path, text: str) -> None:
    """A manifest that cannot be read is not taken for none."""
    (tmp_path / "manifest.json").write_text(text)

    with pytest.raises(PerfcError, match=r"cannot read .*manifest\.json: .*name anot"):
        _opened(tmp_path)


def test_a_damaged_archive(tmp_path: Path) -> None:
    """So it is with an archive: nothing is measured into the folder."""
    (tmp_path / "rest.tar").write_bytes(b"no archive")

    with pytest.raises(PerfcError, match=r"cannot read .*rest\.tar"):
        _opened(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """One line, before anything is measured."""
    (tmp_path / "file").write_text("")

    with pytest.raises(PerfcError, match=r"cannot write .*file/out: Not a dir"):
        _opened(tmp_path / "file" / "out")


def test_a_folder_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured stays in the scratch folder, which the error names."""
    made = _opened(tmp_path / "out")
    made.table("kernels").write_bytes(b"rows")

    def full(path: Path, _: object) -> None:
        msg = f"cannot write {path}: {os.strerror(errno.ENOSPC)}"
        raise PerfcError(msg)

    monkeypatch.setattr(output, "write_file", full)
    with pytest.raises(output.OutputError, match=r"No space left.*is in") as raised:
        made.publish(MANIFEST)
    made.close()

    assert str(made.scratch) in str(raised.value)
    assert b"rows" == made.table("kernels").read_bytes()
