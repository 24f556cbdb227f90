"""The folder that comes back: few files, whole at any moment.

Work is done in a scratch folder. Tables, the manifest and two archives are copied to
the output folder, each in one step, again and again: what lies there when a run is cut
off is a collection that the same command continues.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from perfc.ir import PerfcError
from perfc.ir.support import write_file

TABLES = ("kernels", "overheads", "workloads", "launches", "sustained")
MANIFEST, REST, TRACES = "manifest.json", "rest.tar", "traces.tar"
"""With the tables eight files, which is what may come back."""

MOST_BYTES = 15 << 20
"""Most bytes of one file."""

_PUBLISH_SECONDS = 20.0


class OutputError(PerfcError):
    """The output folder cannot be written."""


@attrs.define
class Output:
    """An output folder, and the scratch folder that it is filled from.

    Attributes:
        folder: What comes back.
        device: cuda or cpu.
        scratch: Where work is done.
        kept: Whether the scratch folder has what could not be copied.
        traces_left_out: Traces that the archive had no room for.
        flushers: Write the tables of what runs now.

    """

    folder: Path
    device: str
    scratch: Path = attrs.field(init=False)
    kept: bool = attrs.field(default=False, init=False)
    traces_left_out: int = attrs.field(default=0, init=False)
    flushers: list[Callable[[], None]] = attrs.field(
        factory=list[Callable[[], None]], init=False
    )
    _lock: int = attrs.field(default=-1, init=False)
    _published: float = attrs.field(factory=time.monotonic, init=False)

    def open(self) -> None:
        """Make the folder this process's own, and take over what lies in it.

        Raises:
            PerfcError: another process fills it, it holds rows of another device, or it
                cannot be written.

        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"{self.folder} is being filled by another run: name another folder"
            raise PerfcError(msg) from None
        except OSError as error:
            msg = f"cannot write {self.folder}: {error.strerror or error}"
            raise PerfcError(msg) from None
        self._check_device()
        self.scratch = Path(tempfile.mkdtemp(prefix="perfc-collect-"))
        for path in map(self.table, TABLES):
            if (self.folder / path.name).exists():
                shutil.copy(self.folder / path.name, path)
        self._unpack()

    def close(self) -> None:
        """Let go of the folder, and of the scratch folder unless it is needed."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if not self.kept:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _check_device(self) -> None:
        path = self.folder / MANIFEST
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            kind = found["kind"]
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"cannot read {path}: {error}: name another folder"
            raise PerfcError(msg) from None
        if kind != self.device:
            msg = f"{self.folder} is a collection of {kind}: name another folder"
            raise PerfcError(msg)

    def _unpack(self) -> None:
        for name in (REST, TRACES):
            path = self.folder / name
            if not path.exists():
                continue
            try:
                if name == TRACES:
                    shutil.copy(path, self.scratch)
                else:
                    with tarfile.open(path) as archive:
                        archive.extractall(self.scratch, filter="data")
            except (OSError, tarfile.TarError) as error:
                msg = f"cannot read {path}: {error}: name another folder"
                raise PerfcError(msg) from None

    def table(self, name: str) -> Path:
        """Return a table in the scratch folder: Parquet where it can be written."""
        from importlib.util import find_spec

        suffix = ".csv" if find_spec("pyarrow") is None else ".parquet"
        return self.scratch / (name + suffix)

    def add_trace(self, name: str, text: str) -> None:
        """Put a trace into the archive, while there is room."""
        packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
        archive = self.scratch / TRACES
        size = archive.stat().st_size if archive.exists() else 0
        if size + len(packed) + 2 * tarfile.BLOCKSIZE > MOST_BYTES - tarfile.RECORDSIZE:
            self.traces_left_out += 1
            return
        member = tarfile.TarInfo(name)
        member.size, member.mtime = len(packed), int(time.time())
        longer = self.scratch / f"{TRACES}.tmp"
        try:  # in one step: an interrupt would leave half an archive, which cannot grow
            if size:
                shutil.copy(archive, longer)
            with tarfile.open(longer, "a") as opened:
                opened.addfile(member, io.BytesIO(packed))
            longer.replace(archive)
        finally:
            longer.unlink(missing_ok=True)

    def due(self) -> bool:
        """Whether the folder is older than it should be."""
        return time.monotonic() - self._published > _PUBLISH_SECONDS

    def publish(self, manifest: Mapping[str, Any]) -> None:
        """Copy what there is to the output folder, the manifest last.

        Raises:
            OutputError: the folder cannot be written; the scratch folder is then kept,
                and named.

        """
        for flush in self.flushers:
            flush()
        try:
            self._copy(manifest)
        except PerfcError as error:
            self.kept = True
            msg = f"{error}; what was measured is in {self.scratch}"
            raise OutputError(msg) from None
        self._published = time.monotonic()

    def _copy(self, manifest: Mapping[str, Any]) -> None:
        files: dict[str, dict[str, object]] = {}
        self._pack_rest()
        names = (*(self.table(name).name for name in TABLES), TRACES, REST)
        for name in names:
            path = self.scratch / name
            if not path.exists():
                continue
            data = path.read_bytes()
            files[name] = {
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
            write_file(self.folder / name, data)
        content = json.dumps({**manifest, "files": files}, indent=1) + "\n"
        write_file(self.folder / MANIFEST, content)

    def _pack_rest(self) -> None:
        """Archive journals, states, lists of failures and logs."""
        kept = {self.table(name).name for name in TABLES} | {TRACES, REST}
        paths = [p for p in sorted(self.scratch.iterdir()) if p.name not in kept]
        with tarfile.open(self.scratch / REST, "w") as archive:
            for path in paths:
                archive.add(path, arcname=path.name)

    def copy_as_it_is(self) -> None:
        """Copy tables without asking anybody: the last thing that a stuck run does."""
        for path in sorted(self.scratch.iterdir()):
            if path.suffix in {".parquet", ".csv", ".tar"}:
                shutil.copy(path, self.folder / path.name)
