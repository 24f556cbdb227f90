"""The service that answers from an oracle: in time, whatever it is sent, to its end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples.modules import FOLDER, example

import perfc
from perfc import edits

service = example("autotune/oracle_service")
PATIENT_S = 60.0
"""A bound that no answer reaches, on any machine."""


@pytest.fixture(scope="module")
def oracle() -> perfc.Oracle:
    """The oracle of a small step."""
    return perfc.Oracle("dlrm-default", "a100", batch=256)


class Held:
    """An oracle whose answers wait until they are let go."""

    def __init__(self) -> None:
        """Hold them."""
        self.let_go = threading.Event()

    def ask(self, *asked: Any) -> float:
        """Answer when it is allowed."""
        self.let_go.wait(PATIENT_S)
        return float(len(asked))


@asynccontextmanager
async def serving(made: Any, **where: Any) -> AsyncGenerator[Any, None]:
    """Serve meanwhile; the value is the address."""
    address = await made.start(**where)
    done = asyncio.create_task(made.serve())
    yield address
    made.stop()
    await done


def bind(batch: int) -> dict[str, Any]:
    """Return a request with one edit."""
    return {"id": batch, "edits": [{"edit": "Bind", "batch": batch}]}


def test_clients_at_once(oracle: perfc.Oracle) -> None:
    """Each has its own answers, which are the oracle's, in its order."""

    async def ask_all() -> list[list[dict[str, Any]]]:
        async with serving(service.Service(oracle, PATIENT_S)) as address:
            asked = [[bind(n + at) for at in range(8)] for n in (64, 67, 128, 200, 64)]
            found = await asyncio.gather(*(service.ask(address, one) for one in asked))
            return [*found]

    answers = asyncio.run(ask_all())
    expected = {
        n: oracle.ask(edits.Bind(batch=n))
        for one in answers
        for n in [a["id"] for a in one]
    }

    assert 5 == len(answers)
    assert [64, 65, 66, 67, 68, 69, 70, 71] == [a["id"] for a in answers[0]]
    for answer in (answer for one in answers for answer in one):
        assert pytest.approx(expected[answer["id"]], rel=1e-9) == answer["time_us"]


def test_a_unix_socket(oracle: perfc.Oracle, tmp_path: Path) -> None:
    """As well as TCP; no edits are the step as it stands."""

    async def ask_once() -> list[dict[str, Any]]:
        path = str(tmp_path / "oracle")
        async with serving(service.Service(oracle, PATIENT_S), path=path) as address:
            found: list[dict[str, Any]] = await service.ask(address, [{}])
            return found

    assert [{"id": None, "time_us": oracle.time_us}] == asyncio.run(ask_once())


def test_late_then_known() -> None:
    """What is not known at the bound is answered that it is late; later it is known."""
    held = Held()

    async def ask_twice() -> list[dict[str, Any]]:
        made = service.Service(held, PATIENT_S, workers=1)
        late = await made.answer(json.dumps({**bind(1), "within_ms": 10}).encode())
        held.let_go.set()
        return [late, await made.answer(json.dumps(bind(1)).encode())]

    late, known = asyncio.run(ask_twice())

    assert "late: no answer within 10 ms; ask again" == late["error"]
    assert {"id": 1, "time_us": 1.0} == known


def test_the_bound_of_the_service_is_the_longest() -> None:
    """A client that would wait for longer does not."""
    held = Held()

    async def ask_once() -> dict[str, Any]:
        made = service.Service(held, 0.01)
        request = {**bind(1), "within_ms": 1e6}
        late: dict[str, Any] = await made.answer(json.dumps(request).encode())
        held.let_go.set()
        return late

    assert "late: no answer within 10 ms; ask again" == asyncio.run(ask_once())["error"]


def test_busy_at_once() -> None:
    """Where too many wait, others are told so; who asks the same waits with them."""
    held = Held()

    async def ask_many() -> list[dict[str, Any]]:
        made = service.Service(held, PATIENT_S, workers=1, waiting=1)
        lines = [json.dumps(bind(n)).encode() for n in (1, 2, 2)]
        waiting = [asyncio.create_task(made.answer(line)) for line in lines]
        await asyncio.sleep(0)
        busy = await made.answer(json.dumps(bind(3)).encode())
        held.let_go.set()
        return [busy, *await asyncio.gather(*waiting)]

    busy, *others = asyncio.run(ask_many())

    assert {"id": 3, "error": "busy: 2 requests are waiting; ask again"} == busy
    assert [1.0] * 3 == [answer["time_us"] for answer in others]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\n", "a request is one line with a JSON object"),
        (b"{", "a request is one line with a JSON object"),
        (b"[]", "a request is one line with a JSON object"),
        (b"\xff\xfe", "a request is one line with a JSON object"),
        (b"[" * 50_000, "a request is one line with a JSON object"),
        (b'{"edit": []}', "'edit' is none of id, edits, within_ms"),
        (b'{"edits": {}}', "edits: expected a list of objects"),
        (b'{"edits": [3]}', "edit=None: expected one of Apply, Bind,"),
        (b'{"edits": [{"edit": "Melt"}]}', "edit='Melt': expected one of Apply, Bind,"),
        (b'{"edits": [{"edit": ["Bind"]}]}', "edit=['Bind']: expected one of Apply,"),
        (b'{"edits": [{"edit": "Bind"}]}', "Bind() binds nothing"),
        (b'{"edits": [{"edit": "Bind", "bach": 4}]}', "Bind does not take {'bach': 4}"),
        (
            b'{"edits": [{"edit": "Bind", "batch": -4}]}',
            "batch=-4: expected at least 1",
        ),
        (b'{"edits": [{"edit": "Target", "name": "a1000"}]}', "unknown target a1000"),
        (b'{"edits": [{"edit": "Fuse", "ops": ["no"]}]}', "no"),
        (b'{"edits": [{"edit": "Place", "table": "*", "tier": []}]}', "tier=[]"),
        (b'{"within_ms": 0}', "within_ms=0: expected milliseconds, more than 0"),
        (b'{"within_ms": NaN}', "within_ms=nan: expected milliseconds, more than 0"),
        (b'{"within_ms": true}', "within_ms=True: expected milliseconds, more than 0"),
    ],
)
def test_mistakes_are_one_line(oracle: perfc.Oracle, line: bytes, error: str) -> None:
    """Each is answered, and the next request as well."""

    async def ask_both() -> tuple[bytes, bytes]:
        async with serving(service.Service(oracle, PATIENT_S)) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(line.rstrip(b"\n") + b'\n{"id": 2}\n')
            answers = await reader.readline(), await reader.readline()
            writer.close()
            await writer.wait_closed()
            return answers

    mistaken, right = map(json.loads, asyncio.run(ask_both()))

    assert mistaken["error"].startswith(error) or error in mistaken["error"]
    assert "\n" not in mistaken["error"]
    assert {"id": 2, "time_us": oracle.time_us} == right


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["batch", "dims", "where", "us", "factor", "ops", "name", "tier"]
)
EDITS = st.fixed_dictionaries(
    {"edit": st.sampled_from([*edits.__all__, "Melt"])}
).flatmap(
    lambda kind: st.dictionaries(NAMES, VALUES, max_size=3).map(
        lambda named: {**kind, **named}
    )
)


@settings(deadline=None, max_examples=80)
@given(st.lists(EDITS, max_size=2) | VALUES)
def test_no_request_ends_the_service(asked: Any) -> None:
    """Whatever the edits are, there is a time or an error."""
    oracle = Held()
    oracle.let_go.set()

    async def ask_once() -> dict[str, Any]:
        made = service.Service(oracle, PATIENT_S)
        found: dict[str, Any] = await made.answer(json.dumps({"edits": asked}).encode())
        made._threads.shutdown()
        return found

    answer = asyncio.run(ask_once())

    assert ("error" in answer) != ("time_us" in answer)


def test_a_line_without_end(oracle: perfc.Oracle) -> None:
    """Is refused, and its connection closed; others go on."""

    async def ask_both() -> tuple[bytes, list[dict[str, Any]]]:
        async with serving(service.Service(oracle, PATIENT_S)) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"x" * 3 * service.LINE_BYTES)
            refused = await reader.readline()
            writer.close()
            return refused, await service.ask(address, [{"id": 2}])

    refused, others = asyncio.run(ask_both())

    assert "a request has at most 65536 bytes" == json.loads(refused)["error"]
    assert [{"id": 2, "time_us": oracle.time_us}] == others


def test_what_was_read_is_answered_before_the_end() -> None:
    """A service that stops takes no more, and ends when nobody waits."""
    held = Held()

    async def stop_meanwhile() -> tuple[bytes, bytes]:
        made = service.Service(held, PATIENT_S)
        async with serving(made) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(json.dumps(bind(1)).encode() + b"\n")
            while not made._asked:  # noqa: ASYNC110 - until it was read
                await asyncio.sleep(0.001)
            made.stop()
            held.let_go.set()
            answers = await reader.readline(), await reader.readline()
            writer.close()
        return answers

    answer, end = asyncio.run(stop_meanwhile())

    assert {"id": 1, "time_us": 1.0} == json.loads(answer)
    assert b"" == end


def test_the_script_stops_when_it_is_told() -> None:
    """It says where it answers, and ends well."""
    script = str(FOLDER / "autotune" / "oracle_service.py")
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        said = running.stdout.readline()
        running.send_signal(signal.SIGTERM)

    assert said.startswith("<Oracle dlrm-default on a100-sxm-80g, eager: ")
    assert 0 == running.returncode


def test_an_address_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Is one line and exit code 1."""
    path = str(tmp_path / "no" / "folder")
    monkeypatch.setattr("sys.argv", ["oracle_service.py", "--unix", path])
    with pytest.raises(SystemExit, match="cannot listen: "):
        service.main()


def test_clients_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It tries itself, and says how long they waited."""
    argv = ["oracle_service.py", "--clients", "2", "--within-ms", "60000"]
    monkeypatch.setattr("sys.argv", argv)
    service.main()

    assert "100 requests of 2 clients" in capsys.readouterr().out
